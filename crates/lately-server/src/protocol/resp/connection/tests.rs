//! Clients that are slow, silent or gone, with time passed in.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;
use crate::clock;
use crate::limits::RUN_OPERATIONS;
use crate::protocol::fixture::{client, service};

/// A connection and its client's end.
fn connect(service: &Arc<Service>, start: Instant) -> (Connection, TcpStream) {
    let (socket, place, client) = client();
    let poll = mio::Poll::new().expect("an event queue");
    let stream = Stream::new(socket, None, poll.registry(), mio::Token(0)).expect("a socket");
    (Connection::new(stream, place, service, start).expect("a socket"), client)
}

fn unsent(bytes: Vec<u8>) -> Replies {
    Replies::Unsent { bytes, sent: 0, stalled: Duration::ZERO }
}

/// The number of reply bytes that were sent.
fn sent(connection: &Connection) -> usize {
    match connection.replies {
        Replies::Unsent { sent, .. } => sent,
        _ => panic!("there is more to send"),
    }
}

/// Ends the connection, as after `QUIT`.
fn quit(connection: &mut Connection, moment: Instant) {
    connection.enter(Flow::Close);
    assert!(connection.settle(Ok(()), moment, &Stopper::new()), "the client may be sending");
}

/// The client reads replies until the socket accepts more.
fn take_some(connection: &mut Connection, client: &mut TcpStream) {
    let before = sent(connection);
    while sent(connection) == before {
        client.read_exact(&mut [0; 4 << 10]).expect("replies");
        connection.stream.set_writable();
        connection.send_rest().expect("the client is there");
    }
}

#[test]
fn a_slow_reader_gets_all_replies() {
    let start = clock::moment();
    let (mut connection, mut client) = connect(&service(), start);
    // More than the sockets hold and the client reads.
    connection.replies = unsent(vec![b'x'; 128 << 20]);
    connection.send_rest().expect("the client is there");
    let looks = WRITE_TIMEOUT.as_millis() / TIMEOUT_CHECK_EVERY.as_millis();
    for _ in 0..8 {
        for _ in 0..looks {
            assert_eq!(connection.check_timeout(start, None), Timeout::NotDue);
        }
        take_some(&mut connection, &mut client);
    }
    assert!(matches!(connection.replies, Replies::Unsent { .. }));
    // From here on the client reads nothing. A stall of any length counts as one look.
    for _ in 0..looks {
        assert_eq!(connection.check_timeout(start + 2 * WRITE_TIMEOUT, None), Timeout::NotDue);
    }
    assert_eq!(connection.check_timeout(start, None), Timeout::Over);
}

/// Symptom: after SIGSTOP for longer than the idle timeout, clients that had sent meanwhile were reset. Cause: the timer
/// for idle clients may fire before the events of their sockets. Fix: it polls the socket first.
#[test]
fn a_client_that_sent_during_a_stall_is_not_idle() {
    let (start, idle) = (clock::moment(), Duration::from_secs(5));
    let (mut connection, mut client) = connect(&service(), start);
    let looks = idle.as_millis() / TIMEOUT_CHECK_EVERY.as_millis();
    for _ in 1..looks {
        assert_eq!(connection.check_timeout(start + idle, Some(idle)), Timeout::NotDue);
    }
    client.write_all(b"P").expect("the system takes it");
    // The byte has arrived over loopback when the loop ends.
    while !connection.stream.poll_readable() {}
    assert_eq!(connection.check_timeout(start + idle, Some(idle)), Timeout::HasInput);
    assert_eq!(connection.list(), Some(Task::Read), "it is read");
    connection.unlist();
    assert_eq!(connection.read(&mut [0; 1 << 17]).expect("a socket"), Some(1));
    assert_eq!(connection.read(&mut [0; 1 << 17]).expect("a socket"), None);
    assert_eq!(connection.check_timeout(start + idle, Some(idle)), Timeout::Over);
}

/// Symptom: clients were disconnected right after their replies. Cause: the process was stopped in the middle of a round, and what was read
/// afterwards had the time of before. Fix: silence is counted in checks.
#[test]
fn a_client_that_was_heard_in_a_stall_is_not_idle() {
    let (start, idle) = (clock::moment(), Duration::from_secs(3));
    let (mut connection, _client) = connect(&service(), start);
    assert_eq!(connection.check_timeout(start, Some(idle)), Timeout::NotDue);
    connection.heard = start + TIMEOUT_CHECK_EVERY;
    let late = start + 3 * idle;
    for _ in 0..idle.as_millis() / TIMEOUT_CHECK_EVERY.as_millis() {
        assert_eq!(connection.check_timeout(late, Some(idle)), Timeout::NotDue);
    }
    assert_eq!(connection.check_timeout(late, Some(idle)), Timeout::Over);
}

/// The same holds at the end of a connection: if a socket is closed with unread input, it is reset, and the client loses
/// the replies it has not read.
#[test]
fn input_of_a_stall_is_read_before_a_connection_is_closed() {
    let start = clock::moment();
    let (mut connection, mut client) = connect(&service(), start);
    quit(&mut connection, start);
    client.write_all(b"x").expect("the system takes it");
    while !connection.stream.poll_readable() {}
    let over = start + DRAIN_TIMEOUT / 2;
    assert_eq!(connection.check_timeout(over, None), Timeout::HasInput);
    assert_eq!(connection.list(), Some(Task::Discard), "it is read");
    connection.discard(&mut [0; 9], over).expect("a socket");
    assert_eq!(connection.check_timeout(over + LINGER, None), Timeout::Over);
    client.write_all(b"x").expect("the system takes it");
    while !connection.stream.poll_readable() {}
    assert_eq!(connection.check_timeout(start + 2 * DRAIN_TIMEOUT, None), Timeout::Over, "not for ever");
}

/// Symptom: after QUIT or a protocol error the server read from a client for 10 s, 21 GB in all. Fix: it reads at most the
/// bytes that can be under way.
///
/// Symptom: a client that sent more than that while it read its replies lost the rest of them by a reset. Fix: it is no
/// longer read, but has its time to read.
#[test]
fn input_after_the_end_is_discarded_up_to_a_bound() {
    let start = clock::moment();
    let (mut connection, mut client) = connect(&service(), start);
    let replied = connection.stream.write(&vec![b'x'; 64 << 20]).expect("the client is there");
    quit(&mut connection, start);
    let most_bytes = connection.most_sent_bytes();
    client.set_nonblocking(true).expect("a socket");
    let (mut room, part) = (vec![0; 64 << 10], [0; 64 << 10]);
    let mut sent_bytes = 0;
    loop {
        sent_bytes += client.write(&part).unwrap_or(0);
        while !connection.stream.poll_readable() {}
        if connection.list() != Some(Task::Discard) {
            break;
        }
        connection.unlist();
        let result = connection.discard(&mut room, start);
        assert!(connection.settle(result, start, &Stopper::new()), "after {sent_bytes} bytes");
    }
    assert!((most_bytes..2 * most_bytes + (16 << 20)).contains(&sent_bytes), "{sent_bytes}");
    let last = start + DRAIN_TIMEOUT - Duration::from_millis(1);
    assert_eq!(connection.check_timeout(last, None), Timeout::HasInput, "it may read");
    client.set_nonblocking(false).expect("a socket");
    client.read_exact(&mut vec![0; replied]).expect("all replies");
    assert_eq!(client.read(&mut [0]).expect("no reset"), 0);
    assert_eq!(connection.check_timeout(start + DRAIN_TIMEOUT, None), Timeout::Over);
}

/// Symptom: keys were evicted for replies that no longer existed. Cause: a client that left, or held too much, in the
/// middle of `EXEC` was charged for the replies until the end of the transaction. Fix: the charge has the bound of a
/// client, and freed memory is credited at once.
#[test]
fn a_gone_client_is_charged_nothing() {
    let (service, start) = (service(), clock::moment());
    let (mut connection, _client) = connect(&service, start);
    let charged = || service.memory().used_bytes;
    let before = charged();
    execute(&mut connection, &format!("MULTI\n{}EXEC\n", "PING\n".repeat(RUN_OPERATIONS + 1)));
    let queued = connection.session.held_bytes() as u64;
    connection.replies = unsent(vec![b'x'; 1 << 20]);
    let stopper = Stopper::new();
    assert!(connection.settle(Ok(()), start, &stopper));
    assert_eq!(charged(), before + queued + (1 << 20));
    assert!(connection.settle(Err(ErrorKind::BrokenPipe.into()), start, &stopper), "its transaction goes on");
    assert_eq!((charged(), connection.task()), (before + queued, Some(Task::Resume)));
    // Nothing of it is left.
    let (pending, result) = connection.resume(0);
    assert!(pending.is_none() && !connection.settle(result, start, &stopper));
    drop(connection);
    assert_eq!(charged(), 0);
}

/// Executes requests that end with a long command.
fn execute(connection: &mut Connection, requests: &str) {
    let (mut parsed, mut args) = (lately_resp::Requests::new(), Args::new());
    parsed.parse(requests.as_bytes(), &lately_resp::Limits::default(), &mut args);
    let (now, mut run, mut out) =
        (connection.service.now(), crate::protocol::resp::session::Run::default(), Vec::new());
    let requests = parsed.iter(requests.as_bytes());
    let (_, flow) = connection.session.batch(requests, &mut run, now, &mut out);
    assert_eq!(flow, Flow::More);
    connection.enter(flow);
}

/// Symptom: keys were evicted for lists of clients that nobody would read. Cause: a client that was disconnected in the middle
/// of `CLIENT LIST` stayed, with the list, until its turn. Fix: it ends at once, because nothing of the command is left to do.
#[test]
fn a_gone_client_drops_its_long_command() {
    let (service, start) = (service(), clock::moment());
    let (mut connection, _client) = connect(&service, start);
    let before = service.memory().used_bytes;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let _listed: Vec<_> =
        (0..600).map(|_| service.clients.connect(address, address, service.now())).collect();
    let stopper = Stopper::new();
    execute(&mut connection, "CLIENT LIST\n");
    let (pending, result) = connection.resume(0);
    assert!(pending.is_none() && connection.settle(result, start, &stopper));
    assert!(service.memory().used_bytes > before + 10_000);
    assert!(!connection.settle(Err(ErrorKind::BrokenPipe.into()), start, &stopper));
    assert_eq!(service.memory().used_bytes, before);
}

#[test]
fn a_client_with_too_many_replies_is_disconnected() {
    let (service, start) = (service(), clock::moment());
    let (mut connection, _client) = connect(&service, start);
    let before = service.memory().used_bytes;
    let ceiling = usize::try_from(service.config.ceiling_bytes).expect("it fits");
    connection.replies = Replies::Pending(Vec::with_capacity(ceiling));
    assert!(!connection.settle(Ok(()), start, &Stopper::new()));
    assert_eq!(service.memory().used_bytes, before);
}

#[test]
fn a_connection_has_one_task_at_a_time() {
    let start = clock::moment();
    let (mut connection, mut client) = connect(&service(), start);
    assert_eq!(connection.task(), None);
    client.write_all(b"P").expect("the system takes it");
    while !connection.stream.poll_readable() {}
    assert_eq!(connection.task(), Some(Task::Read));
    connection.enter(Flow::More);
    assert_eq!(connection.task(), Some(Task::Resume));
    connection.replies = Replies::Pending(b"x".to_vec());
    assert_eq!(connection.task(), None, "it waits for the disk");
    assert!(!connection.release(connection.client.id() + 1, |_| ()), "a verdict for another");
    assert!(connection.release(connection.client.id(), |bytes| bytes.push(b'y')));
    assert_eq!(connection.task(), Some(Task::Send));
    connection.send_rest().expect("the client is there");
    client.read_exact(&mut [0; 2]).expect("both bytes");
    assert_eq!(connection.task(), Some(Task::Resume));
    connection.enter(Flow::Continue);
    assert_eq!(connection.list(), Some(Task::Read));
    assert_eq!(connection.list(), None, "it is on a list");
    connection.unlist();
    quit(&mut connection, start);
    assert_eq!(connection.task(), Some(Task::Discard));
}

#[test]
fn a_shutdown_is_replied_to_before_the_server_stops() {
    let start = clock::moment();
    let (mut connection, _client) = connect(&service(), start);
    let stopper = Stopper::new();
    let mut stopped = Box::pin(stopper.stopped());
    let mut is_stopped =
        || stopped.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready();
    connection.enter(Flow::Shutdown);
    connection.replies = unsent(b"+OK\r\n".to_vec());
    assert!(connection.settle(Ok(()), start, &stopper));
    assert!(!is_stopped());
    connection.send_rest().expect("the client is there");
    assert!(connection.settle(Ok(()), start, &stopper));
    assert!(is_stopped());
}

#[test]
fn a_shutdown_of_a_gone_client_stops_the_server() {
    let start = clock::moment();
    let (mut connection, _client) = connect(&service(), start);
    let stopper = Stopper::new();
    let mut stopped = Box::pin(stopper.stopped());
    connection.enter(Flow::Shutdown);
    assert!(!connection.settle(Err(ErrorKind::BrokenPipe.into()), start, &stopper));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(stopped.as_mut().poll(&mut context).is_ready());
}
