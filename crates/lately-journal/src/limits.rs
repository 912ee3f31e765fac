//! Every bound of the journal, by name.

use std::time::Duration;

use lately::{Span, days};

/// What was written further ahead of the clock than this was written by a clock that was wrong, or the clock is.
pub const MAX_AHEAD: Span = days(1);

/// The log is cut behind a new checkpoint when it is longer than this, and than [`LOG_TO_CHECKPOINT`]
/// checkpoints.
pub const LOG_BYTES: u64 = 512 << 20;

/// See [`LOG_BYTES`].
pub const LOG_TO_CHECKPOINT: u64 = 2;

/// After so many bytes more of the log it is looked how much room the disk has.
pub const LOOK_BYTES: u64 = 1 << 20;

/// Bytes of a checkpoint that are written at once, and a part of the store more.
pub const BLOCK_BYTES: usize = 32 << 10;

/// How long a checkpoint in the background pauses after each block: it is not to take the processor from
/// those who count.
pub const BLOCK_PAUSE: Duration = Duration::from_millis(2);

/// Bytes of the log, or of a checkpoint, that are synced at once: a file system may have whoever writes to
/// the log wait for them.
pub const SYNC_BYTES: u64 = 2 << 20;

/// How often what was written is synced where hits do not wait for it, and it is less than [`SYNC_BYTES`].
pub const SYNC_EVERY: Duration = Duration::from_millis(500);

/// What is written and not synced is at most this old when a hit is acknowledged.
pub const UNSYNCED_MS: i64 = 1_000;

/// How long a journal that could not write waits before it tries again.
pub const RETRY_EVERY: Duration = Duration::from_millis(200);

/// The longest pause after a checkpoint that could not be written, before it is tried again. The first is twice
/// [`SYNC_EVERY`], and each is twice the one before.
pub const CHECKPOINT_RETRY_MOST: Duration = Duration::from_secs(60);

/// Bytes that must fit the disk before a journal that could not write goes on.
pub const ROOM_BYTES: usize = 64 << 10;

/// Room on the disk that is kept for the next checkpoint, above what the keys take in memory.
pub const RESERVE_BYTES: u64 = 128 << 10;

/// Of a disk that has not room for four logs up to so many times as much is kept before there are keys, but no
/// more than a quarter of it.
pub const SMALL_DISK: u64 = 128;

/// Of that, what is not given to a checkpoint, so that a start finds room for a new segment, and some more do.
pub const START_BYTES: u64 = 64 << 10;

/// Less room is not kept: a start would not find its own in it.
pub const LEAST_RESERVE_BYTES: u64 = 8 << 10;

/// One in so many of these tries writes all there is, to cut a log that fills the disk or to take the place of
/// one that could not be synced.
pub const TRIES: u64 = 25;

/// And so many of the first.
pub const QUICK_TRIES: u64 = 3;

/// A start that finds more segments of the log asks for a checkpoint.
pub const SEGMENTS: usize = 32;

/// Frames of a file that are asked which version it is of.
pub const TOLD_FRAMES: usize = 16;

/// The longest record, in bytes.
pub const MAX_FRAME_BYTES: usize = 1 << 30;

/// The longest block of a dump: a part of the store, or what a batch changed.
pub const MAX_DUMP_FRAME_BYTES: usize = 128 << 20;

/// Shares of a dump that is restored. The keys of one are in memory at a time, beside those of the store.
pub const SHARES: usize = 128;

/// Bytes of a share that are written to its file at once.
pub const RUN_BYTES: usize = 2 << 10;

/// Bytes of keys that a store takes in at once.
pub const PIECE_BYTES: usize = 256 << 10;

/// Memory that is kept for the records of the next write.
pub const KEPT_BYTES: usize = 256 << 10;

/// Bytes read at once.
pub const READ_BYTES: usize = 1 << 20;

/// Records given to the threads that put them back at once, in bytes, and how often before they have done
/// with the first.
pub const CHUNK_BYTES: usize = 256 << 10;
/// See [`CHUNK_BYTES`].
pub const CHUNKS: usize = 4;

/// Those of these bounds that a journal can be given others for: so that a few keys and a short while meet
/// them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// In place of [`LOG_BYTES`].
    pub log_bytes: u64,
    /// In place of [`BLOCK_BYTES`].
    pub block_bytes: usize,
    /// In place of [`SYNC_BYTES`].
    pub sync_bytes: u64,
    /// In place of [`RESERVE_BYTES`].
    pub reserve_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            log_bytes: LOG_BYTES,
            block_bytes: BLOCK_BYTES,
            sync_bytes: SYNC_BYTES,
            reserve_bytes: RESERVE_BYTES,
        }
    }
}
