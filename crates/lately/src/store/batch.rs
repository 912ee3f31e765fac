//! Batches: what one read of a connection brought, applied with one look at the clock.

use super::{Context, Shard, Store, check_key};
use crate::count::Count;
use crate::delta::DeltaBatch;
use crate::error::HitError;
use crate::time::{Span, Timestamp};

/// One operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Op<'a> {
    /// Count hits.
    Hit {
        /// The key.
        key: &'a [u8],
        /// How many.
        weight: u64,
        /// When they happened; `None` is now.
        at: Option<Timestamp>,
    },
    /// Ask for the hits in a window.
    Hits {
        /// The key.
        key: &'a [u8],
        /// Length of the window; `None` is the default of the key's class.
        window: Option<Span>,
        /// Where the window ends; `None` is now.
        at: Option<Timestamp>,
    },
}

/// What an [`Op`] gave, in the order of the batch.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Of [`Op::Hit`]: the hits in the default window ending at the hit, or why it was refused.
    Hit(Result<u64, HitError>),
    /// Of [`Op::Hits`].
    Hits(Count),
}

impl Outcome {
    pub(super) fn into_hit(self) -> Result<u64, HitError> {
        match self {
            Outcome::Hit(result) => result,
            Outcome::Hits(count) => Ok(count.estimate),
        }
    }

    pub(super) fn into_count(self) -> Count {
        match self {
            Outcome::Hits(count) => count,
            Outcome::Hit(_) => unreachable!("a question is answered with a count"),
        }
    }
}

impl Store {
    /// Applies `ops` in order, as if one by one, with one `now`; adds an outcome for each to `out`.
    pub fn apply(&self, ops: &[Op<'_>], now: Timestamp, out: &mut Vec<Outcome>) {
        out.extend(ops.iter().map(|op| self.apply_one(op, now, None)));
    }

    /// As [`Store::apply`]; what happened is added to `deltas`.
    pub fn apply_into(
        &self,
        ops: &[Op<'_>],
        now: Timestamp,
        out: &mut Vec<Outcome>,
        deltas: &mut DeltaBatch,
    ) {
        deltas.now = deltas.now.max(now);
        out.extend(ops.iter().map(|op| self.apply_one(op, now, Some(deltas))));
    }

    pub(super) fn apply_one(
        &self,
        op: &Op<'_>,
        now: Timestamp,
        mut deltas: Option<&mut DeltaBatch>,
    ) -> Outcome {
        match *op {
            Op::Hit { key, weight, at } => Outcome::Hit(self.apply_hit(key, weight, at, now, &mut deltas)),
            Op::Hits { key, window, at } => {
                let hash = self.hash(key);
                let (mut shard, now, mut context) = self.lock_for(hash, now, None);
                Outcome::Hits(count(&mut shard, (key, hash), (window, at), now, &mut context))
            }
        }
    }

    fn apply_hit(
        &self,
        key: &[u8],
        weight: u64,
        at: Option<Timestamp>,
        now: Timestamp,
        deltas: &mut Option<&mut DeltaBatch>,
    ) -> Result<u64, HitError> {
        check_key(key)?;
        let hash = self.hash(key);
        let room = self.make_room(now, deltas.as_deref_mut());
        let (mut shard, _, mut context) = self.lock_for(hash, now, deltas.as_deref_mut());
        context.ceiling_bytes = (!room).then(|| self.memory.ceiling_bytes());
        shard.hit((key, hash), at, weight, &mut context)
    }
}

/// Hits in a window of a key of this shard.
fn count(
    shard: &mut Shard,
    (key, hash): (&[u8], u64),
    (window, at): (Option<Span>, Option<Timestamp>),
    now: Timestamp,
    context: &mut Context<'_>,
) -> Count {
    let classes = context.classes;
    let at = at.unwrap_or(now);
    match shard.live(key, hash, context) {
        Some(slot) => {
            let settings = classes.settings(slot.class);
            slot.entry.count(at, window.unwrap_or(settings.window()), settings, now)
        }
        None => {
            let settings = classes.settings(classes.of(key));
            crate::window::Window::ending_at(at, window.unwrap_or(settings.window()), settings, now)
                .count(|_, _| 0)
        }
    }
}
