//! Clients that are slow, silent or at their end, on a time that is passed in.

use std::net::TcpStream;

use super::super::fixture::{client, engine};
use super::{
    Connection, DRAIN_TIMEOUT, Duration, ErrorKind, Flow, LINGER, LOOK_EVERY, Look, Read, WRITE_TIMEOUT,
    Write, has_more, sent_bytes,
};
use crate::clock;

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
    let start = clock::moment();
    let (socket, place, mut client) = client();
    let mut connection = Connection::new(socket, place, &engine(), start).expect("a socket");
    // More than the sockets hold and the client takes.
    connection.output = vec![b'x'; 128 << 20];
    connection.catch_up().expect("the client is there");
    let looks = WRITE_TIMEOUT.as_millis() / LOOK_EVERY.as_millis();
    for _ in 0..8 {
        for _ in 0..looks {
            assert_eq!(connection.look(start, None), Look::Fine);
        }
        take_some(&mut connection, &mut client);
    }
    assert!(!connection.output.is_empty());
    // From here on it takes none. However long the process stands still, that is one look.
    for _ in 0..looks {
        assert_eq!(connection.look(start + 2 * WRITE_TIMEOUT, None), Look::Fine);
    }
    assert_eq!(connection.look(start, None), Look::Late);
}

/// Symptom: after SIGSTOP for longer than the idle timeout, clients that had sent meanwhile were reset. Cause: the timer
/// that looks for the silent may come before the news of their sockets. Fix: a look at the socket.
#[test]
fn a_client_that_sent_during_a_stall_is_not_silent() {
    let (start, idle) = (clock::moment(), Duration::from_secs(5));
    let (socket, place, mut client) = client();
    let mut connection = Connection::new(socket, place, &engine(), start).expect("a socket");
    assert_eq!(connection.look(start + idle / 2, Some(idle)), Look::Fine);
    client.write_all(b"P").expect("the system takes it");
    // Loopback has it by then.
    while !has_more(&connection.socket) {}
    assert_eq!(connection.look(start + idle, Some(idle)), Look::News);
    assert!(connection.list(), "it is read");
    connection.unlist();
    assert_eq!(connection.bring(&mut [0; 1 << 17]).expect("a socket"), Some(1));
    assert_eq!(connection.bring(&mut [0; 1 << 17]).expect("a socket"), None);
    assert_eq!(connection.look(start + idle, Some(idle)), Look::Late);
}

/// The same at the end of a connection: a socket that is closed while there is something to read is reset, and its client
/// loses the replies it has not taken.
#[test]
fn what_came_during_a_stall_is_read_before_a_connection_is_closed() {
    let start = clock::moment();
    let (socket, place, mut client) = client();
    let mut connection = Connection::new(socket, place, &engine(), start).expect("a socket");
    connection.flow = Flow::Close;
    assert!(connection.settle(Ok(()), start), "the client may be sending");
    client.write_all(b"x").expect("the system takes it");
    while !has_more(&connection.socket) {}
    let over = start + DRAIN_TIMEOUT / 2;
    assert_eq!(connection.look(over, None), Look::News);
    assert!(connection.list(), "it is read");
    connection.discard(&mut [0; 9], over).expect("a socket");
    assert_eq!(connection.look(over + LINGER, None), Look::Late);
    client.write_all(b"x").expect("the system takes it");
    while !has_more(&connection.socket) {}
    assert_eq!(connection.look(start + 2 * DRAIN_TIMEOUT, None), Look::Late, "not for ever");
}

/// Symptom: after QUIT or an error of the frame a client was read for 10 s, 21 GB of it. Fix: no more than it can have sent
/// before it knew.
#[test]
fn after_its_end_a_connection_is_read_no_further_than_what_may_be_under_way() {
    let start = clock::moment();
    let (socket, place, mut client) = client();
    let mut connection = Connection::new(socket, place, &engine(), start).expect("a socket");
    connection.flow = Flow::Close;
    assert!(connection.settle(Ok(()), start), "the client may be sending");
    let most_bytes = sent_bytes(&connection.socket);
    client.set_nonblocking(true).expect("a socket");
    let (mut room, part) = (vec![0; 64 << 10], [0; 64 << 10]);
    let mut sent_bytes = 0;
    while connection.discard(&mut room, start).is_ok() {
        sent_bytes += client.write(&part).unwrap_or(0);
        assert!(sent_bytes < 2 * most_bytes + (16 << 20), "{sent_bytes}");
    }
    assert!(sent_bytes > most_bytes, "{sent_bytes}");
}

/// Symptom: keys were evicted for replies that nobody had any more. Cause: a client that was too greedy, or had gone, in
/// the middle of `EXEC` was charged for them until that was over. Fix: it is not charged for more than it may hold, and
/// what it lets go is told at once.
#[test]
fn who_is_gone_holds_nothing() {
    let (engine, start) = (engine(), clock::moment());
    let (socket, place, _client) = client();
    let mut connection = Connection::new(socket, place, &engine, start).expect("a socket");
    let charged = || engine.store.memory().used_bytes;
    let before = charged();
    connection.flow = Flow::More;
    connection.output = vec![b'x'; 1 << 20];
    assert!(connection.settle(Ok(()), start));
    assert_eq!(charged(), before + (1 << 20));
    assert!(connection.settle(Err(ErrorKind::BrokenPipe.into()), start), "its transaction goes on");
    assert_eq!(charged(), before);
    // More than a connection may hold.
    let ceiling = usize::try_from(engine.config.ceiling_bytes).expect("it fits");
    connection.output = Vec::with_capacity(ceiling);
    assert!(connection.settle(Ok(()), start));
    assert_eq!(charged(), before);
    connection.flow = Flow::Continue;
    let gone = connection.catch_up();
    assert!(!connection.settle(gone, start));
}
