//! Recovery: loads the newest checkpoint and replays the log behind it.
//!
//! The end of the log may be torn, because the process or the machine stopped during a write. It is cut, and
//! reported. Damage anywhere else stops the start, unless a repair was requested: then everything readable is
//! loaded, and the losses are reported. A read-only recovery changes nothing on the disk.

mod checkpoint_reader;
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

/// The progress of a recovery.
#[derive(Debug, Default)]
pub struct Progress {
    total_bytes: AtomicU64,
    done_bytes: AtomicU64,
}

impl Progress {
    /// The bytes that were read, and all bytes.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.done_bytes.load(Relaxed), self.total_bytes.load(Relaxed))
    }
}

/// The result of a recovery.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// Records of the log that were read.
    pub records: u64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// What could not be recovered.
    pub losses: Vec<Loss>,
    /// Segments of the log.
    pub(crate) segments: usize,
    /// The newest segment, where it ends, and its last record.
    pub(crate) segment: u64,
    pub(crate) end: u64,
    pub(crate) number: u64,
}

/// The purpose of a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// To continue the journal.
    Continue,
    /// To continue the journal even if files are damaged or missing, without the lost data.
    Repair,
    /// To read only: nothing is changed.
    ReadOnly,
}

/// Recovers the content of a folder into an empty store, with `threads` threads. `clock` is the present time.
/// A repair changes data that was written more than [`MAX_AHEAD`] later than that to the present time.
///
/// # Errors
/// [`JournalError`] if a file cannot be read, or if one is damaged, missing or far ahead of the clock, except
/// in a repair.
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
    // A panic must not leave a server that neither starts nor stops.
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
        // These files are unused. If they cannot be removed, that does no harm.
        let _ = remove_before(disk, first);
    }
    Ok(reader.recovery)
}

struct Reader<'a, D: Disk> {
    disk: &'a D,
    intent: Intent,
    progress: &'a Progress,
    recovery: Recovery,
    /// The version of the last file that has one.
    version: u8,
}

/// An open file.
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
        self.intent != Intent::ReadOnly
    }

    fn remove(&self, name: &str) -> Result<(), JournalError> {
        let removed = if self.may_change() { self.disk.remove(name) } else { Ok(()) };
        removed.map_err(|error| self.failed("remove", name, error))
    }

    fn open(&self, name: &str) -> Result<Opened<D::File>, JournalError> {
        let file = self.disk.open(name).map_err(|error| self.failed("open", name, error))?;
        Ok(Opened { path: Arc::new(self.disk.path(name)), name: name.to_owned(), file })
    }

    /// Adds a file to the bytes to read.
    fn expect(&self, opened: &Opened<D::File>) -> Result<(), JournalError> {
        let size = opened.file.size().map_err(|error| self.failed("read", &opened.name, error))?;
        self.progress.total_bytes.fetch_add(size, Relaxed);
        Ok(())
    }

    /// Handles damage: an error, or in a repair a loss.
    fn damaged(&mut self, path: &Path, offset: u64, bytes: u64, what: &str) -> Result<(), JournalError> {
        let path = path.to_owned();
        if self.intent != Intent::Repair {
            return Err(JournalError::Damaged { path, offset, what: what.to_owned() });
        }
        self.recovery.losses.push(Loss { path, offset, bytes, kind: LossKind::Damaged });
        Ok(())
    }

    /// Records a torn end, if it has any bytes.
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

    /// Reads the header of a file and sets its version. False if it is not the header of such a file. A
    /// version that differs from that of the file's frames is damage; a repair uses that of the frames. If no
    /// frame is whole the version does not matter, because the whole content is lost.
    fn begin(
        &mut self,
        scan: &mut Scan<'_, D::File>,
        opened: &Opened<D::File>,
        kind: Kind,
    ) -> Result<bool, JournalError> {
        let failed = |reader: &Self, error| reader.failed("read", &opened.name, error);
        let begin = scan.begin(kind).map_err(|error| failed(self, error))?;
        let versions = versions_of(&opened.file, kind).map_err(|error| failed(self, error))?;
        let of_frames = versions.as_ref().and_then(|versions| versions.first().copied());
        let is_possible =
            |version: u8| versions.as_ref().is_some_and(|versions| versions.contains(&version.max(BEFORE)));
        match begin {
            Begin::Well(version) if of_frames.is_none() || is_possible(version) => self.version = version,
            // A file of an unknown version must not be repaired, nor one with unknown frames.
            Begin::Version(found)
                if self.intent != Intent::Repair || versions.is_some() && of_frames.is_none() =>
            {
                let path = PathBuf::clone(&opened.path);
                return Err(JournalError::Version { path, found, known: VERSION });
            }
            Begin::Well(_) | Begin::Version(_) => {
                self.damaged(&opened.path, 0, 0, "its frames are of another version than it says")?;
                self.version = of_frames.unwrap_or(VERSION);
                scan.skip_begin();
            }
            Begin::Damage => {
                self.version = of_frames.unwrap_or(self.version);
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
