//! A file in the data folder. It lists the deletions that are not marked in all engines: a node that is killed marks them after its
//! next start. It also lists the marks of the last two minutes: if the engine loses them, the node sends them again. They say which
//! own hits are removed already, so these are not removed twice.
//!
//! A line is `+`, or `=` once the marks for the hits of others are there, or `-` once all are there, then the time of the deletion in milliseconds, the key in base64, and the
//! checksum of the line. For a mark it is `~`, the time, the key, the number of the levels, the width and the start of the cell,
//! how many hits are deleted, how many of them are removed, their origin, and the checksum.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lately::{Cell, LevelsId, Origin, Tally, Timestamp};
use lately_engines::Known;

use crate::limits::DELETION_LOG_BYTES;
use crate::service::lines;

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

/// What happened to a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Its deletion is to be marked.
    Deleted,
    /// Its deletion is marked for the hits of other nodes.
    OthersMarked,
    /// Its deletion is marked.
    Marked,
    /// A mark was made.
    Mark(Known),
}

/// A step, the key, and when.
pub(super) type Line = (Step, Box<[u8]>, Timestamp);

/// What the file says.
#[derive(PartialEq, Eq, Default, Debug)]
pub(super) struct Logged {
    pub(super) deleted: DeletedKeys,
    /// Of these keys, until when the hits of others are marked.
    pub(super) others_marked: HashMap<Box<[u8]>, Timestamp>,
    /// In the order in which they were made.
    pub(super) marks: Vec<(Box<[u8]>, Timestamp, Known)>,
}

fn line((step, key, at): &Line) -> String {
    let (at, key) = (at.as_millis(), STANDARD.encode(key));
    lines::line(&match step {
        Step::Deleted => format!("+ {at} {key}"),
        Step::OthersMarked => format!("= {at} {key}"),
        Step::Marked => format!("- {at} {key}"),
        Step::Mark(Known { origin, levels, cell: Cell { start_ms, width_ms }, tally, removed }) => {
            let (levels, deleted) = (levels.number(), tally.deleted);
            format!("~ {at} {key} {levels} {width_ms} {start_ms} {deleted} {removed} {origin}")
        }
    })
}

fn read_line(line: &str) -> Option<Line> {
    let mut words = line.splitn(9, ' ');
    let (sign, at) = (words.next()?, Timestamp::from_millis(words.next()?.parse().ok()?)?);
    let key = STANDARD.decode(words.next()?).ok()?.into();
    let step = match sign {
        "+" => Step::Deleted,
        "=" => Step::OthersMarked,
        "-" => Step::Marked,
        "~" => {
            let levels = LevelsId::new(words.next()?.parse().ok()?);
            let (width_ms, start_ms) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let (deleted, removed) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let (cell, tally) = (Cell { start_ms, width_ms }, Tally { counted: deleted, deleted });
            Step::Mark(Known { origin: words.next()?.parse::<Origin>().ok()?, levels, cell, tally, removed })
        }
        _ => return None,
    };
    words.next().is_none().then_some((step, key, at))
}

impl DeletionLog {
    /// Reads that of a data folder. Without one, nothing is kept.
    ///
    /// # Errors
    /// The file cannot be read or written, or has a line that is damaged.
    pub(super) fn load(folder: Option<&Path>) -> io::Result<(DeletionLog, Logged)> {
        let mut logged = Logged::default();
        let Some(folder) = folder else { return Ok((DeletionLog::default(), logged)) };
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
                Step::Deleted => logged.deleted.entry(key).or_default().push(at),
                Step::OthersMarked => _ = logged.others_marked.insert(key, at),
                Step::Mark(known) => logged.marks.push((key, at, known)),
                Step::Marked => {
                    if let Entry::Occupied(mut times) = logged.deleted.entry(key) {
                        times.get_mut().retain(|time| *time > at);
                        if times.get().is_empty() {
                            times.remove();
                        }
                    }
                }
            }
        }
        let Logged { deleted, others_marked, .. } = &mut logged;
        others_marked.retain(|key, _| deleted.contains_key(key));
        file.set_len(bytes)?;
        let file = Some((Arc::new(file), path));
        Ok((DeletionLog { file, bytes, is_stale: bytes > 0, ..DeletionLog::default() }, logged))
    }

    /// Adds lines.
    ///
    /// # Errors
    /// They cannot be written, and are not there.
    pub(super) fn add(&mut self, lines: impl Iterator<Item = Line>) -> io::Result<()> {
        let Some((file, _)) = &self.file else { return Ok(()) };
        let lines: String = lines.map(|of| line(&of)).collect();
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

    /// Writes the file anew with the `left` lines, if it has others. Returns the file if it is to be synced. With `is_over`, no line is
    /// left.
    ///
    /// # Errors
    /// The disk does not work. It is tried again with the next call.
    pub(super) fn tidy(
        &mut self,
        is_over: bool,
        left: impl FnOnce() -> Vec<Line>,
    ) -> io::Result<Option<Arc<File>>> {
        let Some((file, path)) = &mut self.file else { return Ok(None) };
        let is_over = self.bytes > 0 && is_over;
        if is_over || self.is_stale || self.bytes > 2 * self.whole_bytes + DELETION_LOG_BYTES {
            let folder = path.parent().unwrap_or(path);
            let lines: String = left().iter().map(line).collect();
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

    fn deleted(keys: &[(&[u8], i64)]) -> Logged {
        let mut logged = Logged::default();
        keys.iter().for_each(|(key, ms)| logged.deleted.entry((*key).into()).or_default().push(at(*ms)));
        logged
    }

    fn line_of(step: Step, key: &[u8], ms: i64) -> Line {
        (step, key.into(), at(ms))
    }

    #[test]
    fn deletions_are_kept_until_they_are_marked() {
        let folder = tempfile::tempdir().expect("a folder");
        let load = || DeletionLog::load(Some(folder.path())).expect("good lines");
        let (mut log, logged) = load();
        assert_eq!(logged, Logged::default());
        let odd: &[u8] = b"\xff \n+";
        let lines = [(&b"a"[..], 1), (odd, 2), (b"a", 3)];
        log.add(lines.into_iter().map(|(key, ms)| line_of(Step::Deleted, key, ms))).expect("room");
        log.add([line_of(Step::Marked, b"a", 1)].into_iter()).expect("room");
        let (mut log, logged) = load();
        assert_eq!(logged, deleted(&[(b"a", 3), (odd, 2)]));
        // It was loaded, so it is written anew.
        log.tidy(false, || vec![line_of(Step::Deleted, odd, 2)]).expect("room");
        let (mut log, logged) = load();
        assert_eq!(logged, deleted(&[(odd, 2)]));
        log.add([line_of(Step::Marked, odd, 2)].into_iter()).expect("room");
        assert!(log.tidy(true, Vec::new).expect("room").is_none());
        assert_eq!(std::fs::metadata(folder.path().join(FILE)).expect("it is there").len(), 0);
        assert_eq!(load().1, Logged::default());
        let (mut none, logged) = DeletionLog::load(None).expect("no file");
        none.add([line_of(Step::Deleted, odd, 2)].into_iter()).expect("no file");
        assert_eq!(logged, Logged::default());
    }

    #[test]
    fn marks_for_the_hits_of_others_are_kept_while_those_of_own_hits_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let load = || DeletionLog::load(Some(folder.path())).expect("good lines");
        let line = |step, ms| [line_of(step, b"k", ms)].into_iter();
        let (mut log, _) = load();
        log.add(line(Step::Deleted, 1)).expect("room");
        log.add(line(Step::OthersMarked, 1)).expect("room");
        log.add(line(Step::Deleted, 2)).expect("room");
        let (mut log, logged) = load();
        assert_eq!(logged.deleted, deleted(&[(b"k", 1), (b"k", 2)]).deleted);
        assert_eq!(logged.others_marked, HashMap::from([(Box::from(&b"k"[..]), at(1))]));
        log.add(line(Step::Marked, 2)).expect("room");
        assert_eq!(load().1, Logged::default());
    }

    #[test]
    fn marks_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let load = || DeletionLog::load(Some(folder.path())).expect("good lines");
        let known = Known {
            origin: Origin::new("node-1", 7).expect("a name"),
            levels: LevelsId::new(u32::MAX),
            cell: Cell { start_ms: -60_000, width_ms: 60_000 },
            tally: Tally { counted: 3, deleted: 3 },
            removed: 2,
        };
        load().0.add([line_of(Step::Mark(known.clone()), b"k", 5)].into_iter()).expect("room");
        assert_eq!(load().1.marks, [(Box::from(&b"k"[..]), at(5), known)]);
    }

    #[test]
    fn a_line_that_was_cut_short_is_left_out_and_a_strange_one_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        std::fs::write(&path, lines::line("+ 5 YQ==") + "+ 6 Y").expect("room");
        let (mut log, logged) = DeletionLog::load(Some(folder.path())).expect("good lines");
        assert_eq!(logged, deleted(&[(b"a", 5)]));
        log.add([line_of(Step::Deleted, b"b", 7)].into_iter()).expect("room");
        assert_eq!(
            std::fs::read_to_string(&path).expect("it is there"),
            lines::line("+ 5 YQ==") + &lines::line("+ 7 Yg==")
        );
        for text in
            ["strange", "+ 5 YQ== 1", "+ x YQ==", "+ 5 ?", "* 5 YQ==", "~ 5 YQ==", "~ 5 YQ== 1 1 1 x 1 a.1"]
        {
            std::fs::write(&path, lines::line(text)).expect("room");
            let error = DeletionLog::load(Some(folder.path())).expect_err(text);
            assert!(error.to_string().contains("deletions:1: this line is damaged"), "{error}");
        }
    }
}
