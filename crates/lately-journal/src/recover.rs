//! Putting back what a journal kept: the newest checkpoint, then the log behind it.
//!
//! The end of the log may be torn: the process or the machine ended while it was written. It is cut, and
//! that is told. Damage anywhere else stops the start, unless it is to be repaired: then what can be read is
//! put back, and what was lost is told. Who only looks changes nothing.

mod checkpoint;
mod segments;
mod version;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use lately::{Generation, Store, Timestamp};

use crate::disk::{Disk, DiskFile};
use crate::error::JournalError;
use crate::frame::{Kind, VERSION};
use crate::limits::MAX_AHEAD;
use crate::loss::{Loss, LossKind};
use crate::names::{self, remove_before};
use crate::replayer::{Replayer, panic_text};
use crate::scan::{Begin, Scan};
use version::{BEFORE, versions_of};

/// How far a recovery is, for who looks on.
#[derive(Debug, Default)]
pub struct Progress {
    total_bytes: AtomicU64,
    done_bytes: AtomicU64,
}

impl Progress {
    /// Bytes that were read, and bytes there are.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.done_bytes.load(Relaxed), self.total_bytes.load(Relaxed))
    }
}

/// What was put back.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// Records of the log that were read.
    pub records: u64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// What could not be put back.
    pub losses: Vec<Loss>,
    /// Segments of the log.
    pub(crate) segments: usize,
    /// The newest of them, where it ends, and the last record.
    pub(crate) segment: u64,
    pub(crate) end: u64,
    pub(crate) number: u64,
}

/// What is to come of a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// The journal is gone on with.
    GoOn,
    /// It is gone on with although files are damaged or missing, without what is lost.
    Repair,
    /// Nobody goes on with it: nothing is changed.
    Look,
}

/// Puts back into an empty store what a folder has. `threads` threads share the work. `clock` is the time: what was
/// written later than that, by more than [`MAX_AHEAD`], is turned back to it if that is to be
/// repaired.
///
/// # Errors
/// [`JournalError`] when a file is damaged or missing or of a time far ahead, unless that is to be repaired; or when it
/// cannot be read.
pub fn recover<D: Disk>(
    disk: &D,
    store: &Store,
    intent: Intent,
    clock: Timestamp,
    threads: usize,
    progress: &Progress,
) -> Result<Recovery, JournalError> {
    if intent == Intent::Repair {
        store.repair_clock(Some((clock.saturating_add(MAX_AHEAD), clock)));
    }
    // A bug must not leave a server that neither starts nor ends.
    let read = catch_unwind(AssertUnwindSafe(|| read_all(disk, store, (intent, clock), threads, progress)));
    store.repair_clock(None);
    read.unwrap_or_else(|panic| {
        Err(JournalError::Bug { path: disk.path(""), offset: 0, what: panic_text(&*panic) })
    })
}

fn read_all<D: Disk>(
    disk: &D,
    store: &Store,
    (intent, clock): (Intent, Timestamp),
    threads: usize,
    progress: &Progress,
) -> Result<Recovery, JournalError> {
    let mut reader = Reader { disk, intent, progress, recovery: Recovery::default(), version: VERSION };
    let files = names::sort(disk.list().map_err(|error| reader.failed("list", "", error))?);
    for name in &files.unfinished {
        reader.remove(name)?;
    }
    let checkpoint = files.checkpoints.last().copied();
    let first = checkpoint.unwrap_or(1);
    let segments: Vec<u64> = files.logs.into_iter().filter(|&segment| segment >= first).collect();
    let replayer = Replayer::new(store, clock, intent == Intent::Repair);
    let mut generation = Generation::default();
    let log = reader.open_log(&segments, checkpoint)?;
    if let Some(segment) = checkpoint {
        let file = reader.open(&names::checkpoint(segment))?;
        reader.expect(&file)?;
        generation = replayer.run(threads, |feed| reader.checkpoint(&file, segment, store, feed))?;
    }
    replayer.run(threads, |feed| reader.log(&log, feed))?;
    replayer.finish(generation);
    reader.recovery.losses.extend(replayer.losses());
    if reader.may_change() {
        // They are no use, and whether they go is no matter.
        let _ = remove_before(disk, first);
    }
    Ok(reader.recovery)
}

struct Reader<'a, D: Disk> {
    disk: &'a D,
    intent: Intent,
    progress: &'a Progress,
    recovery: Recovery,
    /// Of the last file that said one.
    version: u8,
}

/// A file that is read.
struct Opened<F> {
    path: Arc<PathBuf>,
    name: String,
    file: F,
}

impl<D: Disk> Reader<'_, D> {
    fn failed(&self, what: &'static str, name: &str, error: io::Error) -> JournalError {
        JournalError::Disk { what, path: self.disk.path(name), error }
    }

    fn may_change(&self) -> bool {
        self.intent != Intent::Look
    }

    fn remove(&self, name: &str) -> Result<(), JournalError> {
        let removed = if self.may_change() { self.disk.remove(name) } else { Ok(()) };
        removed.map_err(|error| self.failed("remove", name, error))
    }

    fn open(&self, name: &str) -> Result<Opened<D::File>, JournalError> {
        let file = self.disk.open(name).map_err(|error| self.failed("open", name, error))?;
        Ok(Opened { path: Arc::new(self.disk.path(name)), name: name.to_owned(), file })
    }

    /// Takes note that a file will be read.
    fn expect(&self, opened: &Opened<D::File>) -> Result<(), JournalError> {
        let size = opened.file.size().map_err(|error| self.failed("read", &opened.name, error))?;
        self.progress.total_bytes.fetch_add(size, Relaxed);
        Ok(())
    }

    /// Takes note of damage: an end of the recovery, unless it is to be repaired.
    fn damaged(&mut self, path: &Path, offset: u64, bytes: u64, what: &str) -> Result<(), JournalError> {
        let path = path.to_owned();
        if self.intent != Intent::Repair {
            return Err(JournalError::Damaged { path, offset, what: what.to_owned() });
        }
        self.recovery.losses.push(Loss { path, offset, bytes, kind: LossKind::Damaged });
        Ok(())
    }

    /// Takes note of an end that was torn off, if anything was.
    fn torn(&mut self, path: &Path, offset: u64, bytes: u64) {
        if bytes > 0 {
            self.recovery.losses.push(Loss { path: path.to_owned(), offset, bytes, kind: LossKind::Torn });
        }
    }

    fn missing(&mut self, name: &str, what: &str) -> Result<(), JournalError> {
        let path = self.disk.path(name);
        if self.intent != Intent::Repair {
            return Err(JournalError::Missing { path, what: what.to_owned() });
        }
        self.recovery.losses.push(Loss { path, offset: 0, bytes: 0, kind: LossKind::Missing });
        Ok(())
    }

    /// Reads how a file begins, and takes note of its version; false where it does not begin as such a file does. A version
    /// other than that of its frames is damage; a repair then takes that of its frames. Where no frame is whole the version
    /// does not matter: all that the file had is lost.
    fn begin(
        &mut self,
        scan: &mut Scan<'_, D::File>,
        opened: &Opened<D::File>,
        kind: Kind,
    ) -> Result<bool, JournalError> {
        let failed = |reader: &Self, error| reader.failed("read", &opened.name, error);
        let begin = scan.begin(kind).map_err(|error| failed(self, error))?;
        let versions = versions_of(&opened.file, kind).map_err(|error| failed(self, error))?;
        let told = versions.as_ref().and_then(|versions| versions.first().copied());
        let is_told =
            |version: u8| versions.as_ref().is_some_and(|versions| versions.contains(&version.max(BEFORE)));
        match begin {
            Begin::Well(version) if told.is_none() || is_told(version) => self.version = version,
            // A version that is not known is not to be repaired, and neither are its frames.
            Begin::Version(found)
                if self.intent != Intent::Repair || versions.is_some() && told.is_none() =>
            {
                let path = PathBuf::clone(&opened.path);
                return Err(JournalError::Version { path, found, known: VERSION });
            }
            Begin::Well(_) | Begin::Version(_) => {
                self.damaged(&opened.path, 0, 0, "its frames are of another version than it says")?;
                self.version = told.unwrap_or(VERSION);
                scan.skip_begin();
            }
            Begin::Damage => {
                self.version = told.unwrap_or(self.version);
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
