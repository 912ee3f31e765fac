//! Commands that take long, answered a slice at a time: `SERIES`, `TOP`, `SCAN`, `COOLEST`, `CLIENT LIST`, and those of many keys.
//! Between two slices other clients have their turn.

use lately::{Span, Timestamp};
use lately_resp::command::{Among, Coolest, Scan, Top, WhichClients};
use lately_resp::{CommandError, Encoder, Protocol};

use super::keys::{is_too_long, refuse_pattern};
use super::long_request::LongRequest;
use super::questions::question_of;
use super::written::Written;
use super::{Flow, Session, integer};
use crate::service::Service;
use crate::service::clients::ClientsWalk;
use crate::service::{Asked, CoolestWalk, NamedWalk, ScanWalk, SeriesWalk, TopKeys, TopWalk};

/// A slow command that is not finished.
pub(super) enum Slow {
    Series(SeriesWalk),
    /// Whether its reply has bounds.
    Top(TopWalk, bool),
    Scan(ScanWalk),
    Coolest(CoolestWalk),
    Named(NamedWalk),
    Clients(ClientsWalk),
    Many(LongRequest),
}

impl Slow {
    /// Runs a slice and appends its part of the reply. Returns the rest of the command.
    pub(super) fn step(
        self,
        service: &Service,
        protocol: Protocol,
        (written, now): (&mut Written, Timestamp),
        out: &mut Vec<u8>,
    ) -> Option<Slow> {
        let mut reply = Encoder::new(out, protocol);
        match self {
            Slow::Series(mut walk) => {
                for point in walk.step(service, now) {
                    reply.array(2);
                    if walk.has_whole_seconds() {
                        reply.integer(point.start.as_millis() / 1_000);
                    } else {
                        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
                        reply.double(point.start.as_millis() as f64 / 1_000.0);
                    }
                    reply.integer(integer(point.hits));
                }
                (walk.left() > 0).then_some(Slow::Series(walk))
            }
            Slow::Top(mut walk, has_bounds) => {
                if !walk.step(service, now) {
                    return Some(Slow::Top(walk, has_bounds));
                }
                write_top(&walk.finish(service, now), has_bounds, &mut reply);
                None
            }
            Slow::Scan(mut walk) => {
                if !walk.step(service, now) {
                    return Some(Slow::Scan(walk));
                }
                let (next, keys) = walk.page();
                reply.array(2);
                reply.bulk(next.to_string());
                reply.array(keys.len());
                keys.iter().for_each(|key| reply.bulk(key));
                None
            }
            Slow::Coolest(mut walk) => {
                if !walk.step(service, now) {
                    return Some(Slow::Coolest(walk));
                }
                write_rows(&walk.into_rows(), &mut reply);
                None
            }
            Slow::Named(mut walk) => {
                if !walk.step(service, now) {
                    return Some(Slow::Named(walk));
                }
                write_rows(&walk.into_rows(), &mut reply);
                None
            }
            Slow::Clients(mut walk) => {
                if !walk.step(now) {
                    return Some(Slow::Clients(walk));
                }
                reply.verbatim(walk.text());
                None
            }
            Slow::Many(request) => request.step(service, protocol, (written, now), out).map(Slow::Many),
        }
    }

    /// Whether one slice finishes it.
    fn is_short(&self) -> bool {
        match self {
            Slow::Series(walk) => walk.is_short(),
            Slow::Scan(walk) => walk.is_short(),
            Slow::Named(walk) => walk.is_short(),
            Slow::Clients(walk) => walk.is_short(),
            Slow::Top(..) | Slow::Coolest(_) | Slow::Many(_) => false,
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        size_of::<Slow>()
            + match self {
                Slow::Series(walk) => walk.held_bytes(),
                Slow::Top(walk, _) => walk.held_bytes(),
                Slow::Scan(walk) => walk.held_bytes(),
                Slow::Coolest(walk) => walk.held_bytes(),
                Slow::Named(walk) => walk.held_bytes(),
                Slow::Clients(walk) => walk.held_bytes(),
                Slow::Many(request) => request.held_bytes(),
            }
    }
}

impl Session {
    /// Begins a command that may take long. A short one is answered at once.
    pub(super) fn begin(
        &mut self,
        slow: Slow,
        (written, now): (&mut Written, Timestamp),
        out: &mut Vec<u8>,
    ) -> Flow {
        let left = if slow.is_short() {
            slow.step(&self.service, self.protocol, (written, now), out)
        } else {
            Some(slow)
        };
        self.slow = left.map(Box::new);
        if self.slow.is_some() { Flow::More } else { Flow::Continue }
    }

    pub(super) fn series(
        &mut self,
        key: &[u8],
        (window, step): (Span, Span),
        at: Option<Timestamp>,
        (written, now): (&mut Written, Timestamp),
        out: &mut Vec<u8>,
    ) -> Flow {
        self.service.note_question(Asked { key, window: Some(window), at }, now);
        let mut reply = Encoder::new(out, self.protocol);
        match SeriesWalk::new(&self.service, key, (window, step), at.unwrap_or(now)) {
            Ok(walk) => {
                reply.array(walk.left());
                self.begin(Slow::Series(walk), (written, now), out)
            }
            Err(error) => {
                reply.error(CommandError::about_argument(error, "series"));
                Flow::Continue
            }
        }
    }

    pub(super) fn scan(
        &mut self,
        scan: &Scan<'_>,
        (written, now): (&mut Written, Timestamp),
        out: &mut Vec<u8>,
    ) -> Flow {
        if scan.pattern.is_some_and(is_too_long) {
            refuse_pattern(&mut Encoder::new(out, self.protocol));
            return Flow::Continue;
        }
        let wanted = scan.kind.is_none_or(|name| name.eq_ignore_ascii_case(b"hits"));
        let walk = ScanWalk::new(scan.cursor, scan.count, scan.pattern, wanted);
        self.begin(Slow::Scan(walk), (written, now), out)
    }

    pub(super) fn coolest(
        &mut self,
        coolest: &Coolest<'_>,
        (written, now): (&mut Written, Timestamp),
        out: &mut Vec<u8>,
    ) -> Flow {
        let &Coolest { count, window, below, among } = coolest;
        let slow = match among {
            Among::Keys(keys) => Slow::Named(NamedWalk::new(keys.iter(), (count, window, below))),
            Among::Prefix(prefix) => Slow::Coolest(CoolestWalk::new(prefix, count, window, below)),
        };
        self.begin(slow, (written, now), out)
    }

    pub(super) fn top(
        &mut self,
        top: &Top<'_>,
        (written, now): (&mut Written, Timestamp),
        out: &mut Vec<u8>,
    ) -> Flow {
        let walk = TopWalk::new(&self.service, question_of(top), now);
        self.begin(Slow::Top(walk, top.has_bounds), (written, now), out)
    }

    pub(super) fn list_clients(
        &mut self,
        which: WhichClients<'_>,
        (written, now): (&mut Written, Timestamp),
        out: &mut Vec<u8>,
    ) -> Flow {
        self.asked_for_clients("client|list");
        let walk = self.service.clients.list(which);
        self.begin(Slow::Clients(walk), (written, now), out)
    }
}

fn write_rows(rows: &[(u64, impl AsRef<[u8]>)], reply: &mut Encoder<'_>) {
    reply.array(rows.len());
    for (hits, key) in rows {
        reply.array(2);
        reply.bulk(key);
        reply.integer(integer(*hits));
    }
}

/// The rows; with bounds, then the most hits that another key can have.
fn write_top(top: &TopKeys, has_bounds: bool, reply: &mut Encoder<'_>) {
    let upper = |upper: Option<u64>| upper.map_or(-1, integer);
    reply.array(top.rows.len() + usize::from(has_bounds));
    for row in &top.rows {
        reply.array(if has_bounds { 4 } else { 2 });
        reply.bulk(&row.key);
        reply.integer(integer(row.hits));
        if has_bounds {
            reply.integer(integer(row.lower));
            reply.integer(upper(row.upper));
        }
    }
    if has_bounds {
        reply.integer(upper(top.others_upper));
    }
}
