//! The key of an operation: its length, and its shard.

use crate::error::HitError;
use crate::limits::MAX_KEY_BYTES;

/// The number of shards. Each has a lock.
pub(super) const SHARDS: usize = 1 << SHARD_BITS;
pub(super) const SHARD_BITS: u32 = if cfg!(loom) { 3 } else { 10 };

/// The shard of a hash. It uses the middle bits; the table in the shard uses the top and the low bits.
pub(super) fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize & (SHARDS - 1)
}

pub(super) fn check_key(key: &[u8]) -> Result<(), HitError> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(HitError::KeyLength { bytes: key.len() });
    }
    Ok(())
}
