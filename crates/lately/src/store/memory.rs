//! The memory ceiling: the account of keys.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::slot::Slot;
use crate::error::HitError;
use crate::limits::{IDS_PART_OF_CEILING, LEAST_IDS_PART_OF_CEILING};

/// Accounted memory, and counters of removed keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryStats {
    /// Bytes accounted for: keys, hits, and [charges](super::Store::charge).
    pub used_bytes: u64,
    /// The ceiling, if there is one.
    pub ceiling_bytes: Option<u64>,
    /// Keys evicted while they had hits within their retention.
    pub evicted_keys: u64,
    /// Keys removed after their last hit had left the retention.
    pub expired_keys: u64,
    /// Ids of counted hits. Some may be over, and be dropped soon.
    pub ids: u64,
    /// The bytes of these ids. They are among the bytes accounted for.
    pub id_bytes: u64,
    /// Ids that were forgotten before their span was over, because they took too much memory.
    pub forgotten_ids: u64,
}

/// Keys that cannot be evicted may exceed the ceiling by this fraction of it.
const OVER: u64 = 16;

/// Why a hit is refused: the ceiling, and how much of it memory that is not of keys takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full {
    ceiling_bytes: u64,
    other_bytes: u64,
}

impl From<Full> for HitError {
    fn from(Full { ceiling_bytes, other_bytes }: Full) -> HitError {
        HitError::OutOfMemory { ceiling_bytes, other_bytes }
    }
}

/// All threads write here with each new key: what they only read has another cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Memory {
    ceiling_bytes: Option<u64>,
    pub(super) used_bytes: AtomicU64,
    /// The part of `used_bytes` that is not of keys: charges, sources, and counts of other nodes.
    other_bytes: AtomicU64,
    pub(super) evicted_keys: AtomicU64,
    pub(super) expired_keys: AtomicU64,
    /// Where the next search for a victim starts.
    pub(super) hand: AtomicU64,
    /// Keys of this generation or a later one are newcomers. 0: all keys. [`NO_NEWCOMERS`]: none.
    pub(super) newcomers_from: AtomicU64,
    /// The number of searches in a row that found newcomers only.
    pub(super) newcomers_only: AtomicU32,
    pub(super) evicted_newcomers: AtomicU64,
    /// Places that were searched since a victim was found. Half of those before it count on.
    pub(super) searched_in_vain: AtomicU64,
}

pub(super) const NO_NEWCOMERS: u64 = u64::MAX;

impl Memory {
    pub(super) fn new(ceiling_bytes: Option<u64>) -> Memory {
        Memory {
            ceiling_bytes,
            used_bytes: AtomicU64::new(0),
            other_bytes: AtomicU64::new(0),
            evicted_keys: AtomicU64::new(0),
            expired_keys: AtomicU64::new(0),
            hand: AtomicU64::new(0),
            newcomers_from: AtomicU64::new(NO_NEWCOMERS),
            newcomers_only: AtomicU32::new(0),
            evicted_newcomers: AtomicU64::new(0),
            searched_in_vain: AtomicU64::new(0),
        }
    }

    /// The ceiling, if one is set.
    pub(super) fn ceiling(&self) -> Option<u64> {
        self.ceiling_bytes
    }

    pub(super) fn ceiling_bytes(&self) -> u64 {
        self.ceiling_bytes.unwrap_or(u64::MAX)
    }

    /// The number of keys that were removed because they had expired.
    pub(super) fn expired_keys(&self) -> &AtomicU64 {
        &self.expired_keys
    }

    /// Adds the change of a shard's bytes to the account.
    #[inline]
    pub(super) fn change(&self, before: usize, after: usize) {
        if before != after {
            // Wrapping is correct: only the sum matters, and it is never negative.
            self.used_bytes.fetch_add((after as u64).wrapping_sub(before as u64), Relaxed);
        }
    }

    /// Accounts for memory that is not of keys.
    pub(super) fn change_other(&self, before: usize, after: usize) {
        self.note_other(before, after);
        self.change(before, after);
    }

    /// Records that a part of a change, made by [`Memory::change`], is not of keys.
    pub(super) fn note_other(&self, before: usize, after: usize) {
        self.other_bytes.fetch_add((after as u64).wrapping_sub(before as u64), Relaxed);
    }

    /// The reason to refuse a hit when no key may be evicted.
    pub(super) fn full(&self) -> Full {
        Full { ceiling_bytes: self.ceiling_bytes(), other_bytes: self.other_bytes.load(Relaxed) }
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.used_bytes.load(Relaxed) >= self.ceiling_bytes()
    }

    /// Bytes that must be freed before there is room.
    pub(super) fn over_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed).saturating_add(1).saturating_sub(self.ceiling_bytes())
    }

    /// Whether the store is so far above the ceiling that existing keys may not grow, either.
    #[inline]
    pub(super) fn is_far_over(&self) -> bool {
        let ceiling_bytes = self.ceiling_bytes();
        self.used_bytes.load(Relaxed) >= ceiling_bytes.saturating_add(ceiling_bytes / OVER)
    }

    /// The most bytes that ids may take: a part of what is left for keys and ids, but never less than a small part of the
    /// ceiling. Otherwise a burst of charges would make all ids be forgotten.
    pub(super) fn most_id_bytes(&self) -> u64 {
        let Some(ceiling) = self.ceiling_bytes else { return u64::MAX };
        let left = ceiling.saturating_sub(self.other_bytes.load(Relaxed));
        (left / IDS_PART_OF_CEILING).max(ceiling / LEAST_IDS_PART_OF_CEILING)
    }

    /// The most keys that fit below the ceiling.
    pub(super) fn most_keys(&self) -> usize {
        usize::try_from(self.ceiling_bytes() / size_of::<Slot>() as u64).unwrap_or(usize::MAX)
    }
}
