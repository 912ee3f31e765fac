//! What happened in a store, in the words a journal, a cluster or a dump passes on.
//!
//! A delta is a fact, not a command: it was checked when it happened and is applied as it stands.
//! Rules, each held by a test of [`crate::Store::replay`]:
//! - Deltas of one key, replayed in the order of their sequence on an empty store, give its answers.
//! - A key that is forgotten and comes back has a higher generation. Deltas of an older generation
//!   change nothing.
//! - A flush names the generation that ends: what came back after it is not lost when the flush is
//!   replayed late.

use crate::time::Timestamp;

/// The place of a delta in the order of its key's changes, counted up under the lock of the key's
/// shard; larger is later. Sequences of different keys may be equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Sequence(pub u64);

/// Which life of a key: forgetting it ends one, the next hit starts a higher one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u64);

/// Why a key was forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgotten {
    /// Somebody asked for it.
    Deleted,
    /// The store was at its memory ceiling.
    Evicted,
}

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Delta {
    /// Hits were counted.
    Hits {
        /// The key.
        key: Box<[u8]>,
        /// The key's generation.
        generation: Generation,
        /// When they happened.
        at: Timestamp,
        /// How many.
        hits: u64,
    },
    /// The key may not be evicted before a time, because a limit on it is in force.
    Limited {
        /// The key.
        key: Box<[u8]>,
        /// The key's generation.
        generation: Generation,
        /// Until when.
        until: Timestamp,
    },
    /// A key and its hits were forgotten.
    Forget {
        /// The key.
        key: Box<[u8]>,
        /// The generation that ended.
        generation: Generation,
        /// Why.
        why: Forgotten,
    },
    /// All keys of a lower generation were forgotten.
    Flush {
        /// The first generation after the flush.
        below: Generation,
    },
}

/// Deltas of one batch of commands, in the order they happened.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DeltaBatch {
    /// The clock the batch was applied with.
    pub now: Timestamp,
    /// Each delta and its place.
    pub deltas: Vec<(Sequence, Delta)>,
}
