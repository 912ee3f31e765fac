//! Reading the log, a segment at a time.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use super::{Intent, Opened, Reader};
use crate::disk::{Disk, DiskFile};
use crate::error::JournalError;
use crate::frame::{Kind, take_u64};
use crate::limits::READ_BYTES;
use crate::log::{BATCH, CLOSED, SEGMENT, SETTLED};
use crate::names;
use crate::replayer::Feed;
use crate::scan::{Begin, Scan, Step};

/// A segment of the log. There may be many: each is opened while it is read.
pub(super) struct Segment {
    segment: u64,
    name: String,
    /// Where the segment before ends, and how far it was synced, as far as this one knows.
    previous: Option<(u64, u64)>,
}

impl<D: Disk> Reader<'_, D> {
    /// Opens the segments of the log. Those at its end that never came to be are removed.
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
            if self.are_synced(last)? || self.is_to_be_repaired(&last[0])? {
                break;
            }
            self.drop_segments(last)?;
            log.pop();
        }
        Ok(())
    }

    /// What a segment says of the one before it.
    fn previous(
        &mut self,
        opened: &Opened<D::File>,
        segment: u64,
    ) -> Result<Option<(u64, u64)>, JournalError> {
        let failed = |error| JournalError::Disk { what: "read", path: PathBuf::clone(&opened.path), error };
        let mut scan = Scan::new(&opened.file, None).map_err(failed)?;
        let begin = scan.begin(Kind::Log).map_err(failed)?;
        if begin == Begin::Damage {
            return Ok(None);
        }
        scan.skip_begin();
        let Step::Frame { payload, .. } = scan.step().map_err(failed)? else { return Ok(None) };
        let mut payload = payload.strip_prefix(&[SEGMENT]).unwrap_or_default();
        let mut number = || take_u64(&mut payload);
        let (own, previous) = (number(), number().zip(number()));
        let mut is_born = matches!(begin, Begin::Well(_));
        // Else there is nothing in it that could be lost, unless it has more than what each segment begins with.
        while !is_born && let Step::Frame { payload, .. } = scan.step().map_err(failed)? {
            is_born = !matches!(payload.first(), Some(&(SETTLED | CLOSED)));
        }
        if !is_born {
            return Ok(None);
        }
        if own.is_some_and(|own| own != segment) {
            self.damaged(&opened.path, 0, 0, "it is another segment of the log")?;
        }
        Ok(previous)
    }

    /// Puts back what the log says happened.
    pub(super) fn log(&mut self, log: &[Segment], feed: &mut Feed<'_>) -> Result<(), JournalError> {
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

    /// Whether a repair is to keep what can be read of a segment: it has a record.
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
        let mut is_begun = self.begin(&mut scan, &opened, Kind::Log)?;
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
                    // A repair keeps what can be read behind it.
                    let found = self.intent == Intent::Repair && scan.resume().map_err(failed)?;
                    if !found && is_over && offset == 0 && synced == 0 {
                        // Nothing of it came to be, and what came after it says so.
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
