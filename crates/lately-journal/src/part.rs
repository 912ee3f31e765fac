//! What a checkpoint is made of: a head, parts of a store, an end. A dump has parts, too.

use lately::{Part, Store};

use crate::frame::take_u64;

/// What the first byte of a payload says.
pub(crate) const HEAD: u8 = 0;
pub(crate) const PARTS: u8 = 1;
pub(crate) const END: u8 = 2;

/// What stands before a part: its number, its last change, its length.
pub(crate) const PART_HEAD_BYTES: usize = 2 + 8 + 8;

/// Appends a part and what stands before it.
pub(crate) fn write_part(store: &Store, number: u16, payload: &mut Vec<u8>) -> Part {
    let head = payload.len();
    payload.extend_from_slice(&[0; PART_HEAD_BYTES]);
    let part = store.write_part(number, store.now(), payload);
    let len = (payload.len() - head - PART_HEAD_BYTES) as u64;
    payload[head..head + 2].copy_from_slice(&number.to_le_bytes());
    payload[head + 2..head + 10].copy_from_slice(&part.sequence.number.to_le_bytes());
    payload[head + 10..head + PART_HEAD_BYTES].copy_from_slice(&len.to_le_bytes());
    part
}

/// Takes a part off the front of a payload: which it is, its last change, and its keys.
pub(crate) fn take_part<'a>(payload: &mut &'a [u8]) -> Option<(u16, u64, &'a [u8])> {
    let head = payload.split_off(..PART_HEAD_BYTES)?;
    let (part, mut numbers) = head.split_first_chunk()?;
    let number = take_u64(&mut numbers)?;
    let bytes = payload.split_off(..usize::try_from(take_u64(&mut numbers)?).ok()?)?;
    Some((u16::from_le_bytes(*part), number, bytes))
}
