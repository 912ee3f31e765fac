//! Putting back what a journal kept: the newest checkpoint, then the log behind it.
//!
//! The end of the log may be torn: the process or the machine ended while it was written. It is cut, and
//! that is told. Damage anywhere else stops the start, unless it is to be repaired: then what can be read is
//! put back, and what was lost is told. Who only looks changes nothing.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use lately::{Generation, Store, Timestamp};

use crate::checkpoint::{END, HEAD, PARTS};
use crate::disk::{Disk, DiskFile};
use crate::error::JournalError;
use crate::frame::{HEAD_BYTES, Head, Kind, VERSION, take_u64};
use crate::journal::remove_before;
use crate::limits::READ_BYTES;
use crate::log::{BATCH, CLOSED, SEGMENT, SETTLED};
use crate::names;
use crate::replayer::{Feed, Replayer};
use crate::scan::{Begin, Scan, Step};

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

/// What could not be put back.
#[derive(Debug, PartialEq, Eq)]
pub struct Loss {
    /// The file.
    pub path: PathBuf,
    /// Where.
    pub offset: u64,
    /// How much.
    pub bytes: u64,
    /// What happened to it.
    pub kind: LossKind,
}

/// What happened to what could not be put back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossKind {
    /// It was the end of the log, which the end of a process or a loss of power may tear.
    Torn,
    /// It does not hold what was written to it.
    Damaged,
    /// The file is gone.
    Missing,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { path, offset, bytes, kind } = self;
        let path = path.display();
        match kind {
            LossKind::Torn => write!(
                f,
                "{path} ended in the middle of a record: {bytes} bytes were cut off at byte {offset}"
            ),
            LossKind::Damaged => write!(f, "{path} is damaged at byte {offset}: {bytes} bytes were left out"),
            LossKind::Missing => write!(f, "{path} is missing: what was in it is lost"),
        }
    }
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

/// Puts back into an empty store what a folder has; so many threads share the work.
///
/// # Errors
/// [`JournalError`] when a file is damaged or missing, unless that is to be repaired; or when it cannot be read.
pub fn recover<D: Disk>(
    disk: &D,
    store: &Store,
    intent: Intent,
    threads: usize,
    progress: &Progress,
) -> Result<Recovery, JournalError> {
    let mut reader = Reader { disk, intent, progress, recovery: Recovery::default() };
    let files = names::sort(disk.list().map_err(|error| reader.failed("list", "", error))?);
    for name in &files.unfinished {
        reader.remove(name)?;
    }
    let checkpoint = files.checkpoints.last().copied();
    let first = checkpoint.unwrap_or(1);
    let segments: Vec<u64> = files.logs.into_iter().filter(|&segment| segment >= first).collect();
    let replayer = Replayer::new(store, intent == Intent::Repair);
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
}

/// A file that is read.
struct Opened<F> {
    path: Arc<PathBuf>,
    name: String,
    file: F,
}

/// A segment of the log. There may be many: each is opened while it is read.
struct Segment {
    segment: u64,
    name: String,
    /// Where the segment before ends, and how far it was synced, as far as this one knows.
    previous: Option<(u64, u64)>,
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

    /// Reads how a file begins; false when it is damaged and that is to be lived with.
    fn begin(
        &mut self,
        scan: &mut Scan<'_, D::File>,
        opened: &Opened<D::File>,
        kind: Kind,
    ) -> Result<bool, JournalError> {
        match scan.begin(kind).map_err(|error| self.failed("read", &opened.name, error))? {
            Begin::Well => Ok(true),
            Begin::Version(found) => {
                Err(JournalError::Version { path: PathBuf::clone(&opened.path), found, known: VERSION })
            }
            Begin::Damage => {
                self.damaged(&opened.path, 0, 0, "it does not begin as such a file does")?;
                Ok(false)
            }
        }
    }

    /// Puts back the keys of a checkpoint; gives the generation of keys that came after it.
    fn checkpoint(
        &mut self,
        opened: &Opened<D::File>,
        segment: u64,
        store: &Store,
        feed: &mut Feed<'_>,
    ) -> Result<Generation, JournalError> {
        let failed = |error| JournalError::Disk { what: "read", path: PathBuf::clone(&opened.path), error };
        let mut scan = Scan::new(&opened.file, None).map_err(failed)?;
        self.recovery.checkpoint_bytes = scan.left();
        if let Some(end) = End::read_ahead(&opened.file).map_err(failed)? {
            // No key takes fewer bytes than this.
            let most = self.recovery.checkpoint_bytes / MIN_KEY_BYTES;
            store.reserve(usize::try_from(end.keys.min(most)).unwrap_or(0));
            store.set_now(end.now);
        }
        self.begin(&mut scan, opened, Kind::Checkpoint)?;
        // Behind damage any number may follow.
        let (mut expected, mut end) = (Some(0), None);
        loop {
            let offset = scan.offset();
            match scan.step().map_err(failed)? {
                Step::Frame { number, payload } => {
                    if expected.is_some_and(|expected| number != expected) {
                        self.damaged(&opened.path, offset, 0, "a block is missing before it")?;
                    }
                    expected = Some(number + 1);
                    match payload.split_first() {
                        Some((&HEAD, rest)) if rest == segment.to_le_bytes() => {}
                        Some((&PARTS, rest)) if end.is_none() => {
                            if !feed.parts(&opened.path, offset, rest) {
                                break;
                            }
                        }
                        Some((&END, rest)) if end.is_none() => end = End::read(rest),
                        _ => self.damaged(&opened.path, offset, 0, "it has what no checkpoint has")?,
                    }
                }
                Step::End => break,
                Step::Damage => {
                    let left = scan.left();
                    let found = scan.resume().map_err(failed)?;
                    let bytes = if found { scan.offset() - offset } else { left };
                    self.damaged(&opened.path, offset, bytes, "a block does not fit its checksum")?;
                    expected = None;
                    if !found {
                        break;
                    }
                }
            }
            self.progress.done_bytes.fetch_add(scan.offset() - offset, Relaxed);
        }
        if end.is_none() {
            self.damaged(&opened.path, scan.offset(), 0, "it has no end")?;
        }
        Ok(end.map_or(Generation::default(), |end| end.generation))
    }

    /// Opens the segments of the log. Those at its end that never came to be are removed.
    fn open_log(&mut self, segments: &[u64], checkpoint: Option<u64>) -> Result<Vec<Segment>, JournalError> {
        let mut expected = checkpoint.unwrap_or(1);
        if let (None, Some(&first @ 2..)) = (checkpoint, segments.first()) {
            let [log, before] = [first, first - 1].map(names::log);
            let what = format!("{log} goes on behind it, or else behind {before}, which is missing as well");
            self.missing(&names::checkpoint(first), &what)?;
            expected = first;
        }
        if segments.is_empty() && checkpoint.is_some() {
            self.missing(&names::log(expected), "the checkpoint that it goes on from is there")?;
        }
        let mut log = Vec::new();
        for &segment in segments {
            let opened = self.open(&names::log(segment))?;
            self.expect(&opened)?;
            let previous = self.previous(&opened, segment)?;
            log.push(Segment { segment, name: opened.name, previous });
        }
        self.remove_unborn(&mut log)?;
        self.recovery.segments = log.len();
        // The log goes on without a gap.
        self.recovery.segment = log.last().map_or(expected - 1, |last| last.segment);
        for &Segment { segment, .. } in &log {
            if segment != expected {
                self.missing(&names::log(expected), "files with higher numbers are there")?;
            }
            expected = segment + 1;
        }
        Ok(log)
    }

    /// Removes the segments at the end that never came to be.
    fn remove_unborn(&mut self, log: &mut Vec<Segment>) -> Result<(), JournalError> {
        while let Some(last @ Segment { previous: None, .. }) = log.last() {
            let last = std::slice::from_ref(last);
            if self.are_synced(last)? {
                break;
            }
            self.drop_segments(last)?;
            log.pop();
        }
        Ok(())
    }

    /// What a segment says of the one before it.
    fn previous(&self, opened: &Opened<D::File>, segment: u64) -> Result<Option<(u64, u64)>, JournalError> {
        let failed = |error| JournalError::Disk { what: "read", path: PathBuf::clone(&opened.path), error };
        let mut scan = Scan::new(&opened.file, None).map_err(failed)?;
        if scan.begin(Kind::Log).map_err(failed)? != Begin::Well {
            return Ok(None);
        }
        let Step::Frame { payload, .. } = scan.step().map_err(failed)? else { return Ok(None) };
        let mut payload = payload.strip_prefix(&[SEGMENT]).unwrap_or_default();
        let mut number = || take_u64(&mut payload);
        let (own, previous) = (number(), number().zip(number()));
        if own.is_some_and(|own| own != segment) {
            let (path, what) = (PathBuf::clone(&opened.path), "it is another segment of the log".to_owned());
            return Err(JournalError::Damaged { path, offset: 0, what });
        }
        Ok(previous)
    }

    /// Puts back what the log says happened.
    fn log(&mut self, log: &[Segment], feed: &mut Feed<'_>) -> Result<(), JournalError> {
        for (index, segment) in log.iter().enumerate() {
            let after = &log[index + 1..];
            if !self.segment(segment, after, feed)? {
                // Segments are synced in order: none of those after it was.
                return self.drop_segments(after);
            }
        }
        Ok(())
    }

    /// Removes segments that were begun and never synced.
    fn drop_segments(&mut self, segments: &[Segment]) -> Result<(), JournalError> {
        for Segment { name, .. } in segments {
            let opened = self.open(name)?;
            let bytes = opened.file.size().map_err(|error| self.failed("read", name, error))?;
            self.torn(&opened.path, 0, bytes);
            self.remove(name)?;
        }
        Ok(())
    }

    /// Whether segments say that all before them was synced.
    fn are_synced(&self, segments: &[Segment]) -> Result<bool, JournalError> {
        for Segment { name, .. } in segments {
            let (opened, failed) = (self.open(name)?, |error| self.failed("read", name, error));
            let mut scan = Scan::new(&opened.file, None).map_err(failed)?;
            if scan.synced().map_err(failed)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Puts back what a segment says happened, of which `after` are those after it. False when it is torn
    /// where it had not been synced: then nothing after that counts.
    fn segment(
        &mut self,
        Segment { name, segment, .. }: &Segment,
        after: &[Segment],
        feed: &mut Feed<'_>,
    ) -> Result<bool, JournalError> {
        let opened = self.open(name)?;
        let failed = |error| JournalError::Disk { what: "read", path: PathBuf::clone(&opened.path), error };
        // The last has no other to say where it ends.
        let (end, synced) = after.first().and_then(|next| next.previous).unzip();
        let mut scan = Scan::new(&opened.file, end).map_err(failed)?;
        if end == Some(0) {
            // Nothing that was written to it counts.
            return Ok(true);
        }
        let mut is_whole = true;
        let mut is_begun = scan.begin(Kind::Log).map_err(failed)?;
        loop {
            let offset = scan.offset();
            let step = match is_begun {
                Begin::Well => scan.step().map_err(failed)?,
                Begin::Version(found) => {
                    let path = PathBuf::clone(&opened.path);
                    return Err(JournalError::Version { path, found, known: VERSION });
                }
                Begin::Damage => Step::Damage,
            };
            match step {
                Step::Frame { number, payload } => {
                    self.recovery.number = self.recovery.number.max(number);
                    match payload.split_first() {
                        Some((&BATCH, rest)) => {
                            self.recovery.records += 1;
                            if !feed.record(&opened.path, offset, rest) {
                                return Ok(true);
                            }
                        }
                        Some((&SETTLED, mut rest)) if rest.len() == size_of::<u64>() => {
                            feed.settled(take_u64(&mut rest).unwrap_or(0));
                        }
                        Some((&(SEGMENT | CLOSED), _)) => {}
                        _ => self.damaged(&opened.path, offset, 0, "it has what no log has")?,
                    }
                }
                Step::End if end.is_none_or(|end| offset >= end) => break,
                Step::End | Step::Damage => {
                    let left = scan.left();
                    // What had not been synced need not all be there, and what is need not be in order.
                    let synced = synced.unwrap_or(0).max(scan.synced().map_err(failed)?);
                    let is_over = self.are_synced(after)?;
                    if is_over && offset == 0 && synced == 0 {
                        // Nothing of it came to be, and what came after it says so.
                        self.torn(&opened.path, offset, left);
                        return Ok(true);
                    }
                    if synced <= offset && !is_over {
                        self.torn(&opened.path, offset, left);
                        let cut = if self.may_change() { opened.file.truncate(offset) } else { Ok(()) };
                        cut.map_err(|error| self.failed("cut", &opened.name, error))?;
                        is_whole = false;
                        break;
                    }
                    let found = scan.resume().map_err(failed)?;
                    is_begun = Begin::Well;
                    let bytes = if found { scan.offset() - offset } else { left };
                    let what = if left == 0 {
                        "it is shorter than it was"
                    } else {
                        "a record does not fit its checksum"
                    };
                    self.damaged(&opened.path, offset, bytes, what)?;
                    if !found {
                        break;
                    }
                }
            }
            self.progress.done_bytes.fetch_add(scan.offset() - offset, Relaxed);
        }
        let synced = synced.unwrap_or(0).max(scan.known_synced());
        if self.may_change() {
            self.write_again(&opened, synced, scan.offset()).map_err(failed)?;
        }
        self.recovery.log_bytes += scan.offset();
        (self.recovery.segment, self.recovery.end) = (*segment, scan.offset());
        Ok(is_whole)
    }
}

impl<D: Disk> Reader<'_, D> {
    /// Writes again what may not have reached the disk, and syncs it: whether an earlier sync failed, and
    /// the system took for written what is not, nobody can tell.
    fn write_again(&self, opened: &Opened<D::File>, from: u64, to: u64) -> io::Result<()> {
        let mut bytes = vec![0; READ_BYTES];
        let mut offset = from;
        while offset < to {
            let count = usize::try_from(to - offset).map_or(READ_BYTES, |left| left.min(READ_BYTES));
            let read = opened.file.read_bytes(&mut bytes[..count], offset)?;
            if read == 0 {
                break;
            }
            opened.file.write_bytes(&bytes[..read], offset)?;
            offset += read as u64;
        }
        opened.file.sync()
    }
}

/// A key with its length and hits in a checkpoint.
const MIN_KEY_BYTES: u64 = 4;

/// What a checkpoint ends with.
struct End {
    generation: Generation,
    now: Timestamp,
    keys: u64,
}

impl End {
    const BYTES: usize = HEAD_BYTES + 1 + 3 * size_of::<u64>();

    fn read(mut payload: &[u8]) -> Option<End> {
        let mut number = || take_u64(&mut payload);
        let (generation, now_ms, keys) = (Generation::new(number()?)?, number()?, number()?);
        let now = Timestamp::from_millis(i64::try_from(now_ms).ok()?)?;
        payload.is_empty().then_some(End { generation, now, keys })
    }

    /// Reads the end first: it says what there is to come.
    fn read_ahead(file: &impl DiskFile) -> io::Result<Option<End>> {
        let mut bytes = [0; End::BYTES];
        let offset = file.size()?.saturating_sub(End::BYTES as u64);
        let read = file.read_bytes(&mut bytes, offset)?;
        let payload = &bytes[HEAD_BYTES.min(read)..read];
        let is_whole = Head::read(&bytes).is_some_and(|head| head.fits(payload));
        Ok(payload.split_first().filter(|_| is_whole).and_then(|(_, rest)| End::read(rest)))
    }
}
