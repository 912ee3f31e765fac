//! Reading a checkpoint.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use lately::{Generation, Store, Timestamp};

use super::{Intent, Opened, Reader};
use crate::disk::{Disk, DiskFile};
use crate::error::JournalError;
use crate::frame::{HEAD_BYTES, Head, Kind, VERSION, take_u64};
use crate::limits::MAX_FRAME_BYTES;
use crate::part::{END, HEAD, PARTS, PartOrder, whole_parts};
use crate::replayer::Feed;
use crate::scan::{Scan, Step};

impl<D: Disk> Reader<'_, D> {
    /// Loads the keys of a checkpoint. Returns the generation of keys that are created after it.
    pub(super) fn checkpoint(
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
            // No key takes fewer bytes than that.
            let most = self.recovery.checkpoint_bytes / MIN_KEY_BYTES;
            store.reserve(usize::try_from(end.keys.min(most)).unwrap_or(0));
            if !feed.is_in_time(&opened.path, end.now) {
                // The feed has the error.
                return Ok(end.generation);
            }
            feed.set_now(end.now);
        }
        if !self.begin(&mut scan, opened, Kind::Checkpoint)? {
            self.damaged(&opened.path, 0, 0, "it does not begin as such a file does")?;
        }
        if self.intent == Intent::Repair {
            scan.leave_misplaced_out().map_err(failed)?;
        }
        let version = self.version;
        // After damage any number may follow.
        let (mut expected, mut end, mut order) = (Some(0), None, PartOrder::default());
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
                        Some((&PARTS, rest)) if end.is_none() && !order.follow(rest, version) => {
                            let bytes = payload.len() as u64;
                            self.damaged(
                                &opened.path,
                                offset,
                                bytes,
                                "a block of an earlier checkpoint is in its place",
                            )?;
                        }
                        Some((&PARTS, rest)) if end.is_none() => {
                            if !feed.parts(&opened.path, version, (offset, rest)) {
                                break;
                            }
                        }
                        Some((&END, rest)) if end.is_none() => end = End::read(rest),
                        _ => self.damaged(&opened.path, offset, 0, "it has what no checkpoint has")?,
                    }
                }
                Step::End => break,
                Step::Damage => {
                    let (left, is_misplaced) = (scan.left(), scan.is_at_frame().map_err(failed)?);
                    let found = scan.resume().map_err(failed)?;
                    let bytes = if found { scan.offset() - offset } else { left };
                    // The parts of a block have their own checksums. Only damaged parts are lost, not the
                    // whole block.
                    let kept = if self.intent == Intent::Repair && !is_misplaced {
                        whole_parts(&read_at(&opened.file, offset, bytes).map_err(failed)?, &mut order)
                    } else {
                        Vec::new()
                    };
                    let bytes = bytes.saturating_sub(kept.len() as u64);
                    let what = if is_misplaced {
                        "a block is in the wrong place"
                    } else {
                        "a block does not fit its checksum"
                    };
                    self.damaged(&opened.path, offset, bytes, what)?;
                    if !kept.is_empty() && !feed.parts(&opened.path, VERSION, (offset, &kept)) {
                        break;
                    }
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
}

/// The smallest key in a checkpoint: its name with its length, and its hits.
const MIN_KEY_BYTES: u64 = 4;

/// Reads bytes of a file, at most a block.
fn read_at(file: &impl DiskFile, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut room =
        vec![0; usize::try_from(bytes).map_or(MAX_FRAME_BYTES, |bytes| bytes.min(MAX_FRAME_BYTES))];
    let read = file.read_bytes(&mut room, offset)?;
    room.truncate(read);
    Ok(room)
}

/// The last frame of a checkpoint.
pub(super) struct End {
    generation: Generation,
    now: Timestamp,
    keys: u64,
}

impl End {
    const BYTES: usize = HEAD_BYTES + 1 + 3 * size_of::<u64>();

    pub(super) fn read(mut payload: &[u8]) -> Option<End> {
        let mut number = || take_u64(&mut payload);
        let (generation, now_ms, keys) = (Generation::new(number()?)?, number()?, number()?);
        let now = Timestamp::from_millis(i64::try_from(now_ms).ok()?)?;
        payload.is_empty().then_some(End { generation, now, keys })
    }

    /// Reads the last frame first: it has the number of keys.
    fn read_ahead(file: &impl DiskFile) -> io::Result<Option<End>> {
        let mut bytes = [0; End::BYTES];
        let offset = file.size()?.saturating_sub(End::BYTES as u64);
        let read = file.read_bytes(&mut bytes, offset)?;
        let payload = &bytes[HEAD_BYTES.min(read)..read];
        let is_whole = Head::read(&bytes).is_some_and(|head| head.fits(payload));
        Ok(payload.split_first().filter(|_| is_whole).and_then(|(_, rest)| End::read(rest)))
    }
}
