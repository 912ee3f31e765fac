//! One client's conversation: commands in, replies out. No I/O: the listener brings the bytes.

mod connection;
mod decided;
mod info;
mod keys;
mod run;
mod slow;
mod transaction;
mod written;

use std::sync::Arc;

use lately::Timestamp;
use lately_resp::command::spec_of;
use lately_resp::{ArgList, Command, CommandError, Encoder, Protocol, Selected, texts};

use crate::clients::{Client, Doing};
use crate::engine::{Engine, Stats};
use crate::limits::OUTPUT_BYTES;
pub(crate) use run::Run;
use run::Target;
use slow::Slow;
use transaction::{Execution, Transaction, is_exec, refuse_exec};
pub(crate) use written::Written;
use written::refuse;

/// What the listener does after a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// Read on.
    Continue,
    /// Send the replies, then [`Session::resume`], when others have had their turn: there is more to do.
    More,
    /// Send the replies and close the connection.
    Close,
    /// Stop the server.
    Shutdown,
}

/// The state of one connection.
pub(crate) struct Session {
    engine: Arc<Engine>,
    client: Arc<Client>,
    protocol: Protocol,
    transaction: Option<Transaction>,
    execution: Option<Execution>,
    /// A command that is not answered yet.
    slow: Option<Box<Slow>>,
    /// How many commands the `EXEC` has that runs now.
    executed: Option<usize>,
}

/// Requests that were run.
struct Ran<'a> {
    /// How many.
    done: usize,
    flow: Flow,
    /// The arguments of the last one, but for those that differ in their key alone.
    last: Option<ArgList<'a>>,
}

/// What the arguments of a request mean.
type Parse<'a> = Result<Command<'a>, CommandError>;

impl Session {
    pub(crate) fn new(engine: Arc<Engine>, client: Arc<Client>) -> Session {
        Session {
            engine,
            client,
            protocol: Protocol::default(),
            transaction: None,
            execution: None,
            slow: None,
            executed: None,
        }
    }

    /// Runs requests of a batch, until one changes the [`Flow`] or there are as many replies as may be
    /// held. The replies are in `out` once the `run` is finished, into which all is collected that can
    /// be. `now` is the batch's; gives how many requests were run.
    pub(crate) fn batch<'a>(
        &mut self,
        requests: Selected<'a>,
        run: &mut Run<'a>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> (usize, Flow) {
        let Ran { done, flow, last } = self.requests(requests, run, now, out);
        Stats::add(&self.engine.stats.commands, done as u64);
        if let Some(args) = last {
            self.did(spec_of(args).ok().map(|spec| spec.name));
        }
        (done, flow)
    }

    fn requests<'a>(
        &mut self,
        mut requests: Selected<'a>,
        run: &mut Run<'a>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Ran<'a> {
        let (mut done, mut flow, mut last) = (0, Flow::Continue, None);
        while flow == Flow::Continue
            && out.len() < OUTPUT_BYTES
            && let Some(args) = requests.next()
        {
            let target = Target { engine: &self.engine, now };
            last = Some(args);
            let mut parsed = Command::parse(args);
            let is_loading = self.engine.is_loading();
            if let Ok(command) = &mut parsed
                && !is_loading
                && self.transaction.is_none()
                && run.add(command, self.protocol, target, out)
            {
                done += 1 + run.add_again(requests.repeated_keys(), target, out);
                continue;
            }
            flow = match &parsed {
                Ok(_) if is_loading && !spec_of(args).is_ok_and(|spec| spec.runs_while_loading) => {
                    Encoder::new(out, self.protocol).error(texts::LOADING);
                    Flow::Continue
                }
                parsed => {
                    run.apply(target, out);
                    self.request(args, parsed, &mut run.written, now, out)
                }
            };
            done += 1;
        }
        Ran { done, flow, last }
    }

    /// Takes note of what `CLIENT LIST` shows of this client: its last command, and what it has queued.
    fn did(&self, command: Option<&'static str>) {
        self.client.did(Doing {
            command,
            queued: self.transaction.as_ref().map(Transaction::len).or(self.executed),
        });
    }

    /// A request that is not part of a run.
    fn request(
        &mut self,
        args: ArgList<'_>,
        parsed: &Parse<'_>,
        written: &mut Written,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Flow {
        if self.transaction.is_some() {
            return self.in_transaction(args, parsed, written, now, out);
        }
        match parsed {
            Ok(command) => self.command(command, written, now, out),
            Err(_) if speaks_http(args) => Flow::Close,
            Err(error) if is_exec(args) => {
                refuse_exec(error, &mut Encoder::new(out, self.protocol));
                Flow::Continue
            }
            Err(error) => {
                Encoder::new(out, self.protocol).error(error);
                Flow::Continue
            }
        }
    }

    /// Bytes of memory the conversation holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, Transaction::held_bytes)
            + self.execution.as_ref().map_or(0, Execution::held_bytes)
            + self.slow.as_ref().map_or(0, |slow| slow.held_bytes())
    }

    fn command(
        &mut self,
        command: &Command<'_>,
        written: &mut Written,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Flow {
        // `HELLO` switches the protocol before its own reply: it makes its encoder itself.
        let mut reply = Encoder::new(out, self.protocol);
        match command {
            Command::Series { key, window, step, at } => {
                return self.series(key, (*window, *step), *at, now, out);
            }
            Command::Coolest(coolest) => return self.coolest(coolest, now, out),
            Command::Delete { keys } => self.delete(*keys, written, now, out),
            Command::Exists { keys } => {
                reply.integer(integer(self.engine.existing(keys.iter(), now) as u64));
            }
            Command::Scan(scan) => return self.scan(scan, now, out),
            Command::DatabaseSize => reply.integer(integer(self.engine.store.len() as u64)),
            Command::FlushAll => match self.engine.delete_all(now) {
                Ok(()) => reply.ok(),
                Err(refused) => refuse(out, &refused),
            },
            Command::Type { key } => {
                reply.simple(if self.engine.store.contains(key, now) { "hits" } else { "none" });
            }
            Command::TimeToLive { key } => reply.integer(self.time_to_live_ms(key, now, 1_000)),
            Command::TimeToLiveMillis { key } => reply.integer(self.time_to_live_ms(key, now, 1)),
            Command::Multi => {
                self.transaction = Some(Transaction::default());
                reply.ok();
            }
            Command::Exec => reply.error(texts::EXEC_WITHOUT_MULTI),
            Command::Discard => reply.error(texts::DISCARD_WITHOUT_MULTI),
            _ => return self.connection_command(command, now, out),
        }
        Flow::Continue
    }
}

/// Whether a browser is talking: a page may have been made to send commands in the body of a request.
/// Nothing of that is run, as in Redis.
fn speaks_http(args: ArgList<'_>) -> bool {
    let name = args.get(0).unwrap_or_default();
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:")
}

/// A count as RESP has it. Counts fit by [`lately::limits::MAX_TOTAL`].
fn integer(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
