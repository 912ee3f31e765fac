//! A process that stalls for a while, and continues.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::running::{PATIENCE, becomes, serve, serve_with};

/// Symptom: ten clients that had sent while the process was stopped for longer than the idle timeout were reset. Cause: the
/// timer for idle clients may fire before the events of their sockets. Fix: it polls the socket first.
#[test]
fn clients_that_sent_during_a_stall_are_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lately.toml");
    std::fs::write(&config, "[server]\nidle_timeout = \"3s\"\n").expect("a file");
    let server = serve_with(&["--config", config.to_str().expect("text")]);
    let watch = serve();
    let mut clients: Vec<TcpStream> = (0..10)
        .map(|_| {
            let client = TcpStream::connect(&server.resp).expect("it listens");
            client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            client
        })
        .collect();
    for _ in 0..2 {
        server.signal("STOP");
        for client in &mut clients {
            client.write_all(b"PING\r\n").expect("the system takes it");
        }
        let now = || watch.ask::<Vec<u64>>("TIME")[0];
        let begun = now();
        assert!(becomes(|| now() >= begun + 5));
        server.signal("CONT");
        for client in &mut clients {
            let mut reply = [0; 7];
            client.read_exact(&mut reply).expect("a reply");
            assert_eq!(&reply, b"+PONG\r\n");
        }
    }
    // From here on the clients are idle.
    for mut client in clients {
        assert_eq!(client.read(&mut [0; 1]).expect("the end"), 0);
    }
}
