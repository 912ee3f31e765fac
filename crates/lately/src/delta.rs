//! The changes of a store, as a journal, a cluster or a dump passes them on.
//!
//! A delta is a fact, not a command: it was checked when it happened, and is applied without a check. The
//! rules, which tests of [`crate::Store::replay`] hold:
//! - The deltas of one key, replayed on an empty store, give its answers. Hits may come in any order, but hits that
//!   are given back or taken back must be there.
//! - A key that is deleted and comes back has a higher generation. Deltas of an older generation change
//!   nothing.
//! - A flush has the number of the first generation after it. Keys of that generation survive a late replay
//!   of the flush.

mod encoding;

use std::num::TryFromIntError;

use crate::gcra::Arrival;
use crate::lockout::PastLockout;
use crate::number::Number;
use crate::store::EvictionGuard;
use crate::time::Timestamp;
use crate::uniques::Member;

pub use encoding::{DeltaBatch, DeltaFormat, DeltaMark, Deltas};

/// The number of a change in its part of the store. It grows by one with each change of the part. Numbers of different
/// parts are not related.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sequence {
    /// The part.
    pub part: u16,
    /// The number of the change in the part.
    pub number: u64,
}

impl Sequence {
    /// The highest number that is accepted from outside. The store can count on from it without an overflow.
    pub const MAX_NUMBER: u64 = Number::MAX / 2;
}

/// The generation of a key. Deleting a key ends a generation, and its next hit starts a higher one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u64);

impl Generation {
    /// The highest generation that is accepted from outside. The store can count on from it without an overflow.
    pub const MAX: Generation = Generation(Number::MAX / 2);

    /// A generation from outside. `None` if it is past [`Generation::MAX`].
    #[must_use]
    pub fn new(number: u64) -> Option<Generation> {
        Some(Generation(number)).filter(|&generation| generation <= Generation::MAX)
    }
}

impl From<u8> for Generation {
    fn from(number: u8) -> Generation {
        Generation(number.into())
    }
}

impl TryFrom<Generation> for u8 {
    type Error = TryFromIntError;

    fn try_from(generation: Generation) -> Result<u8, TryFromIntError> {
        generation.0.try_into()
    }
}

/// Why a key was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgotten {
    /// A caller deleted it.
    Deleted,
    /// The store was at its memory ceiling.
    Evicted,
}

/// One change of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Delta<'a> {
    /// Hits were counted.
    Hits {
        /// The key.
        key: &'a [u8],
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
        key: &'a [u8],
        /// The key's generation.
        generation: Generation,
        /// The end of the limit.
        until: Timestamp,
        /// What the key's next lockout grows from, if lockouts grow.
        past: Option<PastLockout>,
    },
    /// Hits were denied by a limit. They are not among the key's hits.
    Denied {
        /// The key.
        key: &'a [u8],
        /// The key's generation.
        generation: Generation,
        /// When they came.
        at: Timestamp,
        /// How many.
        hits: u64,
    },
    /// The newest hits of the key were given back.
    GivenBack {
        /// The key.
        key: &'a [u8],
        /// The key's generation.
        generation: Generation,
        /// No hits before this time were given back.
        from: Timestamp,
        /// How many.
        hits: u64,
        /// No others were left, so the key's ids count again.
        ends_ids: bool,
    },
    /// Hits of the key between two times were removed, the oldest first.
    TakenBack {
        /// The key.
        key: &'a [u8],
        /// The key's generation.
        generation: Generation,
        /// No hits before this time were removed.
        from: Timestamp,
        /// No hits after this time were removed.
        to: Timestamp,
        /// How many.
        hits: u64,
    },
    /// The key's theoretical arrival time was set, by a request that keeps to a rate.
    Arrival {
        /// The key.
        key: &'a [u8],
        /// The key's generation.
        generation: Generation,
        /// The time.
        arrival: Arrival,
    },
    /// The key was protected from eviction, because little or nothing is left of a limit.
    Guarded {
        /// The key.
        key: &'a [u8],
        /// The key's generation.
        generation: Generation,
        /// The protection, and its end.
        guard: EvictionGuard,
    },
    /// A key and its hits were removed.
    Forget {
        /// The key.
        key: &'a [u8],
        /// The generation that ended.
        generation: Generation,
        /// Why.
        why: Forgotten,
    },
    /// A key was restored, and replaced what the store had of it.
    Restored {
        /// The key.
        key: &'a [u8],
        /// The generation that began with it.
        generation: Generation,
        /// Its limit state.
        limits: LimitState<'a>,
        /// Its hits, encoded as in a part of a store.
        entry: &'a [u8],
    },
    /// All keys of a lower generation were deleted.
    Flush {
        /// The first generation after the flush.
        below: Generation,
    },
    /// Hits with an id were counted. The hits are a delta of their own in the same batch.
    Id {
        /// The key.
        key: &'a [u8],
        /// The key's generation.
        generation: Generation,
        /// The id.
        id: CountedId,
    },
    /// Hits with a member were counted. The hits are a delta of their own in the same batch.
    Member {
        /// The key.
        key: &'a [u8],
        /// The key's generation.
        generation: Generation,
        /// When the hits happened.
        at: Timestamp,
        /// The member.
        member: Member,
    },
    /// Another node has deleted the members that were hit until a time.
    MembersDropped {
        /// The key.
        key: &'a [u8],
        /// The key's generation.
        generation: Generation,
        /// The last time of which members are deleted.
        until: Timestamp,
    },
    /// A source was read up to a position. The hits of that part are in the same batch.
    Position {
        /// The source.
        source: &'a [u8],
        /// The position.
        position: u64,
    },
    /// A change that was rolled back before its batch was written.
    Void,
}

/// The id of counted hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountedId {
    /// The secret of its key's generation, which is not 0. The fingerprint is made with it.
    pub salt: u64,
    /// The fingerprint of the id.
    pub fingerprint: u64,
    /// When the hits happened.
    pub at: Timestamp,
    /// The last millisecond of its life.
    pub until: Timestamp,
}

/// The state of a key, besides its hits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LimitState<'a> {
    /// The time until which a limit on the key is in force, if one is.
    pub limited_until: Option<Timestamp>,
    /// What the key's next lockout grows from, if lockouts grow.
    pub past: Option<PastLockout>,
    /// The theoretical arrival time.
    pub arrival: Arrival,
    /// The protection from eviction.
    pub guard: EvictionGuard,
    /// The denied hits, encoded as in a part of a store. Empty if there are none.
    pub denied: &'a [u8],
    /// The ids of counted hits, encoded as in a part of a store. Empty if there are none.
    pub ids: &'a [u8],
    /// The members of counted hits, encoded as in a part of a store. Empty if there are none.
    pub members: &'a [u8],
}

impl Delta<'_> {
    /// The generation of the key, or for a flush the first after it.
    pub(crate) fn generation(&self) -> Generation {
        match *self {
            Delta::Hits { generation, .. }
            | Delta::Limited { generation, .. }
            | Delta::Denied { generation, .. }
            | Delta::GivenBack { generation, .. }
            | Delta::TakenBack { generation, .. }
            | Delta::Arrival { generation, .. }
            | Delta::Guarded { generation, .. }
            | Delta::Forget { generation, .. }
            | Delta::Id { generation, .. }
            | Delta::Member { generation, .. }
            | Delta::MembersDropped { generation, .. }
            | Delta::Restored { generation, .. } => generation,
            Delta::Flush { below } => below,
            // Sources have no generation: a flush keeps them.
            Delta::Position { .. } | Delta::Void => Generation::MAX,
        }
    }

    /// The key. A flush and a source have none.
    pub(crate) fn key(&self) -> &[u8] {
        match *self {
            Delta::Hits { key, .. }
            | Delta::Limited { key, .. }
            | Delta::Denied { key, .. }
            | Delta::GivenBack { key, .. }
            | Delta::TakenBack { key, .. }
            | Delta::Arrival { key, .. }
            | Delta::Guarded { key, .. }
            | Delta::Forget { key, .. }
            | Delta::Id { key, .. }
            | Delta::Member { key, .. }
            | Delta::MembersDropped { key, .. }
            | Delta::Restored { key, .. } => key,
            Delta::Flush { .. } | Delta::Position { .. } | Delta::Void => &[],
        }
    }
}
