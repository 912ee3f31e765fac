//! Plain files: a record for each batch, written straight to the end of the last one.
//!
//! A record is the length of its batch, its number, a checksum over those two and the batch, and the batch.

use std::fs::{self, File};
use std::io::{BufReader, Error, ErrorKind, Read, Result, Write};
use std::path::{Path, PathBuf};

use super::carrier::Carrier;

/// Length, number and checksum.
const HEAD_BYTES: usize = 16;
/// The longest batch that is taken for one.
const MOST_BYTES: usize = 1 << 20;
/// What is read at once.
const READ_BYTES: usize = 128 << 10;

/// Files, each with as many batches.
pub(super) struct Files {
    folder: PathBuf,
    batches_a_file: u64,
    current: Option<File>,
    record: Vec<u8>,
}

impl Files {
    pub(super) fn new(folder: &Path, batches_a_file: u64) -> Files {
        Files { folder: folder.to_owned(), batches_a_file, current: None, record: Vec::new() }
    }

    fn path(&self, first: u64) -> PathBuf {
        self.folder.join(format!("{first:020}"))
    }

    /// Begins the file whose first batch this is.
    fn begin(&mut self, first: u64) -> Result<()> {
        self.sync()?;
        self.current = Some(File::create_new(self.path(first))?);
        // Its name is to be there after a power loss, too.
        self.sync_folder()
    }

    fn sync_folder(&self) -> Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    /// The files there are, by their first batches.
    fn firsts(&self) -> Result<Vec<u64>> {
        let mut firsts = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            firsts.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
        }
        firsts.sort_unstable();
        Ok(firsts)
    }
}

impl Carrier for Files {
    fn append(&mut self, number: u64, batch: &[u8]) -> Result<()> {
        if number.is_multiple_of(self.batches_a_file) {
            self.begin(number)?;
        }
        let length = u32::try_from(batch.len()).map_err(Error::other)?;
        self.record.clear();
        self.record.extend_from_slice(&length.to_le_bytes());
        self.record.extend_from_slice(&number.to_le_bytes());
        let checksum = checksum(&self.record, batch);
        self.record.extend_from_slice(&checksum.to_le_bytes());
        self.record.extend_from_slice(batch);
        let file =
            self.current.as_mut().ok_or_else(|| Error::other("the first batch of a file comes first"))?;
        file.write_all(&self.record)
    }

    fn sync(&mut self) -> Result<()> {
        self.current.as_ref().map_or(Ok(()), File::sync_data)
    }

    fn replay(&mut self, take: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let firsts = self.firsts()?;
        for &first in &firsts {
            let path = self.path(first);
            let mut records = Records::open(&path)?;
            while let Some(number) = records.read()? {
                take(number, &records.batch);
            }
            if records.is_torn && Some(&first) != firsts.last() {
                return Err(records.damage("the file ends within a record"));
            }
        }
        Ok(())
    }

    fn cut(&mut self, before: u64) -> Result<()> {
        for first in self.firsts()? {
            if first + self.batches_a_file <= before {
                fs::remove_file(self.path(first))?;
            }
        }
        self.sync_folder()
    }
}

fn checksum(head: &[u8], batch: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(batch);
    hasher.finalize()
}

/// The records of a file, one after the other.
struct Records {
    path: PathBuf,
    file: BufReader<File>,
    left: u64,
    /// Where the record begins that is read next.
    offset: u64,
    /// The last batch read.
    batch: Vec<u8>,
    /// Whether the file ends within a record: a write was cut short.
    is_torn: bool,
}

impl Records {
    fn open(path: &Path) -> Result<Records> {
        let file = File::open(path)?;
        let left = file.metadata()?.len();
        let file = BufReader::with_capacity(READ_BYTES, file);
        Ok(Records { path: path.to_owned(), file, left, offset: 0, batch: Vec::new(), is_torn: false })
    }

    /// The number of the next batch, which is in `batch` then; none at the end.
    fn read(&mut self) -> Result<Option<u64>> {
        let mut head = [0; HEAD_BYTES];
        if self.left < HEAD_BYTES as u64 {
            self.is_torn = self.left > 0;
            return Ok(None);
        }
        self.file.read_exact(&mut head)?;
        let [a, b, c, d, number @ .., e, f, g, h] = head;
        let (length, expected) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let bytes = HEAD_BYTES as u64 + u64::from(length);
        if length as usize > MOST_BYTES {
            return Err(self.damage("no batch is as long as its record says"));
        }
        if self.left < bytes {
            self.is_torn = true;
            return Ok(None);
        }
        self.batch.resize(length as usize, 0);
        self.file.read_exact(&mut self.batch)?;
        if checksum(&head[..HEAD_BYTES - size_of::<u32>()], &self.batch) != expected {
            return Err(self.damage("the checksum is another"));
        }
        self.left -= bytes;
        self.offset += bytes;
        Ok(Some(u64::from_le_bytes(number)))
    }

    fn damage(&self, what: &str) -> Error {
        let sentence = format!("{}: record at byte {}: {what}", self.path.display(), self.offset);
        Error::new(ErrorKind::InvalidData, sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::batches::{BATCH_BYTES, Batches};

    /// What is found of three batches in two files, once they were changed.
    fn found(change: impl FnOnce(&Path)) -> (u64, Option<String>) {
        let folder = tempfile::tempdir().expect("a folder for a test");
        let mut batches = Batches::new();
        let mut files = Files::new(folder.path(), 2);
        (0..3).for_each(|number| files.append(number, batches.batch(number)).expect("disk space"));
        change(folder.path());
        let mut count = 0;
        let done = files.replay(&mut |_, _| count += 1);
        (count, done.err().map(|error| error.to_string()))
    }

    fn flip(path: &Path, byte: usize) {
        let mut bytes = fs::read(path).expect("it was written");
        bytes[byte] ^= 1;
        fs::write(path, bytes).expect("disk space");
    }

    #[test]
    fn damage_is_named_by_file_and_place() {
        let record = HEAD_BYTES + BATCH_BYTES;
        let check = |byte: usize, expected_count: u64, expected: &str| {
            let (count, error) = found(|folder| flip(&folder.join(format!("{:020}", 0)), byte));
            let error = error.expect("damage");
            assert!(count == expected_count && error.ends_with(expected), "{count} {error}");
        };
        check(0, 0, "/00000000000000000000: record at byte 0: the checksum is another");
        check(record - 1, 0, "/00000000000000000000: record at byte 0: the checksum is another");
        check(
            record + 7,
            1,
            &format!("/00000000000000000000: record at byte {record}: the checksum is another"),
        );
        check(3, 0, "record at byte 0: no batch is as long as its record says");
    }

    #[test]
    fn only_the_last_file_may_end_within_a_record() {
        let shorten = |first: u64, by: u64| {
            found(move |folder| {
                let file = File::options().write(true).open(folder.join(format!("{first:020}")));
                let file = file.expect("it was written");
                let length = file.metadata().expect("a file has a length").len();
                file.set_len(length - by).expect("a file can be shortened");
            })
        };
        assert_eq!(shorten(2, 1), (2, None));
        assert_eq!(shorten(2, BATCH_BYTES as u64 + 1), (2, None));
        let (count, error) = shorten(0, 1);
        assert!(count == 1 && error.expect("damage").ends_with("the file ends within a record"));
    }
}
