//! Clients that take their replies slowly, on a time that is passed in.

use std::net::TcpStream;

use super::super::fixture::{client, engine};
use super::{Connection, Duration, ErrorKind, Flow, Instant, Read, WRITE_TIMEOUT};

/// The client takes replies until the socket takes more of them.
fn take_some(connection: &mut Connection, client: &mut TcpStream) {
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
    let (socket, place, mut client) = client();
    let mut connection = Connection::new(socket, place, &engine(), start).expect("a socket");
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

/// Symptom: keys were evicted for replies that nobody had any more. Cause: a client that was too greedy, or had gone, in
/// the middle of `EXEC` was charged for them until that was over. Fix: it is not charged for more than it may hold, and
/// what it lets go is told at once.
#[test]
fn who_is_gone_holds_nothing() {
    let engine = engine();
    let (socket, place, _client) = client();
    let mut connection = Connection::new(socket, place, &engine, Instant::now()).expect("a socket");
    let charged = || engine.store.memory().used_bytes;
    let before = charged();
    connection.flow = Flow::More;
    connection.output = vec![b'x'; 1 << 20];
    assert!(connection.settle(Ok(())));
    assert_eq!(charged(), before + (1 << 20));
    assert!(connection.settle(Err(ErrorKind::BrokenPipe.into())), "its transaction goes on");
    assert_eq!(charged(), before);
    // More than a connection may hold.
    let ceiling = usize::try_from(engine.config.ceiling_bytes).expect("it fits");
    connection.output = Vec::with_capacity(ceiling);
    assert!(connection.settle(Ok(())));
    assert_eq!(charged(), before);
    connection.flow = Flow::Continue;
    let gone = connection.catch_up();
    assert!(!connection.settle(gone));
}
