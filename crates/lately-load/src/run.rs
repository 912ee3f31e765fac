//! The loop: one thread, one event queue, all connections.

use std::time::Duration;

use mio::{Events, Poll, Token};

use crate::clock::Stopwatch;
use crate::connection::{Connection, Numbers};
use crate::error::LoadError;
use crate::limits::{PATIENCE, READ_BYTES};
use crate::plan::Plan;
use crate::replies::Errors;
use crate::report::Report;
use crate::schedule::{Next, Schedule};

/// The system's timers are this coarse: what is due sooner is waited for by looking again and again.
const TIMER: Duration = Duration::from_millis(2);

/// Puts the load on the server until its end, and waits for the last reply.
///
/// # Errors
/// A plan out of bounds, a server that cannot be reached, or one that does not answer as it should.
/// Error replies are no error here: they are counted.
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
        errors: Errors::default(),
        report: Report::new(),
        watch: Stopwatch::start(),
    };
    load.go(&mut poll)?;
    load.report.elapsed = load.watch.elapsed();
    load.report.requests = load.schedule.sent();
    load.report.errors = load.errors.count;
    load.report.first_error = load.errors.first;
    Ok(load.report)
}

struct Load<'a> {
    plan: &'a Plan,
    connections: Vec<Connection>,
    /// Connections that wait for nothing, while batches are not due yet.
    idle: Vec<usize>,
    /// How many wait for replies.
    active: usize,
    numbers: Numbers,
    schedule: Schedule,
    errors: Errors,
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
                if event.is_readable() && connection.read(&mut buffer, &mut self.errors)? {
                    now_ns = self.watch.elapsed_ns();
                    self.report.batch(now_ns.saturating_sub(connection.since_ns));
                    self.active -= 1;
                    self.feed(index, now_ns)?;
                }
            }
        }
    }

    /// Gives idle connections what is due by now, and says how long to wait for the next.
    fn feed_idle(&mut self, now_ns: u64) -> Result<Duration, LoadError> {
        while let Some(index) = self.idle.pop() {
            if let Some(due_ns) = self.feed(index, now_ns)? {
                let wait = Duration::from_nanos(due_ns - now_ns);
                return Ok(wait.saturating_sub(TIMER).min(PATIENCE));
            }
        }
        Ok(PATIENCE)
    }

    /// Sends a connection's next batch, unless there is none yet: then says when.
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

/// Waits for events; a signal that interrupts this brings none.
fn poll_again(poll: &mut Poll, events: &mut Events, wait: Duration) -> Result<(), LoadError> {
    match poll.poll(events, Some(wait)) {
        Err(error) if error.kind() != std::io::ErrorKind::Interrupted => Err(error.into()),
        _ => Ok(()),
    }
}
