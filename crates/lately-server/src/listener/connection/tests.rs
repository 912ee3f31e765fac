//! Clients that take their replies slowly, on a time that is passed in.

use std::net::TcpStream;

use super::super::fixture::{client, engine};
use super::{Connection, Duration, Instant, Read, WRITE_TIMEOUT};

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
