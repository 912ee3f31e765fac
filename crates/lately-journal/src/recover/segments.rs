//! Reading the log, a segment at a time.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use super::{Intent, Opened, Reader};
use crate::disk::{Disk, DiskFile};
use crate::error::JournalError;
use crate::frame::{Kind, take_u64};
use crate::limits::READ_BYTES;
use crate::log::{BATCH, CLOSED, SEGMENT, SETTLED, SYNCED};
use crate::names;
use crate::replayer::Feed;
use crate::scan::{Begin, Scan, Step};

/// A segment of the log. There may be many: each is opened while it is read.
pub(super) struct Segment {
    segment: u64,
    name: String,
    /// The end of the previous segment, and how far that was synced, as this segment knows.
    previous: Option<(u64, u64)>,
    /// The number of its first frame, if that can be read.
    first: Option<u64>,
}

/// What the first frame of a segment says: its own number, and see [`Segment`].
struct Start {
    first: u64,
    previous: Option<(u64, u64)>,
}

impl<D: Disk> Reader<'_, D> {
    /// Opens the segments of the log. Unborn segments at its end are removed.
    pub(super) fn open_log(
        &mut self,
        segments: &[u64],
        checkpoint: Option<u64>,
    ) -> Result<Vec<Segment>, JournalError> {
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
            let start = self.start(&opened, segment)?;
            let (first, previous) = start.map(|Start { first, previous }| (first, previous)).unzip();
            log.push(Segment { segment, name: opened.name, previous: previous.flatten(), first });
        }
        self.remove_unborn(&mut log)?;
        self.recovery.segments = log.len();
        // The log has no gaps.
        self.recovery.segment = log.last().map_or(expected - 1, |last| last.segment);
        for &Segment { segment, .. } in &log {
            if segment != expected {
                self.missing(&names::log(expected), "files with higher numbers are there")?;
            }
            expected = segment + 1;
        }
        Ok(log)
    }

    /// Removes unborn segments at the end: those without a readable first frame and without a batch.
    fn remove_unborn(&mut self, log: &mut Vec<Segment>) -> Result<(), JournalError> {
        while let Some(last @ Segment { previous: None, .. }) = log.last() {
            let last = std::slice::from_ref(last);
            if self.are_synced(last)? || self.is_to_be_repaired(&last[0])? {
                break;
            }
            self.drop_segments(last)?;
            log.pop();
        }
        Ok(())
    }

    /// The number of the first frame of a segment, and what it says about the previous segment.
    fn start(&mut self, opened: &Opened<D::File>, segment: u64) -> Result<Option<Start>, JournalError> {
        let failed = |error| JournalError::Disk { what: "read", path: PathBuf::clone(&opened.path), error };
        let mut scan = Scan::new(&opened.file, None).map_err(failed)?;
        let begin = scan.begin(Kind::Log).map_err(failed)?;
        if begin == Begin::Damage {
            return Ok(None);
        }
        scan.skip_begin();
        let Step::Frame { number: first, payload } = scan.step().map_err(failed)? else { return Ok(None) };
        let mut payload = payload.strip_prefix(&[SEGMENT]).unwrap_or_default();
        let mut number = || take_u64(&mut payload);
        let (own, previous) = (number(), number().zip(number()));
        let mut is_born = matches!(begin, Begin::Well(_));
        // Otherwise nothing in it can be lost, unless it has a record that not every segment starts with.
        while !is_born && let Step::Frame { payload, .. } = scan.step().map_err(failed)? {
            is_born = !matches!(payload.first(), Some(&(SETTLED | CLOSED)));
        }
        if !is_born {
            return Ok(None);
        }
        if own.is_some_and(|own| own != segment) {
            self.damaged(&opened.path, 0, 0, "it is another segment of the log")?;
        }
        Ok(Some(Start { first, previous }))
    }

    /// Replays the log.
    pub(super) fn log(&mut self, log: &[Segment], feed: &mut Feed<'_>) -> Result<(), JournalError> {
        for (index, segment) in log.iter().enumerate() {
            let after = &log[index + 1..];
            if !self.segment(segment, after, feed)? {
                // Segments are synced in order, so none of the later ones was.
                return self.drop_segments(after);
            }
        }
        Ok(())
    }

    /// Removes segments that were started but never synced.
    fn drop_segments(&mut self, segments: &[Segment]) -> Result<(), JournalError> {
        for Segment { name, .. } in segments {
            let opened = self.open(name)?;
            let bytes = opened.file.size().map_err(|error| self.failed("read", name, error))?;
            self.torn(&opened.path, 0, bytes);
            self.remove(name)?;
        }
        Ok(())
    }

    /// Whether these segments say that everything before them was synced.
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

    /// Whether a repair must keep the readable part of a segment, because it has a record.
    fn is_to_be_repaired(&self, Segment { name, .. }: &Segment) -> Result<bool, JournalError> {
        if self.intent != Intent::Repair {
            return Ok(false);
        }
        let (opened, failed) = (self.open(name)?, |error| self.failed("read", name, error));
        let mut scan = Scan::new(&opened.file, None).map_err(failed)?;
        while scan.resume().map_err(failed)? {
            while let Step::Frame { payload, .. } = scan.step().map_err(failed)? {
                if payload.first() == Some(&BATCH) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Replays a segment; `after` are the later ones. False if it is torn where it had not been synced: then
    /// nothing behind it is valid.
    fn segment(
        &mut self,
        Segment { name, segment, first, .. }: &Segment,
        after: &[Segment],
        feed: &mut Feed<'_>,
    ) -> Result<bool, JournalError> {
        let opened = self.open(name)?;
        let failed = |error| JournalError::Disk { what: "read", path: PathBuf::clone(&opened.path), error };
        // No later segment says where the last one ends.
        let (end, synced) = after.first().and_then(|next| next.previous).unzip();
        let mut scan = Scan::new(&opened.file, end).map_err(failed)?;
        if end == Some(0) {
            // Nothing in it is valid.
            return Ok(true);
        }
        let mut is_whole = true;
        let mut is_begun = self.begin(&mut scan, &opened, Kind::Log)?;
        let goes_back = first.is_some_and(|first| self.recovery.number > 0 && first <= self.recovery.number);
        if goes_back {
            let what = "its numbers go back: an earlier log is in its place, or a record of a later one in that before it";
            self.damaged(&opened.path, 0, 0, what)?;
        }
        // Numbers go on in the next segment.
        let next = after.first().and_then(|next| next.first);
        if let (Some(first), Some(next)) = (*first, next)
            && first < next
        {
            scan.end_before(next);
        }
        if self.intent == Intent::Repair {
            scan.leave_misplaced_out().map_err(failed)?;
        }
        loop {
            let offset = scan.offset();
            let step = if is_begun { scan.step().map_err(failed)? } else { Step::Damage };
            match step {
                Step::Frame { number, payload } => {
                    self.recovery.number = self.recovery.number.max(number);
                    match payload.split_first() {
                        Some((&BATCH, rest)) => {
                            self.recovery.records += 1;
                            if !feed.record(&opened.path, self.version, (offset, rest)) {
                                return Ok(true);
                            }
                        }
                        Some((&SETTLED, mut rest)) if rest.len() == size_of::<u64>() => {
                            feed.settled(take_u64(&mut rest).unwrap_or(0));
                        }
                        Some((&(SEGMENT | CLOSED | SYNCED), _)) => {}
                        _ => self.damaged(&opened.path, offset, 0, "it has what no log has")?,
                    }
                }
                Step::End if end.is_none_or(|end| offset >= end) => break,
                Step::End | Step::Damage => {
                    let left = scan.left();
                    // Bytes that were not synced may be missing or incomplete, in any order.
                    let synced = synced.unwrap_or(0).max(scan.synced().map_err(failed)?);
                    let is_over = self.are_synced(after)?;
                    let is_misplaced = scan.is_at_frame().map_err(failed)?;
                    // A repair keeps the readable part behind the damage.
                    let found = self.intent == Intent::Repair && scan.resume().map_err(failed)?;
                    if !found && is_over && offset == 0 && synced == 0 {
                        // Nothing of it reached the disk, and later segments say so.
                        self.torn(&opened.path, offset, left);
                        return Ok(true);
                    }
                    if !found && synced <= offset && !is_over {
                        self.torn(&opened.path, offset, left);
                        let cut = if self.may_change() { opened.file.truncate(offset) } else { Ok(()) };
                        cut.map_err(|error| self.failed("cut", &opened.name, error))?;
                        is_whole = false;
                        break;
                    }
                    is_begun = true;
                    let bytes = if found { scan.offset() - offset } else { left };
                    let what = if left == 0 {
                        "it is shorter than it was"
                    } else if is_misplaced {
                        "a record is in the wrong place"
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

    /// Writes bytes again that may not have reached the disk, and syncs them. An earlier sync may have
    /// failed, and the system may still take these bytes for written.
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
