//! The keys that somebody reads on this node: what other nodes counted of them is read from the engine, and read again when
//! somebody has asked since.
//!
//! With an upstream engine, a key is read from both engines, and neither reading waits for the other.
//!
//! A key is read at most once per flush, however many ask for it, and only when somebody asks. Where other nodes send
//! their counts by themselves, it is read again as soon as they have. A key that a limit is on is read
//! again without questions, as long as its limit may last. Memory is bounded: the keys that were asked for least recently are forgotten first,
//! and those of questions that are not answered yet stay. A question that needs more than half of the memory is refused.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lately::{Span, Tier, Timestamp};
use tokio::sync::Notify;

use super::wait::Wait;
use crate::limits::{
    INTEREST_KEY_BYTES, INTEREST_LASTS, INTEREST_PARTS, INTEREST_SAMPLE, KNOWN_LASTS, LIMITED_LASTS,
    MAX_WAITING_KEYS,
};

/// Keys by name, in parts with a lock each.
pub(super) struct Interest {
    parts: Box<[Mutex<Part>]>,
    hasher: RandomState,
    /// The memory that keys, and what is known of them, may take.
    most_bytes: usize,
    /// The memory of the keys, and of what is known of them.
    key_bytes: AtomicUsize,
    known_bytes: AtomicUsize,
    /// Questions that wait, once for each key.
    waiting: AtomicUsize,
    /// When a question was refused last. Its keys may not have been read, so from then on the wait for a key begins anew.
    refused_ms: AtomicI64,
    /// Readers made so far.
    readers: AtomicUsize,
    /// The part that is looked at next.
    next: AtomicUsize,
    /// A key is read again at this age.
    flush: Duration,
    engines: Box<[ReadEngine]>,
}

/// An engine that keys are read from: the local one, and the upstream one if there is one.
#[derive(Default)]
struct ReadEngine {
    /// Wakes its reader: a key is not known.
    wanted: Notify,
    /// It cannot be reached, so nothing waits for it.
    is_away: AtomicBool,
}

/// The most engines that keys are read from.
pub(super) const TIERS: usize = 2;

pub(super) fn index(tier: Tier) -> usize {
    match tier {
        Tier::Local => 0,
        Tier::Upstream => 1,
    }
}

#[derive(Default)]
struct Part {
    keys: HashMap<Box<[u8]>, Reader>,
    /// Those of each engine.
    queues: [Queues; TIERS],
}

/// Keys that are to be read.
#[derive(Default)]
struct Queues {
    /// Those that questions may wait for, and those that have changed.
    unknown: Queue,
    /// Those that were read a flush ago, and that somebody has asked for since.
    known: Queue,
    /// Those that are read again without questions, by the time of the last reading.
    limited: Queue,
}

impl Queues {
    fn unknown(&mut self) -> &mut Queue {
        &mut self.unknown
    }

    fn known(&mut self) -> &mut Queue {
        &mut self.known
    }

    fn limited(&mut self) -> &mut Queue {
        &mut self.limited
    }
}

/// Keys and the numbers of their readers.
type Queue = VecDeque<(Box<[u8]>, usize)>;

/// What is read of a key.
struct Reader {
    /// Tells it from an earlier one of the same key.
    number: usize,
    /// The longest window that was asked for.
    window: Span,
    /// When somebody asked last.
    asked: Timestamp,
    /// Until when it is read again without questions, because of a limit.
    limited_until: Timestamp,
    /// What is read from each engine.
    sides: [Side; TIERS],
    known_bytes: usize,
    /// Those that wait for it or for another of their keys. It is not forgotten before they are answered.
    questions: Vec<Weak<Wait>>,
}

/// How a key is read from one engine.
#[derive(Default)]
struct Side {
    /// When the engine was read last, for a window of this length.
    read: Option<(Timestamp, Span)>,
    reading: Reading,
    /// Whether other nodes have sent counts of it since.
    has_changed: bool,
    /// Since when questions wait for it.
    unknown_since: Option<Timestamp>,
    waits: Vec<Weak<Wait>>,
}

/// Whether a key is being read.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Reading {
    #[default]
    No,
    Queued,
    Since(Timestamp),
}

/// A key that is to be read, for a window.
pub(super) struct Due {
    pub(super) key: Box<[u8]>,
    pub(super) window: Span,
    number: usize,
}

/// A question about a key.
#[derive(Clone, Copy)]
pub(super) struct Question<'q> {
    pub(super) key: &'q [u8],
    pub(super) window: Span,
    /// Whether it is of a limit.
    pub(super) is_limit: bool,
}

/// What is known of a key when somebody asks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Answer {
    /// What is known is not old, or waiting would not help.
    Known,
    /// The key was not read, or too long ago. It is to be read now.
    Unknown,
    /// The same, and questions have waited for it as long as they may.
    Overdue,
}

fn age(now: Timestamp, then: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(now.as_millis() - then.as_millis()).unwrap_or(0))
}

impl Side {
    fn is_known(&self, window: Span, most: Duration, now: Timestamp) -> bool {
        self.read.is_some_and(|(at, read)| window <= read && age(now, at) <= most)
    }

    /// Whether it was read less than a flush ago, for a window of this length, and nothing has come since.
    fn is_fresh(&self, window: Span, flush: Duration, now: Timestamp) -> bool {
        !self.has_changed && self.read.is_some_and(|(at, read)| window <= read && age(now, at) < flush)
    }

    fn end_waits(&mut self, waiting: &AtomicUsize) -> bool {
        self.unknown_since = None;
        waiting.fetch_sub(self.waits.len(), Relaxed);
        // All of them, also behind one that is over.
        self.waits.drain(..).filter_map(|wait| wait.upgrade()).fold(false, |any, wait| wait.done() | any)
    }
}

impl Reader {
    fn is_old(&self, now: Timestamp) -> bool {
        age(now, self.asked) > INTEREST_LASTS && self.limited_until < now
    }

    fn is_needed(&self) -> bool {
        self.questions.iter().any(|question| question.strong_count() > 0)
    }

    /// Notes that a question needs it. True if the question is refused for that.
    fn hold_for(&mut self, wait: &Arc<Wait>, key_bytes: usize) -> bool {
        if self.questions.iter().any(|question| question.as_ptr() == Arc::as_ptr(wait)) {
            return false;
        }
        self.questions.retain(|question| question.strong_count() > 0);
        self.questions.push(Arc::downgrade(wait));
        wait.hold(key_bytes + self.known_bytes)
    }

    /// Notes the memory of what is known. True if a question is refused for that.
    fn learned(&mut self, known_bytes: usize) -> bool {
        let more = known_bytes.saturating_sub(mem::replace(&mut self.known_bytes, known_bytes));
        let questions = self.questions.iter().filter_map(Weak::upgrade);
        questions.filter(|question| question.hold(more)).count() > 0
    }

    /// When it was asked for last, and a number, so that ages differ.
    fn age(&self) -> (Timestamp, usize) {
        (self.asked, self.number)
    }
}

impl Interest {
    /// No keys yet. They are read from the local engine, and from the upstream one if there is one.
    pub(super) fn new(most_bytes: usize, flush: Duration, has_upstream: bool) -> Interest {
        let engines = if has_upstream { TIERS } else { 1 };
        Interest {
            parts: (0..INTEREST_PARTS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            most_bytes,
            key_bytes: AtomicUsize::new(0),
            known_bytes: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            refused_ms: AtomicI64::new(i64::MIN),
            readers: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            flush,
            engines: (0..engines).map(|_| ReadEngine::default()).collect(),
        }
    }

    /// Waits until a key is to be read from an engine.
    pub(super) async fn wanted(&self, tier: Tier) {
        self.engines[index(tier)].wanted.notified().await;
    }

    /// Has the reader of an engine look for keys once more.
    pub(super) fn want(&self, tier: Tier) {
        self.engines[index(tier)].wanted.notify_one();
    }

    /// Notes whether an engine is away: then nothing waits for it.
    pub(super) fn set_away(&self, tier: Tier, is_away: bool) {
        self.engines[index(tier)].is_away.store(is_away, Relaxed);
    }

    /// Memory of a key, beside what is known of it: its entry and its places in queues.
    fn bytes_of(&self, key: &[u8]) -> usize {
        INTEREST_KEY_BYTES + (1 + self.engines.len()) * key.len()
    }

    fn lock(&self, part: usize) -> MutexGuard<'_, Part> {
        self.parts[part].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn part_of(&self, key: &[u8]) -> MutexGuard<'_, Part> {
        let part = self.hasher.hash_one(key) % INTEREST_PARTS as u64;
        self.lock(usize::try_from(part).unwrap_or(0))
    }

    /// Memory of the keys, in bytes. What is known of them is in the store.
    pub(super) fn held_bytes(&self) -> usize {
        self.key_bytes.load(Relaxed)
    }

    /// Whether the memory is full. Then nothing more is read.
    pub(super) fn is_full(&self) -> bool {
        self.key_bytes.load(Relaxed) + self.known_bytes.load(Relaxed) > self.most_bytes
    }

    fn note_refusal(&self, now: Timestamp) {
        self.refused_ms.fetch_max(now.as_millis(), Relaxed);
    }

    /// The memory that the keys of a question may take, with what is known of them.
    pub(super) fn question_bytes(&self) -> usize {
        self.most_bytes / 2
    }

    /// Notes a question. If the key is not known, `wait` is over once it is read from all engines. Keys that are forgotten for this one go to
    /// `forget`.
    pub(super) fn note(
        &self,
        question: Question<'_>,
        wait: Option<(&Arc<Wait>, Duration)>,
        now: Timestamp,
        forget: impl FnMut(&[u8]),
    ) -> Answer {
        let Question { key, window, is_limit } = question;
        if self.is_full() && !self.has_room_for(key, forget) {
            if let Some((wait, _)) = wait {
                wait.refuse();
                self.note_refusal(now);
            }
            return Answer::Overdue;
        }
        let mut part = self.part_of(key);
        if !part.keys.contains_key(key) {
            self.key_bytes.fetch_add(self.bytes_of(key), Relaxed);
            part.keys.insert(
                key.into(),
                Reader {
                    number: self.readers.fetch_add(1, Relaxed),
                    window,
                    asked: now,
                    limited_until: Timestamp::MIN,
                    sides: Default::default(),
                    known_bytes: 0,
                    questions: Vec::new(),
                },
            );
        }
        let Part { keys, queues } = &mut *part;
        let Some(reader) = keys.get_mut(key) else { unreachable!("it was added") };
        reader.asked = reader.asked.max(now);
        let grows = window > reader.window;
        reader.window = reader.window.max(window);
        if is_limit {
            let lasts_ms =
                i64::try_from(LIMITED_LASTS.as_millis()).unwrap_or(i64::MAX).min(window.as_millis());
            let until = Timestamp::from_millis(now.as_millis() + lasts_ms).unwrap_or(Timestamp::MAX);
            reader.limited_until = reader.limited_until.max(until);
        }
        if let Some((wait, _)) = wait
            && reader.hold_for(wait, self.bytes_of(key))
        {
            self.note_refusal(now);
        }
        let mut answer = Answer::Known;
        for ((engine, side), queues) in self.engines.iter().zip(&mut reader.sides).zip(queues) {
            let is_known = side.is_known(window, KNOWN_LASTS.max(self.flush), now);
            match side.reading {
                Reading::Since(_) => {}
                _ if !is_known && (side.unknown_since.is_none() || grows) => {
                    side.reading = Reading::Queued;
                    queues.unknown.push_back((key.into(), reader.number));
                    engine.wanted.notify_one();
                }
                Reading::No if !side.is_fresh(reader.window, self.flush, now) => {
                    side.reading = Reading::Queued;
                    let queue = if side.has_changed { &mut queues.unknown } else { &mut queues.known };
                    queue.push_back((key.into(), reader.number));
                    engine.wanted.notify_one();
                }
                Reading::No | Reading::Queued => {}
            }
            if !is_known {
                let refused_ms = self.refused_ms.load(Relaxed);
                let since = side.unknown_since.filter(|since| since.as_millis() > refused_ms).unwrap_or(now);
                side.unknown_since = Some(since);
                if !engine.is_away.load(Relaxed) {
                    answer = answer.max(self.wait_for(side, since, wait, now));
                }
            }
        }
        answer
    }

    /// Notes that a question waits for an engine that has not been read.
    fn wait_for(
        &self,
        side: &mut Side,
        since: Timestamp,
        wait: Option<(&Arc<Wait>, Duration)>,
        now: Timestamp,
    ) -> Answer {
        let Some((wait, timeout)) = wait else { return Answer::Unknown };
        // Those that were answered or refused meanwhile wait no more.
        let before = side.waits.len();
        side.waits.retain(|wait| wait.strong_count() > 0);
        self.waiting.fetch_sub(before - side.waits.len(), Relaxed);
        if age(now, since) >= timeout || self.waiting.load(Relaxed) >= MAX_WAITING_KEYS {
            return Answer::Overdue;
        }
        self.waiting.fetch_add(1, Relaxed);
        wait.add();
        side.waits.push(Arc::downgrade(wait));
        Answer::Unknown
    }

    /// Notes that other nodes have sent counts of a key to an engine. It is read at once, if somebody has asked since the last reading.
    pub(super) fn note_change(&self, tier: Tier, key: &[u8]) {
        let Part { keys, queues } = &mut *self.part_of(key);
        let Some(reader) = keys.get_mut(key) else { return };
        let side = &mut reader.sides[index(tier)];
        if !mem::replace(&mut side.has_changed, true) && side.reading == Reading::Queued {
            queues[index(tier)].unknown.push_back((key.into(), reader.number));
            self.want(tier);
        }
    }

    /// When a key was last read from all engines, for a window of this length.
    pub(super) fn read_at(&self, key: &[u8], window: Span) -> Option<Timestamp> {
        let part = self.part_of(key);
        let sides = &part.keys.get(key)?.sides[..self.engines.len()];
        let read_at = |side: &Side| side.read.filter(|(_, read)| *read >= window).map(|(at, _)| at);
        sides.iter().map(read_at).min().flatten()
    }

    /// Takes up to `most` keys to read now from an engine: those that are not known, and without any, or with `all`, those that were read a
    /// flush ago.
    pub(super) fn due(&self, tier: Tier, most: usize, all: bool, now: Timestamp) -> Vec<Due> {
        let mut due = Vec::new();
        let first = self.next.fetch_add(1, Relaxed);
        for queue in [Queues::unknown, Queues::known, Queues::limited] {
            for number in 0..INTEREST_PARTS {
                let mut part = self.lock(first.wrapping_add(number) % INTEREST_PARTS);
                let Part { keys, queues } = &mut *part;
                let queue = queue(&mut queues[index(tier)]);
                while due.len() < most
                    && let Some((key, number)) = queue.pop_front()
                {
                    let reader = keys.get_mut(&key).filter(|reader| reader.number == number);
                    let Some(Reader { sides, window, .. }) = reader else { continue };
                    let side = &mut sides[index(tier)];
                    if side.reading != Reading::Queued {
                        continue;
                    }
                    if side.is_fresh(*window, self.flush, now) {
                        // So are those behind it.
                        queue.push_front((key, number));
                        break;
                    }
                    (side.reading, side.has_changed) = (Reading::Since(now), false);
                    due.push(Due { key, window: *window, number });
                }
            }
            if !all && !due.is_empty() {
                break;
            }
        }
        due
    }

    /// Notes that a key was read from an engine, and that what is known of it takes this memory. If the key was forgotten meanwhile, it goes to
    /// `forget`. True if a question can be answered now.
    pub(super) fn note_read(
        &self,
        tier: Tier,
        due: &Due,
        known_bytes: usize,
        now: Timestamp,
        forget: impl FnOnce(&[u8]),
    ) -> bool {
        let mut part = self.part_of(&due.key);
        let Part { keys, queues } = &mut *part;
        let Some(reader) = keys.get_mut(&due.key) else {
            forget(&due.key);
            return false;
        };
        self.known_bytes.fetch_add(known_bytes, Relaxed);
        self.known_bytes.fetch_sub(reader.known_bytes, Relaxed);
        let is_refused = reader.learned(known_bytes);
        if is_refused {
            self.note_refusal(now);
        }
        if reader.number != due.number {
            // It was forgotten and asked for again. The new reader has what is known, and has yet to read.
            return is_refused;
        }
        let side = &mut reader.sides[index(tier)];
        let queues = &mut queues[index(tier)];
        let Reading::Since(begun) = side.reading else { return is_refused };
        side.read = Some((begun, due.window));
        side.reading = Reading::No;
        if reader.window > due.window {
            // Somebody asked for a longer window meanwhile. Questions wait for that.
            side.reading = Reading::Queued;
            queues.unknown.push_back((due.key.clone(), due.number));
            self.want(tier);
            return is_refused;
        }
        if reader.limited_until > begun {
            side.reading = Reading::Queued;
            queues.limited.push_back((due.key.clone(), due.number));
        }
        side.end_waits(&self.waiting) | is_refused
    }

    /// Notes that keys are not read from an engine now. They are read later, before those that are known.
    pub(super) fn put_back(&self, tier: Tier, due: &[Due]) {
        for Due { key, number, .. } in due {
            let Part { keys, queues } = &mut *self.part_of(key);
            let reader = keys.get_mut(key).filter(|reader| reader.number == *number);
            let side = reader.map(|reader| &mut reader.sides[index(tier)]);
            if let Some(side) = side.filter(|side| matches!(side.reading, Reading::Since(_))) {
                side.reading = Reading::Queued;
                queues[index(tier)].unknown.push_back((key.clone(), *number));
            }
        }
    }

    /// Notes that keys could not be read from an engine: they are read later, and nothing waits for them. True if a question can be answered now.
    pub(super) fn note_failure(&self, tier: Tier, due: &[Due]) -> bool {
        let mut is_over = false;
        for Due { key, number, .. } in due {
            let mut part = self.part_of(key);
            let Part { keys, queues } = &mut *part;
            let reader = keys.get_mut(key).filter(|reader| reader.number == *number);
            let side = reader.map(|reader| &mut reader.sides[index(tier)]);
            let Some(side) = side.filter(|side| matches!(side.reading, Reading::Since(_))) else { continue };
            side.reading = Reading::Queued;
            queues[index(tier)].known.push_back((key.clone(), *number));
            is_over |= side.end_waits(&self.waiting);
        }
        is_over
    }

    /// Forgets the keys of the next parts that nobody asked for lately, and others while the memory is full. Called after each flush
    /// at least; all parts have their turn within [`INTEREST_LASTS`].
    pub(super) fn tidy(&self, now: Timestamp, mut forget: impl FnMut(&[u8])) {
        let next = self.next.load(Relaxed) % INTEREST_PARTS;
        let share = self.flush.as_millis() * INTEREST_PARTS as u128 / INTEREST_LASTS.as_millis();
        let parts = usize::try_from(share).unwrap_or(usize::MAX).clamp(1, INTEREST_PARTS);
        for part in next..next + parts {
            let part = &mut self.lock(part % INTEREST_PARTS);
            self.remove_if(part, |reader| reader.is_old(now), &mut forget);
        }
        self.make_room(forget);
    }

    /// Forgets keys until the memory is not full, those that were asked for least recently first. Needed ones stay, and one at least.
    pub(super) fn make_room(&self, mut forget: impl FnMut(&[u8])) {
        while self.is_full() {
            let (mut count, mut ages) = (0, Vec::new());
            for part in 0..INTEREST_PARTS {
                let keys = &self.lock(part).keys;
                count += keys.len();
                let may_go = keys.values().filter(|reader| !reader.is_needed());
                ages.extend(may_go.map(Reader::age).take(INTEREST_SAMPLE));
            }
            if ages.is_empty() || count == 1 {
                return;
            }
            let last = ages.len().div_ceil(8) - 1;
            let last = *ages.select_nth_unstable(last).1;
            for part in 0..INTEREST_PARTS {
                self.remove_if(&mut self.lock(part), |reader| reader.age() <= last, &mut forget);
            }
        }
    }

    /// Forgets the eighth of the keys of a part that was asked for least recently, or of all keys if the part has few. False if there is no
    /// room for this key then.
    fn has_room_for(&self, key: &[u8], mut forget: impl FnMut(&[u8])) -> bool {
        let mut part = self.part_of(key);
        if part.keys.contains_key(key) {
            return true;
        }
        let may_go = part.keys.values().filter(|reader| !reader.is_needed());
        let mut ages: Vec<_> = may_go.map(Reader::age).collect();
        if let Some(last) = (ages.len() / 8).checked_sub(1) {
            let last = *ages.select_nth_unstable(last).1;
            self.remove_if(&mut part, |reader| reader.age() <= last, &mut forget);
        }
        drop(part);
        self.make_room(forget);
        !self.is_full()
    }

    /// Forgets the keys of a part of which `goes` is true, except those that are needed.
    fn remove_if(
        &self,
        Part { keys, queues }: &mut Part,
        goes: impl Fn(&Reader) -> bool,
        mut forget: impl FnMut(&[u8]),
    ) {
        let before = keys.len();
        keys.retain(|key, reader| {
            let goes = goes(reader) && !reader.is_needed();
            if goes {
                self.key_bytes.fetch_sub(self.bytes_of(key), Relaxed);
                self.known_bytes.fetch_sub(reader.known_bytes, Relaxed);
                for side in &mut reader.sides {
                    side.end_waits(&self.waiting);
                }
                forget(key);
            }
            !goes
        });
        if keys.len() < before {
            let queues = queues.iter_mut();
            for queue in
                queues.flat_map(|queues| [&mut queues.unknown, &mut queues.known, &mut queues.limited])
            {
                queue.retain(|(key, number)| keys.get(key).is_some_and(|reader| reader.number == *number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lately::{hours, minutes, seconds};

    use super::*;

    const FLUSH: Duration = Duration::from_millis(50);

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    fn interest() -> Interest {
        Interest::new(1 << 20, FLUSH, false)
    }

    fn ask(interest: &Interest, key: &[u8], window: Span, now_ms: i64) -> Answer {
        let question = Question { key, window, is_limit: false };
        interest.note(question, None, at(now_ms), |key| panic!("{key:?} is forgotten"))
    }

    /// The first letters of the keys that are read now.
    fn read(interest: &Interest, most: usize, now_ms: i64) -> String {
        let due = interest.due(Tier::Local, most, false, at(now_ms));
        due.iter().for_each(|due| _ = interest.note_read(Tier::Local, due, 100, at(0), |_| {}));
        let mut names: Vec<char> = due.iter().map(|due| char::from(due.key[0])).collect();
        names.sort_unstable();
        names.into_iter().collect()
    }

    #[test]
    fn a_key_is_read_again_when_somebody_has_asked_since() {
        let interest = interest();
        assert_eq!(ask(&interest, b"a", minutes(5), 1_000), Answer::Unknown);
        assert_eq!(read(&interest, 9, 1_000), "a");
        // Nobody asks.
        assert_eq!(read(&interest, 9, 9_000), "");
        let _ = ask(&interest, b"a", minutes(5), 9_000);
        assert_eq!(read(&interest, 9, 9_000), "a");
        // A thousand questions are one reading a flush.
        let mut readings = String::new();
        for ms in 9_001..=10_000 {
            assert_eq!(ask(&interest, b"a", minutes(5), ms), Answer::Known);
            readings += &read(&interest, 9, ms);
        }
        assert_eq!(readings.len(), 1_000 / 50);
    }

    #[test]
    fn a_key_that_has_changed_is_read_at_once_if_somebody_has_asked_since() {
        let interest = interest();
        let change = || interest.note_change(Tier::Local, b"a");
        change();
        let _ = ask(&interest, b"a", minutes(5), 1_000);
        assert_eq!(read(&interest, 9, 1_000), "a");
        for ms in [1_010, 1_020] {
            // Before the question, and twice: it is read once.
            (0..2).for_each(|_| change());
            assert_eq!(read(&interest, 9, ms), "", "nobody asks");
            assert_eq!(ask(&interest, b"a", minutes(5), ms), Answer::Known);
            assert_eq!(read(&interest, 9, ms), "a");
        }
        // A question that waits for the next flush.
        let _ = ask(&interest, b"a", minutes(5), 1_100);
        assert_eq!(read(&interest, 9, 1_030), "", "it is fresh");
        change();
        assert_eq!(read(&interest, 9, 1_030), "a");
        assert_eq!(read(&interest, 9, 1_030), "", "it is in two queues");
        // While it is being read.
        let _ = ask(&interest, b"a", minutes(5), 1_200);
        let due = interest.due(Tier::Local, 9, true, at(1_200));
        change();
        due.iter().for_each(|due| _ = interest.note_read(Tier::Local, due, 100, at(1_200), |_| {}));
        let _ = ask(&interest, b"a", minutes(5), 1_201);
        assert_eq!(read(&interest, 9, 1_201), "a");
    }

    #[test]
    fn what_is_older_than_a_second_or_of_a_shorter_window_is_not_known() {
        let interest = interest();
        let _ = ask(&interest, b"a", minutes(5), 1_000);
        assert_eq!(read(&interest, 9, 1_000), "a");
        let known_ms = i64::try_from(KNOWN_LASTS.as_millis()).expect("small");
        assert_eq!(ask(&interest, b"a", minutes(5), 1_000 + known_ms), Answer::Known);
        assert_eq!(ask(&interest, b"a", minutes(5), 1_001 + known_ms), Answer::Unknown);
        assert_eq!(interest.read_at(b"a", minutes(5)), Some(at(1_000)));
        assert_eq!(read(&interest, 9, 3_000), "a");
        assert_eq!(ask(&interest, b"a", minutes(1), 3_000), Answer::Known);
        assert_eq!(ask(&interest, b"a", hours(1), 3_000), Answer::Unknown);
        assert_eq!((interest.read_at(b"a", hours(1)), interest.read_at(b"b", hours(1))), (None, None));
        // At once, although it was just read.
        assert_eq!(read(&interest, 9, 3_000), "a");
        assert_eq!(interest.read_at(b"a", hours(1)), Some(at(3_000)));
        // A question for a longer window waits for a reading of that, also while another is under way.
        let _ = ask(&interest, b"c", minutes(5), 3_000);
        let due = interest.due(Tier::Local, 9, true, at(3_000));
        let wait = Wait::new();
        let question = Question { key: b"c", window: hours(1), is_limit: false };
        let _ = interest.note(question, Some((&wait, FLUSH)), at(3_001), |_| {});
        let _ = wait.done();
        assert!(!interest.note_read(Tier::Local, &due[0], 100, at(0), |_| {}) && !wait.is_over());
        assert_eq!((read(&interest, 9, 3_002).as_str(), wait.is_over()), ("c", true));
        // With a longer flush, counts are known for that long.
        let slow = Interest::new(1 << 20, Duration::from_secs(10), false);
        let _ = ask(&slow, b"a", minutes(5), 1_000);
        assert_eq!(read(&slow, 9, 1_000), "a");
        assert_eq!(ask(&slow, b"a", minutes(5), 11_000), Answer::Known);
        assert_eq!(ask(&slow, b"a", minutes(5), 11_001), Answer::Unknown);
    }

    #[test]
    fn keys_that_are_not_known_are_read_first() {
        let interest = interest();
        let _ = ask(&interest, b"a", minutes(5), 1_000);
        assert_eq!(read(&interest, 9, 1_000), "a");
        for key in [b"a", b"b", b"c"] {
            let _ = ask(&interest, key, minutes(5), 1_500);
        }
        assert_eq!(read(&interest, 1, 1_500).len(), 1);
        let due = interest.due(Tier::Local, 9, false, at(1_500));
        assert_eq!((due.len(), interest.read_at(&due[0].key, minutes(5))), (1, None));
        assert_eq!(read(&interest, 9, 1_500), "a");
        assert_eq!(read(&interest, 9, 1_500), "");
    }

    #[test]
    fn a_limited_key_is_read_again_without_questions() {
        let interest = interest();
        let limit = |window, now_ms| {
            let question = Question { key: b"a", window, is_limit: true };
            _ = interest.note(question, None, at(now_ms), |_| {});
        };
        limit(seconds(2), 1_000);
        let readings = |from_ms, to_ms| {
            (from_ms..to_ms).step_by(50).map(|ms| read(&interest, 9, ms)).collect::<String>().len()
        };
        // Until its window is over, and once more.
        assert_eq!(readings(1_000, 9_000), 2_000 / 50 + 1);
        limit(hours(1), 10_000);
        let lasts_ms = i64::try_from(LIMITED_LASTS.as_millis()).expect("small");
        assert_eq!(i64::try_from(readings(10_000, 200_000)), Ok(lasts_ms / 50 + 1));
        // It is kept for as long.
        let mut forgotten = Vec::new();
        let mut tidy = |now_ms| {
            for _ in 0..INTEREST_PARTS {
                let _ = interest.due(Tier::Local, 0, true, at(now_ms));
                interest.tidy(at(now_ms), |key| forgotten.push(key.to_vec()));
            }
            forgotten.len()
        };
        limit(seconds(30), 200_000);
        assert_eq!((tidy(230_000), tidy(230_001)), (0, 1));
        assert_eq!((interest.held_bytes(), interest.known_bytes.load(Relaxed)), (0, 0));
        // With a long flush all parts have their turn at once.
        let slow = Interest::new(1 << 20, Duration::from_secs(60), false);
        let _ = (ask(&slow, b"a", minutes(5), 0), ask(&slow, b"b", minutes(5), 0));
        slow.tidy(at(60_000), |_| {});
        assert_eq!(slow.held_bytes(), 0);
    }

    #[test]
    fn the_least_recently_asked_are_forgotten_when_memory_is_full() {
        let keys = 4_000;
        let interest = Interest::new(interest().bytes_of(b"0000") * keys, FLUSH, false);
        let mut forgotten = Vec::new();
        let asked = 3 * i64::try_from(keys).expect("small");
        for number in 0..asked {
            let key = format!("{number:04}");
            let question = Question { key: key.as_bytes(), window: minutes(5), is_limit: false };
            let _ = interest.note(question, None, at(number), |key| forgotten.push(key.to_vec()));
            assert!(
                interest.held_bytes() <= interest.most_bytes + interest.bytes_of(b"00000") * INTEREST_PARTS
            );
        }
        let last = format!("{:04}", asked - 1);
        assert!(!forgotten.contains(&last.into_bytes()));
        let number = |key: &Vec<u8>| String::from_utf8_lossy(key).parse::<i64>().expect("a number");
        // Each part forgets its own oldest.
        let newest = forgotten.iter().map(number).max().expect("some are");
        assert!(newest < asked - i64::try_from(keys / 4).expect("small"), "{newest}");
        // What is known takes memory, too.
        let before = forgotten.len();
        for due in interest.due(Tier::Local, 100, true, at(asked)) {
            let _ = interest.note_read(Tier::Local, &due, 1_000, at(0), |_| panic!("it is there"));
        }
        interest.tidy(at(asked), |key| forgotten.push(key.to_vec()));
        assert!(forgotten.len() > before && !interest.is_full());
    }

    #[test]
    fn a_question_waits_until_its_keys_are_read() {
        let interest = interest();
        let timeout = Duration::from_millis(50);
        let wait_for = |keys: &[&[u8]], now_ms: i64| {
            let wait = Wait::new();
            for key in keys {
                let question = Question { key, window: minutes(5), is_limit: false };
                let _ = interest.note(question, Some((&wait, timeout)), at(now_ms), |_| {});
            }
            let _ = wait.done();
            wait
        };
        let (one, both) = (wait_for(&[b"a"], 1_000), wait_for(&[b"a", b"b"], 1_001));
        let mut due = interest.due(Tier::Local, 9, true, at(1_002));
        due.sort_by(|one, other| one.key.cmp(&other.key));
        assert!(!one.is_over() && !both.is_over());
        assert!(interest.note_read(Tier::Local, &due[0], 0, at(0), |_| {}));
        assert!(one.is_over() && !both.is_over());
        // One that comes later waits for the same reading; a failure ends it.
        let late = wait_for(&[b"b"], 1_003);
        assert!(interest.note_failure(Tier::Local, &due[1..]));
        assert!(both.is_over() && late.is_over());
        // What is known needs no wait.
        assert!(wait_for(&[b"a"], 1_004).is_over());
        // Nobody waits for a key for longer than the timeout since the first question.
        assert!(!wait_for(&[b"c"], 2_000).is_over() && !wait_for(&[b"c"], 2_049).is_over());
        assert!(wait_for(&[b"c"], 2_050).is_over());
        assert_eq!(interest.waiting.load(Relaxed), 0);
        // A key is kept until the answer.
        drop((one, both, late));
        let wait = wait_for(&[b"d"], 3_000);
        let forget_all = || {
            for part in 0..INTEREST_PARTS {
                interest.remove_if(&mut interest.lock(part), |_| true, |_| {});
            }
        };
        forget_all();
        assert_eq!((wait.is_over(), interest.held_bytes()), (false, interest.bytes_of(b"d")));
        drop(wait);
        forget_all();
        assert_eq!((interest.held_bytes(), interest.waiting.load(Relaxed)), (0, 0));
    }

    /// Symptom: of 400 busy keys that one command read, 345 had 0 hits, and all other keys of the server were evicted. Cause: all keys were
    /// read at once, beyond the memory for them, and those of the same command were forgotten again before the answer. Fix: keys are
    /// kept until the answer, and a command that has no room for its keys is refused.
    #[test]
    fn keys_of_a_question_stay_until_it_is_answered_or_refused() {
        let interest = Interest::new(100_000, FLUSH, false);
        let note = |key: &str, wait: &Arc<Wait>, now_ms: i64| {
            let question = Question { key: key.as_bytes(), window: minutes(5), is_limit: false };
            interest.note(question, Some((wait, FLUSH)), at(now_ms), |_| {})
        };
        let question = |keys: &[&str], now_ms: i64| {
            let wait = Wait::with_room(interest.question_bytes());
            keys.iter().for_each(|key| _ = note(key, &wait, now_ms));
            let _ = wait.done();
            wait
        };
        let read_all = |known_bytes: usize, now_ms: i64| {
            let due = interest.due(Tier::Local, 9, true, at(now_ms));
            due.iter()
                .map(|due| interest.note_read(Tier::Local, due, known_bytes, at(0), |_| {}))
                .filter(|over| *over)
                .count()
        };
        let is_known = |key: &str| interest.read_at(key.as_bytes(), minutes(5)).is_some();
        let first = question(&["a", "b"], 1_000);
        assert_eq!((read_all(20_000, 1_000), first.is_over(), first.is_refused()), (1, true, false));
        // The next one fills the memory; the first is not answered yet.
        let second = question(&["c", "d"], 1_100);
        assert_eq!((read_all(24_000, 1_100), second.is_refused()), (1, false));
        let third = question(&["e"], 1_200);
        assert_eq!(read_all(15_000, 1_200), 1);
        interest.make_room(|key| panic!("{key:?} is forgotten"));
        assert!(interest.is_full() && ["a", "b", "c", "d", "e"].into_iter().all(is_known));
        // There is no room for another key. What is known is answered.
        let fourth = question(&["f"], 1_201);
        assert!(fourth.is_refused() && fourth.is_over() && !is_known("f"));
        assert_eq!(note("a", &Wait::new(), 1_202), Answer::Known);
        // Answered: the keys go, the oldest first.
        drop((first, third));
        interest.make_room(|_| {});
        assert!(!interest.is_full() && ["c", "d", "e"].into_iter().all(is_known));
        drop(second);
        // One that needs more than half of the memory is refused as soon as that is known. The last key ends the wait as well.
        let large = question(&["g", "h", "i"], 4_000);
        assert_eq!((read_all(30_000, 4_000), large.is_refused()), (2, true));
        drop(large);
        // A single key always has room.
        let one = Wait::new();
        assert_eq!(note("j", &one, 5_000), Answer::Unknown);
        let _ = one.done();
        assert_eq!((read_all(200_000, 5_000), one.is_refused()), (1, false));
        drop(one);
        interest.make_room(|_| {});
        assert!(is_known("j") && !is_known("i"));
    }

    #[test]
    fn keys_that_are_put_back_are_read_next() {
        let interest = interest();
        let _ = ask(&interest, b"a", minutes(5), 1_000);
        assert_eq!(read(&interest, 9, 1_000), "a");
        let _ = (ask(&interest, b"a", minutes(5), 1_050), ask(&interest, b"b", minutes(5), 1_050));
        let due = interest.due(Tier::Local, 9, true, at(1_050));
        assert_eq!((due.len(), read(&interest, 9, 1_050).len()), (2, 0));
        interest.put_back(Tier::Local, &due);
        let due = interest.due(Tier::Local, 9, false, at(1_051));
        assert_eq!(due.len(), 2);
    }

    #[test]
    fn a_question_waits_for_both_engines_unless_one_is_away() {
        let interest = Interest::new(1 << 20, FLUSH, true);
        let wait_for = |key: &[u8], now_ms: i64| {
            let wait = Wait::new();
            let question = Question { key, window: minutes(5), is_limit: false };
            let answer = interest.note(question, Some((&wait, FLUSH)), at(now_ms), |_| {});
            let _ = wait.done();
            (wait, answer)
        };
        let read = |tier: Tier, now_ms: i64| {
            let due = interest.due(tier, 9, true, at(now_ms));
            due.iter().map(|due| interest.note_read(tier, due, 100, at(0), |_| {})).collect::<Vec<_>>()
        };
        let (wait, answer) = wait_for(b"a", 1_000);
        assert_eq!((wait.is_over(), answer), (false, Answer::Unknown));
        assert_eq!(read(Tier::Local, 1_001), [false]);
        assert!(!wait.is_over() && interest.read_at(b"a", minutes(5)).is_none());
        assert_eq!(read(Tier::Upstream, 1_010), [true]);
        assert!(wait.is_over());
        // The answer is as old as the older of the two.
        assert_eq!(interest.read_at(b"a", minutes(5)), Some(at(1_001)));
        // What is known of the key is counted once.
        assert_eq!(interest.known_bytes.load(Relaxed), 100);
        interest.set_away(Tier::Upstream, true);
        let (wait, answer) = wait_for(b"b", 2_000);
        assert_eq!((wait.is_over(), answer), (false, Answer::Unknown));
        assert_eq!(read(Tier::Local, 2_001), [true]);
        assert!(wait.is_over());
        assert_eq!(wait_for(b"b", 2_002).1, Answer::Known);
        interest.set_away(Tier::Upstream, false);
        assert_eq!(wait_for(b"b", 2_003).1, Answer::Unknown);
    }

    #[test]
    fn questions_that_wait_are_bounded() {
        let interest = interest();
        // Those that are over do not count.
        for _ in 0..MAX_WAITING_KEYS + 1 {
            let question = Question { key: b"b", window: minutes(5), is_limit: false };
            assert_eq!(interest.note(question, Some((&Wait::new(), FLUSH)), at(0), |_| {}), Answer::Unknown);
        }
        assert_eq!(interest.waiting.load(Relaxed), 1);
        let wait = Wait::new();
        let question = Question { key: b"a", window: minutes(5), is_limit: false };
        let ask = || interest.note(question, Some((&wait, FLUSH)), at(0), |_| {});
        assert!((1..MAX_WAITING_KEYS).all(|_| ask() == Answer::Unknown));
        assert_eq!(ask(), Answer::Overdue);
    }

    #[test]
    fn what_is_learned_of_a_forgotten_key_is_forgotten() {
        let interest = interest();
        let _ = ask(&interest, b"a", minutes(5), 0);
        let due = interest.due(Tier::Local, 9, true, at(0));
        interest.remove_if(&mut interest.part_of(b"a"), |_| true, |_| {});
        let mut forgotten = 0;
        assert!(!interest.note_read(Tier::Local, &due[0], 100, at(0), |_| forgotten += 1));
        assert_eq!((forgotten, interest.known_bytes.load(Relaxed)), (1, 0));
        // Nor is it taken for that of a new question.
        let _ = ask(&interest, b"a", minutes(5), 1);
        assert!(!interest.note_read(Tier::Local, &due[0], 100, at(0), |_| forgotten += 1));
        assert_eq!(interest.read_at(b"a", minutes(5)), None);
        // Nothing that the new one knows is forgotten, and its memory is counted once.
        assert_eq!((forgotten, interest.known_bytes.load(Relaxed)), (1, 100));
        let again = interest.due(Tier::Local, 9, true, at(1));
        let _ = interest.note_read(Tier::Local, &again[0], 70, at(1), |_| forgotten += 1);
        assert_eq!((forgotten, interest.known_bytes.load(Relaxed)), (1, 70));
    }
}
