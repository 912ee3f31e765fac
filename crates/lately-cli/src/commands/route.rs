//! `lately route`: which node a key belongs to.

use std::ffi::OsString;
use std::io::{self, BufRead, Read};

use clap::Args;
use lately::limits::MAX_KEY_BYTES;
use lately::route::Nodes;

use crate::error::{CliError, Outcome};
use crate::output;
use crate::server::key_bytes;
use crate::table;

/// Print which of several nodes each key belongs to, a line for each key.
///
/// It connects to nothing. The answer depends on the names of the nodes and on the key, not on the order of the nodes,
/// and is the same on every machine and in every version. When a node is taken away, only its keys move.
#[derive(Args)]
pub(crate) struct Route {
    /// The names of the nodes, such as eu-1 or 10.0.0.7:7379.
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<OsString>,

    /// A key. May be repeated. - reads keys from standard input, one on each line.
    #[arg(long = "key", required = true, value_name = "K")]
    keys: Vec<OsString>,

    /// Print an object for each key: key (key_b64 when it is no UTF-8) and node.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(route: &Route) -> Result<Outcome, CliError> {
    let names: Vec<&[u8]> = route.nodes.iter().map(|node| key_bytes(node)).collect();
    check_names(&names)?;
    let nodes = Nodes::new(names);
    let mut failed = None;
    output::data(|out| {
        let answer = |key: &[u8]| {
            let node = nodes.of(key).expect("there is one");
            if route.json {
                let node = table::harmless_json(&serde_json::Value::from(table::printable(node)).to_string());
                writeln!(out, "{{{},\"node\":{node}}}", output::key_member(key))
            } else {
                writeln!(out, "{}", table::printable(node))
            }
        };
        failed = each_key(&route.keys, answer)?.err();
        Ok(())
    })?;
    failed.map_or(Ok(Outcome::Done), Err)
}

fn check_names(names: &[&[u8]]) -> Result<(), CliError> {
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    if sorted[0].is_empty() {
        return Err(CliError::new("route", "a node has no name", "give each node a name, such as eu-1"));
    }
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => {
            let cause = format!("node '{}' is given twice", table::printable(pair[0]));
            Err(CliError::new("route", cause, "give each node once"))
        }
        None => Ok(()),
    }
}

/// Answers each key: those that were given, and the lines of standard input. The inner error is about a key.
fn each_key(
    keys: &[OsString],
    mut answer: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Result<(), CliError>> {
    for key in keys {
        if key != "-" {
            if let Err(error) = check_key("--key", key_bytes(key)) {
                return Ok(Err(error));
            }
            answer(key_bytes(key))?;
            continue;
        }
        let (mut input, mut line, mut number) = (io::stdin().lock(), Vec::new(), 0_u64);
        loop {
            line.clear();
            number += 1;
            // One more than a key and its end: a longer line is refused.
            let read = input.by_ref().take(MAX_KEY_BYTES as u64 + 2).read_until(b'\n', &mut line);
            match read {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    return Ok(Err(CliError::new("standard input", error, "the results are incomplete")));
                }
            }
            let key = line.strip_suffix(b"\n").unwrap_or(&line);
            if let Err(error) = check_key(&format!("standard input: line {number}"), key) {
                return Ok(Err(error));
            }
            answer(key)?;
        }
    }
    Ok(Ok(()))
}

fn check_key(what: &str, key: &[u8]) -> Result<(), CliError> {
    let hint = format!("a key has 1 to {MAX_KEY_BYTES} bytes");
    match key.len() {
        0 => Err(CliError::new(what, "the key is empty", hint)),
        1..=MAX_KEY_BYTES => Ok(()),
        _ => Err(CliError::new(what, "the key is too long", hint)),
    }
}
