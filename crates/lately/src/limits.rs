//! Every bound of the core, by name. What is past one is refused, never cut down.

use crate::time::{Span, minutes};

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 1_024;

/// The largest total of kept hits a key may have: what a signed 64-bit integer holds.
pub const MAX_TOTAL: u64 = i64::MAX.unsigned_abs();

/// Distinct milliseconds a key keeps apart before older ones are folded into panes: a limit whose window has hits of one
/// fewer is decided exactly, as it is known that all others are older than the oldest of these.
pub const MAX_MOMENTS: usize = 257;

/// Panes of the exact span, so that a dense ring stays within 8 MiB.
pub const MAX_EXACT_PANES: i64 = 1 << 20;

/// The smallest and largest precision a class may ask for.
pub const PRECISION_RANGE: std::ops::RangeInclusive<f64> = 0.000_1..=1.0;

/// Classes in one store, beside the default.
pub const MAX_CLASSES: usize = 255;

/// The longest time that the burst of a rate may take at an even pace, in milliseconds: 146 million years.
pub const MAX_BURST_MS: i64 = i64::MAX >> 1;

/// Limits of one request.
pub const MAX_LIMITS: usize = 128;

/// The longest name of a source, in bytes.
pub const MAX_SOURCE_BYTES: usize = 256;

/// Sources with a position. When there is one more, the one that was not heard of for longest is forgotten.
pub const MAX_SOURCES: usize = 10_000;

/// Keys compared for each that is evicted, and how many of them one shard gives.
pub(crate) const EVICTION_SAMPLE: usize = 16;
/// See [`EVICTION_SAMPLE`].
pub(crate) const EVICTION_SAMPLE_A_SHARD: usize = 4;

/// Places looked at for one that may go, before there is said to be none.
pub(crate) const EVICTION_LOOKS: u32 = 1 << 12;

/// New keys of a shard after which [`PLACES_OF_A_SWEEP`] of its places are looked at, for keys that have expired: so keys
/// that nobody asks for again make room as others come.
pub(crate) const KEYS_FOR_A_SWEEP: u32 = 8;
/// See [`KEYS_FOR_A_SWEEP`].
pub(crate) const PLACES_OF_A_SWEEP: u32 = 32;

/// Slots one page of a scan looks at.
pub const MAX_SCAN_SLOTS: usize = 10_000;

/// Points in one series.
pub const MAX_SERIES_POINTS: i64 = 100_000;

/// Stripes of one shared counter.
pub const MAX_STRIPES: usize = 256;

/// Threads that hit one shared counter at the same moment: what all of them add unseen fits a slot.
pub const MAX_SHARED_THREADS: u64 = 1 << 16;

/// How often a shared counter tries again at once when other threads were quicker, before it lets
/// them run or does without.
pub(crate) const SPIN_TRIES: u32 = 64;

/// A wall clock that is ahead by more than `max_skew` for so long is jumped to.
pub const ADOPTED_AFTER: Span = minutes(1);
