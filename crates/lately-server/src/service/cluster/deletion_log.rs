//! A file in the data folder: which deletions are not marked in all engines. A node that is killed marks them after its next start.
//!
//! A line is `+`, or `-` once the marks are there, then the time of the deletion in milliseconds, the key in base64, and the
//! checksum of the line.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lately::Timestamp;

use super::lines;
use crate::limits::DELETION_LOG_BYTES;

/// The file in the data folder.
const FILE: &str = "deletions";
const WITHOUT: &str = "other nodes keep hits of keys that were deleted last";

/// Keys, and when they were deleted.
pub(super) type DeletedKeys = HashMap<Box<[u8]>, Vec<Timestamp>>;

/// The file, if there is a data folder.
#[derive(Default, Debug)]
pub(super) struct DeletionLog {
    file: Option<(Arc<File>, PathBuf)>,
    /// Its length.
    bytes: u64,
    /// How long it was when it was last written anew.
    whole_bytes: u64,
    /// Whether it has lines that are not synced.
    is_unsynced: bool,
    /// Whether it has lines that are wrong.
    is_stale: bool,
}

/// Whether a deletion is to be marked, or is marked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Deleted,
    Marked,
}

fn line(step: Step, key: &[u8], at: Timestamp) -> String {
    let sign = if step == Step::Deleted { '+' } else { '-' };
    lines::line(&format!("{sign} {} {}", at.as_millis(), STANDARD.encode(key)))
}

fn read_line(line: &str) -> Option<(Step, Box<[u8]>, Timestamp)> {
    let mut words = line.split(' ');
    let step = match words.next()? {
        "+" => Step::Deleted,
        "-" => Step::Marked,
        _ => return None,
    };
    let at = Timestamp::from_millis(words.next()?.parse().ok()?)?;
    let key = STANDARD.decode(words.next()?).ok()?;
    words.next().is_none().then_some((step, key.into(), at))
}

impl DeletionLog {
    /// Reads that of a data folder. Without one, nothing is kept.
    ///
    /// # Errors
    /// The file cannot be read or written, or has a line that is damaged.
    pub(super) fn load(folder: Option<&Path>) -> io::Result<(DeletionLog, DeletedKeys)> {
        let mut keys = DeletedKeys::new();
        let Some(folder) = folder else { return Ok((DeletionLog::default(), keys)) };
        let path = folder.join(FILE);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // The deletion of a line without its end was not answered.
        let (steps, bytes) = lines::read(&path, &bytes, WITHOUT, read_line)?;
        for (step, key, at) in steps {
            match step {
                Step::Deleted => keys.entry(key).or_default().push(at),
                Step::Marked => {
                    if let Entry::Occupied(mut times) = keys.entry(key) {
                        times.get_mut().retain(|time| *time > at);
                        if times.get().is_empty() {
                            times.remove();
                        }
                    }
                }
            }
        }
        file.set_len(bytes)?;
        let file = Some((Arc::new(file), path));
        Ok((DeletionLog { file, bytes, is_stale: bytes > 0, ..DeletionLog::default() }, keys))
    }

    /// Adds lines.
    ///
    /// # Errors
    /// They cannot be written, and are not there.
    pub(super) fn add<'k>(
        &mut self,
        step: Step,
        keys: impl Iterator<Item = (&'k [u8], Timestamp)>,
    ) -> io::Result<()> {
        let Some((file, _)) = &self.file else { return Ok(()) };
        let lines = keys.fold(String::new(), |mut lines, (key, at)| {
            lines.push_str(&line(step, key, at));
            lines
        });
        if let Err(error) = file.write_all_at(lines.as_bytes(), self.bytes) {
            // A part of them may be there.
            self.is_stale = true;
            return Err(error);
        }
        self.bytes += lines.len() as u64;
        self.is_unsynced = true;
        Ok(())
    }

    /// The file has lines of a deletion that was rolled back.
    pub(super) fn set_stale(&mut self) {
        self.is_stale = true;
    }

    /// Writes the file anew with the deletions that are not marked, if most of it is over. Returns the file if it is to be synced.
    ///
    /// # Errors
    /// The disk does not work. It is tried again with the next call.
    pub(super) fn tidy(
        &mut self,
        all_marked: bool,
        waiting: impl FnOnce() -> Vec<(Box<[u8]>, Timestamp)>,
    ) -> io::Result<Option<Arc<File>>> {
        let Some((file, path)) = &mut self.file else { return Ok(None) };
        let is_over = self.bytes > 0 && all_marked;
        if is_over || self.is_stale || self.bytes > 2 * self.whole_bytes + DELETION_LOG_BYTES {
            let folder = path.parent().unwrap_or(path);
            let lines: String = waiting().iter().map(|(key, at)| line(Step::Deleted, key, *at)).collect();
            if lines.is_empty() {
                file.set_len(0)?;
            } else {
                let mut anew = tempfile::NamedTempFile::new_in(folder)?;
                anew.write_all(lines.as_bytes())?;
                anew.as_file().sync_all()?;
                *file = Arc::new(anew.persist(&*path)?);
                File::open(folder)?.sync_all()?;
            }
            self.bytes = lines.len() as u64;
            (self.whole_bytes, self.is_stale, self.is_unsynced) = (self.bytes, false, false);
        }
        Ok(std::mem::take(&mut self.is_unsynced).then(|| Arc::clone(file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    #[test]
    fn deletions_are_kept_until_they_are_marked() {
        let folder = tempfile::tempdir().expect("a folder");
        let load = || DeletionLog::load(Some(folder.path())).expect("good lines");
        let (mut log, keys) = load();
        assert!(keys.is_empty());
        let odd: &[u8] = b"\xff \n+";
        log.add(Step::Deleted, [(&b"a"[..], at(1)), (odd, at(2)), (b"a", at(3))].into_iter()).expect("room");
        log.add(Step::Marked, [(&b"a"[..], at(1))].into_iter()).expect("room");
        let expected = DeletedKeys::from([(b"a"[..].into(), vec![at(3)]), (odd.into(), vec![at(2)])]);
        let (mut log, keys) = load();
        assert_eq!(keys, expected);
        // It was loaded, so it is written anew.
        log.tidy(false, || vec![(odd.into(), at(2))]).expect("room");
        let (mut log, keys) = load();
        assert_eq!(keys, DeletedKeys::from([(odd.into(), vec![at(2)])]));
        log.add(Step::Marked, [(odd, at(2))].into_iter()).expect("room");
        assert!(log.tidy(true, Vec::new).expect("room").is_none());
        assert_eq!(std::fs::metadata(folder.path().join(FILE)).expect("it is there").len(), 0);
        assert!(load().1.is_empty());
        let (mut none, keys) = DeletionLog::load(None).expect("no file");
        none.add(Step::Deleted, [(odd, at(2))].into_iter()).expect("no file");
        assert!(keys.is_empty());
    }

    #[test]
    fn a_line_that_was_cut_short_is_left_out_and_a_strange_one_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        std::fs::write(&path, lines::line("+ 5 YQ==") + "+ 6 Y").expect("room");
        let (mut log, keys) = DeletionLog::load(Some(folder.path())).expect("good lines");
        assert_eq!(keys, DeletedKeys::from([(b"a"[..].into(), vec![at(5)])]));
        log.add(Step::Deleted, [(&b"b"[..], at(7))].into_iter()).expect("room");
        assert_eq!(
            std::fs::read_to_string(&path).expect("it is there"),
            lines::line("+ 5 YQ==") + &lines::line("+ 7 Yg==")
        );
        for text in ["strange", "+ 5 YQ== 1", "+ x YQ==", "+ 5 ?", "* 5 YQ=="] {
            std::fs::write(&path, lines::line(text)).expect("room");
            let error = DeletionLog::load(Some(folder.path())).expect_err(text);
            assert!(error.to_string().contains("deletions:1: this line is damaged"), "{error}");
        }
    }
}
