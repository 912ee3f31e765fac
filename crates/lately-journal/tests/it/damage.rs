//! Damaged files: a flipped bit, a missing file, a torn end. A start reports the file and the place, or cuts
//! what had not been synced and reports that. It never counts anything else.

use std::fmt::Debug;
use std::path::Path;

use lately::{Store, days};
use lately_journal::{Disk, DiskFile, Durability, JournalError, Loss, LossKind, Recovery};

use crate::life::{Action, Batch, Fate, Life, Members, difference, reference, time};
use crate::sim_disk::SimDisk;
use test_support::trace;

/// The bytes of a frame before its payload, and of a file before its frames. The last byte of the latter is
/// the version.
const HEAD_BYTES: usize = 28;
const MAGIC_BYTES: usize = 8;
/// The version of new files.
const VERSION: u8 = 3;

const CHECKPOINT: &str = "checkpoint-0000000002";
const LOGS: [&str; 4] = ["", "log-0000000001", "log-0000000002", "log-0000000003"];

/// Keys so long that their checkpoint has several blocks, and short keys.
fn names() -> Vec<Vec<u8>> {
    let long = (0..40).map(|n| format!("key:{n}{}", "x".repeat(700)).into_bytes());
    long.chain([b"short".to_vec(), b"other".to_vec()]).collect()
}

fn hits(now_ms: i64, names: impl IntoIterator<Item = Vec<u8>>) -> Batch {
    let hit = |(key, weight)| Action::Hit { key, weight, late_ms: 0 };
    Batch { now: time(now_ms), actions: names.into_iter().zip(1..).map(hit).collect() }
}

/// A folder, and its batches. Nothing was deleted, so a key with fewer batches never has more hits.
struct Made {
    disk: SimDisk,
    batches: Vec<Batch>,
    /// Batches that are in a checkpoint.
    in_checkpoint: usize,
}

impl Made {
    fn new() -> Made {
        Made { disk: SimDisk::new(1), batches: Vec::new(), in_checkpoint: 0 }
    }

    fn start(&self) -> Life {
        let (life, recovery) = start(&self.disk, false).expect("a start");
        assert_eq!(recovery.losses, []);
        life
    }

    fn run(&mut self, life: &mut Life, names: impl IntoIterator<Item = Vec<u8>>) {
        let batch = hits(100 * i64::try_from(self.batches.len()).expect("few"), names);
        assert_eq!(life.run(self.batches.len(), &batch), Fate::Acknowledged);
        self.batches.push(batch);
    }

    /// A checkpoint and a segment behind it. The first records of the segment were synced before the last
    /// ones were written.
    fn checkpoint() -> (Made, Life) {
        let mut made = Made::new();
        let mut life = made.start();
        made.run(&mut life, names());
        life.journal.make_checkpoint(|| ()).expect("made");
        made.in_checkpoint = made.batches.len();
        let several = || names().into_iter().skip(40);
        made.run(&mut life, several());
        assert!(life.journal.sync());
        made.run(&mut life, several().rev());
        made.run(&mut life, several());
        assert!(life.journal.sync());
        made.run(&mut life, [b"short".to_vec()]);
        made.run(&mut life, several());
        (made, life)
    }

    fn closed() -> Made {
        let (made, life) = Made::checkpoint();
        life.journal.close().expect("closed");
        made
    }

    fn killed() -> Made {
        Made::checkpoint().0
    }

    /// A server without work, and then killed: everything is synced, and the last record says so.
    ///
    /// Symptom: a flipped bit lost hits that were on the disk for a minute, and the start said that the log had ended in the middle of a record.
    /// Cause: only a later record says how far the file is synced, and there was none. Fix: one is written after the sync.
    fn idle() -> Made {
        let (made, life) = Made::checkpoint();
        (0..3).for_each(|_| assert!(life.journal.sync()));
        let files = made.files();
        let last = files.last().and_then(|file| file.frames.last()).expect("a record");
        assert_eq!((last.what, last.synced), (4, last.start));
        made
    }

    /// Three segments without a checkpoint: of a killed server, of a stopped one, and a new one.
    fn segments() -> Made {
        let mut made = Made::new();
        for is_closed in [false, true] {
            let mut life = made.start();
            for _ in 0..3 {
                made.run(&mut life, [b"short".to_vec()]);
            }
            if is_closed {
                life.journal.close().expect("closed");
            }
        }
        made.start();
        made
    }

    /// A store without some of the batches.
    fn without(&self, lost: impl Fn(usize) -> bool) -> Store {
        reference(self.batches.iter().enumerate().filter(|&(index, _)| !lost(index)).map(|(_, batch)| batch))
    }

    fn files(&self) -> Vec<File> {
        let mut next = self.in_checkpoint;
        let mut files = self.disk.files();
        // Only its length matters.
        files.retain(|(name, _)| name != "reserve");
        let last = files.last().map(|(name, _)| name.clone());
        let read = |(name, size): (String, usize)| {
            let mut bytes = vec![0; size];
            let file = self.disk.open(&name).expect("opened");
            assert_eq!(file.read_bytes(&mut bytes, 0).expect("read"), size);
            let frames = Frame::all(&bytes, name != CHECKPOINT, &mut next);
            File { is_last: Some(&name) == last.as_ref(), name, size, frames }
        };
        let files = files.into_iter().map(read).collect();
        assert_eq!(next, self.batches.len());
        files
    }
}

struct File {
    name: String,
    size: usize,
    frames: Vec<Frame>,
    /// Whether no other frame records that it was synced.
    is_last: bool,
}

/// A frame: see the head in `src/frame.rs`.
struct Frame {
    start: usize,
    end: usize,
    synced: usize,
    /// The first byte of its payload.
    what: u8,
    /// The batch of its record.
    batch: Option<usize>,
}

impl Frame {
    fn all(bytes: &[u8], is_log: bool, next_batch: &mut usize) -> Vec<Frame> {
        let (mut frames, mut start) = (Vec::new(), MAGIC_BYTES);
        while start < bytes.len() {
            let number = |at: usize, len: usize| {
                let digits = bytes[start + at..start + at + len].iter().rev();
                digits.fold(0, |number, &byte| number << 8 | usize::from(byte))
            };
            let (end, what) = (start + HEAD_BYTES + number(0, 4), bytes[start + HEAD_BYTES]);
            let batch = (is_log && what == 1).then_some(*next_batch);
            *next_batch += usize::from(batch.is_some());
            frames.push(Frame { start, end, synced: number(12, 8), what, batch });
            start = end;
        }
        assert_eq!(start, bytes.len());
        frames
    }
}

/// The expected result of a flipped bit.
#[derive(Debug, PartialEq)]
enum Judged {
    Version,
    Damaged(usize),
    /// Everything from there on is cut.
    Torn(usize),
}

impl File {
    fn frame_at(&self, byte: usize) -> Option<&Frame> {
        self.frames.iter().find(|frame| (frame.start..frame.end).contains(&byte))
    }

    fn judge(&self, byte: usize) -> Judged {
        let hit = self.frame_at(byte);
        let start = hit.map_or(0, |frame| frame.start);
        let others = self.frames.iter().filter(|frame| hit.is_none_or(|hit| hit.start != frame.start));
        // Only frames that other frames record as synced are certain.
        let synced = others.map(|frame| frame.synced).max().unwrap_or(0);
        if self.is_last && synced <= start {
            // Without its first frame a segment is unborn.
            return Judged::Torn(if start <= MAGIC_BYTES { 0 } else { start });
        }
        if byte == MAGIC_BYTES - 1 { Judged::Version } else { Judged::Damaged(start) }
    }

    /// The first batch whose record starts there or later.
    fn first_batch(&self, start: usize) -> Option<usize> {
        self.frames.iter().filter(|frame| frame.start >= start).find_map(|frame| frame.batch)
    }
}

fn start(disk: &SimDisk, repair: bool) -> Result<(Life, Recovery), JournalError> {
    Life::start(disk, 9, Durability::Interval, repair)
}

fn now(made: &Made) -> lately::Timestamp {
    made.batches.last().expect("there are some").now
}

#[track_caller]
fn assert_same(found: &Store, wanted: &Store, made: &Made, what: impl Debug) {
    assert_eq!(difference(&names(), found, wanted, &Members::default(), true, now(made)), None, "{what:?}");
}

/// The counts of each key.
fn counts(store: &Store, made: &Made) -> Vec<u64> {
    names().iter().map(|key| store.count(key, Some(days(7)), None, now(made)).estimate).collect()
}

/// Starts again. No damage is left.
fn assert_mended(disk: &SimDisk, life: &Life, made: &Made, what: impl Debug) {
    assert!(!life.journal.needs_checkpoint(), "{what:?}");
    let (again, recovery) = start(disk, false).unwrap_or_else(|error| panic!("{error}, {what:?}"));
    assert_eq!(recovery.losses, [], "{what:?}");
    assert!(!again.journal.needs_checkpoint(), "{what:?}");
    assert_same(&again.store, &life.store, made, what);
}

/// Starts again after a repair. A cut end of a log requests a checkpoint soon; any other damage is replaced
/// by one at once.
fn assert_repaired(disk: &SimDisk, life: &Life, recovery: &Recovery, made: &Made, what: impl Debug) {
    let is_torn = recovery.losses.iter().all(|loss| loss.kind == LossKind::Torn);
    assert_eq!(life.journal.needs_checkpoint(), is_torn, "{what:?}");
    if is_torn {
        life.journal.make_checkpoint(|| ()).expect("made");
        let life = start(disk, false).unwrap_or_else(|error| panic!("{error}, {what:?}")).0;
        return assert_mended(disk, &life, made, what);
    }
    assert_mended(disk, life, made, what);
}

/// Flips a bit and starts. Returns the keys that a repair lost.
fn flip(made: &Made, file: &File, bit: usize) -> Vec<usize> {
    let what = format!("bit {bit} of {}", file.name);
    trace(|| what.clone());
    let (judged, disk) = (file.judge(bit / 8), made.disk.copy());
    disk.flip(&file.name, bit);
    let path = Path::new(&file.name);
    let error = match (start(&disk, false), &judged) {
        (Ok((life, recovery)), &Judged::Torn(at)) => {
            let bytes = (file.size - at) as u64;
            let loss = Loss { path: path.into(), offset: at as u64, bytes, kind: LossKind::Torn };
            assert_eq!(recovery.losses, [loss], "{what}");
            let lost = file.first_batch(at).unwrap_or(usize::MAX);
            assert_same(&life.store, &made.without(|index| index >= lost), made, &what);
            // The cut end requests a checkpoint soon.
            assert!(life.journal.needs_checkpoint(), "{what:?}");
            life.journal.make_checkpoint(|| ()).expect("made");
            let life = start(&disk, false).unwrap_or_else(|error| panic!("{error}, {what:?}")).0;
            assert_mended(&disk, &life, made, &what);
            return Vec::new();
        }
        (Err(error), Judged::Version | Judged::Damaged(_)) => error,
        (result, _) => panic!("{:?} instead of {judged:?}: {what}", result.map(|(_, recovery)| recovery)),
    };
    let found = match &error {
        JournalError::Version { path: found, .. } if found == path => Judged::Version,
        JournalError::Damaged { path: found, offset, .. } if found == path => {
            Judged::Damaged(usize::try_from(*offset).expect("small"))
        }
        _ => panic!("{error}, {what}"),
    };
    assert_eq!(found, judged, "{what}");
    repair(made, file, bit, &disk)
}

fn repair(made: &Made, file: &File, bit: usize, disk: &SimDisk) -> Vec<usize> {
    let what = format!("repair of bit {bit} of {}", file.name);
    let repaired = start(disk, true);
    let (life, recovery) = repaired.unwrap_or_else(|error| panic!("{error}, {what}"));
    let at = match file.judge(bit / 8) {
        Judged::Damaged(at) => at,
        // The frames show the version.
        Judged::Version => 0,
        Judged::Torn(_) => unreachable!("it was refused"),
    };
    let losses = &recovery.losses;
    let fits = |loss: &Loss| {
        loss.path == Path::new(&file.name) && loss.offset >= at as u64 && loss.kind != LossKind::Torn
    };
    assert!(losses.iter().all(fits) && losses[0].offset == at as u64, "{losses:?}, {what}");
    let frame = file.frame_at(bit / 8);
    let mut lost = Vec::new();
    if file.name == CHECKPOINT && frame.is_some_and(|frame| frame.what == 1) {
        let all = counts(&made.without(|_| false), made);
        let found = counts(&life.store, made);
        assert!(found.iter().zip(&all).all(|(found, all)| found <= all), "{found:?}, {what}");
        lost = (0..all.len()).filter(|&key| found[key] < all[key]).collect();
    } else {
        // Only the content of the frame is lost.
        let lost = frame.and_then(|frame| frame.batch);
        assert_same(&life.store, &made.without(|index| Some(index) == lost), made, &what);
    }
    if bit.is_multiple_of(61) {
        assert_mended(disk, &life, made, &what);
    }
    lost
}

/// Bits to flip: one or two of each byte of a short file; in a long file, those of the heads of its frames,
/// and some of the rest.
fn bits(file: &File) -> impl Iterator<Item = usize> {
    let is_head = |byte: usize| {
        let start = file.frame_at(byte).map_or(0, |frame| frame.start);
        byte < start + HEAD_BYTES + 1
    };
    let is_short = file.size < 10_000;
    let is_wanted =
        move |bit: usize| bit.is_multiple_of(if is_short || is_head(bit / 8) { 5 } else { 1_999 });
    (0..8 * file.size).filter(move |&bit| is_wanted(bit))
}

#[test]
fn a_flipped_bit_in_every_region_of_every_file_is_detected() {
    for made in [Made::closed(), Made::killed(), Made::idle(), Made::segments()] {
        for file in made.files() {
            let mut lost: Vec<(usize, Vec<usize>)> = Vec::new();
            let mut of_bits = Vec::new();
            for bit in bits(&file) {
                let keys = flip(&made, &file, bit);
                if !keys.is_empty() {
                    of_bits.push(bit);
                    lost.push((file.frame_at(bit / 8).map_or(0, |frame| frame.start), keys));
                }
            }
            // Only the damaged part of a block is lost, here a key or two; if its head is damaged, nothing
            // is.
            let blocks = file.frames.iter().filter(|frame| file.name == CHECKPOINT && frame.what == 1);
            for block in blocks {
                let of_block =
                    lost.iter().filter(|(start, _)| *start == block.start).map(|(_, keys)| keys.len());
                assert!(of_block.max().is_some_and(|most| most <= 3), "{}: {lost:?}", file.name);
                let is_of_head =
                    |bit: usize| (block.start..block.start + HEAD_BYTES + 1).contains(&(bit / 8));
                assert!(!of_bits.iter().any(|&bit| is_of_head(bit)), "{}: {of_bits:?}", file.name);
            }
        }
    }
}

/// Symptom: after a start with `--repair`, hits and a kill, or a stop, the next start found the damaged file
/// again. Cause: the checkpoint that replaces it was made after the start, in the background. Fix: the start
/// makes it.
#[test]
fn a_start_that_repairs_leaves_nothing_to_repair() {
    let made = Made::closed();
    let disk = made.disk.copy();
    let file = made.files().into_iter().find(|file| file.name == CHECKPOINT).expect("there is one");
    disk.flip(CHECKPOINT, 8 * (file.size / 2));
    assert!(matches!(start(&disk, false).err(), Some(JournalError::Damaged { .. })));
    // There is room for a new segment of the log, but not for a checkpoint.
    let full = disk.copy();
    full.remove("reserve").expect("removed");
    full.resize(full.files().iter().map(|(_, bytes)| bytes).sum::<usize>() + 1_000);
    let error = start(&full, true).err().expect("no room for the checkpoint").to_string();
    assert!(
        error.contains("the repair is not ended, start with --repair again: no storage space"),
        "{error}"
    );
    let (mut life, recovery) = start(&disk, true).expect("repaired");
    assert_eq!(recovery.losses.len(), 1);
    let batch = hits(10_000, names());
    assert_eq!(life.run(0, &batch), Fate::Acknowledged);
    disk.restart();
    let (again, recovery) = start(&disk, false).expect("a start after a kill");
    assert_eq!(recovery.losses, []);
    assert_same(&again.store, &life.store, &made, "a start after a kill");
}

/// Symptom: with a damaged version byte, `--repair` lost the whole file, or refused it. Cause: no checksum
/// covers that byte, and nothing else was used. Fix: the version is one in which the first frames can be
/// decoded.
#[test]
fn a_damaged_version_costs_nothing() {
    for made in [Made::closed(), Made::killed(), Made::segments()] {
        let all = made.without(|_| false);
        // A segment without a batch that was not synced may be torn anywhere.
        let has_batch =
            |file: &File| file.name == CHECKPOINT || file.frames.iter().any(|frame| frame.batch.is_some());
        for file in made.files().iter().filter(|file| has_batch(file)) {
            for found in (0..8).map(|bit| VERSION ^ 1 << bit).chain([0, 1, 2, u8::MAX]) {
                let what = format!("version {found} of {}", file.name);
                let disk = made.disk.copy();
                disk.open(&file.name).expect("opened").write_bytes(&[found], 7).expect("written");
                let error = start(&disk, false).err().unwrap_or_else(|| panic!("not refused: {what}"));
                let is_of_it = match &error {
                    JournalError::Version { path, .. } => path == Path::new(&file.name),
                    JournalError::Damaged { path, offset: 0, .. } => path == Path::new(&file.name),
                    _ => false,
                };
                assert!(is_of_it, "{error}, {what}");
                let (life, recovery) = start(&disk, true).unwrap_or_else(|error| panic!("{error}, {what}"));
                assert_eq!(recovery.losses.len(), 1, "{:?}, {what}", recovery.losses);
                assert_same(&life.store, &all, &made, &what);
                assert_mended(&disk, &life, &made, &what);
            }
        }
    }
}

/// Symptom: with a damaged version byte and a damaged first frame, `--repair` lost the whole file, or refused
/// it. Cause: only the first frame was used to find the version, and a segment without it was cut as torn.
/// Fix: the first whole frames are used, wherever they are, and a repair continues behind damage even if no
/// frame records that it was synced.
#[test]
fn a_damaged_version_and_first_frame_cost_no_other_frame() {
    for made in [Made::closed(), Made::killed(), Made::segments()] {
        let all = made.without(|_| false);
        for file in made.files() {
            // The first frames have no hits.
            let first = &file.frames[0];
            for version in [0, 1, 2, VERSION, VERSION + 1, u8::MAX] {
                for byte in
                    [first.start, first.start + 5, first.start + HEAD_BYTES - 1, first.start + HEAD_BYTES]
                {
                    let what = format!("version {version} and byte {byte} of {}", file.name);
                    let disk = made.disk.copy();
                    disk.open(&file.name).expect("opened").write_bytes(&[version], 7).expect("written");
                    disk.flip(&file.name, 8 * byte);
                    let (life, recovery) =
                        start(&disk, true).unwrap_or_else(|error| panic!("{error}, {what}"));
                    assert!(!recovery.losses.is_empty(), "{what}");
                    let is_of_it = |loss: &Loss| loss.path == Path::new(&file.name);
                    assert!(recovery.losses.iter().all(is_of_it), "{:?}, {what}", recovery.losses);
                    assert_same(&life.store, &all, &made, &what);
                    assert_repaired(&disk, &life, &recovery, &made, &what);
                }
            }
        }
    }
}

/// The version, and the heads of all frames but one, are damaged. Of the parts of a checkpoint only the
/// damaged ones are lost.
#[test]
fn a_repair_keeps_each_whole_frame() {
    for made in [Made::closed(), Made::killed(), Made::segments()] {
        for file in made.files() {
            for kept in 0..=file.frames.len() {
                let what = format!("all frames but {kept} of {}", file.name);
                let disk = made.disk.copy();
                disk.flip(&file.name, 8 * 7);
                let damaged = || file.frames.iter().enumerate().filter(|&(index, _)| index != kept);
                damaged().for_each(|(_, frame)| disk.flip(&file.name, 8 * frame.start));
                let (life, recovery) = start(&disk, true).unwrap_or_else(|error| panic!("{error}, {what}"));
                let lost: Vec<usize> = damaged().filter_map(|(_, frame)| frame.batch).collect();
                assert_same(&life.store, &made.without(|batch| lost.contains(&batch)), &made, &what);
                // The report has the size of the loss: everything but the whole frame.
                if file.name != CHECKPOINT {
                    let bytes: u64 = recovery.losses.iter().map(|loss| loss.bytes).sum();
                    let whole = file.frames.get(kept).map_or(0, |frame| frame.end - frame.start);
                    let fewest = file.size - whole - MAGIC_BYTES;
                    let bytes = usize::try_from(bytes).expect("few");
                    assert!((fewest..=file.size).contains(&bytes), "{:?}, {what}", recovery.losses);
                }
                assert_repaired(&disk, &life, &recovery, &made, &what);
            }
        }
    }
}

/// Symptom: a repair lost 800 whole records behind one that a write had put in the wrong place. Cause: numbers rise, so all that
/// followed the record with the high number was left out. Fix: the fewest records are left out with which the others rise.
#[test]
fn a_repair_loses_no_record_to_one_in_the_wrong_place() {
    for made in [Made::closed(), Made::killed(), Made::segments()] {
        for file in made.files() {
            let mut bytes = vec![0; file.size];
            made.disk.open(&file.name).expect("opened").read_bytes(&mut bytes, 0).expect("read");
            let places = file.frames.iter().flat_map(|at| file.frames.iter().map(move |frame| (at, frame)));
            for ((at, frame), is_over) in places.flat_map(|place| [(place, false), (place, true)]) {
                let what = format!("{} at {} of {}, over: {is_over}", frame.start, at.start, file.name);
                // A later log says where this one ends. The blocks of a checkpoint have several keys each.
                let (is_checkpoint, is_as_long) =
                    (file.name == CHECKPOINT, at.end - at.start == frame.end - frame.start);
                let is_sure =
                    if is_over { is_as_long && !is_checkpoint } else { file.is_last || is_checkpoint };
                if !is_sure || is_over && at.start == frame.start {
                    continue;
                }
                let rest = if is_over { at.end } else { at.start };
                let content = [&bytes[..at.start], &bytes[frame.start..frame.end], &bytes[rest..]].concat();
                let disk = made.disk.copy();
                let changed = disk.open(&file.name).expect("opened");
                changed.truncate(0).expect("cut");
                changed.write_bytes(&content, 0).expect("written");
                changed.sync().expect("synced");
                let (life, recovery) = start(&disk, true).unwrap_or_else(|error| panic!("{error}, {what}"));
                let lost = at.batch.filter(|_| is_over);
                assert_same(&life.store, &made.without(|batch| Some(batch) == lost), &made, &what);
                let damaged = recovery.losses.iter().filter(|loss| loss.kind == LossKind::Damaged);
                let bytes: u64 = damaged.map(|loss| loss.bytes).sum();
                assert!(bytes <= (frame.end - frame.start + MAGIC_BYTES) as u64, "{recovery:?}, {what}");
            }
        }
    }
}

/// Symptom: a start without a word lost whole records of two logs. Cause: a write had put a record of a later log at the end of an earlier
/// one, and the records between the two were taken for known. Fix: the numbers of a log end before those of the next one begin.
#[test]
fn a_record_of_a_later_log_is_damage_and_costs_itself_alone() {
    let made = Made::segments();
    let files = made.files();
    for (index, file) in files.iter().enumerate() {
        for later in &files[index + 1..] {
            let mut bytes = vec![0; later.size];
            made.disk.open(&later.name).expect("opened").read_bytes(&mut bytes, 0).expect("read");
            let places =
                file.frames[1..].iter().flat_map(|at| later.frames.iter().map(move |frame| (at, frame)));
            for (at, frame) in places.filter(|(at, frame)| at.end - at.start == frame.end - frame.start) {
                let what = format!("{} of {} at {} of {}", frame.start, later.name, at.start, file.name);
                let disk = made.disk.copy();
                let changed = disk.open(&file.name).expect("opened");
                changed.write_bytes(&bytes[frame.start..frame.end], at.start as u64).expect("written");
                changed.sync().expect("synced");
                let refused = start(&disk, false).map(|(_, recovery)| recovery);
                assert!(matches!(refused, Err(JournalError::Damaged { .. })), "{refused:?}, {what}");
                let (life, recovery) = start(&disk, true).unwrap_or_else(|error| panic!("{error}, {what}"));
                assert_same(&life.store, &made.without(|batch| Some(batch) == at.batch), &made, &what);
                assert_repaired(&disk, &life, &recovery, &made, &what);
            }
        }
    }
}

#[test]
fn only_the_last_frame_of_a_closed_log_may_be_torn() {
    let files = Made::closed().files();
    let log = files.last().expect("there is a log");
    let last = log.frames.last().expect("it has frames");
    for byte in 0..log.size {
        let is_torn = matches!(log.judge(byte), Judged::Torn(_));
        assert_eq!(is_torn, byte >= last.start, "byte {byte}");
    }
    assert_eq!(last.batch, None);
}

#[test]
fn a_missing_file_is_named() {
    let check = |made: &Made, gone: &str, named: &str, expected: &str| {
        let disk = made.disk.copy();
        disk.remove(gone).expect("it is there");
        let error = start(&disk, false).err().expect("a file is missing");
        let is_named = |path: &Path| path == Path::new(named);
        assert!(matches!(&error, JournalError::Missing { path, .. } if is_named(path)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        let (life, recovery) = start(&disk, true).expect("it is repaired");
        assert!(is_named(&recovery.losses[0].path), "{:?}", recovery.losses);
        let [found, all] = [&*life.store, &made.without(|_| false)].map(|store| counts(store, made));
        assert!(found.iter().zip(&all).all(|(found, all)| found <= all) && found != all, "{found:?}");
        assert_mended(&disk, &life, made, gone);
    };
    for made in [Made::closed(), Made::killed()] {
        check(&made, CHECKPOINT, CHECKPOINT, LOGS[2]);
        check(&made, LOGS[2], LOGS[2], "checkpoint");
    }
    let made = Made::segments();
    check(&made, LOGS[1], CHECKPOINT, LOGS[1]);
    check(&made, LOGS[2], LOGS[2], "higher numbers");
}

#[test]
fn a_torn_end_is_cut_at_any_byte() {
    let made = Made::killed();
    let files = made.files();
    let log = files.last().expect("there is a log");
    let last = log.frames.last().expect("it has frames");
    for size in last.start..last.end {
        let disk = made.disk.copy();
        disk.open(&log.name).expect("opened").truncate(size as u64).expect("cut");
        let (mut life, recovery) = start(&disk, false).expect("a start");
        let (offset, bytes) = (last.start as u64, (size - last.start) as u64);
        let loss = Loss { path: log.name.clone().into(), offset, bytes, kind: LossKind::Torn };
        let losses = if bytes > 0 { vec![loss] } else { Vec::new() };
        assert_eq!(recovery.losses, losses, "{size}");
        assert_eq!(life.journal.needs_checkpoint(), bytes > 0);
        assert_same(&life.store, &made.without(|index| Some(index) == last.batch), &made, size);
        // The log continues, with or without the requested checkpoint.
        if size.is_multiple_of(2) {
            life.journal.make_checkpoint(|| ()).expect("made");
        }
        let batch = hits(10_000, names());
        assert_eq!(life.run(0, &batch), Fate::Acknowledged);
        let (again, recovery) = start(&disk, false).expect("another start");
        assert_eq!(recovery.losses, [], "{size}");
        let others = &made.batches[..made.batches.len() - 1];
        assert_same(&again.store, &reference(others.iter().chain([&batch])), &made, size);
    }
}
