//! A thousand clients that have the server hold much for them: what the server holds for them is bounded.

use std::io::Write;
use std::net::TcpStream;

use crate::running::serve_with_ceiling;

const CLIENTS: usize = 1_000;
const CEILING_BYTES: u64 = 32 << 20;

/// What the process takes beside what it accounts for: itself, and a thread's buffers with the longest
/// of the replies asked for here.
const BASE_BYTES: u64 = 24 << 20;

#[test]
fn a_thousand_greedy_clients_stay_below_the_ceiling() {
    rlimit::increase_nofile_limit(4 * CLIENTS as u64).expect("a limit on open files");
    let (server, _folder) = serve_with_ceiling(CEILING_BYTES);
    for number in 0..2_000 {
        server.ask::<u64>(&format!("HIT key:{number}"));
    }
    // Replies of over a megabyte, more of them than sockets hold; a transaction; a part of a request.
    let word = "x".repeat(100_000);
    let requests = [
        "SERIES key:1 1w 10s\r\n".repeat(4),
        format!("MULTI\r\n*2\r\n$4\r\nECHO\r\n${}\r\n{word}\r\n", word.len()),
        format!("*2\r\n$4\r\nECHO\r\n$1000000\r\n{word}"),
    ];
    let greedy: Vec<TcpStream> = (0..CLIENTS)
        .filter_map(|number| {
            let request = &requests[number % requests.len()];
            let mut client = TcpStream::connect(&server.resp).expect("the server listens");
            client.write_all(request.as_bytes()).ok().map(|()| client)
        })
        .collect();
    let bytes = |field: &str| server.info(field).parse::<u64>().expect("a number");
    // The server answers this after all that came before it was looked at: some had to go.
    while bytes("evicted_clients") == 0 {}
    for _ in 0..50 {
        assert!(bytes("used_memory") <= CEILING_BYTES + (4 << 20), "{}", bytes("used_memory"));
        assert!(bytes("used_memory_connections") <= CEILING_BYTES / 2 + (4 << 20));
        let resident = bytes("used_memory_rss");
        assert!(resident <= CEILING_BYTES + CEILING_BYTES / 10 + BASE_BYTES, "{resident}");
    }
    drop(greedy);
    while server.info("connected_clients") != "1" {}
    assert!(bytes("used_memory_connections") < 1 << 20);
}
