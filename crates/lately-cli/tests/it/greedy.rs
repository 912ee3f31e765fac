//! A thousand clients make the server hold as much as possible for them. The sum is bounded.

use std::io::Write;
use std::net::TcpStream;

use crate::running::serve_with_ceiling;

const CLIENTS: usize = 1_000;
const CEILING_BYTES: u64 = 32 << 20;

/// The memory of the process that is not accounted for: its own, and a thread's buffers with the longest reply of this
/// test.
const BASE_BYTES: u64 = 24 << 20;

#[test]
fn a_thousand_greedy_clients_stay_below_the_ceiling() {
    rlimit::increase_nofile_limit(4 * CLIENTS as u64).expect("a limit on open files");
    let (server, _folder) = serve_with_ceiling(CEILING_BYTES);
    for number in 0..2_000 {
        server.ask::<u64>(&format!("HIT key:{number}"));
    }
    // Clients with unread replies of over a megabyte, with a transaction, and with a partial request.
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
    // When the server answers this, it has read the requests before it, and has disconnected some clients.
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
