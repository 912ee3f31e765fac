//! One file of a log, read batch by batch: a batch has the hits of the lines between two offsets, which are offsets in the decompressed
//! content. A file is read from its start even if the server has some of its lines, because the format, and lines cut by a container
//! runtime, depend on earlier lines. Lines that the server has are not sent again.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::SystemTime;

use lately::Timestamp;
use lately_logs::{CutLines, Cutter, Feed, Line, Options, Record, ScanError, Scanned, SetupError};
use memchr::memchr;

use crate::limits::{
    FOLLOW_CHECK_BYTES, FOLLOW_POLL_BYTES, MAX_POSITION, SHIP_BATCH_BYTES, SHIP_BATCH_HITS, SHIP_HIT_BYTES,
};
use crate::live::claims::FileId;
use crate::log_file;
use crate::ship::head::Head;

/// Bytes read at once.
const READ_BYTES: usize = 256 * 1024;

/// The number of first bytes that show whether a file is compressed.
const MAGIC_BYTES: usize = 6;

/// A file, and the positions up to which it was read and sent.
pub(crate) struct Part<'o> {
    pub(crate) path: PathBuf,
    pub(crate) id: FileId,
    /// Its name on the server.
    pub(crate) source: String,
    /// The position up to which the server has its lines.
    pub(crate) sent: u64,
    /// The connection on which `sent` was confirmed.
    pub(crate) connection: u64,
    /// The time of the last read with new bytes.
    pub(crate) quiet_since: Timestamp,
    options: &'o Options,
    file: File,
    is_compressed: bool,
    reading: Reading<'o>,
    /// Length and time of the last write at the last comparison of the file with the bytes that were read.
    seen: Option<(u64, SystemTime)>,
    /// How the file began when it was found. Its name on the server depends on it.
    head: Head,
    /// Whether it was truncated or written anew while it was read.
    is_rewritten: bool,
}

/// The state of reading a file.
struct Reading<'o> {
    options: &'o Options,
    /// `None` for a plain file, which is read at an offset.
    stream: Option<Box<dyn Read>>,
    buffer: Vec<u8>,
    /// The part of the buffer that is not parsed yet.
    unread: std::ops::Range<usize>,
    cutter: Cutter,
    feed: Option<Feed<'o>>,
    scanned: Scanned,
    /// The position up to which bytes were parsed, and the end of the last complete line.
    taken: u64,
    line_end: u64,
    /// Lines that begin before this position were sent earlier.
    from: u64,
    /// Whether zeros at the start are skipped. A writer that continues at its old offset in a truncated file leaves a hole.
    skips_zeros: bool,
    /// The bytes before `taken`.
    before: Vec<u8>,
    hits: Hits,
}

/// Hits by key and time in ms.
#[derive(Default)]
struct Hits {
    counts: BTreeMap<(Box<[u8]>, i64), u64>,
    key_bytes: usize,
}

impl Hits {
    fn add(&mut self, record: &Record<'_>) {
        let count = self.counts.entry((record.key.into(), record.at.as_millis())).or_insert_with(|| {
            self.key_bytes += record.key.len();
            0
        });
        *count = count.saturating_add(1);
    }

    /// Whether the hits fill a batch, with a prefix before each key.
    fn is_full(&self, prefix_bytes: usize) -> bool {
        let hits = self.counts.len();
        hits >= SHIP_BATCH_HITS || self.key_bytes + hits * (SHIP_HIT_BYTES + prefix_bytes) >= SHIP_BATCH_BYTES
    }

    fn clear(&mut self) {
        *self = Hits::default();
    }
}

/// The outcome of filling a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filled {
    /// The file was read to its end.
    AtEnd,
    /// There is more to read.
    More,
    /// The file was truncated or rewritten during the read. The bytes may be from both versions, so they must not be
    /// sent.
    Rewritten,
}

/// The error that ends a file.
#[derive(Debug)]
pub(crate) enum PartError {
    Read(io::Error),
    Scan(ScanError),
    Setup(SetupError),
}

impl From<io::Error> for PartError {
    fn from(error: io::Error) -> PartError {
        PartError::Read(error)
    }
}

impl From<ScanError> for PartError {
    fn from(error: ScanError) -> PartError {
        PartError::Scan(error)
    }
}

/// An open file that was not read yet, except for its head.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) id: FileId,
    pub(crate) file: File,
    pub(crate) metadata: Metadata,
    pub(crate) is_compressed: bool,
    pub(crate) head: Head,
}

/// The time of the last write to a file, in ns of Unix time.
pub(crate) fn modified_ns(metadata: &Metadata) -> io::Result<u64> {
    let since_epoch = metadata.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(since_epoch.as_nanos()).unwrap_or(MAX_POSITION).min(MAX_POSITION))
}

pub(crate) fn id_of(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

impl Found {
    /// Opens a file and reads its head. With `has_own_times`, the user gives the format of times.
    pub(crate) fn open(path: PathBuf, has_own_times: bool) -> io::Result<Found> {
        // Opening a pipe would block.
        if !std::fs::metadata(&path)?.is_file() {
            return Err(io::Error::other("is no plain file"));
        }
        let file = File::open(&path)?;
        let metadata = file.metadata()?;
        let mut magic = [0; MAGIC_BYTES];
        let count = read_at(&file, &mut magic, 0)?;
        let is_compressed = log_file::is_compressed(&magic[..count]);
        let head = Head::read(log_file::decompress(Box::new(file.try_clone()?))?, has_own_times)?;
        Ok(Found { path, id: id_of(&metadata), file, metadata, is_compressed, head })
    }
}

impl Found {
    /// Whether the file still begins as it did when it was opened.
    pub(crate) fn is_same(&self) -> bool {
        begins_with(&self.file, &self.head).unwrap_or(false)
    }

    /// The current length of the file.
    pub(crate) fn len(&self) -> u64 {
        self.file.metadata().unwrap_or_else(|_| self.metadata.clone()).len()
    }

    /// Whether a position is within a line of a plain file. The end of the file is not, because a last line without a line end may
    /// have been sent.
    pub(crate) fn is_within_line(&self, position: u64) -> bool {
        let mut around = [0; 2];
        !self.is_compressed
            && position > 0
            && read_at(&self.file, &mut around, position - 1).is_ok_and(|count| count == 2)
            && !around.contains(&b'\n')
    }
}

/// Reads until the buffer is full or the file ends.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match file.read_at(&mut buffer[count..], offset + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Reads a file from its start, whatever the offset of its descriptor.
struct FromStart {
    file: File,
    offset: u64,
}

impl Read for FromStart {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// Whether a file begins with a head.
fn begins_with(file: &File, head: &Head) -> io::Result<bool> {
    let file = FromStart { file: file.try_clone()?, offset: 0 };
    head.is_of(log_file::decompress(Box::new(file))?)
}

/// Whether a file has these bytes before an offset.
fn has_before(file: &File, before: &[u8], offset: u64) -> io::Result<bool> {
    let mut there = vec![0; before.len()];
    let count = read_at(file, &mut there, offset - before.len() as u64)?;
    Ok(there[..count] == *before)
}

impl<'o> Part<'o> {
    /// A part for the lines after `sent`, because the server has those before.
    pub(crate) fn new(
        found: Found,
        source: String,
        sent: u64,
        options: &'o Options,
        now: Timestamp,
    ) -> Result<Part<'o>, PartError> {
        let Found { path, id, file, is_compressed, head, .. } = found;
        let reading = Reading::new(&file, is_compressed, sent, options)?;
        let (connection, seen) = (0, None);
        Ok(Part {
            path,
            id,
            source,
            sent,
            connection,
            quiet_since: now,
            options,
            file,
            is_compressed,
            reading,
            seen,
            head,
            is_rewritten: false,
        })
    }

    /// Reads the file again from its start, because the server has another position than expected.
    pub(crate) fn restart(&mut self, sent: u64) -> Result<(), PartError> {
        self.reading = Reading::new(&self.file, self.is_compressed, sent, self.options)?;
        self.sent = sent;
        Ok(())
    }

    /// Continues lines that were cut at the end of the file before this one, if nothing was read yet.
    pub(crate) fn resume(&mut self, cut: CutLines) {
        if let Some(feed) = self.reading.feed.as_mut().filter(|_| self.reading.taken == 0) {
            feed.resume(cut);
        }
    }

    /// The lines that are cut at the current end of the file.
    pub(crate) fn cut_lines(&self) -> CutLines {
        self.reading.feed.as_ref().map(Feed::cut_lines).unwrap_or_default()
    }

    /// The number of lines so far that do not parse.
    pub(crate) fn malformed_lines(&self) -> u64 {
        self.reading
            .feed
            .as_ref()
            .map_or(self.reading.scanned.malformed_lines(), |feed| feed.scanned().malformed_lines())
    }

    /// The time of the last write, in ns of Unix time.
    pub(crate) fn modified_ns(&self) -> io::Result<u64> {
        modified_ns(&self.file.metadata()?)
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.is_compressed
    }

    /// Whether the file has no name any more.
    pub(crate) fn is_deleted(&self) -> bool {
        self.file.metadata().map_or(true, |metadata| metadata.nlink() == 0)
    }

    /// Whether the file was rewritten: it is shorter, or has other bytes before the position up to which it was read.
    pub(crate) fn is_rewritten(&mut self) -> io::Result<bool> {
        if self.is_rewritten || self.is_compressed {
            return Ok(self.is_rewritten);
        }
        let metadata = self.file.metadata()?;
        let Reading { taken, before, .. } = &self.reading;
        if metadata.len() < *taken {
            return Ok(true);
        }
        let seen = Some((metadata.len(), metadata.modified()?));
        if self.seen == seen {
            return Ok(false);
        }
        self.seen = seen;
        Ok(!self.is_same(before, *taken)?)
    }

    /// Whether the file still has these bytes before an offset up to which it was read. At its start, whether it begins as it did when
    /// it was found: a file that is read again from its start may have been rewritten since.
    fn is_same(&self, before: &[u8], offset: u64) -> io::Result<bool> {
        if offset == 0 { begins_with(&self.file, &self.head) } else { has_before(&self.file, before, offset) }
    }

    /// Whether the file was replaced by a copy of it: it is deleted, it was read to its end, and the copy has the same lines.
    pub(crate) fn is_replaced_by(&self, copy: &Found) -> io::Result<bool> {
        let Reading { taken, before, .. } = &self.reading;
        let is_plain = !self.is_compressed && !copy.is_compressed;
        let is_read = self.is_deleted() && self.file.metadata()?.len() == *taken;
        Ok(is_plain && is_read && has_before(&copy.file, before, *taken)?)
    }

    /// The summary of the file.
    pub(crate) fn into_scanned(mut self) -> Scanned {
        let Some(mut feed) = self.reading.feed.take() else { return self.reading.scanned };
        feed.drop_partial();
        // Lines that still wait for a format do not parse.
        feed.finish(&[], &mut |_| ()).unwrap_or_default()
    }

    /// Reads until there are enough hits for a batch, with a prefix before each key, or until the end of the file.
    pub(crate) fn fill(&mut self, prefix_bytes: usize, now: Timestamp) -> Result<Filled, PartError> {
        let (before, taken) = (self.reading.before.clone(), self.reading.taken);
        let filled = self.read_batch(prefix_bytes, now)?;
        // A compressed file is only compared at its start.
        if self.reading.taken == taken || (self.is_compressed && taken > 0) {
            return Ok(filled);
        }
        // If the bytes of the last read are unchanged, the new bytes follow them.
        self.is_rewritten = !self.is_same(&before, taken)?;
        Ok(if self.is_rewritten { Filled::Rewritten } else { filled })
    }

    fn read_batch(&mut self, prefix_bytes: usize, now: Timestamp) -> Result<Filled, PartError> {
        let mut left_bytes = FOLLOW_POLL_BYTES;
        let Part { reading, file, .. } = self;
        if let Some(feed) = &mut reading.feed {
            feed.set_now(now);
        }
        loop {
            if reading.hits.is_full(prefix_bytes) || left_bytes == 0 {
                return Ok(Filled::More);
            }
            if reading.unread.is_empty() && !reading.read_more(file)? {
                reading.detect_format_early()?;
                return Ok(Filled::AtEnd);
            }
            self.quiet_since = now;
            left_bytes = left_bytes.saturating_sub(reading.take_line()?);
        }
    }

    /// Ends the file, to which nothing more is written. A last line without a line end counts as a line.
    pub(crate) fn finish(&mut self) -> Result<(), PartError> {
        self.reading.finish()
    }

    /// The format of its lines, once it is known.
    pub(crate) fn format(&self) -> Option<&'static str> {
        self.reading.feed.as_ref().and_then(|feed| feed.scanned().format)
    }

    /// The end of the batch of [`Part::fill`]. `None` if no line was read.
    pub(crate) fn batch_end(&self) -> Option<u64> {
        let Reading { line_end, feed, .. } = &self.reading;
        // Lines that wait for the format are not read yet.
        let is_waiting = feed.as_ref().is_some_and(Feed::is_waiting);
        (*line_end > self.sent && !is_waiting).then_some(*line_end)
    }

    /// The hits of the batch: key, time in ms, and number.
    pub(crate) fn hits(&self) -> impl Iterator<Item = (&[u8], i64, u64)> {
        self.reading.hits.counts.iter().map(|((key, at_ms), count)| (&**key, *at_ms, *count))
    }

    /// Records that the server has the batch.
    pub(crate) fn is_sent(&mut self, to: u64) {
        self.sent = to;
        self.reading.hits.clear();
    }
}

impl<'o> Reading<'o> {
    fn new(
        file: &File,
        is_compressed: bool,
        from: u64,
        options: &'o Options,
    ) -> Result<Reading<'o>, PartError> {
        let stream = if is_compressed {
            let mut file = file.try_clone()?;
            file.rewind()?;
            Some(log_file::decompress(Box::new(file))?)
        } else {
            None
        };
        Ok(Reading {
            options,
            stream,
            buffer: vec![0; READ_BYTES],
            unread: 0..0,
            cutter: Cutter::default(),
            feed: Some(Feed::new(options).map_err(PartError::Setup)?),
            scanned: Scanned::default(),
            taken: 0,
            line_end: 0,
            from,
            skips_zeros: true,
            before: Vec::new(),
            hits: Hits::default(),
        })
    }

    /// Fills the buffer. Returns false at the end of the file.
    fn read_more(&mut self, file: &File) -> io::Result<bool> {
        let count = loop {
            let read = match &mut self.stream {
                Some(stream) => stream.read(&mut self.buffer),
                None => file.read_at(&mut self.buffer, self.taken),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.unread = 0..count;
        Ok(count > 0)
    }

    /// Parses the next line of the buffer, or the part of it that is there. Returns the number of bytes.
    fn take_line(&mut self) -> Result<usize, PartError> {
        let is_sent = self.line_end < self.from;
        if !is_sent && self.from > 0 && self.line_end == self.taken {
            self.pass_sent_lines()?;
        }
        let rest = &self.buffer[self.unread.clone()];
        if self.skips_zeros {
            let zeros = rest.iter().take_while(|byte| **byte == 0).count();
            self.skips_zeros = zeros == rest.len();
            if zeros > 0 {
                remember(&mut self.before, &rest[..zeros]);
                self.unread.start += zeros;
                self.taken += zeros as u64;
                return Ok(zeros);
            }
        }
        let end = memchr(b'\n', rest);
        let bytes = &rest[..end.map_or(rest.len(), |at| at + 1)];
        let len = bytes.len();
        remember(&mut self.before, bytes);
        let Reading { cutter, feed, hits, .. } = self;
        let mut taken = Ok(());
        if let Some(feed) = feed {
            cutter.push(bytes, |line| taken = take(feed, line, is_sent, hits));
        }
        taken?;
        self.unread.start += len;
        self.taken += len as u64;
        if end.is_some() {
            self.line_end = self.taken;
        }
        Ok(len)
    }

    /// Sends lines from here on. Earlier lines that still wait for the format are not sent.
    fn pass_sent_lines(&mut self) -> Result<(), PartError> {
        self.from = 0;
        let Some(feed) = &mut self.feed else { return Ok(()) };
        feed.detect_early(&mut |_| ())?;
        // The format of the earlier lines was detected by lines in another file, as when a rotation cuts a line.
        if feed.is_waiting() {
            let cut = feed.cut_lines();
            *feed = Feed::new(self.options).map_err(PartError::Setup)?;
            feed.resume(cut);
        }
        Ok(())
    }

    /// Parses the lines that wait for the format, if they are enough to detect it, because the next line may come much later.
    fn detect_format_early(&mut self) -> Result<(), PartError> {
        if self.line_end < self.from {
            return Ok(());
        }
        if self.from > 0 && self.line_end == self.taken {
            self.pass_sent_lines()?;
        }
        let Reading { feed: Some(feed), hits, .. } = self else { return Ok(()) };
        Ok(feed.detect_early(&mut |record| hits.add(&record))?)
    }

    fn finish(&mut self) -> Result<(), PartError> {
        let is_sent = self.line_end < self.from;
        let Some(mut feed) = self.feed.take() else { return Ok(()) };
        let Reading { cutter, hits, .. } = self;
        let mut taken = Ok(());
        cutter.finish(|line| taken = take(&mut feed, line, is_sent, hits));
        taken?;
        // The start of a cut line does not count as a line.
        feed.drop_partial();
        self.scanned = feed.finish(&[], &mut |record| {
            if !is_sent {
                hits.add(&record);
            }
        })?;
        self.line_end = self.taken;
        Ok(())
    }
}

fn take(feed: &mut Feed<'_>, line: Line<'_>, is_sent: bool, hits: &mut Hits) -> Result<(), ScanError> {
    feed.line(line, &mut |record| {
        if !is_sent {
            hits.add(&record);
        }
    })
}

/// Keeps the last bytes that were read, for later comparisons.
fn remember(before: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = &bytes[bytes.len().saturating_sub(FOLLOW_CHECK_BYTES)..];
    let excess = (before.len() + bytes.len()).saturating_sub(FOLLOW_CHECK_BYTES);
    before.drain(..excess);
    before.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use flate2::write::GzEncoder;

    use super::*;

    const LINE: &str = "{\"time\":1700000000,\"ip\":\"a\"}\n";

    /// Symptom: the lines before a truncation were lost. Cause: the file was truncated between two reads, so what came after it was
    /// taken for what followed. Fix: what was read before is looked for after each read.
    #[test]
    fn what_is_truncated_between_two_reads_is_not_sent() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("app.log");
        let (options, now) = (Options::default(), Timestamp::MIN);
        let hole = "\0".repeat(4 * LINE.len());
        for (first, rewritten, is_same) in [
            // Before the first read, and before the second one.
            (None, hole.clone() + &LINE.replace('a', "b"), false),
            (None, LINE.repeat(5), true),
            (Some(LINE.repeat(4)), hole + LINE, false),
            (Some(LINE.repeat(4)), LINE.repeat(5), true),
        ] {
            fs::write(&path, LINE.repeat(3)).expect("room");
            let found = Found::open(path.clone(), false).expect("it is there");
            let mut part = Part::new(found, "app".to_owned(), 0, &options, now).expect("valid options");
            if let Some(first) = first {
                fs::write(&path, first).expect("room");
                assert_eq!(part.fill(0, now).expect("it is there"), Filled::AtEnd);
            }
            fs::write(&path, rewritten).expect("room");
            let expected = if is_same { Filled::AtEnd } else { Filled::Rewritten };
            assert_eq!(part.fill(0, now).expect("it is there"), expected);
            assert_eq!(part.is_rewritten().expect("it is there"), !is_same);
        }
    }

    /// Symptom: lines of a truncated log were lost, and the lines after them were sent twice. Cause: the server had an earlier position
    /// than expected, and the file was read again from its start under its old name, although it had been truncated. Fix: each
    /// reading from the start checks that the file begins as when it was found.
    #[test]
    fn what_is_truncated_before_it_is_read_again_is_not_sent() {
        let folder = tempfile::tempdir().expect("a folder");
        let (options, now) = (Options::default(), Timestamp::MIN);
        let (old, new) = (LINE.repeat(3), LINE.replace('a', "b").repeat(9));
        for (name, is_compressed) in [("app.log", false), ("app.log.gz", true)] {
            let path = folder.path().join(name);
            let write = |text: &str| {
                let mut packed = GzEncoder::new(Vec::new(), flate2::Compression::fast());
                packed.write_all(text.as_bytes()).expect("room");
                let packed = packed.finish().expect("room");
                fs::write(&path, if is_compressed { &packed[..] } else { text.as_bytes() }).expect("room");
            };
            write(&old);
            let found = Found::open(path.clone(), false).expect("it is there");
            assert_eq!((found.is_compressed, found.is_same()), (is_compressed, true));
            let mut part = Part::new(found, "app".to_owned(), 0, &options, now).expect("valid options");
            for (text, expected) in [(&old, Filled::AtEnd), (&new, Filled::Rewritten)] {
                write(text);
                for position in [0, LINE.len() as u64] {
                    part.restart(position).expect("it is there");
                    assert_eq!(part.fill(0, now).expect("it is there"), expected, "{name}");
                    assert_eq!(part.is_rewritten().expect("it is there"), expected == Filled::Rewritten);
                }
            }
        }
        let path = folder.path().join("app.log");
        let found = Found::open(path.clone(), false).expect("it is there");
        fs::write(&path, &old).expect("room");
        assert!(!found.is_same() && found.len() == old.len() as u64);
    }

    #[test]
    fn a_longer_copy_replaces_a_deleted_file_that_was_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("app.log"), folder.path().join("app.log.new"));
        let (options, now) = (Options::default(), Timestamp::MIN);
        fs::write(&path, LINE.repeat(3)).expect("room");
        let open = |path: &std::path::Path| Found::open(path.to_owned(), false).expect("it is there");
        let mut part = Part::new(open(&path), "app".to_owned(), 0, &options, now).expect("valid options");
        fs::write(&other, LINE.repeat(5)).expect("room");
        assert_eq!(part.fill(0, now).expect("it is there"), Filled::AtEnd);
        assert!(!part.is_replaced_by(&open(&other)).expect("it is there"), "the file has a name");
        let mut writer = File::options().append(true).open(&path).expect("it is there");
        fs::rename(&other, &path).expect("it is there");
        assert!(part.is_replaced_by(&open(&path)).expect("it is there"));
        writer.write_all(LINE.as_bytes()).expect("room");
        assert!(!part.is_replaced_by(&open(&path)).expect("it is there"), "there are lines to read");
        assert_eq!(part.fill(0, now).expect("it is there"), Filled::AtEnd);
        assert!(part.is_replaced_by(&open(&path)).expect("it is there"));
        for text in [LINE.repeat(3), LINE.repeat(3) + &LINE.replace('a', "b").repeat(2)] {
            fs::write(&path, text).expect("room");
            assert!(!part.is_replaced_by(&open(&path)).expect("it is there"), "it has other lines");
        }
    }
}
