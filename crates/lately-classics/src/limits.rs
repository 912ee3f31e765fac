//! Bounds of this crate, each with the reason for its size.

/// The latest time of a trace: the last millisecond of the year 9999. The earliest is 0.
pub const MAX_TIME_MS: i64 = 253_402_300_799_999;

/// The widest window of a trace: 1,000,000,000 s.
pub const MAX_WINDOW_MS: i64 = 1_000_000_000_000;

/// Keys of a trace are below this: few, so that operations meet.
pub const KEYS: u8 = 4;

/// Ids of a trace are below this: few, so that hits have the same ones.
pub const IDS: u8 = 3;

/// Members of a trace. Their number is exact.
pub const MEMBERS: u8 = 90;

/// The most operations a generated trace has.
pub const MAX_TRACE_OPS: usize = 300;

/// The most operations decoded from bytes: a longer trace finds nothing a shorter one would not.
pub const MAX_DECODED_OPS: usize = 4_096;

/// The most slots of a ring: 24 MiB of them.
pub const MAX_RING_SLOTS: usize = 1 << 20;

/// The most hits in an [`ExactQueue`](crate::ExactQueue), which keeps 8 bytes for each: 8 MiB.
pub const MAX_QUEUED_HITS: u64 = 1 << 20;

/// How often a thread tries again at once when another was quicker, before it lets others run or takes a lock.
pub const SPIN_TRIES: u32 = 64;
