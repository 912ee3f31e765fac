//! The steps of a script. Any subset of them is a script, too.

use super::class::{Classes, KEYS};
use test_support::Rng;

/// The number of steps of a script from a seed. Bytes give at most as many.
const MOST_STEPS: usize = 40;

/// A script: the classes of the server at its start, and its steps.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) start_ms: i64,
    pub(crate) classes: Classes,
    pub(crate) steps: Vec<Step>,
}

/// A step, and the seed of the questions after it, so that these do not depend on earlier steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) act: Act,
    pub(crate) salt: u64,
}

/// The kinds of steps. Times are relative to the clock.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Act {
    /// The clock advances.
    Advance { ms: i64 },
    /// Hits of now. The clock advances before each.
    Hits { key: usize, times: usize, gap_ms: i64, weight: u64 },
    /// Hits of the past, from `back_ms` ago on, every `gap_ms`. A negative `back_ms` is in the future.
    Late { key: usize, times: usize, back_ms: i64, gap_ms: i64, weight: u64 },
    /// Requests under a limit, like `Hits`; at a time `back_ms` ago if that is not 0.
    Limit { key: usize, times: usize, gap_ms: i64, back_ms: i64, limit: Limit },
    /// A request under two limits, of one key or two.
    LimitAll { keys: [usize; 2], back_ms: i64, limits: [Limit; 2] },
    /// Hits, late hits and requests that the disk most likely refuses.
    Refused { key: usize, times: usize, back_ms: i64, limit: Limit, forgets: bool },
    /// The key is deleted.
    Forget { key: usize },
    /// Old panes are merged, of one key or of all.
    Tidy { key: usize, sweeps: bool },
    /// A checkpoint is written, with hits between its blocks. It may be abandoned after some of them.
    Checkpoint { key: usize, hits: usize, given_up: bool },
    /// The server ends and starts, with other classes or the same.
    Restart { end: End, classes: Option<Classes> },
    /// A dump is made during hits, and kept.
    Dump { key: usize, hits: usize },
    /// The dump that was kept is restored. It replaces its keys in the store.
    Bring { offline: bool },
    /// Everything moves to another server with other classes.
    Move { dumped_offline: bool, restored_offline: bool, classes: Classes },
}

/// A limit and a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limit {
    pub(crate) max: u64,
    pub(crate) window_ms: i64,
    pub(crate) cost: u64,
}

/// The end of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// A stop.
    Stop,
    /// A stop after a checkpoint: the log is empty.
    Save,
    /// A kill.
    Kill,
    /// A kill during a checkpoint, after `bytes`.
    KillInCheckpoint { bytes: u64 },
}

/// The source of random choices: a seed, or bytes, followed by zeros.
pub(crate) enum Choices<'a> {
    Seed(Rng),
    Bytes(&'a [u8]),
}

impl Choices<'_> {
    pub(crate) fn of_seed(seed: u64) -> Choices<'static> {
        Choices::Seed(Rng::new(seed))
    }

    /// A number below `end`. Bytes give those below 65,536.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        match self {
            Choices::Seed(rng) => rng.index(end),
            Choices::Bytes(bytes) => {
                let mut take = || bytes.split_off_first().copied().map_or(0, usize::from);
                let number = if end > 256 { take() << 8 | take() } else { take() };
                number % end
            }
        }
    }

    /// A number below `end`, usually of milliseconds.
    pub(crate) fn ms(&mut self, end: usize) -> i64 {
        i64::try_from(self.below(end)).expect("a small number")
    }

    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// From a millisecond to twenty days; each order of magnitude is equally likely.
    pub(crate) fn span_ms(&mut self) -> i64 {
        let units_ms = [1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000];
        let unit_ms: i64 = self.one_of(&units_ms);
        let more = if self.once_in(2) { self.ms(1_000) } else { 0 };
        unit_ms * (1 + self.ms(20)) + more
    }

    fn salt(&mut self) -> u64 {
        match self {
            Choices::Seed(rng) => rng.next_u64(),
            Choices::Bytes(_) => self.below(256) as u64,
        }
    }

    fn is_over(&self) -> bool {
        matches!(self, Choices::Bytes([]))
    }

    /// The first key is the most frequent one.
    fn key(&mut self) -> usize {
        if self.once_in(2) { self.below(KEYS.len()) } else { 0 }
    }

    /// A number of hits: mostly few, sometimes more than a list holds.
    fn times(&mut self) -> usize {
        match self.below(8) {
            0..3 => 1,
            3..6 => 1 + self.below(20),
            6 => 1 + self.below(100),
            _ => 200 + self.below(300),
        }
    }

    fn weight(&mut self) -> u64 {
        if self.once_in(4) { 1 + self.below(1_000) as u64 } else { 1 }
    }

    fn gap_ms(&mut self) -> i64 {
        match self.below(5) {
            0 => 0,
            1 | 2 => 1 + self.ms(100),
            3 => self.ms(10_000),
            _ => self.span_ms() / 50,
        }
    }

    /// Mostly late; sometimes now or in the future.
    fn back_ms(&mut self) -> i64 {
        match self.below(10) {
            0 => -self.ms(20_000),
            1 => 0,
            _ => self.span_ms(),
        }
    }

    fn limit(&mut self) -> Limit {
        let cost = match self.below(8) {
            0 => 0,
            1 => 1 + self.below(10) as u64,
            _ => 1,
        };
        let max = match self.below(4) {
            0 => 1 + self.below(5) as u64,
            1 | 2 => 1 + self.below(500) as u64,
            _ => 1_000_000,
        };
        Limit { max, window_ms: self.span_ms(), cost }
    }
}

impl Script {
    pub(crate) fn any(choices: &mut Choices<'_>) -> Script {
        let start_ms = 1_700_000_000_000 + choices.span_ms();
        let classes = Classes::any(choices);
        let most = match choices {
            Choices::Seed(rng) => 4 + rng.index(MOST_STEPS - 3),
            Choices::Bytes(_) => MOST_STEPS,
        };
        let mut steps = Vec::new();
        while steps.len() < most && !choices.is_over() {
            steps.push(Step { act: Act::any(choices), salt: choices.salt() });
        }
        Script { start_ms, classes, steps }
    }
}

impl Act {
    fn any(choices: &mut Choices<'_>) -> Act {
        match choices.below(33) {
            0..4 => Act::Advance { ms: choices.span_ms() },
            4..10 => Act::Hits {
                key: choices.key(),
                times: choices.times(),
                gap_ms: choices.gap_ms(),
                weight: choices.weight(),
            },
            10..15 => Act::Late {
                key: choices.key(),
                times: 1 + choices.below(40),
                back_ms: choices.back_ms(),
                gap_ms: choices.gap_ms(),
                weight: choices.weight(),
            },
            15..19 => Act::Limit {
                key: choices.key(),
                times: 1 + choices.below(30),
                gap_ms: choices.gap_ms(),
                back_ms: if choices.once_in(4) { choices.back_ms() } else { 0 },
                limit: choices.limit(),
            },
            32 => Act::LimitAll {
                keys: [choices.key(), choices.key()],
                back_ms: if choices.once_in(4) { choices.back_ms() } else { 0 },
                limits: [choices.limit(), choices.limit()],
            },
            19 => Act::Refused {
                key: choices.key(),
                times: 1 + choices.below(20),
                back_ms: choices.back_ms(),
                limit: choices.limit(),
                forgets: choices.once_in(4),
            },
            20 => Act::Forget { key: choices.key() },
            21 => Act::Tidy { key: choices.key(), sweeps: choices.once_in(2) },
            22..25 => {
                Act::Checkpoint { key: choices.key(), hits: choices.below(8), given_up: choices.once_in(6) }
            }
            25..28 => {
                let end = match choices.below(5) {
                    0 | 1 => End::Stop,
                    2 => End::Kill,
                    3 => End::Save,
                    _ => End::KillInCheckpoint { bytes: choices.below(32_768) as u64 },
                };
                let classes = if choices.once_in(4) { None } else { Some(Classes::any(choices)) };
                Act::Restart { end, classes }
            }
            28 => Act::Dump { key: choices.key(), hits: choices.below(8) },
            29 => Act::Bring { offline: choices.once_in(2) },
            _ => Act::Move {
                dumped_offline: choices.once_in(2),
                restored_offline: choices.once_in(2),
                classes: Classes::any(choices),
            },
        }
    }
}
