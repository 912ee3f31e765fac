//! A dump in a file while it is checked, so that only some of its keys are in memory at a time.
//!
//! A change of a part follows the part, so a key's state is known only at the end of the dump. The dump is
//! sorted into shares as it arrives. Each share has some of the parts, and the changes of their keys.

use std::io::{self, Read, Seek, Write};

use lately::{Delta, Portion, Replay, Sequence, Store, Timestamp, Unreadable};

use crate::dump::{Block, DumpError, Reader, push_part, push_record};
use crate::frame::{self, HEAD_BYTES, Head};
use crate::limits::SHARES;
use crate::part::{WrittenPart, take_part};
use crate::shares::Shares;

#[cfg(test)]
mod altered_dumps;

/// A dump in a file.
pub struct Spool<F> {
    shares: Shares<F>,
    /// The shares with keys.
    filled: Vec<bool>,
    version: u8,
    /// The time at which the dump ended.
    now: Timestamp,
}

/// The state of a dump while it arrives.
struct Arriving<F> {
    shares: Shares<F>,
    filled: Vec<bool>,
    version: u8,
    /// The last change of each part that has arrived.
    parts: Vec<Option<u64>>,
    /// The deltas of a record, by share.
    split: Vec<Vec<u8>>,
}

impl<F: Read + Write + Seek> Spool<F> {
    /// Reads a whole dump into an empty file, and checks its format. [`Spool::read`] checks its keys.
    ///
    /// # Errors
    /// [`DumpError`] has what is wrong, and where.
    pub fn receive(input: &mut impl Read, file: F) -> Result<Spool<F>, DumpError> {
        let mut reader = Reader::begin(input)?;
        let version = reader.version();
        let mut arriving = Arriving {
            shares: Shares::new(file),
            filled: vec![false; SHARES],
            version,
            parts: vec![None; usize::from(Store::PARTS)],
            split: vec![Vec::new(); SHARES],
        };
        loop {
            let (offset, payload) = reader.block()?;
            if let Some(now) = arriving.take(offset, payload)? {
                reader.end()?;
                let Arriving { shares, filled, .. } = arriving;
                return Ok(Spool { shares, filled, version, now });
            }
        }
    }

    /// The numbers of the shares that have keys.
    #[must_use]
    pub fn shares(&self) -> Vec<usize> {
        (0..SHARES).filter(|&share| self.filled[share]).collect()
    }

    /// The time at which the dump ended, by its server's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Memory that grows with the dump, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.shares.held_bytes()
    }

    /// Reads the keys of a share into an empty store. After an error some of them are there. Before version 3
    /// parts have no time: they are read as of the store's time, or of the end of the dump if that is later.
    ///
    /// # Errors
    /// [`DumpError`] has the key that cannot be decoded, and its offset in the dump.
    pub fn read(&mut self, share: usize, store: &Store) -> Result<(), DumpError> {
        let (version, now) = (self.version, self.now);
        let mut replay = Replay::new(store, Portion::ALL);
        self.shares.read(share, 0, DumpError::Spool, |mut blocks| {
            while !blocks.is_empty() {
                let (offset, payload) = take_block(&mut blocks).ok_or_else(changed)?;
                read_block(payload, (version, now), store, &mut replay)
                    .map_err(|what| damaged(offset, what))?;
            }
            Ok(())
        })?;
        replay.settle(0).map_err(|error| damaged(0, error.to_string()))?;
        all_read(replay.take_unreadable()).map_err(|what| damaged(0, what))?;
        // Otherwise a source could be in two shares.
        if share != share_of(Store::SOURCES_PART) && !store.positions().is_empty() {
            return Err(damaged(0, "a source is in a part that has none"));
        }
        store.set_now(now);
        Ok(())
    }
}

impl<F: Read + Write + Seek> Arriving<F> {
    /// Adds a block at `offset`. Returns the end time of the dump if the block is the last.
    fn take(&mut self, offset: u64, payload: &[u8]) -> Result<Option<Timestamp>, DumpError> {
        match Block::read(payload, self.version).map_err(|what| damaged(offset, what))? {
            Block::Parts(mut rest) => {
                while !rest.is_empty() {
                    let before = rest;
                    let no_part = || damaged(offset, "it is no part");
                    let WrittenPart { part, number, keys, .. } =
                        take_part(&mut rest, self.version).ok_or_else(no_part)?;
                    let last = self.parts.get_mut(usize::from(part));
                    let last = last.filter(|_| number <= Sequence::MAX_NUMBER).ok_or_else(no_part)?;
                    *last = Some(number);
                    let (share, written) = (share_of(part), &before[..before.len() - rest.len()]);
                    self.filled[share] |= !keys.is_empty();
                    self.append(share, offset, |payload| push_part(written, payload))?;
                }
            }
            Block::Record(mut deltas) => {
                let now = deltas.now();
                loop {
                    let bytes = deltas.rest();
                    let Some(next) = deltas.next() else { break };
                    let (Sequence { part, number }, delta) =
                        next.map_err(|error| damaged(offset, error.to_string()))?;
                    let bytes = &bytes[..bytes.len() - deltas.rest().len()];
                    if let Delta::Flush { .. } = delta {
                        self.split.iter_mut().for_each(|split| split.extend_from_slice(bytes));
                        continue;
                    }
                    let last = self.parts.get(usize::from(part)).filter(|_| number <= Sequence::MAX_NUMBER);
                    let last = last.ok_or_else(|| damaged(offset, "it is no part"))?;
                    // Otherwise a later part will include the change.
                    if last.is_some_and(|last| number > last) {
                        self.filled[share_of(part)] = true;
                        self.split[share_of(part)].extend_from_slice(bytes);
                    }
                }
                for share in 0..SHARES {
                    let mut split = std::mem::take(&mut self.split[share]);
                    if !split.is_empty() {
                        self.append(share, offset, |payload| push_record(now, &split, payload))?;
                        split.clear();
                    }
                    self.split[share] = split;
                }
            }
            Block::End { .. } if self.parts.contains(&None) => {
                return Err(damaged(offset, "a part of the store is missing"));
            }
            Block::End { now } => return Ok(Some(now)),
        }
        Ok(None)
    }

    /// Appends a block to a share, with its offset in the dump instead of its number.
    fn append(
        &mut self,
        share: usize,
        offset: u64,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), DumpError> {
        let appended = self.shares.append(share, |bytes| frame::append(bytes, offset, 0, payload));
        appended.map_err(DumpError::Spool)
    }
}

fn share_of(part: u16) -> usize {
    usize::from(part) % SHARES
}

fn damaged(offset: u64, what: impl Into<String>) -> DumpError {
    DumpError::Damaged { offset, what: what.into() }
}

/// The file has other bytes than were written.
fn changed() -> DumpError {
    DumpError::Spool(io::Error::other("the file has not what was written"))
}

fn take_block<'b>(blocks: &mut &'b [u8]) -> Option<(u64, &'b [u8])> {
    let head = Head::read(blocks)?;
    let payload = blocks.get(HEAD_BYTES..HEAD_BYTES + head.len).filter(|payload| head.fits(payload))?;
    *blocks = &blocks[HEAD_BYTES + head.len..];
    Some((head.number, payload))
}

fn read_block(
    payload: &[u8],
    (version, ended): (u8, Timestamp),
    store: &Store,
    replay: &mut Replay<'_>,
) -> Result<(), String> {
    let text = |error: lately::Malformed| error.to_string();
    match Block::read(payload, version)? {
        Block::Parts(mut rest) => {
            let written = take_part(&mut rest, version).ok_or("it is no part")?;
            let now = written.now.unwrap_or_else(|| store.now().max(ended));
            replay.include(written.part, written.number, now).map_err(text)?;
            all_read(store.read_part(written.keys, now).map_err(text)?)
        }
        Block::Record(deltas) => {
            let now = deltas.now();
            replay.record(deltas).map_err(text)?;
            store.set_now(now);
            all_read(replay.take_unreadable())
        }
        Block::End { .. } => Err("it has what no share has".to_owned()),
    }
}

/// An error with the first key that could not be decoded, if there is one.
fn all_read(unreadable: Vec<Unreadable>) -> Result<(), String> {
    let first = unreadable.into_iter().next();
    first.map_or(Ok(()), |Unreadable { key, why }| Err(format!("key {} is {why}", key.escape_ascii())))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::ops::Range;

    use lately::{DeltaBatch, Op, minutes, seconds};

    use super::*;
    use crate::dump::Dump;
    use crate::sorted::Sorted;

    fn store() -> Store {
        Store::builder().build().expect("the defaults are valid")
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_seconds(1_700_000_000).expect("a time").saturating_add(seconds(1 + second))
    }

    fn file() -> Cursor<Vec<u8>> {
        Cursor::new(Vec::new())
    }

    fn hit(store: &Store, keys: Range<u64>, now: Timestamp) -> DeltaBatch {
        let names: Vec<String> = keys.map(|key| format!("key:{key:0>30}")).collect();
        let keys = names.iter().map(String::as_bytes);
        let ops: Vec<Op<'_>> = keys.map(|key| Op::Hit { key, weight: 1, at: None }).collect();
        let mut deltas = DeltaBatch::default();
        store.apply_into(&ops, now, &mut Vec::new(), &mut deltas);
        deltas
    }

    /// A dump of a store that is flushed and hit between its parts.
    fn dumped(store: &Store) -> Vec<u8> {
        hit(store, 0..20_000, at(0));
        let mut out = Vec::new();
        let mut dump = Dump::begin(store, &mut out);
        for second in 1.. {
            let more = dump.parts(&mut out);
            if second == 3 {
                store.flush_when(at(second), |deltas| {
                    dump.record(at(second), deltas.bytes(), &mut out);
                    true
                });
            }
            let deltas = hit(store, 1_000 * second..1_000 * second + 1_500, at(second));
            dump.record(deltas.now(), deltas.bytes(), &mut out);
            if !more {
                break;
            }
        }
        dump.end(&mut out);
        out
    }

    #[test]
    fn a_dump_is_restored_share_by_share() {
        let original = store();
        let bytes = dumped(&original);
        let into = store();
        let mut spool = Spool::receive(&mut &bytes[..], file()).expect("whole");
        assert_eq!((spool.shares().len(), spool.now()), (SHARES, original.now()));
        let mut sorted = Sorted::new(file());
        for share in spool.shares() {
            let scratch = into.empty_like();
            spool.read(share, &scratch).expect("read");
            assert!(scratch.len() < original.len() / 50, "{} keys at a time", scratch.len());
            sorted.add(&scratch, original.now()).expect("kept");
        }
        let (mut used_bytes, mut keys) = (0, 0);
        for share in sorted.shares() {
            let scratch = into.empty_like();
            sorted.try_in(share, &scratch).expect("read");
            used_bytes += scratch.memory().used_bytes;
            keys += scratch.len();
        }
        for share in sorted.shares() {
            let bring = |keys: &[u8]| {
                into.bring_part(keys, original.now(), &mut DeltaBatch::default()).expect("keys");
                Ok(())
            };
            sorted.pieces(share, |error| error, bring).expect("read");
        }
        into.check_consistency();
        assert_eq!((into.memory().used_bytes, into.len()), (used_bytes, keys));
        assert_eq!(into.len(), original.len());
        for key in 0..30_000 {
            let key = format!("key:{key:0>30}");
            let count = |store: &Store| store.hits(key.as_bytes(), minutes(5), original.now());
            assert_eq!(count(&into), count(&original), "{key}");
        }
    }

    #[test]
    fn shares_without_keys_are_left_out() {
        let original = store();
        let mut deltas = hit(&original, 1..2, at(0));
        let mut out = Vec::new();
        let mut dump = Dump::begin(&original, &mut out);
        while dump.parts(&mut out) {}
        deltas.clear();
        original.forget_into(format!("key:{:0>30}", 1).as_bytes(), at(1), Some(&mut deltas));
        dump.record(deltas.now(), deltas.bytes(), &mut out);
        let deltas = hit(&original, 2..3, at(2));
        dump.record(deltas.now(), deltas.bytes(), &mut out);
        dump.end(&mut out);
        let mut spool = Spool::receive(&mut &out[..], file()).expect("whole");
        let shares = spool.shares();
        assert!(!shares.is_empty() && shares.len() <= 2, "{shares:?}");
        let (copy, mut sorted) = (store(), Sorted::new(file()));
        assert_eq!(sorted.shares(), []);
        shares.into_iter().for_each(|share| spool.read(share, &copy).expect("read"));
        sorted.add(&copy, at(2)).expect("kept");
        assert_eq!((copy.len(), sorted.shares().len()), (1, 1));
    }

    /// The checksums and the structure are correct.
    #[test]
    fn an_unreadable_key_is_named() {
        let original = store();
        hit(&original, 0..1, at(0));
        let part = (0..Store::PARTS).find(|&part| {
            let mut bytes = Vec::new();
            original.write_part(part, at(0), &mut bytes);
            !bytes.is_empty()
        });
        let mut out = crate::frame::Kind::Dump.magic().to_vec();
        frame::append(&mut out, 0, 0, |payload| {
            payload.push(crate::part::PARTS);
            for part in 0..Store::PARTS {
                crate::part::write_part(&store(), part, payload);
            }
        });
        let start = out.len() as u64;
        frame::append(&mut out, 1, 0, |payload| {
            payload.push(crate::part::PARTS);
            let head = payload.len();
            crate::part::write_part(&original, part.expect("it is in one"), payload);
            let last = payload.len() - 1;
            assert!(last > head);
            payload[last] ^= 0xff;
        });
        frame::append(&mut out, 2, 0, |payload| {
            payload.push(crate::part::END);
            payload.extend_from_slice(&[0; 16]);
        });
        let mut spool = Spool::receive(&mut &out[..], file()).expect("it is of the format");
        let mut errors = spool.shares().into_iter().filter_map(|share| spool.read(share, &store()).err());
        let error = errors.next().expect("it cannot be read");
        assert!(error.to_string().contains("key:0000"), "{error}");
        assert!(matches!(error, DumpError::Damaged { offset, .. } if offset == start), "{error}");
    }

    #[test]
    fn a_changed_spool_file_is_detected() {
        let bytes = dumped(&store());
        let mut spool = Spool::receive(&mut &bytes[..], FlippedLater::default()).expect("whole");
        let error = spool.read(0, &store()).expect_err("a bit was flipped");
        assert!(matches!(error, DumpError::Spool(_)), "{error}");
    }

    /// A file in which each byte is changed when it is read.
    #[derive(Default)]
    struct FlippedLater(Cursor<Vec<u8>>);

    impl Read for FlippedLater {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read(room)?;
            room[..read].iter_mut().for_each(|byte| *byte ^= 1);
            Ok(read)
        }
    }

    impl Write for FlippedLater {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }

    impl Seek for FlippedLater {
        fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }
}
