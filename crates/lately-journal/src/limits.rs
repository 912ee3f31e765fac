//! Every bound of the journal, by name.

use std::time::Duration;

use lately::{Span, days};

/// If data was written more than this ahead of the clock, then that clock was wrong, or this one is.
pub const MAX_AHEAD: Span = days(1);

/// The log is cut behind a new checkpoint when it is longer than this, and than [`LOG_TO_CHECKPOINT`]
/// checkpoints.
pub const LOG_BYTES: u64 = 512 << 20;

/// See [`LOG_BYTES`].
pub const LOG_TO_CHECKPOINT: u64 = 2;

/// The free room of the disk is checked each time the log has grown by this much.
pub const CHECK_BYTES: u64 = 1 << 20;

/// Bytes of a checkpoint that are written at once, plus a part of the store.
pub const BLOCK_BYTES: usize = 32 << 10;

/// The pause of a background checkpoint after each block, so that hits keep the processor.
pub const BLOCK_PAUSE: Duration = Duration::from_millis(2);

/// The most bytes of the log or of a checkpoint between two syncs. A file system may block writers of the log
/// while it writes them.
pub const SYNC_BYTES: u64 = 2 << 20;

/// The interval of syncs, if hits do not wait for them and fewer than [`SYNC_BYTES`] are unsynced.
pub const SYNC_EVERY: Duration = Duration::from_millis(500);

/// When a hit is acknowledged, unsynced records are at most this old.
pub const UNSYNCED_MS: i64 = 1_000;

/// The pause between attempts of a journal that cannot write.
pub const RETRY_EVERY: Duration = Duration::from_millis(200);

/// The longest pause between attempts to write a checkpoint. The first is twice [`SYNC_EVERY`], and each is
/// twice the one before.
pub const CHECKPOINT_RETRY_MOST: Duration = Duration::from_secs(60);

/// The free bytes that a journal needs to recover from a failed write.
pub const ROOM_BYTES: usize = 64 << 10;

/// Room that is reserved for the next checkpoint, in addition to the memory of the keys.
pub const RESERVE_BYTES: u64 = 128 << 10;

/// On a disk with less room than four logs, up to this many times as much is reserved before there are keys,
/// but at most a quarter of the room.
pub const SMALL_DISK: u64 = 128;

/// The part of it that a checkpoint does not use: room for a new segment at a start, and for some more
/// starts.
pub const START_BYTES: u64 = 64 << 10;

/// A smaller reserve is not kept: a start would find no room in it.
pub const LEAST_RESERVE_BYTES: u64 = 8 << 10;

/// One in this many attempts to recover writes a checkpoint. It cuts a log that fills the disk, or replaces
/// one that could not be synced.
pub const TRIES: u64 = 25;

/// The first attempts all do.
pub const FIRST_TRIES: u64 = 3;

/// A start that finds more segments of the log asks for a checkpoint.
pub const SEGMENTS: usize = 32;

/// Frames of a file that are decoded to find its version.
pub const VERSION_FRAMES: usize = 16;

/// The longest record, in bytes.
pub const MAX_FRAME_BYTES: usize = 1 << 30;

/// The longest block of a dump: a part of the store, or what a batch changed.
pub const MAX_DUMP_FRAME_BYTES: usize = 128 << 20;

/// Shares of a dump that is restored. The keys of one share are in memory at a time, in addition to those of
/// the store.
pub const SHARES: usize = 128;

/// Bytes of a share that are written to its file at once.
pub const RUN_BYTES: usize = 2 << 10;

/// Bytes of keys that are added to a store at once.
pub const PIECE_BYTES: usize = 256 << 10;

/// Memory that is kept for encoding the next records.
pub const KEPT_BYTES: usize = 256 << 10;

/// Bytes read at once.
pub const READ_BYTES: usize = 1 << 20;

/// Bytes of records that a replaying thread gets at once, and the most such chunks that wait for it.
pub const CHUNK_BYTES: usize = 256 << 10;
/// See [`CHUNK_BYTES`].
pub const CHUNKS: usize = 4;

/// The bounds that tests lower, so that a few keys reach them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Instead of [`LOG_BYTES`].
    pub log_bytes: u64,
    /// Instead of [`BLOCK_BYTES`].
    pub block_bytes: usize,
    /// Instead of [`SYNC_BYTES`].
    pub sync_bytes: u64,
    /// Instead of [`RESERVE_BYTES`].
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
