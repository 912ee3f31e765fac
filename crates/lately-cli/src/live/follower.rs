//! Follows one growing log by its path, through rotations. A state machine: each poll checks the files once and returns
//! complete lines. It neither waits nor reads a clock.
//!
//! - A renamed file stays open. It is read to its end before the new file, and then for a while in parallel, because its
//!   writer may continue until it reopens its log.
//! - A truncated or rewritten file is read from its start. It is recognized by the bytes before the position, whatever its
//!   length. Lines that were not read yet are read from a copy beside it, as logrotate's `copytruncate` makes one.
//! - A file that another log of the view reads, under any name, is not read again.
//! - The follower waits for a missing file.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lately::Timestamp;
use lately_logs::{Cutter, Line};

use crate::limits::{FOLLOW_CHECK_BYTES, FOLLOW_POLL_BYTES, FORMER_KEPT, MAX_FORMER_FILES};
use crate::live::claims::{Claims, Copied, FileId};

/// Bytes read at once.
const READ_BYTES: usize = 256 * 1024;

/// A log that is followed.
#[derive(Debug)]
pub(crate) struct Follower {
    path: PathBuf,
    /// The number of this log, and the files that all logs of the view read.
    number: usize,
    claims: Claims,
    /// Whether the path was polled before.
    was_polled: bool,
    /// The file at the path, or the last one there, unless another log reads it.
    current: Option<Open>,
    /// Files that had the path before, oldest first. Their lines come before those of `current`.
    former: Vec<Former>,
    state: State,
    /// The number of truncations without a copy of the content.
    unsaved_truncations: u64,
    buffer: Vec<u8>,
}

/// The state of the path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// A file that is read.
    Read,
    /// The file is missing.
    Missing,
    /// It cannot be read, for this reason.
    Unreadable(String),
}

/// The result of a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Polled {
    /// The files were read to their end.
    AtEnd,
    /// There is more: poll again at once.
    More,
}

#[derive(Debug)]
struct Former {
    open: Open,
    /// The time of the last write.
    quiet_since: Timestamp,
    /// A copy that was made before a truncation. Its last line may end in the truncated file.
    is_copy: bool,
}

/// An open file, and the position in it.
#[derive(Debug)]
pub(crate) struct Open {
    file: File,
    id: FileId,
    offset: u64,
    /// The bytes before `offset`, and the first ones.
    before: Vec<u8>,
    head: Vec<u8>,
    /// Length and time of the last write at the last comparison of `before`.
    seen: Option<(u64, SystemTime)>,
    /// Whether zeros at the start are skipped. A writer that continues at its old offset in a truncated file leaves a hole.
    skips_zeros: bool,
    cutter: Cutter,
}

impl Follower {
    /// A follower for the log with this number in the view.
    pub(crate) fn new(path: &Path, number: usize, claims: &Claims) -> Follower {
        Follower {
            path: path.to_owned(),
            number,
            claims: claims.clone(),
            was_polled: false,
            current: None,
            former: Vec::new(),
            state: State::Missing,
            unsaved_truncations: 0,
            buffer: vec![0; READ_BYTES],
        }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn unsaved_truncations(&self) -> u64 {
        self.unsaved_truncations
    }

    /// The part of the file that was read, in percent.
    pub(crate) fn percent_read(&self) -> u64 {
        let Some(open) = &self.current else { return 100 };
        let length = open.file.metadata().map_or(0, |metadata| metadata.len());
        (open.offset * 100).checked_div(length).map_or(100, |percent| percent.min(100))
    }

    /// Calls `visit` with each new complete line, up to some MiB of them. Call [`Follower::check_path`] first.
    pub(crate) fn poll(&mut self, now: Timestamp, visit: &mut impl FnMut(Line<'_>)) -> Polled {
        let mut left = FOLLOW_POLL_BYTES;
        let polled = self.read(now, &mut left, visit).unwrap_or_else(|error| {
            self.state = State::Unreadable(error.to_string());
            Polled::AtEnd
        });
        if let Some(current) = &self.current {
            self.claims.note_head(current.id, &current.head);
        }
        polled
    }

    /// Checks the path once for another file or a truncation. Returns whether a partly read line will not be continued.
    pub(crate) fn check_path(&mut self, now: Timestamp) -> bool {
        let truncations = self.unsaved_truncations;
        self.claims.forget_deleted();
        self.find(now);
        self.was_polled = true;
        self.unsaved_truncations > truncations
    }

    fn find(&mut self, now: Timestamp) {
        let metadata = match fs::metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) => {
                self.state = match error.kind() {
                    io::ErrorKind::NotFound => State::Missing,
                    _ => State::Unreadable(error.to_string()),
                };
                // A deleted file takes room on the disk as long as it is open, so it is given up after a while.
                if let Some(current) = self.current.take() {
                    self.retire(current, false, now);
                }
                return;
            }
        };
        if self.current.as_ref().is_some_and(|current| current.id == id(&metadata)) {
            self.state = State::Read;
            self.check_truncated(&metadata, now);
            return;
        }
        if let Some(current) = self.current.take() {
            self.retire(current, false, now);
        }
        let is_former = self.former.iter().any(|former| former.open.id == id(&metadata) && !former.is_copy);
        if !is_former && let Some(open) = self.claims.take_released(self.number, &self.path, id(&metadata)) {
            (self.current, self.state) = (Some(open), State::Read);
            return;
        }
        if self.claims.is_of_another(self.number, id(&metadata)) {
            self.state = State::Read;
            return;
        }
        // Opening a pipe would block.
        let opened = if metadata.is_file() {
            Open::new(&self.path)
        } else {
            Err(io::Error::other("is no plain file"))
        };
        match opened {
            Ok(open) => {
                self.state = State::Read;
                if let Err(error) = self.take(open) {
                    self.state = State::Unreadable(error.to_string());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.state = State::Missing,
            Err(error) => self.state = State::Unreadable(error.to_string()),
        }
    }

    /// Takes the new file at the path, unless another log reads it.
    fn take(&mut self, open: Open) -> io::Result<()> {
        // A file that existed at the start may have the same start as another log without being a copy.
        let copied = if self.was_polled {
            self.claims.is_copy(self.number, &self.path, &open.file)?
        } else {
            Copied::No
        };
        if copied != Copied::No || self.claims.is_of_another(self.number, open.id) {
            return Ok(());
        }
        self.claims.add(self.number, &self.path, open.id, &open.file, true)?;
        // A file that returns, such as by two renames, is not read again.
        let known = self.former.iter().position(|former| former.open.id == open.id && !former.is_copy);
        self.current = Some(known.map_or(open, |known| self.former.remove(known).open));
        Ok(())
    }

    fn check_truncated(&mut self, metadata: &Metadata, now: Timestamp) {
        let Some(current) = &mut self.current else { return };
        // A read error here is ignored, because the next read finds it.
        if !current.is_rewritten(metadata).unwrap_or(false) {
            return;
        }
        let copy = find_copy(&self.path, current);
        let cutter = std::mem::take(&mut current.cutter);
        let (offset, before) = (current.offset, std::mem::take(&mut current.before));
        (current.offset, current.seen, current.skips_zeros) = (0, None, true);
        current.head.clear();
        match copy {
            Some((file, id)) => {
                // Without a claim, a log with the copy's name would read it again.
                _ = self.claims.add(self.number, &self.path, id, &file, false);
                let head = Vec::new();
                let copy = Open { file, id, offset, before, head, seen: None, skips_zeros: false, cutter };
                self.retire(copy, true, now);
            }
            None => self.unsaved_truncations += 1,
        }
    }

    fn retire(&mut self, open: Open, is_copy: bool, now: Timestamp) {
        self.former.push(Former { open, quiet_since: now, is_copy });
    }

    /// Reads the files in their order, until `left` bytes are read.
    fn read(
        &mut self,
        now: Timestamp,
        left: &mut usize,
        visit: &mut impl FnMut(Line<'_>),
    ) -> io::Result<Polled> {
        let Follower { current, former, buffer, claims, .. } = self;
        for former in &mut *former {
            let from = former.open.offset;
            // An unreadable former file counts as read to its end.
            let polled = former.open.read(buffer, left, visit).unwrap_or(Polled::AtEnd);
            if former.open.offset > from {
                former.quiet_since = now;
            }
            if polled == Polled::More {
                return Ok(Polled::More);
            }
            if former.is_copy
                && let Some(current) = current.as_mut().filter(|current| current.offset == 0)
            {
                current.cutter = std::mem::take(&mut former.open.cutter);
            }
        }
        let has_current = current.is_some();
        let mut excess = former.len().saturating_sub(MAX_FORMER_FILES);
        let is_finished = |former: &mut Former| {
            let is_quiet = now.as_millis() - former.quiet_since.as_millis() > FORMER_KEPT.as_millis();
            let is_finished =
                former.is_copy || excess > 0 || (is_quiet && (has_current || former.open.is_deleted()));
            if is_finished {
                excess = excess.saturating_sub(1);
                former.open.cutter.finish(&mut *visit);
            }
            is_finished
        };
        // Another log of the view may have the file's name by now.
        former
            .extract_if(.., is_finished)
            .filter(|former| !former.is_copy)
            .for_each(|former| claims.release(former.open));
        current.as_mut().map_or(Ok(Polled::AtEnd), |current| current.read(buffer, left, visit))
    }
}

impl Open {
    fn new(path: &Path) -> io::Result<Open> {
        let file = File::open(path)?;
        let id = id(&file.metadata()?);
        let (before, head, cutter) = (Vec::new(), Vec::new(), Cutter::default());
        Ok(Open { file, id, offset: 0, before, head, seen: None, skips_zeros: false, cutter })
    }

    /// Whether the file was rewritten: it is shorter, or has other bytes before the offset.
    fn is_rewritten(&mut self, metadata: &Metadata) -> io::Result<bool> {
        if metadata.len() < self.offset {
            return Ok(true);
        }
        let seen = Some((metadata.len(), metadata.modified()?));
        if self.seen == seen {
            return Ok(false);
        }
        self.seen = seen;
        Ok(!has_before(&self.file, self.offset, &self.before)?)
    }

    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// Whether the file has no name any more.
    fn is_deleted(&self) -> bool {
        self.file.metadata().map_or(true, |metadata| metadata.nlink() == 0)
    }

    fn read(
        &mut self,
        buffer: &mut [u8],
        left: &mut usize,
        visit: &mut impl FnMut(Line<'_>),
    ) -> io::Result<Polled> {
        loop {
            if *left == 0 {
                return Ok(Polled::More);
            }
            let most = buffer.len().min(*left);
            let count = match self.file.read_at(&mut buffer[..most], self.offset) {
                Ok(0) => return Ok(Polled::AtEnd),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            *left -= count;
            let mut bytes = &buffer[..count];
            if self.offset == self.head.len() as u64 {
                let room = FOLLOW_CHECK_BYTES - self.head.len();
                self.head.extend_from_slice(&bytes[..count.min(room)]);
            }
            self.offset += count as u64;
            self.remember(bytes);
            if self.skips_zeros {
                let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                bytes = &bytes[zeros..];
                self.skips_zeros = bytes.is_empty();
            }
            self.cutter.push(bytes, &mut *visit);
        }
    }

    /// Keeps the last bytes that were read, for later comparisons.
    fn remember(&mut self, bytes: &[u8]) {
        let last = &bytes[bytes.len().saturating_sub(FOLLOW_CHECK_BYTES)..];
        let excess = (self.before.len() + last.len()).saturating_sub(FOLLOW_CHECK_BYTES);
        self.before.drain(..excess);
        self.before.extend_from_slice(last);
    }
}

fn id(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// Whether a file has these bytes before this offset.
fn has_before(file: &File, offset: u64, before: &[u8]) -> io::Result<bool> {
    let mut there = vec![0; before.len()];
    match file.read_exact_at(&mut there, offset - before.len() as u64) {
        Ok(()) => Ok(there == before),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The copy of a truncated log: the newest file in its folder whose name starts with the log's name, and that has the last
/// bytes that were read at the same offset.
fn find_copy(path: &Path, truncated: &Open) -> Option<(File, FileId)> {
    if truncated.before.is_empty() {
        return None;
    }
    let name = path.file_name()?.as_encoded_bytes();
    // An empty parent is the current folder.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let copies = fs::read_dir(folder).ok()?.filter_map(|entry| {
        let entry = entry.ok().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(name))?;
        let metadata = entry.metadata().ok().filter(Metadata::is_file)?;
        if id(&metadata) == truncated.id || metadata.len() < truncated.offset {
            return None;
        }
        let file = File::open(entry.path()).ok()?;
        let is_copy = has_before(&file, truncated.offset, &truncated.before).unwrap_or(false);
        is_copy.then(|| (metadata.modified().ok(), file, id(&metadata)))
    });
    copies.max_by_key(|(modified, ..)| *modified).map(|(_, file, id)| (file, id))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lately::seconds;
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::limits::MAX_CLAIMS;

    /// A folder with logs, and a follower of `log` in it.
    struct Bench {
        folder: TempDir,
        follower: Follower,
        now: Timestamp,
    }

    impl Bench {
        fn new() -> Bench {
            let folder = tempfile::tempdir().expect("a folder");
            let follower = Follower::new(&folder.path().join("log"), 0, &Claims::default());
            Bench { folder, follower, now: Timestamp::from_seconds(1_710_234_000).expect("a time") }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// Appends to a file, like a writer that opens it each time.
        fn append(&self, name: &str, text: &str) {
            self.writer(name).write_all(text.as_bytes()).expect("room");
        }

        fn writer(&self, name: &str) -> File {
            File::options().append(true).create(true).open(self.path(name)).expect("a file")
        }

        fn rename(&self, from: &str, to: &str) {
            fs::rename(self.path(from), self.path(to)).expect("a rename");
        }

        fn copy(&self, from: &str, to: &str) {
            fs::copy(self.path(from), self.path(to)).expect("a copy");
        }

        fn truncate(&self, name: &str) {
            File::options().write(true).truncate(true).open(self.path(name)).expect("a file");
        }

        /// The lines of the next poll, joined by commas. The poll must reach the end.
        fn poll(&mut self) -> String {
            let mut lines = Vec::new();
            self.follower.check_path(self.now);
            let polled = self.follower.poll(self.now, &mut |line| lines.push(text(line)));
            assert_eq!(polled, Polled::AtEnd);
            lines.join(",")
        }

        fn pass(&mut self, span: lately::Span) {
            self.now = self.now.saturating_add(span);
        }
    }

    fn text(line: Line<'_>) -> String {
        match line {
            Line::Whole(line) => String::from_utf8_lossy(line).into_owned(),
            Line::TooLong => "(too long)".into(),
        }
    }

    #[test]
    fn lines_come_once_they_are_complete() {
        let mut bench = Bench::new();
        bench.append("log", "a\nb\nc");
        assert_eq!((bench.poll(), bench.poll()), ("a,b".into(), String::new()));
        bench.append("log", "c");
        assert_eq!(bench.poll(), "");
        bench.append("log", "c\r\nd\n");
        assert_eq!((bench.poll(), bench.follower.percent_read()), ("ccc,d".into(), 100));
        bench.append("log", "last");
        assert_eq!(bench.poll(), "");
    }

    #[test]
    fn a_file_that_appears_later_is_read_from_its_start() {
        let mut bench = Bench::new();
        assert_eq!((bench.poll(), bench.follower.state()), (String::new(), &State::Missing));
        bench.append("log", "a\n");
        assert_eq!((bench.poll(), bench.follower.state()), ("a".into(), &State::Read));
    }

    #[test]
    fn a_rotation_by_rename_loses_nothing() {
        let mut bench = Bench::new();
        let mut old = bench.writer("log");
        old.write_all(b"a\n").expect("room");
        assert_eq!(bench.poll(), "a");
        // Written before the rename, and after it by a writer that still has the file open. The line ends in the last
        // piece.
        old.write_all(b"b\nc").expect("room");
        bench.rename("log", "log.1");
        old.write_all(b"c\n").expect("room");
        assert_eq!((bench.poll(), bench.follower.state()), ("b,cc".into(), &State::Missing));
        old.write_all(b"d\n").expect("room");
        bench.append("log", "A\n");
        assert_eq!(
            (bench.poll(), bench.follower.state()),
            ("d,A".into(), &State::Read),
            "the old lines first"
        );
        // Now the writer reopens its log.
        old.write_all(b"e\n").expect("room");
        bench.append("log", "B\n");
        assert_eq!((bench.poll(), bench.poll()), ("e,B".into(), String::new()));
        // Two more rotations, with no lines in between.
        for (to, line) in [("log.2", "C"), ("log.3", "D")] {
            bench.rename("log", to);
            bench.append("log", line);
            bench.append("log", "\n");
            assert_eq!(bench.poll(), line);
        }
        old.write_all(b"f\n").expect("room");
        assert_eq!(bench.poll(), "f");
    }

    #[test]
    fn a_renamed_file_is_read_until_it_is_quiet() {
        let mut bench = Bench::new();
        let mut old = bench.writer("log");
        old.write_all(b"a\n").expect("room");
        bench.poll();
        bench.rename("log", "log.1");
        bench.poll();
        bench.pass(FORMER_KEPT);
        bench.pass(seconds(1));
        // No other file has its name, so it is kept.
        bench.poll();
        old.write_all(b"b\n").expect("room");
        assert_eq!(bench.poll(), "b");
        bench.append("log", "A\n");
        bench.pass(FORMER_KEPT);
        assert_eq!(bench.poll(), "A");
        old.write_all(b"c\nlast").expect("room");
        assert_eq!(bench.poll(), "c", "at the bound");
        bench.pass(FORMER_KEPT);
        bench.pass(lately::milliseconds(1));
        assert_eq!(bench.poll(), "last", "past the bound, the line without an end is given up");
        assert!(bench.follower.former.is_empty());
    }

    #[test]
    fn the_number_of_renamed_files_is_bounded() {
        let mut bench = Bench::new();
        for number in 0..MAX_FORMER_FILES + 2 {
            bench.append("log", "a\n");
            assert_eq!(bench.poll(), "a");
            bench.rename("log", &format!("log.{number}"));
        }
        assert_eq!(bench.follower.former.len(), MAX_FORMER_FILES);
        bench.poll();
        assert_eq!(bench.follower.former.len(), MAX_FORMER_FILES);
        bench.append("log.0", "b\n");
        bench.append("log.3", "c\n");
        assert_eq!(bench.poll(), "c", "the oldest file was given up");
    }

    #[test]
    fn a_recreated_file_is_read_from_its_start() {
        let mut bench = Bench::new();
        let mut old = bench.writer("log");
        old.write_all(b"a\n").expect("room");
        assert_eq!(bench.poll(), "a");
        old.write_all(b"b\n").expect("room");
        fs::remove_file(bench.path("log")).expect("it is there");
        assert_eq!((bench.poll(), bench.follower.state()), ("b".into(), &State::Missing));
        bench.append("log", "a\n");
        assert_eq!(bench.poll(), "a");
        // A deleted file without a writer is closed, which frees its disk space.
        fs::remove_file(bench.path("log")).expect("it is there");
        bench.poll();
        bench.pass(FORMER_KEPT);
        bench.pass(seconds(1));
        bench.poll();
        bench.poll();
        assert!(bench.follower.former.is_empty() && bench.follower.current.is_none());
        assert!(bench.follower.claims.is_empty(), "nothing keeps it open");
    }

    #[test]
    fn a_returning_file_is_not_read_again() {
        let mut bench = Bench::new();
        bench.append("log", "a\n");
        assert_eq!(bench.poll(), "a");
        bench.rename("log", "elsewhere");
        assert_eq!(bench.poll(), "");
        bench.rename("elsewhere", "log");
        bench.append("log", "b\n");
        assert_eq!((bench.poll(), bench.follower.former.len()), ("b".into(), 0));
    }

    #[test]
    fn a_rotation_by_copy_and_truncation_reads_the_rest_in_the_copy() {
        let mut bench = Bench::new();
        let mut writer = bench.writer("log");
        writer.write_all(b"a\n").expect("room");
        assert_eq!(bench.poll(), "a");
        writer.write_all(b"b\nc").expect("room");
        // This file is no copy, because it lacks the bytes that were read.
        bench.append("log.0", "x\nmore\nlines\n");
        bench.copy("log", "log.1");
        bench.truncate("log");
        // The writer continues in the middle of its line.
        writer.write_all(b"c\nd\n").expect("room");
        assert_eq!((bench.poll(), bench.follower.unsaved_truncations()), ("b,cc,d".into(), 0));
        writer.write_all(b"e\n").expect("room");
        assert_eq!((bench.poll(), bench.follower.former.len()), ("e".into(), 0));
        // Once more: the earlier copy is not taken for the new one.
        writer.write_all(b"f\n").expect("room");
        bench.truncate("log");
        assert_eq!((bench.poll(), bench.follower.unsaved_truncations()), (String::new(), 1));
        writer.write_all(b"g\n").expect("room");
        assert_eq!(bench.poll(), "g");
    }

    #[test]
    fn a_truncation_is_noticed_after_any_writes() {
        for (length, again) in [("shorter", "z\n"), ("as long", "z1\nz2\n"), ("longer", "z1\nz2\nz3\nz4\n")] {
            let mut bench = Bench::new();
            bench.append("log", "a1\na2\n");
            assert_eq!(bench.poll(), "a1,a2");
            fs::write(bench.path("log"), again).expect("room");
            // The times of files may be as coarse as a timer tick.
            let later =
                fs::metadata(bench.path("log")).and_then(|metadata| metadata.modified()).expect("a time");
            bench.writer("log").set_modified(later + std::time::Duration::from_secs(1)).expect("a time");
            assert_eq!(bench.poll(), again.trim_end().replace('\n', ","), "{length}");
            assert_eq!(bench.follower.unsaved_truncations(), 1, "{length}");
            bench.append("log", "b\n");
            assert_eq!(bench.poll(), "b", "{length}");
        }
    }

    #[test]
    fn a_truncation_drops_a_partial_line() {
        let mut bench = Bench::new();
        bench.append("log", "a\nlong start");
        assert_eq!(bench.poll(), "a");
        bench.truncate("log");
        bench.append("log", "b\n");
        assert_eq!(bench.poll(), "b");
    }

    #[test]
    fn a_hole_of_zeros_after_a_truncation_is_skipped() {
        let mut bench = Bench::new();
        let mut writer = File::create(bench.path("log")).expect("a file");
        writer.write_all(b"a\nb\n").expect("room");
        assert_eq!(bench.poll(), "a,b");
        bench.truncate("log");
        writer.write_all(b"c\n").expect("room");
        assert_eq!(bench.poll(), "c");
        writer.write_all(b"d\n").expect("room");
        assert_eq!(bench.poll(), "d");
    }

    #[test]
    fn a_folder_is_reported_as_unreadable() {
        let mut bench = Bench::new();
        fs::create_dir(bench.path("log")).expect("a folder");
        assert_eq!(bench.poll(), "");
        assert_eq!(bench.follower.state(), &State::Unreadable("is no plain file".into()));
        fs::remove_dir(bench.path("log")).expect("it is there");
        bench.append("log", "a\n");
        assert_eq!((bench.poll(), bench.follower.state()), ("a".into(), &State::Read));
    }

    #[test]
    fn a_long_file_is_read_in_several_polls() {
        let mut bench = Bench::new();
        let line = "x".repeat(1_023) + "\n";
        let lines = FOLLOW_POLL_BYTES / line.len() + 2;
        bench.append("log", &line.repeat(lines));
        let mut seen = 0;
        bench.follower.check_path(bench.now);
        assert_eq!(bench.follower.poll(bench.now, &mut |_| seen += 1), Polled::More);
        assert_eq!(seen, FOLLOW_POLL_BYTES / line.len());
        // Lines from before a rename are read before new ones.
        bench.rename("log", "log.1");
        bench.append("log", "A\n");
        assert_eq!(bench.poll(), [&line[..1_023], &line[..1_023], "A"].join(","));
    }

    #[test]
    fn the_last_read_bytes_are_compared() {
        let mut bench = Bench::new();
        let text = (0..FOLLOW_CHECK_BYTES).map(|number| format!("{number}\n")).collect::<String>();
        for piece in text.as_bytes().chunks(700) {
            bench.append("log", std::str::from_utf8(piece).expect("digits"));
            bench.poll();
        }
        let current = bench.follower.current.as_ref().expect("it is read");
        assert_eq!(current.before, text.as_bytes()[text.len() - FOLLOW_CHECK_BYTES..]);
    }

    /// Logs of one view, in a folder.
    struct Bunch {
        bench: Bench,
        followers: Vec<Follower>,
    }

    impl Bunch {
        fn new(paths: impl Fn(&Bench) -> Vec<PathBuf>) -> Bunch {
            let (bench, claims) = (Bench::new(), Claims::default());
            let numbered = paths(&bench).into_iter().enumerate();
            let followers = numbered.map(|(number, path)| Follower::new(&path, number, &claims)).collect();
            Bunch { bench, followers }
        }

        /// The lines of one poll of each log, sorted.
        fn poll(&mut self) -> String {
            let mut lines = Vec::new();
            for follower in &mut self.followers {
                follower.check_path(self.bench.now);
                let polled = follower.poll(self.bench.now, &mut |line| lines.push(text(line)));
                assert_eq!((polled, follower.state()), (Polled::AtEnd, &State::Read));
            }
            lines.sort();
            lines.join(",")
        }
    }

    /// Symptom: with `access.log*` every line was counted again after a rotation. Cause: the log and its rotated files were
    /// followed by their names, independently. Fix: a file that one log reads, or has read, is not read by another.
    #[test]
    fn a_rotated_file_is_not_read_again_under_its_new_name() {
        for order in [["log", "log.1", "log.2"], ["log.2", "log.1", "log"]] {
            let mut bunch = Bunch::new(|bench| order.map(|name| bench.path(name)).to_vec());
            for (name, text) in [("log", "a\n"), ("log.1", "b\n"), ("log.2", "c\n")] {
                bunch.bench.append(name, text);
            }
            assert_eq!((bunch.poll(), bunch.poll()), ("a,b,c".into(), String::new()));
            for round in 0..4 {
                let mut old = bunch.bench.writer("log");
                old.write_all(b"seen\n").expect("room");
                if round % 2 == 0 {
                    assert_eq!(bunch.poll(), "seen");
                }
                fs::remove_file(bunch.bench.path("log.2")).expect("it is there");
                bunch.bench.rename("log.1", "log.2");
                bunch.bench.rename("log", "log.1");
                old.write_all(b"late\n").expect("room");
                bunch.bench.append("log", "new\n");
                let expected = if round % 2 == 0 { "late,new" } else { "late,new,seen" };
                assert_eq!(
                    (bunch.poll(), bunch.poll()),
                    (expected.into(), String::new()),
                    "{order:?} {round}"
                );
                // The old file is no longer read, but keeps its name.
                bunch.bench.pass(FORMER_KEPT);
                bunch.bench.pass(seconds(1));
                assert_eq!(bunch.poll(), "", "{order:?} {round}");
            }
        }
    }

    #[test]
    fn a_copy_before_a_truncation_is_not_read_again_under_its_name() {
        for order in [["log", "log.1"], ["log.1", "log"]] {
            let mut bunch = Bunch::new(|bench| order.map(|name| bench.path(name)).to_vec());
            bunch.bench.append("log", "a1\na2\n");
            bunch.bench.append("log.1", "b\n");
            assert_eq!(bunch.poll(), "a1,a2,b");
            for round in 0..3 {
                // A copy that is still being written, and then complete.
                bunch.bench.append("log", "a3\n");
                fs::remove_file(bunch.bench.path("log.1")).expect("it is there");
                bunch.bench.append("log.1", "");
                assert_eq!(bunch.poll(), "a3", "{order:?} {round}");
                let whole = fs::read_to_string(bunch.bench.path("log")).expect("text");
                bunch.bench.append("log.1", &whole[..4]);
                bunch.bench.append("log", "a4\n");
                bunch.bench.append("log.1", &whole[4..]);
                bunch.bench.append("log.1", "a4\n");
                if round == 1 {
                    assert_eq!(bunch.poll(), "a4", "{order:?}");
                }
                bunch.bench.truncate("log");
                let next = format!("next {round}");
                bunch.bench.append("log", &(next.clone() + "\n"));
                let expected = if round == 1 { next } else { format!("a4,{next}") };
                assert_eq!((bunch.poll(), bunch.poll()), (expected, String::new()), "{order:?} {round}");
            }
        }
    }

    #[test]
    fn a_file_with_two_paths_is_read_once() {
        let mut bunch = Bunch::new(|bench| {
            std::os::unix::fs::symlink("log", bench.path("symbolic")).expect("a link");
            bench.append("log", "a\n");
            fs::hard_link(bench.path("log"), bench.path("hard")).expect("a link");
            let with_dot = bench.folder.path().join(".").join("log");
            vec![bench.path("symbolic"), bench.path("log"), bench.path("hard"), with_dot, bench.path("log")]
        });
        assert_eq!((bunch.poll(), bunch.poll()), ("a".into(), String::new()));
        bunch.bench.append("log", "b\n");
        assert_eq!(bunch.poll(), "b");
        // The hard link keeps the old file; the other paths lead to the new one.
        bunch.bench.rename("log", "log.1");
        bunch.bench.append("log", "c\n");
        bunch.bench.append("log.1", "d\n");
        assert_eq!((bunch.poll(), bunch.poll()), ("c,d".into(), String::new()));
        // Two files with the same lines are both read.
        let mut bunch = Bunch::new(|bench| vec![bench.path("log"), bench.path("log.1")]);
        for name in ["log", "log.1"] {
            bunch.bench.append(name, "a\n");
        }
        assert_eq!(bunch.poll(), "a,a");
    }

    /// When a log gives up a file, the log with the file's new name continues it.
    #[test]
    fn a_released_file_is_continued_under_its_new_name() {
        for order in [["log", "log.1"], ["log.1", "log"]] {
            let mut bunch = Bunch::new(|bench| order.map(|name| bench.path(name)).to_vec());
            bunch.bench.append("log", "a\n");
            bunch.bench.append("log.1", "b\n");
            assert_eq!(bunch.poll(), "a,b");
            let mut old = bunch.bench.writer("log");
            fs::remove_file(bunch.bench.path("log.1")).expect("it is there");
            bunch.bench.rename("log", "log.1");
            bunch.bench.append("log", "c\n");
            assert_eq!(bunch.poll(), "c");
            for line in ["d", "e"] {
                bunch.bench.pass(FORMER_KEPT);
                bunch.bench.pass(seconds(1));
                assert_eq!((bunch.poll(), bunch.poll()), (String::new(), String::new()), "{order:?}");
                old.write_all(format!("{line}\n").as_bytes()).expect("room");
                assert_eq!((bunch.poll(), bunch.poll()), (line.into(), String::new()), "{order:?}");
            }
        }
        // The same holds for a log that gets its file back.
        let mut bench = Bench::new();
        bench.append("log", "a\n");
        bench.poll();
        bench.rename("log", "elsewhere");
        bench.append("log", "b\n");
        assert_eq!(bench.poll(), "b");
        bench.pass(FORMER_KEPT);
        bench.pass(seconds(1));
        bench.poll();
        bench.rename("elsewhere", "log");
        bench.append("log", "c\n");
        assert_eq!((bench.poll(), bench.poll()), ("c".into(), String::new()));
    }

    #[test]
    fn the_number_of_claims_is_bounded() {
        let (bench, claims) = (Bench::new(), Claims::default());
        let open = |name: &str| {
            bench.append(name, "a\n");
            Open::new(&bench.path(name)).expect("a file")
        };
        let first = open("first");
        claims.add(0, Path::new("first"), first.id, &first.file, true).expect("a claim");
        let others: Vec<Open> = (0..MAX_CLAIMS).map(|number| open(&number.to_string())).collect();
        for other in &others {
            claims.add(1, Path::new("other"), other.id, &other.file, true).expect("a claim");
        }
        assert!(claims.is_of_another(1, first.id), "it is the current one of its log");
        assert!(!claims.is_of_another(0, others[0].id) && claims.is_of_another(0, others[1].id));
    }

    /// The steps of a writer and of rotations.
    #[derive(Clone, Debug)]
    enum Step {
        /// Writes this number of lines, and then the start of one.
        Write(u8, bool),
        Poll,
        /// Writes this number of lines to the old file before the writer opens the new one.
        Rename(u8),
        CopyAndTruncate,
        /// Like [`Step::Rename`], and the old file is deleted.
        Delete(u8),
    }

    /// A writer of lines with numbers.
    struct Writer {
        file: File,
        lines: u32,
        is_in_line: bool,
    }

    impl Writer {
        fn write(&mut self, lines: u8, with_start: bool) {
            self.end_line();
            for _ in 0..lines {
                self.start_line();
                self.end_line();
            }
            if with_start {
                self.start_line();
            }
        }

        fn start_line(&mut self) {
            write!(self.file, "line {}", self.lines).expect("room");
            self.lines += 1;
            self.is_in_line = true;
        }

        fn end_line(&mut self) {
            if self.is_in_line {
                self.file.write_all(b"!\n").expect("room");
            }
            self.is_in_line = false;
        }
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..5_u8, any::<bool>()).prop_map(|(lines, with_start)| Step::Write(lines, with_start)),
            2 => Just(Step::Poll),
            1 => (0..3_u8).prop_map(Step::Rename),
            1 => Just(Step::CopyAndTruncate),
            1 => (0..3_u8).prop_map(Step::Delete),
        ];
        proptest::collection::vec(step, 1..40)
    }

    proptest! {
        /// This holds if each file has a byte when it is polled before its rotation.
        #[test]
        fn every_line_comes_once_and_in_order(steps in steps()) {
            let mut bench = Bench::new();
            let mut writer = Writer { file: bench.writer("log"), lines: 0, is_in_line: false };
            let mut seen: Vec<String> = Vec::new();
            let mut poll = |bench: &mut Bench| {
                let lines = bench.poll();
                seen.extend(lines.split(',').filter(|line| !line.is_empty()).map(str::to_owned));
            };
            for (number, step) in steps.into_iter().enumerate() {
                let beside = format!("log.{number}");
                match step {
                    Step::Write(lines, with_start) => writer.write(lines, with_start),
                    Step::Poll => poll(&mut bench),
                    Step::Rename(late) | Step::Delete(late) => {
                        poll(&mut bench);
                        writer.write(1, true);
                        if matches!(step, Step::Rename(_)) {
                            bench.rename("log", &beside);
                        } else {
                            fs::remove_file(bench.path("log")).expect("it is there");
                        }
                        writer.write(late, false);
                        writer.file = bench.writer("log");
                    }
                    Step::CopyAndTruncate => {
                        writer.write(1, true);
                        poll(&mut bench);
                        writer.write(1, true);
                        bench.copy("log", &beside);
                        bench.truncate("log");
                    }
                }
            }
            writer.write(1, false);
            poll(&mut bench);
            let expected: Vec<String> = (0..writer.lines).map(|line| format!("line {line}!")).collect();
            prop_assert_eq!(seen, expected);
            prop_assert_eq!(bench.follower.unsaved_truncations(), 0);
        }
    }
}
