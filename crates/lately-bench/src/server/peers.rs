//! Nodes that reach each other directly: what that costs, how soon a hit shows elsewhere, and the bytes of a changed count.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use lately_load::{Stopwatch, run};

use crate::options::Options;
use crate::row::{Must, Row};
use crate::server::TABLE;
use crate::server::cluster::{PATIENCE, cost_row, delay, processor_times};
use crate::server::failure::Failure;
use crate::server::plans::fill;
use crate::server::process::{Process, free_address};
use crate::table::number;

const NODES: [&str; 3] = ["a", "b", "c"];

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let alone = Process::lately(options)?;
    let mut nodes = mesh(options)?;
    let http = nodes[0].http_address()?;
    // A node that does not reach the others yet shows no hit.
    let mut rows = vec![delay("peers", &nodes, Must::AtMost(70.0, 60.0))?];
    rows.push(bytes_of_a_change(&nodes[0], http)?);
    let [off, on] = &processor_times(options, [("alone", &alone), ("node", &nodes[0])])?;
    rows.push(cost_row("peers", "alone", [off, on], Must::AtMost(1.3, 1.15)));
    Ok(rows)
}

fn mesh(options: &Options) -> Result<Vec<Process>, Failure> {
    let addresses = NODES.iter().map(|_| free_address()).collect::<Result<Vec<SocketAddr>, Failure>>()?;
    let node = |(own, name): (&SocketAddr, &&str)| {
        let others = addresses.iter().filter(|address| *address != own);
        let others = others.flat_map(|address| ["--cluster".to_owned(), format!("peer://{address}")]);
        let own = ["--in-memory", "--node", name, "--peer", &own.to_string()].map(str::to_owned);
        let words: Vec<String> = own.into_iter().chain(others).collect();
        Process::ours(options, &words.iter().map(AsRef::as_ref).collect::<Vec<_>>())
    };
    addresses.iter().zip(&NODES).map(node).collect()
}

/// Keys whose changes are sent: a node spends a part of its time on that only.
const CHANGED_KEYS: u64 = 100_000;

/// The bytes that a node sends for each changed count, with keys of 16 bytes.
fn bytes_of_a_change(node: &Process, http: SocketAddr) -> Result<Row, Failure> {
    let [changes, bytes] = ["lately_peer_changes_sent_total", "lately_peer_sent_bytes_total"];
    let before = sums(http, [changes, bytes])?;
    run(&fill(node, "HIT {key}", "key:", CHANGED_KEYS))?;
    let watch = Stopwatch::start();
    let [sent, sent_bytes] = loop {
        let now = sums(http, [changes, bytes])?;
        let [sent, sent_bytes] = [now[0] - before[0], now[1] - before[1]];
        if sent >= CHANGED_KEYS as f64 * (NODES.len() - 1) as f64 {
            break [sent, sent_bytes];
        }
        if watch.elapsed() > PATIENCE {
            return Err(Failure::new(format!("{sent} changes were sent in {PATIENCE:?}")));
        }
    };
    let name = "peers: bytes that a changed count takes to another node, keys of 16 bytes";
    let note = format!("{} M changes to {} nodes", number(sent / 1e6), NODES.len() - 1);
    Ok(Row::new(TABLE, name, sent_bytes / sent, "B", Must::AtMost(24.0, 20.0)).note(note))
}

/// The sums of these metrics over all labels.
fn sums(http: SocketAddr, names: [&str; 2]) -> Result<[f64; 2], Failure> {
    let (mut socket, mut text) = (TcpStream::connect(http)?, String::new());
    socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    socket.read_to_string(&mut text)?;
    Ok(names.map(|name| {
        let values =
            text.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' ')?.1.parse::<f64>().ok());
        values.sum::<f64>()
    }))
}
