//! Every bound of the core, by name. Input past a bound is refused, never cut.

use crate::time::{Span, minutes};

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 1_024;

/// The most hits of a key within its retention: the largest signed 64-bit integer.
pub const MAX_TOTAL: u64 = i64::MAX.unsigned_abs();

/// Distinct milliseconds that a key stores before older ones are merged into panes. A limit is exact while
/// its window has hits in fewer milliseconds than this, or is no longer than a second: a key with limits stores all milliseconds of
/// the last second.
pub const MAX_MOMENTS: usize = 257;

/// Panes of the exact span. A dense ring then takes at most 8 MiB.
pub const MAX_EXACT_PANES: i64 = 1 << 20;

/// The range of the precision.
pub const PRECISION_RANGE: std::ops::RangeInclusive<f64> = 0.000_1..=1.0;

/// Classes in one store, beside the default.
pub const MAX_CLASSES: usize = 255;

/// The longest time that the burst of a rate may take at that rate, in milliseconds: 146 million years.
pub const MAX_BURST_MS: i64 = i64::MAX >> 1;

/// Limits of one request.
pub const MAX_LIMITS: usize = 128;

/// The longest name of a source, in bytes.
pub const MAX_SOURCE_BYTES: usize = 256;

/// Sources with a position. Above it, the owner with the most sources loses the least recently changed one.
pub const MAX_SOURCES: usize = 10_000;

/// One part of the ceiling in this many is the most that sources take. Above it, they are forgotten as above [`MAX_SOURCES`].
pub const SOURCES_PART_OF_CEILING: u64 = 16;

/// The longest id of a hit, in bytes.
pub const MAX_ID_BYTES: usize = 256;

/// One part in this many is the most that ids take of what charges leave of the ceiling. Above it, those that would be over
/// next are forgotten.
pub const IDS_PART_OF_CEILING: u64 = 2;

/// One part of the ceiling in this many is left to ids whatever the charges are.
pub(crate) const LEAST_IDS_PART_OF_CEILING: u64 = 16;

/// When ids take too much memory, one in this many is forgotten, about.
pub(crate) const IDS_FORGOTTEN_AT_ONCE: usize = 16;

/// Ids that are looked at to find out which ones to forget, about.
pub(crate) const IDS_SAMPLE: usize = 4_096;

/// Ids of other keys that a batch of hits with ids visits at least, while too many are kept.
pub(crate) const IDS_VISITED: usize = 4_096;

/// Buckets of ids that a sweep visits in a shard.
pub(crate) const ID_BUCKETS_OF_A_SWEEP: usize = 1_024;

/// The most bytes of the busy keys of an epoch: some thousand keys. Past it, the threshold rises.
pub(crate) const BUSY_SET_BYTES: usize = 64 << 10;

/// One part of the ceiling in this many is the most that busy keys take.
pub(crate) const BUSY_PART_OF_CEILING: u64 = 16;

/// Sets of busy keys of a class: those of the last epochs, and the merged ones. Each has an equal share of the memory for busy keys.
pub(crate) const BUSY_SETS: usize = 64;

/// Classes with a shorter default window have no busy keys: their epochs would be too short.
pub(crate) const LEAST_BUSY_WINDOW: Span = crate::time::seconds(1);

/// The longest member of a hit, in bytes.
pub const MAX_MEMBER_BYTES: usize = 256;

/// Members of a window below which their number is exact. From there on it is estimated.
pub const EXACT_MEMBERS: usize = 100;

/// Cells of a level of a sketch. The standard error of an estimate is 0.65 over the square root of this.
pub(crate) const SKETCH_REGISTERS: u16 = 2_048;

/// Highest levels of a sketch that have all cells. Lower ones, which matter for windows with fewer members only, share
/// [`SKETCH_LOW_CELLS`].
pub(crate) const SKETCH_FULL_LEVELS: usize = 4;

/// See [`SKETCH_FULL_LEVELS`].
pub(crate) const SKETCH_LOW_CELLS: usize = 1_280;

/// Keys that are compared for each eviction.
pub(crate) const EVICTION_SAMPLE: usize = 16;
/// How many of the [`EVICTION_SAMPLE`] keys come from one shard.
pub(crate) const EVICTION_SAMPLE_A_SHARD: usize = 4;

/// Slots searched for a key that may be evicted, before eviction gives up.
pub(crate) const EVICTION_LOOKS: u32 = 1 << 12;

/// How often the places of a search are halved while searches find newcomers only, or nothing: down to 64 places.
pub(crate) const FEWER_LOOKS: u32 = 6;

/// After this many new keys, a shard checks [`PLACES_OF_A_SWEEP`] of its slots for expired keys. So expired keys make room
/// for new ones without a sweep.
pub(crate) const KEYS_FOR_A_SWEEP: u8 = 8;
/// Slots that a shard checks after [`KEYS_FOR_A_SWEEP`] new keys.
pub(crate) const PLACES_OF_A_SWEEP: u32 = 32;

/// The most slots of one page of a scan.
pub const MAX_SCAN_SLOTS: usize = 10_000;

/// Points in one series.
pub const MAX_SERIES_POINTS: i64 = 100_000;

/// Stripes of one shared counter.
pub const MAX_STRIPES: usize = 256;

/// Threads that may hit one shared counter at the same moment: the hits that they add unseen fit a slot.
pub const MAX_SHARED_THREADS: u64 = 1 << 16;

/// How often a shared counter retries after losing a race, before it yields or gives up.
pub(crate) const SPIN_TRIES: u32 = 64;

/// How long the system clock must be ahead by more than `max_skew` before the clock jumps to it.
pub const ADOPTED_AFTER: Span = minutes(1);

/// Cells of a level that are read at a time, about: a coarser level takes over from there.
pub(crate) const CELLS_OF_A_LEVEL: i64 = 1_000;

/// Hits that are late by this much are sent to other nodes with the next visit, in milliseconds. Later ones are compared with what
/// the others have.
pub(crate) const SENT_LATE_MS: i64 = 10_000;

/// Counts of cells that ended this long ago are compared before they are sent to other nodes, in milliseconds.
pub const SENT_WITHIN_MS: i64 = 120_000;

/// How often the counts of wider cells are sent to other nodes, in milliseconds.
pub const WIDE_CELLS_EVERY_MS: i64 = 5_000;

/// The longest name of a node, in bytes.
pub const MAX_NODE_BYTES: usize = 64;

/// Origins that a store knows: nodes, and their lives within the retention.
pub const MAX_ORIGINS: usize = 100_000;
