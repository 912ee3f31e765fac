//! The parts of a checkpoint: a head, parts of a store, an end. A dump consists of parts, too.

use lately::{Part, Sequence, Store, Timestamp};

use crate::frame::{VERSION, take_u64};

/// The first byte of a payload: its kind.
pub(crate) const HEAD: u8 = 0;
pub(crate) const PARTS: u8 = 1;
pub(crate) const END: u8 = 2;

/// The head of a part: its number, its last change, its time, its length, and a checksum of these and the
/// keys. Before version 3 it had no time and no checksum.
pub(crate) const PART_HEAD_BYTES: usize = CHECKED_BYTES + 4;
const CHECKED_BYTES: usize = OLD_PART_HEAD_BYTES + 8;
const OLD_PART_HEAD_BYTES: usize = 2 + 8 + 8;

/// Appends a part with its head.
pub(crate) fn write_part(store: &Store, number: u16, payload: &mut Vec<u8>) -> Part {
    let head = payload.len();
    payload.extend_from_slice(&[0; PART_HEAD_BYTES]);
    let part = store.write_part(number, store.now(), payload);
    let len = (payload.len() - head - PART_HEAD_BYTES) as u64;
    payload[head..head + 2].copy_from_slice(&number.to_le_bytes());
    payload[head + 2..head + 10].copy_from_slice(&part.sequence.number.to_le_bytes());
    payload[head + 10..head + 18].copy_from_slice(&part.now.as_millis().to_le_bytes());
    payload[head + 18..head + CHECKED_BYTES].copy_from_slice(&len.to_le_bytes());
    seal_part(&mut payload[head..]);
    part
}

/// Writes the checksum of a part into its head.
pub(crate) fn seal_part(part: &mut [u8]) {
    let (head, keys) = part.split_at_mut(PART_HEAD_BYTES);
    let (checked, checksum) = head.split_at_mut(CHECKED_BYTES);
    checksum.copy_from_slice(&checksum_of(checked, keys).to_le_bytes());
}

fn checksum_of(head: &[u8], keys: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(keys);
    hasher.finalize()
}

/// The parts with a correct checksum that follow in order, anywhere in damaged bytes. Parts from before version 3 have none.
pub(crate) fn whole_parts(mut bytes: &[u8], order: &mut PartOrder) -> Vec<u8> {
    let mut whole = Vec::new();
    while !bytes.is_empty() {
        let part = first_part(bytes).unwrap_or_default();
        if order.follow(part, VERSION) {
            whole.extend_from_slice(part);
        }
        bytes = &bytes[part.len().max(1)..];
    }
    whole
}

/// The order of the parts of a checkpoint: their numbers rise, and their times do not fall. A part that an earlier checkpoint left in the
/// same place of the disk is older.
#[derive(Default)]
pub(crate) struct PartOrder(Option<(u16, Option<Timestamp>)>);

impl PartOrder {
    /// Whether all parts of a payload follow those before. Then the next ones must follow them.
    pub(crate) fn follow(&mut self, mut payload: &[u8], version: u8) -> bool {
        let mut last = self.0;
        while let Some(WrittenPart { part, now, .. }) = take_part(&mut payload, version) {
            if last.is_some_and(|(before, then)| part <= before || now < then) {
                return false;
            }
            last = Some((part, now));
        }
        self.0 = last;
        true
    }
}

/// The part at the front of `bytes`, if its checksum is correct.
fn first_part(bytes: &[u8]) -> Option<&[u8]> {
    let WrittenPart { part, number, keys, .. } = take_part(&mut { bytes }, VERSION)?;
    // Check the fields first: few wrong places pass, so few checksums are computed in vain.
    if part >= Store::PARTS || number > Sequence::MAX_NUMBER || !has_checksum(&bytes[..PART_HEAD_BYTES], keys)
    {
        return None;
    }
    Some(&bytes[..PART_HEAD_BYTES + keys.len()])
}

fn has_checksum(head: &[u8], keys: &[u8]) -> bool {
    let (checked, checksum) = head.split_at(CHECKED_BYTES);
    checksum_of(checked, keys).to_le_bytes() == *checksum
}

/// Whether a payload consists of parts in the encoding of this version.
pub(crate) fn are_parts(mut payload: &[u8], version: u8) -> bool {
    while !payload.is_empty() {
        let before = payload;
        let Some(WrittenPart { keys, .. }) = take_part(&mut payload, version) else { return false };
        if version >= 3 && !has_checksum(&before[..PART_HEAD_BYTES], keys) {
            return false;
        }
    }
    true
}

/// An encoded part.
pub(crate) struct WrittenPart<'a> {
    pub(crate) part: u16,
    /// The number of its last change.
    pub(crate) number: u64,
    /// Its time; absent before version 3.
    pub(crate) now: Option<Timestamp>,
    pub(crate) keys: &'a [u8],
}

/// Decodes a part from the front of a payload.
pub(crate) fn take_part<'a>(payload: &mut &'a [u8], version: u8) -> Option<WrittenPart<'a>> {
    let has_time = version >= 3;
    let head_bytes = if has_time { PART_HEAD_BYTES } else { OLD_PART_HEAD_BYTES };
    let (part, mut numbers) = payload.split_off(..head_bytes)?.split_first_chunk()?;
    let number = take_u64(&mut numbers)?;
    let now = if has_time { Some(take_time(&mut numbers)?) } else { None };
    let keys = payload.split_off(..usize::try_from(take_u64(&mut numbers)?).ok()?)?;
    Some(WrittenPart { part: u16::from_le_bytes(*part), number, now, keys })
}

/// Decodes a time from the front of a payload.
pub(crate) fn take_time(payload: &mut &[u8]) -> Option<Timestamp> {
    Timestamp::from_millis(i64::try_from(take_u64(payload)?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_an_earlier_checkpoint_does_not_follow() {
        let store = Store::builder().build().expect("valid");
        let part = |number: u16, at_ms: i64| {
            store.hit(b"k", Timestamp::from_millis(at_ms).expect("a time")).expect("counted");
            let mut payload = Vec::new();
            write_part(&store, number, &mut payload);
            payload
        };
        let earlier = [part(3, 1_000_000), part(5, 1_000_000)];
        let now = [2, 3, 4, 6].map(|number| part(number, 2_000_000));
        let mut order = PartOrder::default();
        assert!(order.follow(&now[..2].concat(), VERSION));
        assert!(!order.follow(&earlier[1], VERSION), "it is older");
        assert!(!order.follow(&now[1], VERSION), "it was there");
        assert!(!order.follow(&[&now[2][..], &earlier[1]].concat(), VERSION));
        assert!(order.follow(&now[2..].concat(), VERSION));
        // In damaged bytes, those that follow are found.
        let bytes = [&b"?"[..], &now[0], &earlier[0], b"??", &now[1], &now[2][1..]].concat();
        assert_eq!(whole_parts(&bytes, &mut PartOrder::default()), now[..2].concat());
    }
}
