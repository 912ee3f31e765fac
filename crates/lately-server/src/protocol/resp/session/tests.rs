//! A session without a network: inline requests, and the exact bytes of the replies.

use std::net::SocketAddr;
use std::sync::Arc;

use lately::{ManualClock, Timestamp, milliseconds, minutes};
use lately_resp::{Args, Limits, Requests};

use super::{Flow, Run, Session, Written};
use crate::Service;
use crate::config::Config;
use crate::protocol::fixture::service_at;

mod access;
mod alerts;
mod connection;
mod counting;
mod ingest;
mod keys;
mod limits;
mod pipeline;
mod rules;
mod top;
mod transaction;
mod users;

/// The time of the clock, aligned to a minute.
const NOW_S: u64 = 1_700_000_040;

const SYNTAX: &str = "-ERR syntax error|";
const LIMIT: &str = "LIMIT <key> (<max> <window>\\|<@name>) [COST <cost>] [PEEK] [OVERDRAFT] [LOCKOUT <lockout> [FACTOR <factor>] [MAX <longest>]] [AT <time>]";
const HITS: &str = "HITS <key> [<window> ...] [BOUNDS\\|DENIED\\|STALENESS\\|BY ORIGIN] [AT <time>]";
const NOT_INTEGER: &str = "-ERR value is not an integer or out of range|";

/// The reply to an invalid argument, in the form of [`barred`].
fn refused(error: &str, usage: &str) -> String {
    format!("-ERR {error}. Usage: {usage}|")
}

/// A client and its server.
struct Talk {
    service: Arc<Service>,
    clock: Arc<ManualClock>,
    session: Session,
    flow: Flow,
}

impl Talk {
    fn new() -> Talk {
        Talk::with(Config::default())
    }

    fn with(config: Config) -> Talk {
        let clock = Arc::new(ManualClock::new(seconds(NOW_S)));
        let service = service_at(config, Arc::clone(&clock));
        let session = connect(&service);
        Talk { service, clock, session, flow: Flow::Continue }
    }

    /// Another client of the same server.
    fn twin(&self) -> Talk {
        let (service, clock) = (Arc::clone(&self.service), Arc::clone(&self.clock));
        Talk { session: connect(&service), service, clock, flow: Flow::Continue }
    }

    /// A client that uses protocol 3.
    fn v3() -> Talk {
        let mut talk = Talk::new();
        assert!(talk.ask("HELLO 3").starts_with("%7|"));
        talk
    }

    /// The whole reply to an inline request, in the form of [`barred`].
    fn ask(&mut self, line: &str) -> String {
        let mut reply = self.first_of(line);
        while self.flow == Flow::More {
            let mut out = Vec::new();
            self.flow = self.session.resume(false, &mut Written::default(), &mut out);
            reply += &barred(&out);
        }
        reply
    }

    /// The reply to a request before its remaining slices run.
    fn first_of(&mut self, line: &str) -> String {
        barred(&self.send(format!("{line}\n").as_bytes(), 1))
    }

    /// The replies to a batch of `expected` requests.
    fn send(&mut self, bytes: &[u8], expected: usize) -> Vec<u8> {
        let (mut requests, mut args, mut out) = (Requests::new(), Args::new(), Vec::new());
        let progress = requests.parse(bytes, &Limits::default(), &mut args);
        assert_eq!(progress.consumed, bytes.len(), "{:.80}", bytes.escape_ascii().to_string());
        let now = self.service.now();
        let mut run = Run::default();
        let (mut done, mut flow) = self.session.batch(requests.iter(bytes), &mut run, now, &mut out);
        while flow == Flow::Wait {
            let (wait, _) = self.session.take_wait().expect("it waits");
            // A login is verified by another thread.
            while !wait.is_over() {
                std::thread::yield_now();
            }
            self.session.end_wait(wait);
            let more;
            (more, flow) =
                self.session.batch(requests.range(done..requests.len(), bytes), &mut run, now, &mut out);
            done += more;
        }
        run.finish(&self.service, now, &mut out);
        assert_eq!(done, expected);
        self.session.client.seen(now);
        self.flow = flow;
        out
    }

    /// Like `send`, but continues after commands that are answered in parts.
    fn send_through(&mut self, bytes: &[u8], expected: usize) -> Vec<u8> {
        let (mut requests, mut args, mut out) = (Requests::new(), Args::new(), Vec::new());
        requests.parse(bytes, &Limits::default(), &mut args);
        let (now, mut first) = (self.service.now(), 0);
        while first < expected {
            let mut run = Run::default();
            let (done, flow) =
                self.session.batch(requests.range(first..expected, bytes), &mut run, now, &mut out);
            run.finish(&self.service, now, &mut out);
            (first, self.flow) = (first + done, flow);
            while self.flow == Flow::More {
                let mut part = Vec::new();
                self.flow = self.session.resume(false, &mut Written::default(), &mut part);
                out.extend(part);
            }
            assert!(first == expected || self.flow == Flow::Continue, "{:?}", self.flow);
        }
        out
    }

    fn check(&mut self, line: &str, expected: &str) {
        assert_eq!(self.ask(line), expected, "{line:.80}");
    }

    fn check_all(&mut self, script: &[(&str, &str)]) {
        script.iter().for_each(|(line, expected)| self.check(line, expected));
    }

    /// The value of a line of `INFO`.
    fn info(&mut self, field: &str) -> String {
        let info = self.ask("INFO");
        let value = info.split('|').find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.expect(field).to_owned()
    }
}

fn connect(service: &Arc<Service>) -> Session {
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let client = service.clients.connect(address(50_000), address(7_379), service.now());
    Session::new(Arc::clone(service), client)
}

fn seconds(seconds: u64) -> Timestamp {
    Timestamp::from_seconds(seconds).expect("in range")
}

/// The time this many seconds ago.
fn ago(seconds: u64) -> String {
    (NOW_S - seconds).to_string()
}

/// The text of a reply, with a bar for each line end, and a backslash before each original bar.
fn barred(reply: &[u8]) -> String {
    String::from_utf8_lossy(reply).replace('|', "\\|").replace("\r\n", "|")
}

/// A bulk string.
fn bulk(text: &str) -> String {
    format!("${}|{text}|", text.len())
}
