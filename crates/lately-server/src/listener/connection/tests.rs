//! Clients that take their replies slowly, on a time that is passed in.

use std::net::TcpListener;

use lately::ManualClock;
use tokio::sync::Semaphore;

use super::*;
use crate::config::Config;

/// A connection and its client. What is not in the sockets is in `output`.
fn connected(moment: Instant) -> (Connection, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let client = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (socket, _) = listener.accept().expect("a client");
    socket.set_nonblocking(true).expect("a socket");
    let engine = Engine::new(Config::default(), Arc::new(ManualClock::new(Timestamp::MIN)));
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("a place");
    let connection =
        Connection::new(TcpStream::from_std(socket), place, &Arc::new(engine.expect("valid")), moment);
    (connection.expect("a socket"), client)
}

/// The client takes replies until the socket takes more of them.
fn take_some(connection: &mut Connection, client: &mut std::net::TcpStream) {
    let sent = connection.sent;
    while connection.sent == sent {
        client.read_exact(&mut [0; 4 << 10]).expect("replies");
        connection.writable = true;
        connection.catch_up().expect("the client is there");
    }
}

#[test]
fn who_takes_replies_slowly_gets_them() {
    let start = Instant::now();
    let (mut connection, mut client) = connected(start);
    // More than the sockets hold and the client takes.
    connection.output = vec![b'x'; 128 << 20];
    connection.catch_up().expect("the client is there");
    let mut moment = start;
    for _ in 0..8 {
        assert!(connection.look(moment, None));
        moment += WRITE_TIMEOUT - Duration::from_millis(1);
        assert!(connection.look(moment, None));
        take_some(&mut connection, &mut client);
    }
    assert!(!connection.output.is_empty());
    // From here on it takes none.
    assert!(connection.look(moment, None));
    assert!(!connection.look(moment + WRITE_TIMEOUT, None));
}
