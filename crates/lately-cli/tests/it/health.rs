//! `lately health`.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::common::{command, lately};
use crate::running::serve_with;

/// What `lately health` does with the answer of a server that is not Lately.
fn with_answer(answer: &'static str) -> (Option<i32>, String, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a client");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).expect("a request");
            request.push(byte[0]);
        }
        socket.write_all(answer.as_bytes()).expect("it reads");
        String::from_utf8(request).expect("text")
    });
    let run = lately(&["health", "--http", &address]);
    assert!(server.join().expect("it answers").starts_with("GET /readyz HTTP/1.1\r\n"));
    (run.code, run.out, run.err.replace(&address, "ADDR"))
}

#[test]
fn a_server_that_is_ready_is_healthy() {
    let mut server = serve_with(&["--metrics", "127.0.0.1:0"]);
    let metrics = server.address("metrics ");
    for address in [&server.http, &metrics] {
        let run = lately(&["health", "--http", address]);
        assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (Some(0), "ready\n", ""));
    }
    let by_environment = command(&["health"]).env("LATELY_HTTP", &metrics).output().expect("it runs");
    assert_eq!(by_environment.status.code(), Some(0));
    drop(server);
    let run = lately(&["health", "--http", &metrics]);
    assert_eq!((run.code, run.out.as_str()), (Some(2), ""));
    assert!(run.err.contains("Connection refused"), "{}", run.err);
}

#[test]
fn a_server_that_loads_is_not_healthy() {
    let loading = "HTTP/1.1 503 \r\nContent-Length: 26\r\n\r\nloading: 7 of \x1b[1m9 bytes\n\n";
    let out = "loading: 7 of \\u{1b}[1m9 bytes\n".to_owned();
    assert_eq!(with_answer(loading), (Some(1), out, String::new()));
    let (code, out, err) = with_answer("HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n");
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert_eq!(err, "lately: ADDR: GET /readyz has status 404\nhint: is it a lately server?\n");
}
