//! `lately hits`: reads counts from a server.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Args;
use lately::{Span, Timestamp};
use redis::{Cmd, RedisResult};

use crate::error::{CliError, Outcome};
use crate::output;
use crate::server::{ServerArgs, key_bytes};
use crate::table;

/// Keys that are asked for together. A node of a cluster that does not reach the others may wait for each of them.
const KEYS_AT_ONCE: usize = 32;

/// Read the hits of keys from a server.
///
/// For one key and at most one window it prints a number. For several it prints a row for each key and window: hits,
/// window, key.
#[derive(Args)]
pub(crate) struct Hits {
    /// The keys.
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,

    /// Length of a window: seconds, or a number with ms, s, m, h, d or w. May be repeated [default: the default window
    /// of the key's class].
    #[arg(long, value_name = "W", allow_negative_numbers = true)]
    window: Vec<Span>,

    /// The end of the windows, in Unix seconds [default: now].
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    at: Option<Timestamp>,

    /// Print an object for each key: key (key_b64 when it is no UTF-8) and windows, each with window
    /// (null for the default) and hits.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

impl Hits {
    fn command(&self, key: &OsString) -> Cmd {
        let mut command = redis::cmd("HITS");
        command.arg(key_bytes(key));
        for window in &self.window {
            command.arg(window.to_string());
        }
        if let Some(at) = self.at {
            command.arg("AT").arg(at.to_string());
        }
        command
    }
}

/// The hits of one key by window. `None` is the default window.
struct Answer<'a> {
    key: &'a [u8],
    windows: Vec<(Option<Span>, u64)>,
}

pub(crate) fn run(hits: &Hits) -> Result<Outcome, CliError> {
    let server = hits.server.connect()?;
    let windows: Vec<Option<Span>> =
        if hits.window.is_empty() { vec![None] } else { hits.window.iter().copied().map(Some).collect() };
    let mut answers = Vec::new();
    for keys in hits.keys.chunks(KEYS_AT_ONCE) {
        let mut commands = redis::pipe();
        keys.iter().for_each(|key| _ = commands.add_command(hits.command(key)));
        let counts: Vec<RedisResult<Vec<u64>>> = if windows.len() == 1 {
            let counts = server.ask_each(commands)?;
            counts.into_iter().map(|count: RedisResult<u64>| Ok(vec![count?])).collect()
        } else {
            server.ask_each(commands)?
        };
        for (key, counts) in keys.iter().zip(counts) {
            let counts = counts.map_err(|error| server.failed(&error))?;
            let windows = windows.iter().copied().zip(counts).collect();
            answers.push(Answer { key: key_bytes(key), windows });
        }
    }
    output::data(|out| match &answers[..] {
        _ if hits.json => write_json(out, &answers),
        [Answer { windows, .. }] if windows.len() == 1 => writeln!(out, "{}", windows[0].1),
        _ => write_table(out, &answers),
    })?;
    if let Some(window) = hits.keys.iter().find_map(duration).filter(|_| hits.window.is_empty()) {
        output::message(&format!("hint: '{window}' was read as a key: write --window {window} for a window"));
    }
    Ok(Outcome::Done)
}

/// The text of a key that is a duration with a unit, such as `1h`. A plain number is as likely a key.
fn duration(key: &OsString) -> Option<&str> {
    key.to_str().filter(|text| text.ends_with(char::is_alphabetic) && text.parse::<Span>().is_ok())
}

fn write_json(out: &mut dyn Write, answers: &[Answer<'_>]) -> io::Result<()> {
    answers.iter().try_for_each(|answer| {
        let window = |(window, hits): &(Option<Span>, u64)| match window {
            Some(window) => format!("{{\"window\":\"{window}\",\"hits\":{hits}}}"),
            None => format!("{{\"window\":null,\"hits\":{hits}}}"),
        };
        let windows: Vec<String> = answer.windows.iter().map(window).collect();
        writeln!(out, "{{{},\"windows\":[{}]}}", output::key_member(answer.key), windows.join(","))
    })
}

fn write_table(out: &mut dyn Write, answers: &[Answer<'_>]) -> io::Result<()> {
    let rows = answers.iter().flat_map(|answer| {
        answer.windows.iter().map(|(window, hits)| {
            let window = window.map_or("default".to_owned(), |window| window.to_string());
            [hits.to_string(), window, table::printable(answer.key)]
        })
    });
    table::write(out, ["HITS", "WINDOW", "KEY"], &rows.collect::<Vec<_>>())
}
