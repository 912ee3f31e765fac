//! `MULTI`, `EXEC`, `DISCARD`: commands that are queued and executed as one batch.

use lately::Timestamp;
use lately_resp::command::{CommandFlag, Verb, spec_of};
use lately_resp::{ArgList, Args, Command, CommandError, Encoder, Limits, Requests, texts, write_request};

use super::login::logs_in;
use super::slow::Slow;
use super::{Flow, Parse, Run, Session, Written};
use crate::limits::{MAX_QUEUED_BYTES, MAX_QUEUED_COMMANDS, RUN_OPERATIONS};

/// Commands queued since `MULTI`.
#[derive(Default)]
pub(super) struct Transaction {
    /// The encoded requests, one after the other.
    requests: Vec<u8>,
    commands: usize,
    /// A command was refused, so `EXEC` executes nothing.
    aborted: bool,
}

/// A transaction that is being executed.
pub(super) struct Execution {
    /// All its requests.
    requests: Vec<u8>,
    commands: usize,
    /// Where the next request starts.
    position: usize,
    /// The time of all requests.
    now: Timestamp,
}

impl Transaction {
    /// A command was refused before it was queued.
    pub(super) fn abort(&mut self) {
        self.aborted = true;
    }
}

impl Session {
    /// Handles a request after `MULTI`: queues it, unless it ends the transaction or the connection.
    pub(super) fn in_transaction(
        &mut self,
        args: ArgList<'_>,
        parsed: &Parse<'_>,
        written: &mut Written,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Flow {
        let transaction = self.transaction.as_mut().expect("the caller looked");
        let mut reply = Encoder::new(out, self.protocol);
        match parsed {
            Ok(Command::Exec) => return self.execute(written, now, out),
            Ok(Command::Discard) => {
                self.transaction = None;
                reply.ok();
            }
            Ok(Command::Multi) => reply.error(texts::NESTED_MULTI),
            Ok(command)
                if logs_in(command) || spec_of(args).is_ok_and(|spec| spec.has(CommandFlag::NoMulti)) =>
            {
                transaction.aborted = true;
                reply.error(texts::NOT_IN_MULTI);
            }
            Ok(command @ (Command::Quit | Command::Reset)) => {
                return self.command(command, written, now, out);
            }
            // Ends the transaction without executing it.
            Err(error) if is_exec(args) => {
                self.transaction = None;
                refuse_exec(error, &mut reply);
            }
            Err(error) if error.aborts_transaction() => {
                transaction.aborted = true;
                reply.error(error);
            }
            // Other errors are replies of `EXEC`, as in Redis.
            Ok(_) | Err(_) => match transaction.queue(args) {
                Ok(()) => reply.simple("QUEUED"),
                Err(error) => reply.error(error),
            },
        }
        Flow::Continue
    }

    fn execute(&mut self, written: &mut Written, now: Timestamp, out: &mut Vec<u8>) -> Flow {
        let Transaction { requests, commands, aborted } = self.transaction.take().unwrap_or_default();
        let mut reply = Encoder::new(out, self.protocol);
        if aborted {
            reply.error(texts::EXEC_ABORTED);
            return Flow::Continue;
        }
        reply.array(commands);
        self.execution = Some(Execution { requests, commands, position: 0, now });
        // Many commands take long, so they are executed in parts.
        if commands > RUN_OPERATIONS { Flow::More } else { self.resume(false, written, out) }
    }

    /// Runs the next slice of a slow command, or the next part of an `EXEC`, until the bound on operations or replies.
    /// Changes are added to `written`. For a client that is gone, only commands that change counts are executed.
    pub(crate) fn resume(&mut self, is_gone: bool, written: &mut Written, out: &mut Vec<u8>) -> Flow {
        if let Some(slow) = self.slow.take().filter(|_| !is_gone) {
            if matches!(*slow, Slow::Clients(_)) {
                // Its own line is written in one of the slices.
                self.asked_for_clients("client|list");
            }
            self.slow =
                slow.step(&self.service, self.protocol, (written, self.service.now()), out).map(Box::new);
            let is_done = self.slow.is_none() && self.execution.is_none();
            return if is_done { Flow::Continue } else { Flow::More };
        }
        let Some(mut execution) = self.execution.take() else { return Flow::Continue };
        let (mut requests, mut args) = (Requests::new(), Args::new());
        let mut run = Run::default();
        run.written = std::mem::take(written);
        let left = &execution.requests[execution.position..];
        requests.parse(left, &Limits::default(), &mut args);
        if requests.is_empty() {
            debug_assert!(left.is_empty(), "what was queued parses again");
            *written = run.written;
            return Flow::Continue;
        }
        self.executed = Some(execution.commands);
        // Commands that end the connection are never queued, so the flow does not matter.
        let done = if is_gone {
            let mut run = |number| {
                let one = requests.range(number..number + 1, left);
                self.requests(one, &mut run, execution.now, out).done == 1
            };
            let numbered = requests.iter(left).enumerate();
            numbered.take_while(|&(number, args)| !changes_counts(args) || run(number)).count()
        } else {
            self.requests(requests.iter(left), &mut run, execution.now, out).done
        };
        self.executed = None;
        run.finish(&self.service, execution.now, out);
        *written = run.written;
        execution.position += requests.bytes_of_first(done);
        if execution.position < execution.requests.len() {
            self.execution = Some(execution);
        } else if self.slow.is_none() {
            return Flow::Continue;
        }
        Flow::More
    }
}

/// Whether a request is an `EXEC`, whatever its arguments.
pub(super) fn is_exec(args: ArgList<'_>) -> bool {
    spec_of(args).is_ok_and(|spec| spec.runs_transaction)
}

/// Replies to an `EXEC` with arguments as Redis does.
pub(super) fn refuse_exec(error: &CommandError, reply: &mut Encoder<'_>) {
    let error = error.to_string();
    reply.error(format_args!("{}{}", texts::EXEC_REFUSED, error.strip_prefix("ERR ").unwrap_or(&error)));
}

/// Whether a command may change counts.
fn changes_counts(args: ArgList<'_>) -> bool {
    spec_of(args).is_ok_and(|spec| spec.verb.is_some_and(Verb::changes_counts))
}

impl Execution {
    pub(super) fn held_bytes(&self) -> usize {
        self.requests.capacity()
    }
}

impl Transaction {
    /// The number of queued commands.
    pub(super) fn len(&self) -> usize {
        self.commands
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.requests.capacity()
    }

    fn queue(&mut self, args: ArgList<'_>) -> Result<(), String> {
        if self.aborted {
            // It will not run.
            return Ok(());
        }
        let bytes: usize = args.iter().map(<[u8]>::len).sum();
        if self.commands >= MAX_QUEUED_COMMANDS || self.requests.len() + bytes > MAX_QUEUED_BYTES {
            self.aborted = true;
            self.requests = Vec::new();
            return Err(format!(
                "ERR transaction too large: at most {MAX_QUEUED_COMMANDS} commands and {MAX_QUEUED_BYTES} bytes"
            ));
        }
        write_request(&mut self.requests, &args.iter().collect::<Vec<_>>());
        self.commands += 1;
        Ok(())
    }
}
