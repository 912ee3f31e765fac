//! `MHIT`, `MHITS`, `DEL` and `EXISTS` of many keys, a part of them at a time.

use lately::Timestamp;
use lately_resp::command::spec_of;
use lately_resp::{ArgList, Args, Command, Encoder, Limits, Parsed, Protocol, parse_request, write_request};

use super::integer;
use super::run::{Run, Target};
use super::written::{Written, refuse_deletion};
use crate::limits::LONG_ARGUMENTS;
use crate::service::Service;

/// A request that is not answered whole.
pub(super) struct LongRequest {
    /// The same command of some of the keys, again and again, and where the next of them begins.
    requests: Vec<u8>,
    position: usize,
    /// How many keys there were of those looked at, where that is the reply; else there is an element for each key.
    sum: Option<usize>,
}

impl LongRequest {
    /// Whether a command is one of these and has more than [`LONG_ARGUMENTS`] arguments.
    #[inline]
    pub(super) fn is_one(args: ArgList<'_>, command: &Command<'_>) -> bool {
        args.len() > LONG_ARGUMENTS
            && matches!(
                command,
                Command::MultiHit { .. }
                    | Command::MultiHits { .. }
                    | Command::Delete { .. }
                    | Command::Exists { .. }
            )
    }

    /// The request with these arguments. The head of its reply is written at once.
    pub(super) fn new(
        args: ArgList<'_>,
        command: &Command<'_>,
        protocol: Protocol,
        out: &mut Vec<u8>,
    ) -> LongRequest {
        let spec = spec_of(args).expect("it is a command");
        let place = |number: i64| usize::try_from(number).expect("it has keys");
        let (first, step) = (place(spec.first_key), place(spec.key_step));
        let (keys, part_len) = (args.len() - first, LONG_ARGUMENTS / 2 * step);
        let mut requests = Vec::new();
        for start in (first..args.len()).step_by(part_len) {
            let part = args.first(first).iter().chain(args.from(start).first(part_len).iter());
            write_request(&mut requests, &part.collect::<Vec<_>>());
        }
        let sum = match command {
            Command::Delete { .. } | Command::Exists { .. } => Some(0),
            _ => {
                Encoder::new(out, protocol).array(keys / step);
                None
            }
        };
        LongRequest { requests, position: 0, sum }
    }

    /// Runs the next part, and appends what is known by then; gives what is left to do.
    pub(super) fn step(
        mut self,
        service: &Service,
        protocol: Protocol,
        (written, now): (&mut Written, Timestamp),
        out: &mut Vec<u8>,
    ) -> Option<LongRequest> {
        let mut args = Args::new();
        let left = &self.requests[self.position..];
        let Ok(Parsed::Complete { consumed }) = parse_request(left, &Limits::default(), &mut args) else {
            unreachable!("what was written parses again")
        };
        let command = Command::parse(args.list(left)).expect("a part of a command is one");
        match (&command, &mut self.sum) {
            (Command::Delete { keys }, Some(sum)) => {
                match service.delete(keys.iter(), &mut written.changes, now) {
                    Ok(deleted) => *sum += deleted,
                    Err(error) => {
                        refuse_deletion(out, &error);
                        return None;
                    }
                }
            }
            (Command::Exists { keys }, Some(sum)) => *sum += service.existing(keys.iter(), now),
            _ => {
                let mut run = Run::default();
                run.written = std::mem::take(written);
                run.add_elements(&command, Target { service, now }, out);
                run.finish(service, now, out);
                *written = run.written;
            }
        }
        self.position += consumed;
        if self.position < self.requests.len() {
            return Some(self);
        }
        if let Some(sum) = self.sum {
            let start = out.len();
            Encoder::new(out, protocol).integer(integer(sum as u64));
            if service.has_journal() && matches!(command, Command::Delete { .. }) {
                written.replied(start, out.len());
            }
        }
        None
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.requests.capacity()
    }
}
