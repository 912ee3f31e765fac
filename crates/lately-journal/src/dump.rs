//! A dump: all keys of a store as a stream, while hits continue, as of the moment at which it ends.
//!
//! It has the parts of the store one after the other, and between them the changes that happen meanwhile. A
//! part includes the changes before it was written; later changes of the part follow it.

use std::io::{self, Read};

use lately::{Deltas, Generation, Store, Timestamp};
use thiserror::Error;

use crate::frame::{
    self, HEAD_BYTES, Head, Kind, MAGIC_BYTES, OLDEST_VERSION, VERSION, delta_format, take_u64,
};
use crate::limits::{BLOCK_BYTES, MAX_DUMP_FRAME_BYTES};
use crate::part::{END, PARTS, take_time, write_part};

/// The kind of a payload that a checkpoint does not have.
const RECORD: u8 = 3;

/// Why a dump cannot be restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DumpError {
    /// It does not start like a dump.
    #[error("it is no dump of lately")]
    NoDump,
    /// It was written by an unknown version.
    #[error("it was written by another version: its format is {found}, this one reads those up to {known}")]
    Version {
        /// Its version.
        found: u8,
        /// The last version that can be read.
        known: u8,
    },
    /// Its bytes are not those that were written.
    #[error("it is damaged at byte {offset}: {what}")]
    Damaged {
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// It ends early.
    #[error("it ends early, at byte {offset}: the dump was not finished, or a part of it is missing")]
    Unfinished {
        /// Where.
        offset: u64,
    },
    /// Bytes follow its end.
    #[error("something follows its end, at byte {offset}")]
    TooLong {
        /// Where.
        offset: u64,
    },
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It cannot be stored while it is checked.
    #[error("it cannot be kept while it is checked: {0}")]
    Spool(io::Error),
}

/// Writes a dump, a piece at a time.
pub struct Dump<'s> {
    store: &'s Store,
    next_part: u16,
    frames: u64,
}

impl<'s> Dump<'s> {
    /// Starts a dump, and appends its head. From before this call until the end, all changes must be given to
    /// [`Dump::record`].
    pub fn begin(store: &'s Store, out: &mut Vec<u8>) -> Dump<'s> {
        out.extend_from_slice(&Kind::Dump.magic());
        Dump { store, next_part: 0, frames: 0 }
    }

    /// Whether the first [`Dump::HEAD_BYTES`] bytes are those of a dump.
    #[must_use]
    pub fn is_head(bytes: &[u8]) -> bool {
        bytes.len() == MAGIC_BYTES && Kind::Dump.version_of(bytes).is_some()
    }

    /// The bytes that identify a dump.
    pub const HEAD_BYTES: usize = MAGIC_BYTES;

    fn frame(&mut self, out: &mut Vec<u8>, payload: impl FnOnce(&mut Vec<u8>)) {
        frame::append(out, self.frames, 0, payload);
        self.frames += 1;
    }

    /// Appends the next few parts. False if there are no more.
    pub fn parts(&mut self, out: &mut Vec<u8>) -> bool {
        let (store, mut part) = (self.store, self.next_part);
        if part == Store::PARTS {
            return false;
        }
        self.frame(out, |payload| {
            let start = payload.len();
            payload.push(PARTS);
            while part < Store::PARTS && payload.len() - start < BLOCK_BYTES {
                write_part(store, part, payload);
                part += 1;
            }
        });
        self.next_part = part;
        true
    }

    /// Appends the changes of a batch: its time, and its encoded deltas.
    pub fn record(&mut self, now: Timestamp, deltas: &[u8], out: &mut Vec<u8>) {
        self.frame(out, |payload| push_record(now, deltas, payload));
    }

    /// Appends the end.
    pub fn end(mut self, out: &mut Vec<u8>) {
        let (generation, now) = (self.store.generation().0, self.store.now().as_millis());
        self.frame(out, |payload| {
            payload.push(END);
            payload.extend_from_slice(&generation.to_le_bytes());
            payload.extend_from_slice(&now.to_le_bytes());
        });
    }
}

/// Reads a dump block by block.
pub(crate) struct Reader<'r, R> {
    input: &'r mut R,
    version: u8,
    blocks: u64,
    offset: u64,
    payload: Vec<u8>,
}

/// A block of a dump.
pub(crate) enum Block<'p> {
    /// Parts, for [`take_part`].
    Parts(&'p [u8]),
    Record(Deltas<'p>),
    End {
        now: Timestamp,
    },
}

impl<'p> Block<'p> {
    /// # Errors
    /// What is wrong with the payload.
    pub(crate) fn read(payload: &'p [u8], version: u8) -> Result<Block<'p>, &'static str> {
        match payload.split_first() {
            Some((&PARTS, parts)) => Ok(Block::Parts(parts)),
            Some((&RECORD, mut rest)) => {
                let now = take_time(&mut rest).ok_or("it has no time")?;
                Ok(Block::Record(Deltas::of_format(delta_format(version), now, rest)))
            }
            Some((&END, mut rest)) => {
                take_u64(&mut rest).and_then(Generation::new).ok_or("its end is cut")?;
                let now = take_time(&mut rest).ok_or("its end is cut")?;
                if rest.is_empty() { Ok(Block::End { now }) } else { Err("something follows its end") }
            }
            _ => Err("it has what no dump has"),
        }
    }
}

/// Appends the payload of a block with one encoded part.
pub(crate) fn push_part(part: &[u8], payload: &mut Vec<u8>) {
    payload.push(PARTS);
    payload.extend_from_slice(part);
}

/// Appends the payload of a block of deltas.
pub(crate) fn push_record(now: Timestamp, deltas: &[u8], payload: &mut Vec<u8>) {
    payload.push(RECORD);
    payload.extend_from_slice(&now.as_millis().to_le_bytes());
    payload.extend_from_slice(deltas);
}

impl<'r, R: Read> Reader<'r, R> {
    /// Reads the head.
    pub(crate) fn begin(input: &'r mut R) -> Result<Reader<'r, R>, DumpError> {
        let mut reader = Reader { input, version: VERSION, blocks: 0, offset: 0, payload: Vec::new() };
        let mut magic = [0; MAGIC_BYTES];
        if reader.fill(&mut magic)? < MAGIC_BYTES {
            return Err(DumpError::NoDump);
        }
        reader.version = match Kind::Dump.version_of(&magic) {
            Some(version @ OLDEST_VERSION..=VERSION) => version,
            Some(found) => return Err(DumpError::Version { found, known: VERSION }),
            None => return Err(DumpError::NoDump),
        };
        Ok(reader)
    }

    pub(crate) fn version(&self) -> u8 {
        self.version
    }

    /// Reads a block. Returns its offset and its payload.
    pub(crate) fn block(&mut self) -> Result<(u64, &[u8]), DumpError> {
        let offset = self.offset;
        let mut head = [0; HEAD_BYTES];
        if self.fill(&mut head)? < HEAD_BYTES {
            return Err(DumpError::Unfinished { offset });
        }
        let damaged = || DumpError::Damaged { offset, what: "a block does not fit its checksum".to_owned() };
        let head = Head::read(&head).filter(|head| head.len <= MAX_DUMP_FRAME_BYTES).ok_or_else(damaged)?;
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        let read = self.input.by_ref().take(head.len as u64).read_to_end(&mut payload)?;
        self.offset += read as u64;
        if read < head.len {
            return Err(DumpError::Unfinished { offset });
        }
        if !head.fits(&payload) {
            return Err(damaged());
        }
        if head.number != self.blocks {
            return Err(DumpError::Damaged { offset, what: "a block is missing before it".to_owned() });
        }
        self.blocks += 1;
        self.payload = payload;
        Ok((offset, &self.payload))
    }

    /// Makes sure that the input ends here.
    pub(crate) fn end(&mut self) -> Result<(), DumpError> {
        match self.fill(&mut [0])? {
            0 => Ok(()),
            _ => Err(DumpError::TooLong { offset: self.offset - 1 }),
        }
    }

    /// Reads until `room` is full or the input ends. Returns the number of bytes.
    fn fill(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < room.len() {
            match self.input.read(&mut room[read..]) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.offset += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use lately::{DeltaBatch, Op, minutes, seconds};

    use super::*;
    use crate::spool::Spool;

    /// Reads a dump into an empty store. Returns the number of keys.
    fn read_dump(input: &mut impl Read, store: &Store) -> Result<usize, DumpError> {
        let mut spool = Spool::receive(input, Cursor::new(Vec::new()))?;
        spool.shares().into_iter().try_for_each(|share| spool.read(share, store))?;
        Ok(store.len())
    }

    fn store() -> Store {
        Store::builder().build().expect("the defaults are valid")
    }

    fn now() -> Timestamp {
        Timestamp::from_seconds(1_700_000_000).expect("a time")
    }

    fn hit(store: &Store, key: &str, at: Timestamp) -> DeltaBatch {
        let mut deltas = DeltaBatch::default();
        let op = Op::Hit { key: key.as_bytes(), weight: 1, at: None };
        store.apply_into(&[op], at, &mut Vec::new(), &mut deltas);
        deltas
    }

    /// A dump of a store that is hit meanwhile, and the store.
    fn dumped() -> (Vec<u8>, Store) {
        let store = store();
        (0..500).for_each(|n| drop(hit(&store, &format!("key:{}", n % 100), now())));
        let mut out = Vec::new();
        let mut dump = Dump::begin(&store, &mut out);
        let mut second = 0;
        loop {
            for n in 0..7 {
                let at = now().saturating_add(seconds(1 + second));
                let mut deltas = hit(&store, &format!("key:{}", (second * 7 + n) % 130), at);
                dump.record(deltas.now(), deltas.bytes(), &mut out);
                if n == 3 {
                    deltas.clear();
                    store.forget_into(b"key:5", at, Some(&mut deltas));
                    dump.record(at, deltas.bytes(), &mut out);
                }
            }
            second += 1;
            if !dump.parts(&mut out) {
                break;
            }
        }
        dump.end(&mut out);
        (out, store)
    }

    #[test]
    fn a_dump_has_the_state_at_its_end() {
        let (bytes, store) = dumped();
        let copy = self::store();
        let keys = read_dump(&mut &bytes[..], &copy).expect("whole");
        assert_eq!(keys, store.len());
        for n in 0..130 {
            let key = format!("key:{n}");
            let count = |store: &Store| store.hits(key.as_bytes(), minutes(5), store.now());
            assert_eq!(count(&copy), count(&store), "{key}");
        }
        copy.check_consistency();
    }

    /// Dumps of version 1 must stay readable. This one was written by the first version with dumps. It has
    /// keys with one hit, a list, panes and a ring, one with a long name, and one of a later generation.
    #[test]
    fn a_dump_of_version_1_is_read() {
        let store = store();
        let bytes = include_bytes!("../tests/data/dump-1");
        let at = Timestamp::from_seconds(1_700_700_000).expect("a time");
        store.set_now(at);
        assert_eq!(read_dump(&mut &bytes[..], &store).expect("whole"), 6);
        store.check_consistency();
        let long = "long".repeat(30);
        let counts = |key: &str| {
            [minutes(5), lately::hours(1), lately::days(7)]
                .map(|window| store.hits(key.as_bytes(), window, at).estimate)
        };
        let found = ["one", "list", "panes", "ring", "again", &long].map(counts);
        let wanted = [[1, 1, 1], [40, 40, 40], [5, 61, 9_000], [3_000, 3_000, 3_000], [2, 2, 2], [7, 7, 7]];
        assert_eq!(found, wanted);
    }

    #[test]
    fn an_incomplete_dump_is_refused() {
        let (bytes, _) = dumped();
        let read = |bytes: &[u8]| read_dump(&mut { bytes }, &store());
        for len in (0..bytes.len()).step_by(97).chain([1, 7, 8, 9, bytes.len() - 1]) {
            assert!(read(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
        }
        for bit in (0..bytes.len() * 8).step_by(1_009).chain(0..500) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped).is_err(), "bit {bit}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(matches!(read(&longer), Err(DumpError::TooLong { .. })));
        assert!(matches!(read(b"REDIS0011"), Err(DumpError::NoDump)));
    }
}
