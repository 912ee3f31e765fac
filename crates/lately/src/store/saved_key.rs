//! A key with its state, and the position of a source, as bytes. The parts of a checkpoint and of a dump
//! consist of them.

use super::eviction_guard::EvictionGuard;
use crate::delta::{Generation, LimitState};
use crate::error::Malformed;
use crate::gcra::Arrival;
use crate::leb128;
use crate::limits::{MAX_KEY_BYTES, MAX_SOURCE_BYTES};
use crate::lockout::PastLockout;
use crate::time::Timestamp;

/// A key and its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SavedKey<'a> {
    pub(super) key: &'a [u8],
    pub(super) generation: Generation,
    /// The denied hits in it are encoded by `Entry::write_panes`.
    pub(super) limits: LimitState<'a>,
    /// The hits, encoded by `Entry::write`.
    pub(super) entry: &'a [u8],
}

/// How far a source was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark<'a> {
    pub(super) source: &'a [u8],
    pub(super) position: u64,
}

/// An item of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Item<'a> {
    Key(SavedKey<'a>),
    Source(Mark<'a>),
}

/// A summary of keys and sources, for comparison.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Content {
    /// The number of keys.
    pub keys: u64,
    /// The sum of their hits, modulo 2^64.
    pub hits: u64,
    /// The number of sources.
    pub sources: u64,
    /// The sum of their positions, modulo 2^64.
    pub positions: u64,
}

impl Content {
    /// Adds a key with its hits.
    pub(super) fn add(&mut self, hits: u64) {
        self.merge(Content { keys: 1, hits, ..Content::default() });
    }

    /// Adds a source with its position.
    pub(super) fn add_source(&mut self, position: u64) {
        self.merge(Content { sources: 1, positions: position, ..Content::default() });
    }

    /// Adds the summary of other keys.
    pub fn merge(&mut self, other: Content) {
        self.keys += other.keys;
        self.hits = self.hits.wrapping_add(other.hits);
        self.sources += other.sources;
        self.positions = self.positions.wrapping_add(other.positions);
    }
}

// Bits of the first byte: state that few keys have.
const GENERATION: u8 = 1;
const LIMITED: u8 = 2;
const ARRIVAL: u8 = 4;
const DENIED: u8 = 8;
const GUARDED: u8 = 16;
const PAST: u8 = 64;
const IDS: u8 = 128;
/// All of them.
const FLAGS: u8 = GENERATION | LIMITED | ARRIVAL | DENIED | GUARDED | PAST | IDS;
/// The first byte of a source.
const SOURCE: u8 = 32;
/// The first byte of the members of a key, which come before it.
const MEMBERS: u8 = SOURCE | 1;

impl<'a> Item<'a> {
    /// Decodes an item from the front of `bytes`.
    pub(super) fn take(bytes: &mut &'a [u8]) -> Result<Item<'a>, Malformed> {
        if bytes.first() != Some(&SOURCE) {
            return SavedKey::take(bytes).map(Item::Key);
        }
        Mark::read(bytes).map(Item::Source).ok_or(Malformed::Entry)
    }
}

impl<'a> Mark<'a> {
    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.push(SOURCE);
        leb128::push(out, self.source.len() as u64);
        out.extend_from_slice(self.source);
        leb128::push(out, self.position);
    }

    fn read(bytes: &mut &'a [u8]) -> Option<Mark<'a>> {
        bytes.split_off_first().filter(|&&first| first == SOURCE)?;
        let len =
            usize::try_from(leb128::take(bytes)?).ok().filter(|len| (1..=MAX_SOURCE_BYTES).contains(len))?;
        let source = bytes.split_off(..len)?;
        Some(Mark { source, position: leb128::take(bytes)? })
    }
}

impl<'a> SavedKey<'a> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let has_generation = self.generation != Generation::default();
        let LimitState { limited_until, past, arrival, guard, denied, ids, members } = self.limits;
        if !members.is_empty() {
            out.push(MEMBERS);
            leb128::push(out, members.len() as u64);
            out.extend_from_slice(members);
        }
        let has_arrival = arrival != Arrival::default();
        let flag = |has: bool, flag| if has { flag } else { 0 };
        out.push(
            flag(has_generation, GENERATION)
                | flag(limited_until.is_some(), LIMITED)
                | flag(has_arrival, ARRIVAL)
                | flag(!denied.is_empty(), DENIED)
                | flag(!guard.is_none(), GUARDED)
                | flag(past.is_some(), PAST)
                | flag(!ids.is_empty(), IDS),
        );
        leb128::push(out, self.key.len() as u64);
        out.extend_from_slice(self.key);
        if has_generation {
            leb128::push(out, self.generation.0);
        }
        if let Some(until) = limited_until {
            leb128::push(out, until.as_millis().cast_unsigned());
        }
        if let Some(past) = past {
            let (length_ms, forgotten_ms) = past.to_numbers();
            leb128::push(out, length_ms);
            leb128::push(out, forgotten_ms);
        }
        if has_arrival {
            let (millis, ticks) = arrival.to_parts();
            leb128::push(out, millis);
            leb128::push(out, ticks);
        }
        if !guard.is_none() {
            let (first, second) = guard.to_numbers();
            [first].into_iter().chain(second).for_each(|number| leb128::push(out, number));
        }
        if !denied.is_empty() {
            leb128::push(out, denied.len() as u64);
            out.extend_from_slice(denied);
        }
        if !ids.is_empty() {
            leb128::push(out, ids.len() as u64);
            out.extend_from_slice(ids);
        }
        leb128::push(out, self.entry.len() as u64);
        out.extend_from_slice(self.entry);
    }

    /// Decodes a key from the front of `bytes`.
    pub(super) fn take(bytes: &mut &'a [u8]) -> Result<SavedKey<'a>, Malformed> {
        SavedKey::read(bytes).ok_or(Malformed::Entry)
    }

    fn read(bytes: &mut &'a [u8]) -> Option<SavedKey<'a>> {
        let mut first = *bytes.split_off_first()?;
        let mut limits = LimitState::default();
        if first == MEMBERS {
            let len = usize::try_from(leb128::take(bytes)?).ok()?;
            limits.members = bytes.split_off(..len)?;
            first = *bytes.split_off_first()?;
        }
        let mut run = |most: usize| {
            let len = usize::try_from(leb128::take(bytes)?).ok().filter(|&len| len <= most)?;
            bytes.split_off(..len)
        };
        let key = run(MAX_KEY_BYTES).filter(|key| !key.is_empty())?;
        let generation = Generation::new(if first & GENERATION == 0 { 0 } else { leb128::take(bytes)? })?;
        if generation > Generation::MAX {
            return None;
        }
        if first & LIMITED != 0 {
            limits.limited_until = Some(Timestamp::from_millis(i64::try_from(leb128::take(bytes)?).ok()?)?);
        }
        if first & PAST != 0 {
            let numbers = (leb128::take(bytes)?, leb128::take(bytes)?);
            limits.past = Some(PastLockout::from_numbers(numbers)?);
        }
        if first & ARRIVAL != 0 {
            limits.arrival = Arrival::from_parts(leb128::take(bytes)?, leb128::take(bytes)?);
        }
        if first & GUARDED != 0 {
            limits.guard = EvictionGuard::from_numbers(|| leb128::take(bytes))?;
        }
        let mut hits = || {
            let len = usize::try_from(leb128::take(bytes)?).ok()?;
            bytes.split_off(..len)
        };
        if first & DENIED != 0 {
            limits.denied = hits()?;
        }
        if first & IDS != 0 {
            limits.ids = hits()?;
        }
        let entry = hits()?;
        (first & !FLAGS == 0).then_some(SavedKey { key, generation, limits, entry })
    }
}

#[cfg(test)]
mod tests {
    use super::super::eviction_guard::{LimitGuard, RateGuard};
    use super::*;

    #[test]
    fn saved_keys_round_trip() {
        let until = Timestamp::from_millis(1_700_000_000_123);
        let long = [7; MAX_KEY_BYTES];
        let none = LimitState::default();
        let rate = until.map(|until| RateGuard::Until { until, is_full: true });
        let guard = EvictionGuard { limit: None, rate };
        let near = EvictionGuard { limit: Some(LimitGuard::new(7, crate::time::days(9))), ..guard };
        let past = until.map(|forgotten_at| PastLockout { length: crate::time::days(9), forgotten_at });
        let limited = LimitState { limited_until: until, past, guard, ..none };
        let arrival = Arrival::from_parts(1 << 41, u64::MAX);
        let all = [
            SavedKey { key: b"k", generation: Generation(0), limits: none, entry: b"" },
            SavedKey { key: &long, generation: Generation::MAX, limits: limited, entry: &long },
            SavedKey { key: b"k", generation: Generation(1), limits: none, entry: b"entry" },
            SavedKey { key: b"k", generation: Generation(0), limits: limited, entry: b"entry" },
            SavedKey {
                key: b"k",
                generation: Generation(2),
                limits: LimitState { arrival, past, guard: near, ..none },
                entry: b"",
            },
            SavedKey {
                key: b"k",
                generation: Generation(0),
                limits: LimitState { denied: b"d", ids: b"i", members: b"m", ..limited },
                entry: b"e",
            },
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|saved| saved.write(&mut bytes));
        let mut rest = &bytes[..];
        for saved in all {
            assert_eq!(SavedKey::take(&mut rest), Ok(saved));
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn saved_sources_round_trip() {
        let long = [7; MAX_SOURCE_BYTES];
        let all = [Mark { source: b"s", position: 0 }, Mark { source: &long, position: u64::MAX }];
        let mut bytes = Vec::new();
        all.iter().for_each(|mark| mark.write(&mut bytes));
        let mut rest = &bytes[..];
        for mark in all {
            assert_eq!(Item::take(&mut rest), Ok(Item::Source(mark)));
        }
        assert!(rest.is_empty());
        let one_len = bytes.len() - MAX_SOURCE_BYTES - 13;
        for len in 0..one_len {
            assert_eq!(Item::take(&mut &bytes[..len]), Err(Malformed::Entry), "{len}");
        }
        for bytes in [&[SOURCE, 0, 0][..], &[SOURCE | GENERATION, 1, b's', 0], &[SOURCE, 0x81, 2]] {
            assert_eq!(Item::take(&mut { bytes }), Err(Malformed::Entry), "{bytes:?}");
        }
    }

    #[test]
    fn invalid_saved_keys_are_refused() {
        let arrival = Arrival::from_parts(1, 2);
        let limits = LimitState {
            arrival,
            denied: b"denied",
            ids: b"ids",
            members: b"members",
            ..LimitState::default()
        };
        let saved = SavedKey { key: b"key", generation: Generation(9), limits, entry: b"entry" };
        let mut bytes = Vec::new();
        saved.write(&mut bytes);
        for len in 0..bytes.len() {
            assert_eq!(SavedKey::take(&mut &bytes[..len]), Err(Malformed::Entry), "{len}");
        }
        for bytes in [&[0, 0, 0][..], &[32, 1, b'k', 0], &[0, 0x81, 8]] {
            assert_eq!(SavedKey::take(&mut { bytes }), Err(Malformed::Entry), "{bytes:?}");
        }
    }
}
