//! Encoding and decoding of deltas. The table is in the design document.

use super::{CountedId, Delta, Forgotten, Generation, LimitState, Sequence};
use crate::entry::Entry;
use crate::error::Malformed;
use crate::gcra::Arrival;
use crate::limits::{MAX_KEY_BYTES, MAX_SOURCE_BYTES, MAX_TOTAL};
use crate::lockout::PastLockout;
use crate::number::Number;
use crate::store::{Before, EvictionGuard, Extras};
use crate::time::Timestamp;
use crate::uniques::Member;

/// The encoded changes of one batch, in the order in which they were made.
#[derive(Default, Debug)]
pub struct DeltaBatch {
    now: Timestamp,
    bytes: Vec<u8>,
    /// The state of each deleted key, in order, if it existed. It is restored when the batch is rolled back.
    pub(crate) deleted: Vec<Option<(Entry, Extras)>>,
    /// The hits that were given back or taken back, in order, each with the salt and the members of their key. They are added
    /// again when the batch is rolled back.
    pub(crate) given_back: Vec<(Entry, Extras)>,
    /// What each new position replaced, in order.
    pub(crate) moved: Vec<Before>,
    /// The newest delta, if it is hits to which more can be added.
    open: Option<Open>,
}

/// A position in a batch. The changes after it can be rolled back alone.
#[derive(Default, Debug)]
pub struct DeltaMark {
    bytes: usize,
    pub(crate) deleted: usize,
    pub(crate) given_back: usize,
    pub(crate) moved: usize,
}

/// The hits at the end of a batch, to which more can be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Open {
    offset: usize,
    key_len: usize,
    sequence: Sequence,
    generation: Generation,
    at: Timestamp,
    hits: u64,
}

// The first byte of a delta is its kind.
const HITS: u8 = 0;
const LIMITED: u8 = 1;
const DELETED: u8 = 2;
const EVICTED: u8 = 3;
const FLUSH: u8 = 4;
const RESTORED: u8 = 5;
const DENIED: u8 = 6;
const ARRIVAL: u8 = 7;
const GUARDED: u8 = 8;
const POSITION: u8 = 9;
const VOID: u8 = 10;
const GIVEN_BACK: u8 = 11;
const TAKEN_BACK: u8 = 12;
const ID: u8 = 13;
const MEMBER: u8 = 14;
const MEMBERS_DROPPED: u8 = 15;
// The second byte has flags for fields that are present because they differ from the default. Two more bits
// are free, for an origin other than this server.
/// Of a restored key: it has an arrival time; denied hits; a guard; ids; members.
const HAS_ARRIVAL: u8 = 1;
const HAS_DENIED: u8 = 1 << 1;
const HAS_GUARD: u8 = 1 << 2;
const HAS_IDS: u8 = 1 << 7;
const HAS_MEMBERS: u8 = 1 << 5;
/// Of a restored key and of a limited one, in place of `AT`: its next lockout grows from a past one.
const HAS_PAST: u8 = 1 << 4;
/// Of hits that were given back: the key had no others, so its ids count again.
const ENDS_IDS: u8 = 1;
/// Not the first generation.
const GENERATION: u8 = 1 << 3;
/// Not the time of the batch.
const AT: u8 = 1 << 4;
/// More hits than one; more than a number can hold.
const SEVERAL: u8 = 1 << 5;
const HUGE: u8 = 1 << 6;
/// Before format 3, one byte had the kind in these bits, and the flags. A restored key had other flags.
const OLD_KIND: u8 = 0b111;
const OLD_HAS_DENIED: u8 = SEVERAL;
const OLD_HAS_ARRIVAL: u8 = HUGE;

/// The encoding of changes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DeltaFormat {
    /// Kind and flags in one byte. It is read, but no longer written.
    Old,
    /// A byte for each.
    #[default]
    Current,
}

/// The bytes before a key, while they are encoded.
struct Head<'b> {
    bytes: &'b mut [u8; HEAD_BYTES],
    len: usize,
}

/// Kind, flags, part, the length of a key in two bytes, eight numbers (the lengths are short) and a short key.
const HEAD_BYTES: usize = 104;

impl Head<'_> {
    #[inline(always)]
    fn number(&mut self, value: u64) {
        let Number { word, len } = Number::new(value);
        self.word(word, len);
    }

    fn guard(&mut self, guard: EvictionGuard) {
        let (first, second) = guard.to_numbers();
        self.number(first);
        second.into_iter().for_each(|second| self.number(second));
    }

    #[inline(always)]
    fn word(&mut self, word: u64, len: usize) {
        self.bytes[self.len..self.len + 8].copy_from_slice(&word.to_le_bytes());
        self.len += len;
    }
}

/// Appends a delta: its kind and flags, its part and number, the fields that `more` writes, and the key.
#[inline(always)]
fn append(
    out: &mut Vec<u8>,
    (kind, flags): (u8, u8),
    Sequence { part, number }: Sequence,
    key: &[u8],
    generation: Generation,
    more: impl FnOnce(&mut Head<'_>),
) {
    let start = out.len();
    // Encode in place: copying bytes that were just written in pieces is slow.
    out.extend_from_slice(&[0; HEAD_BYTES]);
    let bytes = out[start..].first_chunk_mut::<HEAD_BYTES>().expect("it was just added");
    let has_generation = if generation == Generation::default() { 0 } else { GENERATION };
    let [low, high] = part.to_le_bytes();
    bytes[..4].copy_from_slice(&[kind, flags | has_generation, low, high]);
    let mut head = Head { bytes, len: 4 };
    head.number(key.len() as u64);
    head.number(number);
    if has_generation != 0 {
        head.number(generation.0);
    }
    more(&mut head);
    let Head { bytes, len } = head;
    if copy_short::<8>(key, &mut bytes[len..]) || copy_short::<16>(key, &mut bytes[len..]) {
        out.truncate(start + len + key.len());
    } else {
        out.truncate(start + len);
        out.extend_from_slice(key);
    }
}

/// Copies a key of `N` to `2 * N` bytes with two copies of fixed length, which are faster than one of
/// variable length. Returns false and copies nothing if the key has another length.
#[inline(always)]
fn copy_short<const N: usize>(key: &[u8], to: &mut [u8]) -> bool {
    let (Some(first), Some(last)) = (key.first_chunk::<N>(), key.last_chunk::<N>()) else { return false };
    if key.len() > 2 * N {
        return false;
    }
    to[..N].copy_from_slice(first);
    to[key.len() - N..key.len()].copy_from_slice(last);
    true
}

/// The fast path of `append`: one hit of now, on a key of 8 to 16 bytes in its first generation, as most are. It takes
/// half of the instructions and appends the same bytes. Returns false and appends nothing if the key has another
/// length.
///
/// Without it, a hit of `Store::apply_into` takes 9 % more with a million keys and 22 % more with a thousand (the
/// best of 11 interleaved rounds on a busy machine, batches of 64, library only). The test
/// `one_hit_is_encoded_like_any_other` compares both paths.
#[inline(always)]
fn append_one_hit(out: &mut Vec<u8>, Sequence { part, number }: Sequence, key: &[u8]) -> bool {
    const BYTES: usize = 32;
    const HEAD: usize = 5;
    let start = out.len();
    out.extend_from_slice(&[0; BYTES]);
    let bytes = out[start..].first_chunk_mut::<BYTES>().expect("it was just added");
    let [low, high] = part.to_le_bytes();
    // Shorter keys have a length of one byte. Longer keys are truncated below.
    let [key_len, ..] = Number::new(key.len() as u64).word.to_le_bytes();
    bytes[..HEAD].copy_from_slice(&[HITS, 0, low, high, key_len]);
    let Number { word, len } = Number::new(number);
    bytes[HEAD..HEAD + 8].copy_from_slice(&word.to_le_bytes());
    let is_short = copy_short::<8>(key, &mut bytes[HEAD + len..]);
    out.truncate(if is_short { start + HEAD + len + key.len() } else { start });
    is_short
}

impl DeltaBatch {
    /// The time at which the batch was applied.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether a key was deleted.
    #[must_use]
    pub fn has_deletions(&self) -> bool {
        !self.deleted.is_empty()
    }

    /// Removes all changes. Keeps the allocated memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.deleted.clear();
        self.given_back.clear();
        self.moved.clear();
        self.open = None;
        self.now = Timestamp::MIN;
    }

    /// The encoded changes, for [`Deltas::new`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Memory that the batch holds, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The changes.
    #[must_use]
    pub fn deltas(&self) -> Deltas<'_> {
        Deltas::new(self.now, &self.bytes)
    }

    /// Sets the time of the batch, if it is empty. Times in it are relative to that.
    #[inline]
    pub(crate) fn advance(&mut self, now: Timestamp) {
        if self.is_empty() {
            self.now = now;
        }
    }

    /// Later hits get a delta of their own, because another thread may have seen the last one.
    #[inline]
    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// The current position.
    pub fn mark(&mut self) -> DeltaMark {
        self.close();
        DeltaMark {
            bytes: self.bytes.len(),
            deleted: self.deleted.len(),
            given_back: self.given_back.len(),
            moved: self.moved.len(),
        }
    }

    /// Removes the deltas behind a mark and returns them encoded.
    pub(crate) fn split_off(&mut self, mark: &DeltaMark) -> Vec<u8> {
        self.close();
        self.bytes.split_off(mark.bytes)
    }

    /// Adds hits as the next change of a part. Successive hits of one key at one time become one delta and
    /// one change. Returns the number of the change.
    #[inline]
    pub(crate) fn push_hits(
        &mut self,
        next: Sequence,
        key: &[u8],
        generation: Generation,
        at: Timestamp,
        hits: u64,
    ) -> u64 {
        let (mut total, mut sequence) = (hits, next);
        if let Some(open) = self.open {
            let is_same = open.at == at
                && open.generation == generation
                && open.sequence.part == next.part
                && self.open_key(open) == key;
            if is_same && let Some(sum) = open.hits.checked_add(hits).filter(|&sum| sum <= MAX_TOTAL) {
                self.bytes.truncate(open.offset);
                (total, sequence) = (sum, open.sequence);
            }
        }
        let offset = self.bytes.len();
        let is_one_hit = total == 1 && at == self.now && generation == Generation::default();
        if !(is_one_hit && append_one_hit(&mut self.bytes, sequence, key)) {
            self.append_hits((HITS, 0), sequence, key, generation, (at, total));
        }
        self.open = Some(Open { offset, key_len: key.len(), sequence, generation, at, hits: total });
        sequence.number
    }

    #[inline(never)]
    fn append_hits(
        &mut self,
        (kind, flags): (u8, u8),
        sequence: Sequence,
        key: &[u8],
        generation: Generation,
        (at, hits): (Timestamp, u64),
    ) {
        let now = self.now;
        let is_now = at == now;
        let (at_flag, hits_flag) = (if is_now { 0 } else { AT }, hits_flag(hits));
        append(&mut self.bytes, (kind, flags | at_flag | hits_flag), sequence, key, generation, |head| {
            if !is_now {
                head.number(zigzag(at.as_millis() - now.as_millis()));
            }
            match hits_flag {
                SEVERAL => head.number(hits),
                HUGE => head.word(hits, size_of::<u64>()),
                _ => {}
            }
        });
    }

    pub(crate) fn push(&mut self, sequence: Sequence, delta: Delta<'_>) {
        self.close();
        match delta {
            Delta::Hits { key, generation, at, hits } => {
                self.push_hits(sequence, key, generation, at, hits);
            }
            Delta::Limited { key, generation, until, past } => {
                let flags = if past.is_some() { HAS_PAST } else { 0 };
                append(&mut self.bytes, (LIMITED, flags), sequence, key, generation, |head| {
                    head.number(until.as_millis().cast_unsigned());
                    if let Some(past) = past {
                        let (length_ms, forgotten_ms) = past.to_numbers();
                        head.number(length_ms);
                        head.number(forgotten_ms);
                    }
                });
            }
            Delta::Denied { key, generation, at, hits } => {
                self.append_hits((DENIED, 0), sequence, key, generation, (at, hits));
            }
            Delta::GivenBack { key, generation, from, hits, ends_ids } => {
                let flags = if ends_ids { ENDS_IDS } else { 0 };
                self.append_hits((GIVEN_BACK, flags), sequence, key, generation, (from, hits));
            }
            Delta::TakenBack { key, generation, from, to, hits } => {
                append(&mut self.bytes, (TAKEN_BACK, 0), sequence, key, generation, |head| {
                    head.number(from.as_millis().cast_unsigned());
                    head.number(to.as_millis().cast_unsigned());
                    head.word(hits, size_of::<u64>());
                });
            }
            Delta::Arrival { key, generation, arrival } => {
                append(&mut self.bytes, (ARRIVAL, 0), sequence, key, generation, |head| {
                    let (millis, ticks) = arrival.to_parts();
                    head.word(millis, size_of::<u64>());
                    head.word(ticks, size_of::<u64>());
                });
            }
            Delta::Guarded { key, generation, guard } => {
                append(&mut self.bytes, (GUARDED, 0), sequence, key, generation, |head| {
                    head.guard(guard);
                });
            }
            Delta::Id { key, generation, id } => {
                let is_now = id.at == self.now;
                let (flags, after_ms) =
                    (if is_now { 0 } else { AT }, id.at.as_millis() - self.now.as_millis());
                append(&mut self.bytes, (ID, flags), sequence, key, generation, |head| {
                    if !is_now {
                        head.number(zigzag(after_ms));
                    }
                    head.number(id.until.as_millis().cast_unsigned());
                    head.word(id.salt, size_of::<u64>());
                    head.word(id.fingerprint, size_of::<u64>());
                });
            }
            Delta::Member { key, generation, at, member } => {
                let is_now = at == self.now;
                let (flags, after_ms) = (if is_now { 0 } else { AT }, at.as_millis() - self.now.as_millis());
                append(&mut self.bytes, (MEMBER, flags), sequence, key, generation, |head| {
                    if !is_now {
                        head.number(zigzag(after_ms));
                    }
                    head.word(member.hash(), Member::BYTES);
                });
            }
            Delta::MembersDropped { key, generation, until } => {
                let is_now = until == self.now;
                let (flags, after_ms) =
                    (if is_now { 0 } else { AT }, until.as_millis() - self.now.as_millis());
                append(&mut self.bytes, (MEMBERS_DROPPED, flags), sequence, key, generation, |head| {
                    if !is_now {
                        head.number(zigzag(after_ms));
                    }
                });
            }
            Delta::Forget { key, generation, why } => {
                let kind = if why == Forgotten::Deleted { DELETED } else { EVICTED };
                append(&mut self.bytes, (kind, 0), sequence, key, generation, |_| ());
            }
            Delta::Restored { key, generation, limits, entry } => {
                let LimitState { limited_until, past, arrival, guard, denied, ids, members } = limits;
                // A time of 0 means no limit.
                let limited_ms = limited_until.map_or(0, Timestamp::as_millis);
                let has_arrival = arrival != Arrival::default();
                let flag = |has: bool, flag| if has { flag } else { 0 };
                let flags = flag(has_arrival, HAS_ARRIVAL)
                    | flag(!denied.is_empty(), HAS_DENIED)
                    | flag(!guard.is_none(), HAS_GUARD)
                    | flag(!ids.is_empty(), HAS_IDS)
                    | flag(!members.is_empty(), HAS_MEMBERS)
                    | flag(past.is_some(), HAS_PAST);
                append(&mut self.bytes, (RESTORED, flags), sequence, key, generation, |head| {
                    head.number(limited_ms.cast_unsigned());
                    if !guard.is_none() {
                        head.guard(guard);
                    }
                    head.number(entry.len() as u64);
                    if !denied.is_empty() {
                        head.number(denied.len() as u64);
                    }
                    if !ids.is_empty() {
                        head.number(ids.len() as u64);
                    }
                    if !members.is_empty() {
                        head.number(members.len() as u64);
                    }
                });
                self.bytes.extend_from_slice(entry);
                self.bytes.extend_from_slice(denied);
                self.bytes.extend_from_slice(ids);
                self.bytes.extend_from_slice(members);
                if has_arrival {
                    let (millis, ticks) = arrival.to_parts();
                    self.bytes.extend_from_slice(&millis.to_le_bytes());
                    self.bytes.extend_from_slice(&ticks.to_le_bytes());
                }
                if let Some(past) = past {
                    let (length_ms, forgotten_ms) = past.to_numbers();
                    self.bytes.extend_from_slice(&length_ms.to_le_bytes());
                    self.bytes.extend_from_slice(&forgotten_ms.to_le_bytes());
                }
            }
            Delta::Flush { below } => append(&mut self.bytes, (FLUSH, 0), sequence, b"", below, |_| ()),
            Delta::Position { source, position } => {
                append(&mut self.bytes, (POSITION, 0), sequence, source, Generation::default(), |head| {
                    head.word(position, size_of::<u64>());
                });
            }
            Delta::Void => {
                append(&mut self.bytes, (VOID, 0), sequence, b"", Generation::default(), |_| ());
            }
        }
    }

    /// The key of the open hits, which is at the end of the batch.
    #[inline]
    fn open_key(&self, open: Open) -> &[u8] {
        &self.bytes[self.bytes.len() - open.key_len..]
    }
}

/// The flag for a number of hits.
#[inline]
fn hits_flag(hits: u64) -> u8 {
    match hits {
        1 => 0,
        2..=Number::MAX => SEVERAL,
        _ => HUGE,
    }
}

/// Reads encoded changes. Of damaged bytes it returns the changes that can be read, and then an error.
#[derive(Clone, Copy, Debug)]
pub struct Deltas<'a> {
    format: DeltaFormat,
    now: Timestamp,
    bytes: &'a [u8],
}

impl<'a> Deltas<'a> {
    /// The changes of a batch that was applied at `now`.
    #[must_use]
    pub fn new(now: Timestamp, bytes: &'a [u8]) -> Deltas<'a> {
        Deltas::of_format(DeltaFormat::Current, now, bytes)
    }

    /// The changes of a batch that was encoded in `format` and applied at `now`.
    #[must_use]
    pub fn of_format(format: DeltaFormat, now: Timestamp, bytes: &'a [u8]) -> Deltas<'a> {
        Deltas { format, now, bytes }
    }

    /// The format of the bytes.
    pub(crate) fn format(&self) -> DeltaFormat {
        self.format
    }

    /// The time at which the batch was applied.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The bytes that were not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Decodes the kind and the flags of the next delta.
    fn read_kind(&mut self) -> Option<(u8, u8)> {
        let first = *self.bytes.split_off_first()?;
        if self.format == DeltaFormat::Current {
            let flags = *self.bytes.split_off_first()?;
            let known = match first {
                RESTORED => {
                    HAS_ARRIVAL | HAS_DENIED | HAS_GUARD | HAS_IDS | HAS_MEMBERS | HAS_PAST | GENERATION
                }
                ID | MEMBER | MEMBERS_DROPPED => GENERATION | AT,
                LIMITED => HAS_PAST | GENERATION,
                HITS | DENIED => GENERATION | AT | SEVERAL | HUGE,
                GIVEN_BACK => GENERATION | AT | SEVERAL | HUGE | ENDS_IDS,
                POSITION | VOID => 0,
                _ => GENERATION,
            };
            return (flags & !known == 0).then_some((first, flags));
        }
        let (kind, old) = (first & OLD_KIND, first & !OLD_KIND);
        if kind != RESTORED {
            return Some((kind, old));
        }
        let flag = |has: u8, flag| if old & has == 0 { 0 } else { flag };
        let flags = flag(OLD_HAS_ARRIVAL, HAS_ARRIVAL) | flag(OLD_HAS_DENIED, HAS_DENIED);
        Some((kind, flags | old & GENERATION))
    }

    fn read(&mut self) -> Option<(Sequence, Delta<'a>)> {
        let (kind, flags) = self.read_kind()?;
        let (&[low, high], rest) = self.bytes.split_first_chunk()?;
        let bytes = &mut { rest };
        let key_len = usize::try_from(Number::take(bytes)?).ok()?;
        let sequence = Sequence { part: u16::from_le_bytes([low, high]), number: Number::take(bytes)? };
        let generation = Generation::new(if flags & GENERATION == 0 { 0 } else { Number::take(bytes)? })?;
        let has_past = matches!(kind, LIMITED | RESTORED) && flags & HAS_PAST != 0;
        let at = if has_past || flags & AT == 0 {
            self.now
        } else {
            let after_ms = unzigzag(Number::take(bytes)?);
            Timestamp::from_millis(self.now.as_millis().checked_add(after_ms)?)?
        };
        let hits = match flags & (SEVERAL | HUGE) {
            _ if kind == RESTORED => 1,
            0 => 1,
            SEVERAL => Number::take(bytes)?,
            HUGE => take_word(bytes)?,
            _ => return None,
        };
        let until_ms = if matches!(kind, LIMITED | RESTORED) { Number::take(bytes)? } else { 0 };
        let past = if has_past && kind == LIMITED {
            Some(PastLockout::from_numbers((Number::take(bytes)?, Number::take(bytes)?))?)
        } else {
            None
        };
        let has = |flag| kind == RESTORED && flags & flag != 0;
        let is_guarded = kind == GUARDED || has(HAS_GUARD);
        let guard = if is_guarded {
            EvictionGuard::from_numbers(|| Number::take(bytes))?
        } else {
            EvictionGuard::default()
        };
        let entry_len = if kind == RESTORED { Number::take(bytes)? } else { 0 };
        let denied_len = if has(HAS_DENIED) { Number::take(bytes)? } else { 0 };
        let ids_len = if has(HAS_IDS) { Number::take(bytes)? } else { 0 };
        let members_len = if has(HAS_MEMBERS) { Number::take(bytes)? } else { 0 };
        let member = if kind == MEMBER { take_hash(bytes)? } else { 0 };
        let id = if kind == ID { Some(take_id(at, bytes)?) } else { None };
        let arrival = if kind == ARRIVAL { take_arrival(bytes)? } else { Arrival::default() };
        let position = if kind == POSITION { take_word(bytes)? } else { 0 };
        let taken = if kind == TAKEN_BACK {
            (take_time(bytes)?, take_time(bytes)?, take_word(bytes)?)
        } else {
            (at, at, hits)
        };
        let key = bytes.split_off(..key_len)?;
        if key_len > MAX_KEY_BYTES
            || matches!(kind, FLUSH | VOID) != key.is_empty()
            || !(1..=MAX_TOTAL).contains(&hits)
            || !(1..=MAX_TOTAL).contains(&taken.2)
        {
            return None;
        }
        let delta = match kind {
            HITS => Delta::Hits { key, generation, at, hits },
            LIMITED => {
                let until = Timestamp::from_millis(i64::try_from(until_ms).ok()?)?;
                Delta::Limited { key, generation, until, past }
            }
            DENIED => Delta::Denied { key, generation, at, hits },
            GIVEN_BACK => {
                let ends_ids = flags & ENDS_IDS != 0;
                Delta::GivenBack { key, generation, from: at, hits, ends_ids }
            }
            TAKEN_BACK => {
                let (from, to, hits) = taken;
                Delta::TakenBack { key, generation, from, to, hits }
            }
            ARRIVAL => Delta::Arrival { key, generation, arrival },
            GUARDED => Delta::Guarded { key, generation, guard },
            DELETED => Delta::Forget { key, generation, why: Forgotten::Deleted },
            ID => Delta::Id { key, generation, id: id? },
            MEMBER => Delta::Member { key, generation, at, member: Member::from_hash(member) },
            MEMBERS_DROPPED => Delta::MembersDropped { key, generation, until: at },
            EVICTED => Delta::Forget { key, generation, why: Forgotten::Evicted },
            FLUSH => Delta::Flush { below: generation },
            POSITION if key_len <= MAX_SOURCE_BYTES => Delta::Position { source: key, position },
            VOID => Delta::Void,
            RESTORED => {
                let until = Timestamp::from_millis(i64::try_from(until_ms).ok()?)?;
                let limited_until = Some(until).filter(|&until| until > Timestamp::MIN);
                let entry = bytes.split_off(..usize::try_from(entry_len).ok()?)?;
                let denied = bytes.split_off(..usize::try_from(denied_len).ok()?)?;
                let ids = bytes.split_off(..usize::try_from(ids_len).ok()?)?;
                let members = bytes.split_off(..usize::try_from(members_len).ok()?)?;
                let arrival = if has(HAS_ARRIVAL) { take_arrival(bytes)? } else { arrival };
                let past = if has_past {
                    Some(PastLockout::from_numbers((take_word(bytes)?, take_word(bytes)?))?)
                } else {
                    None
                };
                let limits = LimitState { limited_until, past, arrival, guard, denied, ids, members };
                Delta::Restored { key, generation, limits, entry }
            }
            _ => return None,
        };
        self.bytes = bytes;
        Some((sequence, delta))
    }
}

impl<'a> Iterator for Deltas<'a> {
    type Item = Result<(Sequence, Delta<'a>), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_none() {
            self.bytes = &[];
        }
        Some(read.ok_or(Malformed::Delta))
    }
}

fn take_word(bytes: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.split_off(..size_of::<u64>())?.first_chunk()?))
}

/// Decodes the hash of a member.
fn take_hash(bytes: &mut &[u8]) -> Option<u64> {
    let mut word = [0; size_of::<u64>()];
    word[..Member::BYTES].copy_from_slice(bytes.split_off(..Member::BYTES)?);
    Some(u64::from_le_bytes(word))
}

fn take_time(bytes: &mut &[u8]) -> Option<Timestamp> {
    Timestamp::from_millis(i64::try_from(Number::take(bytes)?).ok()?)
}

/// Decodes the id of hits at a time.
fn take_id(at: Timestamp, bytes: &mut &[u8]) -> Option<CountedId> {
    let until = take_time(bytes)?;
    let (salt, fingerprint) = (take_word(bytes)?, take_word(bytes)?);
    (salt != 0 && until >= at).then_some(CountedId { salt, fingerprint, at, until })
}

fn take_arrival(bytes: &mut &[u8]) -> Option<Arrival> {
    Some(Arrival::from_parts(take_word(bytes)?, take_word(bytes)?))
}

/// Maps numbers near zero, of either sign, to small ones.
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{LimitGuard, RateGuard};
    use crate::time::Span;

    fn time(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    fn read(batch: &DeltaBatch) -> Vec<(Sequence, Delta<'_>)> {
        batch.deltas().collect::<Result<_, _>>().expect("well formed")
    }

    fn sequence(part: u16, number: u64) -> Sequence {
        Sequence { part, number }
    }

    #[test]
    fn deltas_round_trip() {
        let now = time(1_700_000_000_123);
        let long = [b'k'; MAX_KEY_BYTES];
        let key = &b"key"[..];
        let arrival = Arrival::from_parts(u64::MAX, 7);
        let rate = Some(RateGuard::Until { until: Timestamp::MAX, is_full: true });
        let limit = Some(LimitGuard::new(MAX_TOTAL, Span::MAX));
        let guard = EvictionGuard { limit, rate };
        let past = Some(PastLockout { length: Span::MAX, forgotten_at: Timestamp::MAX });
        let (denied, ids, members) = (&long[..], &long[..], &long[..7]);
        let limits = LimitState { limited_until: Some(now), past, arrival, guard, denied, ids, members };
        let id = CountedId { salt: u64::MAX, fingerprint: 7, at: now, until: Timestamp::MAX };
        let deltas = [
            Delta::Hits { key, generation: Generation(0), at: now, hits: 1 },
            Delta::Hits { key: &long, generation: Generation(7), at: Timestamp::MIN, hits: MAX_TOTAL },
            Delta::Hits { key, generation: Generation::MAX, at: Timestamp::MAX, hits: 2 },
            Delta::Limited { key, generation: Generation(1), until: Timestamp::MAX, past: None },
            Delta::Limited { key: &long, generation: Generation(1), until: now, past },
            Delta::Forget { key, generation: Generation(0), why: Forgotten::Deleted },
            Delta::Forget { key, generation: Generation(300), why: Forgotten::Evicted },
            Delta::Restored {
                key: &long,
                generation: Generation(2),
                limits: LimitState::default(),
                entry: &long,
            },
            Delta::Restored { key, generation: Generation(0), limits, entry: b"" },
            Delta::Restored { key: &long[..32], generation: Generation::MAX, limits, entry: &long },
            Delta::Denied { key, generation: Generation(7), at: Timestamp::MIN, hits: MAX_TOTAL },
            Delta::Denied { key: &long, generation: Generation(0), at: now, hits: 1 },
            Delta::GivenBack {
                key,
                generation: Generation(7),
                from: Timestamp::MIN,
                hits: MAX_TOTAL,
                ends_ids: true,
            },
            Delta::GivenBack { key: &long, generation: Generation(0), from: now, hits: 1, ends_ids: false },
            Delta::TakenBack {
                key: &long,
                generation: Generation::MAX,
                from: Timestamp::MIN,
                to: Timestamp::MAX,
                hits: MAX_TOTAL,
            },
            Delta::TakenBack { key, generation: Generation(0), from: now, to: now, hits: 1 },
            Delta::Arrival { key, generation: Generation(3), arrival: limits.arrival },
            Delta::Guarded { key, generation: Generation(0), guard },
            Delta::Guarded { key, generation: Generation(4), guard: EvictionGuard { limit: None, ..guard } },
            Delta::Id { key, generation: Generation(0), id },
            Delta::Id { key: &long, generation: Generation::MAX, id: CountedId { at: Timestamp::MIN, ..id } },
            Delta::Member { key, generation: Generation(0), at: now, member: Member::from_hash(u64::MAX) },
            Delta::Member {
                key: &long,
                generation: Generation::MAX,
                at: Timestamp::MIN,
                member: Member::from_hash(7),
            },
            Delta::MembersDropped { key, generation: Generation(0), until: now },
            Delta::MembersDropped { key: &long, generation: Generation::MAX, until: Timestamp::MIN },
            Delta::Flush { below: Generation(9) },
            Delta::Position { source: &long[..MAX_SOURCE_BYTES], position: u64::MAX },
            Delta::Position { source: b"s", position: 0 },
            Delta::Void,
        ];
        let mut batch = DeltaBatch::default();
        batch.advance(now);
        let places = [
            (0, 1),
            (0, 2),
            (1_023, Number::MAX),
            (512, 1 << 20),
            (1, 1),
            (2, 2),
            (3, 3),
            (4, 4),
            (5, 5),
            (6, 6),
            (7, 7),
            (8, 8),
            (9, 9),
            (10, 10),
            (u16::MAX, 0),
            (0, 3),
            (0, 4),
            (11, 12),
            (12, 13),
            (13, 14),
            (u16::MAX, Number::MAX),
            (14, 1),
            (15, 1),
            (16, 1),
            (17, 1),
            (18, 1),
            (19, 1),
            (20, 1),
            (21, 1),
        ];
        assert_eq!(places.len(), deltas.len());
        let wanted: Vec<_> =
            places.into_iter().map(|(part, number)| sequence(part, number)).zip(deltas).collect();
        for &(sequence, delta) in &wanted {
            batch.push(sequence, delta);
        }
        assert_eq!(read(&batch), wanted);
        // Cut at any place, the rest is recognized as incomplete.
        for len in 0..batch.bytes().len() {
            let deltas: Vec<_> = Deltas::new(now, &batch.bytes()[..len]).collect();
            assert!(deltas.iter().rev().skip(1).all(Result::is_ok));
            assert!(deltas.iter().flatten().zip(&wanted).all(|(read, wanted)| read == wanted));
        }
    }

    #[test]
    fn one_hit_is_encoded_like_any_other() {
        let (name, now) = ([b'k'; MAX_KEY_BYTES], time(1_700_000_000_123));
        for (len, bits) in
            (1..=40).chain([MAX_KEY_BYTES]).flat_map(|len| (0..=61).map(move |bits| (len, bits)))
        {
            let (sequence, key) = (sequence(1_023, (1 << bits) - 1), &name[..len]);
            let mut batches = [DeltaBatch::default(), DeltaBatch::default()];
            batches.iter_mut().for_each(|batch| batch.advance(now));
            batches[0].push_hits(sequence, key, Generation::default(), now, 1);
            batches[1].append_hits((HITS, 0), sequence, key, Generation::default(), (now, 1));
            assert_eq!(batches[0].bytes(), batches[1].bytes(), "{len} bytes, change {sequence:?}");
        }
    }

    #[test]
    fn keys_of_every_length_round_trip() {
        let name: Vec<u8> = (0..=u8::MAX).cycle().take(MAX_KEY_BYTES).collect();
        let mut batch = DeltaBatch::default();
        for len in 1..=MAX_KEY_BYTES {
            batch.push_hits(sequence(1, 1 << 40), &name[..len], Generation(len as u64), time(3), len as u64);
        }
        for (len, (_, delta)) in (1..).zip(read(&batch)) {
            let (key, generation, hits) = (&name[..len], Generation(len as u64), len as u64);
            assert_eq!(delta, Delta::Hits { key, generation, at: time(3), hits });
        }
    }

    #[test]
    fn consecutive_hits_of_a_key_are_one_delta() {
        let mut batch = DeltaBatch::default();
        batch.advance(time(5));
        let hits = |key, at_ms, hits| Delta::Hits { key, generation: Generation(0), at: time(at_ms), hits };
        // All of them are one change.
        for _ in 0..300 {
            assert_eq!(batch.push_hits(sequence(3, 7), b"hot", Generation(0), time(5), 1), 7);
        }
        assert_eq!(batch.push_hits(sequence(3, 8), b"hot", Generation(0), time(4), 2), 8);
        batch.close();
        assert_eq!(batch.push_hits(sequence(3, 9), b"hot", Generation(0), time(4), 1), 9);
        assert_eq!(batch.push_hits(sequence(3, 10), b"not", Generation(0), time(4), 1), 10);
        assert_eq!(batch.push_hits(sequence(3, 11), b"not", Generation(0), time(4), 1), 10);
        let wanted = [
            (sequence(3, 7), hits(b"hot", 5, 300)),
            (sequence(3, 8), hits(b"hot", 4, 2)),
            (sequence(3, 9), hits(b"hot", 4, 1)),
            (sequence(3, 10), hits(b"not", 4, 2)),
        ];
        assert_eq!(read(&batch), wanted);
    }

    #[test]
    fn hits_are_not_merged_past_the_bound() {
        let mut batch = DeltaBatch::default();
        batch.push_hits(sequence(0, 1), b"k", Generation(0), Timestamp::MIN, MAX_TOTAL);
        batch.push_hits(sequence(0, 2), b"k", Generation(0), Timestamp::MIN, 1);
        assert_eq!(read(&batch).len(), 2);
    }

    /// Format 2 must be readable as long as there are folders with it.
    #[test]
    fn deltas_of_the_old_format_are_read() {
        let now = time(1_700_000_000_123);
        let number = |value| Number::new(value).word.to_le_bytes()[..Number::new(value).len].to_vec();
        let head = |first: u8, numbers: &[u64]| {
            let mut bytes = vec![first, 5, 0];
            numbers.iter().for_each(|&value| bytes.extend(number(value)));
            bytes
        };
        let key = &b"key"[..];
        let mut bytes = Vec::new();
        // A hit now; 3 hits of generation 2 a second ago; a lockout; and a restored key with denied hits.
        bytes.extend(head(HITS, &[3, 1]));
        bytes.extend(key);
        bytes.extend(head(HITS | GENERATION | AT | SEVERAL, &[3, 2, 2, zigzag(-1_000), 3]));
        bytes.extend(key);
        bytes.extend(head(LIMITED, &[3, 3, 1_700_000_000_999]));
        bytes.extend(key);
        bytes.extend(head(RESTORED | OLD_HAS_DENIED | OLD_HAS_ARRIVAL | GENERATION, &[3, 4, 1, 0, 2, 1]));
        bytes.extend([key, b"eed", &7_u64.to_le_bytes(), &9_u64.to_le_bytes()].concat());
        let arrival = Arrival::from_parts(7, 9);
        let limits = LimitState { arrival, denied: b"d", ..LimitState::default() };
        let generation = Generation(0);
        let wanted = [
            Delta::Hits { key, generation, at: now, hits: 1 },
            Delta::Hits { key, generation: Generation(2), at: time(1_699_999_999_123), hits: 3 },
            Delta::Limited { key, generation, until: time(1_700_000_000_999), past: None },
            Delta::Restored { key, generation: Generation(1), limits, entry: b"ee" },
        ];
        let read: Vec<_> = Deltas::of_format(DeltaFormat::Old, now, &bytes).map(Result::unwrap).collect();
        let wanted: Vec<_> = (1..).map(|number| sequence(5, number)).zip(wanted).collect();
        assert_eq!(read, wanted);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(0_u8.., 0..64), now_ms in 0_i64..1 << 42) {
            let mut batch = DeltaBatch::default();
            batch.advance(time(now_ms));
            for (sequence, delta) in Deltas::new(time(now_ms), &bytes).flatten() {
                batch.push(sequence, delta);
            }
            // Decoded changes can be encoded and decoded again.
            proptest::prop_assert!(batch.deltas().all(|delta| delta.is_ok()));
        }
    }
}
