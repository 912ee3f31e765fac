//! The loop: one thread, one event queue, all connections.

use std::time::Duration;

use mio::{Events, Poll, Token};

use crate::clock::Stopwatch;
use crate::connection::Connection;
use crate::error::LoadError;
use crate::limits::{PATIENCE, READ_BYTES};
use crate::numbers::Numbers;
use crate::plan::{Ending, Plan};
use crate::report::Report;
use crate::schedule::{Next, Schedule};
use crate::tally::Tally;

/// The resolution of the system's timers. For shorter waits the loop polls.
const TIMER: Duration = Duration::from_millis(2);

/// Runs the load to its end, and waits for the last reply.
///
/// # Errors
/// The plan is out of bounds, the server cannot be reached, or it does not answer correctly. Error replies
/// are counted; they are no error here.
pub fn run(plan: &Plan) -> Result<Report, LoadError> {
    plan.check()?;
    let mut poll = Poll::new()?;
    let open = |index| Connection::open(plan, poll.registry(), Token(index));
    let connections = (0..plan.clients).map(open).collect::<Result<Vec<Connection>, LoadError>>()?;
    let mut load = Load {
        plan,
        connections,
        idle: Vec::with_capacity(plan.clients),
        active: 0,
        numbers: Numbers::new(plan),
        schedule: Schedule::new(plan),
        tally: Tally::default(),
        report: Report::new(),
        watch: Stopwatch::start(),
    };
    load.go(&mut poll)?;
    load.report.elapsed = load.watch.elapsed();
    if let (Some(_), Ending::After(planned)) = (plan.rate, plan.ending) {
        // The last request may have been due long before the end.
        load.report.elapsed = load.report.elapsed.max(planned);
    }
    load.report.requests = load.schedule.sent();
    load.report.take(load.tally);
    Ok(load.report)
}

struct Load<'a> {
    plan: &'a Plan,
    connections: Vec<Connection>,
    /// Connections that are idle until the next batch is due.
    idle: Vec<usize>,
    /// The number of connections that wait for replies.
    active: usize,
    numbers: Numbers,
    schedule: Schedule,
    tally: Tally,
    report: Report,
    watch: Stopwatch,
}

impl Load<'_> {
    fn go(&mut self, poll: &mut Poll) -> Result<(), LoadError> {
        let mut events = Events::with_capacity(1_024);
        let mut buffer = vec![0; READ_BYTES];
        let mut now_ns = self.watch.elapsed_ns();
        let mut heard_ns = now_ns;
        self.idle.extend((0..self.connections.len()).rev());
        loop {
            let wait = self.feed_idle(now_ns)?;
            if self.active == 0 && self.idle.is_empty() {
                return Ok(());
            }
            poll_again(poll, &mut events, wait)?;
            now_ns = self.watch.elapsed_ns();
            if !events.is_empty() || self.active == 0 {
                heard_ns = now_ns;
            } else if u128::from(now_ns - heard_ns) >= PATIENCE.as_nanos() {
                return Err(LoadError::Silent { patience: PATIENCE });
            }
            for event in &events {
                let index = event.token().0;
                let connection = &mut self.connections[index];
                if event.is_writable() {
                    connection.write()?;
                }
                let ended = event.is_read_closed();
                if event.is_readable() && connection.read(&mut buffer, ended, &mut self.tally)? {
                    now_ns = self.watch.elapsed_ns();
                    self.report.batch(now_ns.saturating_sub(connection.since_ns));
                    self.active -= 1;
                    self.feed(index, now_ns)?;
                }
            }
        }
    }

    /// Sends batches that are due on idle connections. Returns how long to wait for the next one.
    fn feed_idle(&mut self, now_ns: u64) -> Result<Duration, LoadError> {
        while let Some(index) = self.idle.pop() {
            if let Some(due_ns) = self.feed(index, now_ns)? {
                let wait = Duration::from_nanos(due_ns - now_ns);
                return Ok(wait.saturating_sub(TIMER).min(PATIENCE));
            }
        }
        Ok(PATIENCE)
    }

    /// Sends a connection's next batch. If none is due yet, returns when it is.
    fn feed(&mut self, index: usize, now_ns: u64) -> Result<Option<u64>, LoadError> {
        match self.schedule.next(now_ns) {
            Next::Batch { requests, due_ns } => {
                let connection = &mut self.connections[index];
                connection.since_ns = due_ns;
                connection.send(self.plan, &mut self.numbers, requests)?;
                self.active += 1;
            }
            Next::NotBefore { due_ns } => {
                self.idle.push(index);
                return Ok(Some(due_ns));
            }
            Next::Over => {}
        }
        Ok(None)
    }
}

/// Waits for events. Treats an interruption by a signal as no events.
fn poll_again(poll: &mut Poll, events: &mut Events, wait: Duration) -> Result<(), LoadError> {
    match poll.poll(events, Some(wait)) {
        Err(error) if error.kind() != std::io::ErrorKind::Interrupted => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::plan::Ending;
    use crate::request::Request;

    /// Runs ten requests, two at a time, against a server that answers each pair with the next of these
    /// texts, and closes the connection after the last.
    fn against(answers: &[&'static str]) -> Result<Report, String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let answers = answers.to_vec();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("a client");
            for answer in answers {
                let mut pair = [0; 72];
                // The client may be gone.
                if socket.read_exact(&mut pair).and_then(|()| socket.write_all(answer.as_bytes())).is_err() {
                    return;
                }
            }
        });
        let plan = Plan::new(address, Request::parse("HIT {key}", "key:"));
        let report = run(&Plan { clients: 1, pipeline: 2, ending: Ending::Requests(10), ..plan });
        server.join().expect("the server ends");
        report.map_err(|error| error.to_string())
    }

    #[test]
    fn every_request_is_answered_or_it_is_an_error() {
        let good = against(&[":1\r\n:2\r\n"; 5]).expect("five pairs");
        assert_eq!((good.requests, good.errors, good.first_error), (10, 0, None));
        let refused = against(&[":1\r\n-LATE old\r\n"; 5]).expect("five pairs");
        assert_eq!((refused.requests, refused.errors), (10, 5));
        assert_eq!(refused.first_error.as_deref(), Some("LATE old"));
        let check = |answers: &[&'static str], expected: &str| {
            assert_eq!(against(answers).err().as_deref(), Some(expected));
        };
        check(&[":1\r\n:2\r\n", ":1\r\n"], "the server closed a connection that still waited for 1 replies");
        check(&[":1\r\n:2\r\n:3\r\n"], "1 replies more came than were due");
        check(&["$1\r\na\r\n"], "a reply that starts with '$' has no place here");
    }

    #[test]
    fn an_unreachable_server_is_an_error() {
        // Bound, but not listening any more.
        let address = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("an address");
        let error =
            run(&Plan::new(address, Request::parse("HIT {key}", "key:"))).map_err(|error| error.to_string());
        assert!(error.err().is_some_and(|error| error.starts_with(&format!("{address}: "))));
    }
}
