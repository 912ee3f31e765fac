//! Batches: what one read of a connection brought, applied with one look at the clock.

use super::{Context, Shard, Store, check_key};
use crate::count::Count;
use crate::delta::DeltaBatch;
use crate::error::HitError;
use crate::time::{Span, Timestamp};

/// Operations whose memory is fetched together: more would push each other out of the nearest cache.
const STAGED: usize = 64;

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

impl<'a> Op<'a> {
    fn key(&self) -> &'a [u8] {
        match *self {
            Op::Hit { key, .. } | Op::Hits { key, .. } => key,
        }
    }
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
        for ops in ops.chunks(STAGED) {
            let hashes = self.fetch_ahead(ops);
            out.extend(ops.iter().zip(hashes).map(|(op, hash)| self.apply_hashed(op, hash, now, None)));
        }
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
        for ops in ops.chunks(STAGED) {
            let hashes = self.fetch_ahead(ops);
            let applied = ops.iter().zip(hashes);
            out.extend(applied.map(|(op, hash)| self.apply_hashed(op, hash, now, Some(deltas))));
        }
    }

    /// Hashes the keys of up to [`STAGED`] operations and has the memory fetched they will need, a
    /// stage at a time for all of them: so that they wait for it together, not one after the other.
    fn fetch_ahead(&self, ops: &[Op<'_>]) -> [u64; STAGED] {
        let mut hashes = [0; STAGED];
        for (hash, op) in hashes.iter_mut().zip(ops) {
            *hash = self.hash(op.key());
            self.shard_of(*hash).prefetch_bucket(*hash);
        }
        if ops.len() > 1 {
            let hashes = &hashes[..ops.len()];
            hashes.iter().for_each(|&hash| self.shard_of(hash).try_with(|shard| shard.prefetch_slot(hash)));
            hashes.iter().for_each(|&hash| self.shard_of(hash).try_with(|shard| shard.prefetch_heap(hash)));
        }
        hashes
    }

    pub(super) fn apply_one(&self, op: &Op<'_>, now: Timestamp, deltas: Option<&mut DeltaBatch>) -> Outcome {
        self.apply_hashed(op, self.hash(op.key()), now, deltas)
    }

    fn apply_hashed(
        &self,
        op: &Op<'_>,
        hash: u64,
        now: Timestamp,
        deltas: Option<&mut DeltaBatch>,
    ) -> Outcome {
        match *op {
            Op::Hit { key, weight, at } => Outcome::Hit(self.apply_hit((key, hash), weight, at, now, deltas)),
            Op::Hits { key, window, at } => {
                let (mut shard, now, mut context) = self.lock_for(hash, now, None);
                Outcome::Hits(count(&mut shard, (key, hash), (window, at), now, &mut context))
            }
        }
    }

    fn apply_hit(
        &self,
        (key, hash): (&[u8], u64),
        weight: u64,
        at: Option<Timestamp>,
        now: Timestamp,
        mut deltas: Option<&mut DeltaBatch>,
    ) -> Result<u64, HitError> {
        check_key(key)?;
        let hit = |full: bool, deltas: Option<&mut DeltaBatch>| {
            let (mut shard, _, mut context) = self.lock_for(hash, now, deltas);
            context.ceiling_bytes = full.then(|| self.memory.ceiling_bytes());
            shard.hit((key, hash), at, weight, &mut context)
        };
        let mut counted = hit(self.memory.is_full(), deltas.as_deref_mut());
        if matches!(counted, Err(HitError::OutOfMemory { .. })) {
            // Only now, when the hit is known to be good and to need a new key, may others go.
            let room = self.make_room(key, now, deltas.as_deref_mut());
            counted = hit(!room, deltas.as_deref_mut());
        }
        // Keys that are there may grow; others make up for it.
        self.make_room(key, now, deltas);
        counted
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
