//! Files with correct checksums and invalid content.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use lately::{DeltaBatch, Op, Timestamp, minutes};

use super::*;
use crate::folder::Folder;
use crate::frame;
use crate::journal::{Durability, Journal};
use crate::log::{BATCH, SEGMENT};
use crate::part::{END, HEAD, PARTS, write_part};

/// Writes a file of frames.
fn write(folder: &Path, name: &str, kind: Kind, payloads: &[&[u8]]) {
    let mut bytes = kind.magic().to_vec();
    for (number, payload) in (0..).zip(payloads) {
        frame::append(&mut bytes, number, 0, |out| out.extend_from_slice(payload));
    }
    fs::write(folder.join(name), bytes).expect("written");
}

fn segment(number: u64) -> Vec<u8> {
    [&[SEGMENT][..], &number.to_le_bytes(), &[0; 16]].concat()
}

fn recovered(folder: &Path, intent: Intent) -> Result<Recovery, JournalError> {
    let folder = Folder::open(folder)?;
    let store = Store::builder().build().expect("the defaults are valid");
    recover(&folder, &store, intent, Timestamp::MAX, 2, &Progress::default())
}

#[test]
fn an_invalid_record_is_damage_and_can_be_repaired() {
    let root = tempfile::tempdir().expect("a folder");
    let now = 1_700_000_000_000_u64.to_le_bytes();
    let garbage = [&[BATCH][..], &now, b"\x07\0\0\0garbage"].concat();
    // A part that does not exist, and a number that is too high to continue from.
    let part = [&[BATCH][..], &now, &[0, 0, 0xff, 0xff, 2, 2], b"k"].concat();
    for record in [&garbage, &part] {
        write(root.path(), &names::log(1), Kind::Log, &[&segment(1), record]);
        let error = recovered(root.path(), Intent::Continue).expect_err("damaged").to_string();
        assert!(error.contains("log-0000000001 is damaged at byte 61"), "{error}");
        let losses = recovered(root.path(), Intent::Repair).expect("repaired").losses;
        assert_eq!(losses.len(), 1, "{losses:?}");
        assert_eq!((losses[0].offset, &losses[0].kind), (61, &LossKind::Damaged));
    }
}

#[test]
fn an_oversized_length_in_a_checkpoint_takes_no_memory() {
    let root = tempfile::tempdir().expect("a folder");
    let head = [&[HEAD][..], &1_u64.to_le_bytes()].concat();
    let end = |generation: u64, keys: u64| {
        [&[END][..], &generation.to_le_bytes(), &1_000_u64.to_le_bytes(), &keys.to_le_bytes()].concat()
    };
    write(root.path(), &names::log(1), Kind::Log, &[&segment(1)]);
    write(root.path(), &names::checkpoint(1), Kind::Checkpoint, &[&head, &end(0, u64::MAX)]);
    assert_eq!(recovered(root.path(), Intent::Continue).expect("read").losses, []);
    // A number of a change that is too high to continue from.
    let part = [&[PARTS][..], &[0; 2], &u64::MAX.to_le_bytes(), &[0; 20]].concat();
    write(root.path(), &names::checkpoint(1), Kind::Checkpoint, &[&head, &part, &end(0, 0)]);
    assert!(recovered(root.path(), Intent::Continue).is_err());
    write(root.path(), &names::checkpoint(1), Kind::Checkpoint, &[&head, &end(u64::MAX, 0)]);
    let error = recovered(root.path(), Intent::Continue).expect_err("damaged").to_string();
    assert!(error.contains("it has no end"), "{error}");
}

/// Writes a checkpoint of three keys, and the log behind it.
fn write_checkpoint(folder: &Path, parts: &[u8], now: Timestamp) {
    let head = [&[HEAD][..], &1_u64.to_le_bytes()].concat();
    let end = [&[END][..], &[0; 8], &now.as_millis().to_le_bytes(), &3_u64.to_le_bytes()].concat();
    write(folder, &names::log(1), Kind::Log, &[&segment(1)]);
    write(folder, &names::checkpoint(1), Kind::Checkpoint, &[&head, parts, &end]);
}

/// The second of three keys of a checkpoint has invalid hits.
#[test]
fn an_unreadable_key_is_named_and_the_others_are_kept() {
    let root = tempfile::tempdir().expect("a folder");
    let now = Timestamp::from_seconds(1_700_000_000).expect("a time");
    let store = Store::builder().build().expect("valid");
    for key in ["one", "two", "three"] {
        store.hit(key.as_bytes(), now).expect("counted");
    }
    let mut parts = vec![PARTS];
    (0..Store::PARTS).for_each(|part| _ = write_part(&store, part, &mut parts));
    // The key is followed by the length of its hits and their kind.
    let name = parts.windows(3).position(|bytes| bytes == b"two").expect("it was written");
    parts[name + 4] = 0xff;
    write_checkpoint(root.path(), &parts, now);

    let error = recovered(root.path(), Intent::Continue).expect_err("damaged").to_string();
    assert!(error.contains("checkpoint-0000000001 is damaged at byte"), "{error}");
    assert!(error.contains("key two is not a key with its hits"), "{error}");
    let copy = Store::builder().build().expect("valid");
    let folder = Folder::open(root.path()).expect("opened");
    let recovery =
        recover(&folder, &copy, Intent::Repair, Timestamp::MAX, 2, &Progress::default()).expect("repaired");
    assert_eq!(recovery.losses.len(), 1);
    assert_eq!(recovery.losses[0].kind, LossKind::Key((*b"two").into()));
    assert_eq!([b"one".as_slice(), b"three"].map(|key| copy.hits(key, minutes(5), now).estimate), [1, 1]);
}

/// The second of three keys of a block is damaged on the disk.
#[test]
fn a_damaged_block_loses_only_its_damaged_part() {
    let root = tempfile::tempdir().expect("a folder");
    let now = Timestamp::from_seconds(1_700_000_000).expect("a time");
    let store = Store::builder().build().expect("valid");
    let keys = ["one", "two", "three"].map(str::as_bytes);
    keys.iter().for_each(|key| _ = store.hit(key, now).expect("counted"));
    let mut parts = vec![PARTS];
    (0..Store::PARTS).for_each(|part| _ = write_part(&store, part, &mut parts));
    write_checkpoint(root.path(), &parts, now);
    let path = root.path().join(names::checkpoint(1));
    let mut bytes = fs::read(&path).expect("read");
    let name = bytes.windows(3).position(|bytes| bytes == b"two").expect("it was written");
    bytes[name] ^= 4;
    fs::write(&path, bytes).expect("written");

    let error = recovered(root.path(), Intent::Continue).expect_err("damaged").to_string();
    assert!(error.contains("a block does not fit its checksum"), "{error}");
    let copy = Store::builder().build().expect("valid");
    let folder = Folder::open(root.path()).expect("opened");
    let recovery =
        recover(&folder, &copy, Intent::Repair, Timestamp::MAX, 2, &Progress::default()).expect("repaired");
    assert_eq!(recovery.losses.len(), 1);
    // Only the part of the key is lost: its head and some ten bytes.
    assert!(recovery.losses[0].bytes < 200, "{:?}", recovery.losses);
    assert_eq!(keys.map(|key| copy.hits(key, minutes(5), now).estimate), [1, 0, 1]);
}

/// A change that cannot be applied does not affect later ones of the same record.
#[test]
fn an_inapplicable_change_names_its_key() {
    let root = tempfile::tempdir().expect("a folder");
    let now = Timestamp::from_seconds(1_700_000_000).expect("a time");
    let mut deltas = DeltaBatch::default();
    let other = Store::builder().seed(1).build().expect("valid");
    other.hit_n(b"full", 300, None, now).expect("counted");
    let mut part = Vec::new();
    for index in 0..Store::PARTS {
        other.write_part(index, now, &mut part);
    }
    other.bring_part(&part, now, &mut deltas).expect("its own");
    // Make a number of the hits endless.
    let mut first = [&[BATCH][..], &now.as_millis().to_le_bytes(), deltas.bytes()].concat();
    *first.iter_mut().nth_back(1).expect("bytes") = 0xff;
    deltas.clear();
    let op = Op::Hit { key: b"last", weight: 5, at: None };
    Store::builder().seed(1).build().expect("valid").apply_into(&[op], now, &mut Vec::new(), &mut deltas);
    let record = [&first[..], deltas.bytes()].concat();
    write(root.path(), &names::log(1), Kind::Log, &[&segment(1), &record]);
    let error = recovered(root.path(), Intent::Continue).expect_err("not its hits").to_string();
    assert!(error.contains("log-0000000001 is damaged at byte"), "{error}");
    assert!(error.contains("key full is not a key with its hits of this version"), "{error}");
    let store = Store::builder().build().expect("valid");
    let folder = Folder::open(root.path()).expect("opened");
    let recovery =
        recover(&folder, &store, Intent::Repair, Timestamp::MAX, 2, &Progress::default()).expect("repaired");
    assert_eq!(
        recovery.losses.iter().map(|loss| &loss.kind).collect::<Vec<_>>(),
        [&LossKind::Key((*b"full").into())]
    );
    assert_eq!(store.hits(b"last", minutes(5), now).estimate, 5);
}

/// A repair must not overwrite what a later version wrote.
#[test]
fn a_file_of_an_unknown_version_is_not_repaired() {
    let root = tempfile::tempdir().expect("a folder");
    for payload in [&b"\xee of a later version"[..], &[&[BATCH][..], &[0; 8], b"\xee\xee\xee"].concat()] {
        write(root.path(), &names::log(1), Kind::Log, &[&segment(1), payload]);
        let path = root.path().join(names::log(1));
        let mut bytes = fs::read(&path).expect("read");
        bytes[7] = VERSION + 1;
        fs::write(&path, bytes).expect("written");
        for intent in [Intent::Continue, Intent::ReadOnly, Intent::Repair] {
            let error = recovered(root.path(), intent).expect_err("not known");
            assert!(matches!(error, JournalError::Version { found, .. } if found == VERSION + 1), "{error}");
        }
    }
}

#[test]
fn a_swapped_segment_is_damage() {
    let root = tempfile::tempdir().expect("a folder");
    for (name, number) in [(1, 2), (2, 1)] {
        write(root.path(), &names::log(name), Kind::Log, &[&segment(number)]);
    }
    let error = recovered(root.path(), Intent::Continue).expect_err("damaged").to_string();
    assert!(error.contains("log-0000000001 is damaged at byte 0: it is another segment"), "{error}");
}

/// A store in three lives of a server: with a correct clock, with a clock ten years ahead, and with a correct
/// clock again. Each life ends with a checkpoint, or none does.
fn lives_of_a_wrong_clock(root: &Path, with_checkpoint: bool) -> [Timestamp; 2] {
    let right = Timestamp::from_seconds(1_700_000_000).expect("a time");
    let wrong = right.saturating_add(lately::days(3_650));
    for (now, key) in [(right, "right"), (wrong, "wrong")] {
        let store = Arc::new(Store::builder().build().expect("the defaults are valid"));
        let folder = Folder::open(root).expect("a folder");
        let recovery =
            recover(&folder, &store, Intent::Continue, now, 2, &Progress::default()).expect("read");
        let journal =
            Journal::begin(folder, Arc::clone(&store), Durability::Always, &recovery).expect("begun");
        let mut deltas = lately::DeltaBatch::default();
        let hit = |key: &'static str, weight| lately::Op::Hit { key: key.as_bytes(), weight, at: None };
        store.apply_into(&[hit(key, 3), hit("both", 2)], now, &mut Vec::new(), &mut deltas);
        store.limit_until(b"locked", now.saturating_add(lately::minutes(15)), now, Some(&mut deltas));
        journal.write([&deltas].into_iter()).expect("written");
        if with_checkpoint {
            journal.make_checkpoint(|| ()).expect("made");
        }
        journal.close().expect("closed");
    }
    [right, wrong]
}

#[test]
fn a_folder_far_ahead_of_the_clock_is_refused_and_repaired() {
    for with_checkpoint in [false, true] {
        let root = tempfile::tempdir().expect("a folder");
        let [right, wrong] = lives_of_a_wrong_clock(root.path(), with_checkpoint);
        let now = right.saturating_add(lately::minutes(1));
        let recovered = |intent, clock| {
            let store = Store::builder().build().expect("the defaults are valid");
            let folder = Folder::open(root.path()).expect("a folder");
            recover(&folder, &store, intent, clock, 2, &Progress::default()).map(|recovery| (store, recovery))
        };
        for intent in [Intent::Continue, Intent::ReadOnly] {
            let Err(error @ JournalError::Ahead { written, clock, .. }) = recovered(intent, now) else {
                panic!("it is refused");
            };
            assert_eq!((written, clock), (wrong, now));
            assert!(error.to_string().contains("3649 days ahead of the clock"), "{error}");
        }
        // A day is not far ahead.
        let a_day_before = Timestamp::from_millis(wrong.as_millis() - 86_400_000).expect("a time");
        let (store, recovery) = recovered(Intent::Continue, a_day_before).expect("read");
        assert_eq!((store.now(), recovery.losses), (wrong, vec![]));
        let (store, recovery) = recovered(Intent::Repair, now).expect("repaired");
        assert_eq!(recovery.losses.len(), 1, "{:?}", recovery.losses);
        assert_eq!(recovery.losses[0].kind, LossKind::Ahead(wrong));
        assert_eq!(store.now(), now);
        let hits = |key: &str, at| store.hits(key.as_bytes(), lately::minutes(5), at).estimate;
        // A checkpoint of the wrong time does not have the earlier hits, because they had expired by then.
        let before = if with_checkpoint { 0 } else { 1 };
        assert_eq!(
            [hits("right", now), hits("wrong", now), hits("both", now)],
            [3 * before, 3, 2 + 2 * before]
        );
        assert_eq!(store.limited_until(b"locked", now), Some(now.saturating_add(lately::minutes(15))));
        let later = now.saturating_add(lately::days(30));
        assert!(
            !store.contains(b"wrong", later) && !store.contains(b"locked", later),
            "nothing is kept for years"
        );
        store.check_consistency();
    }
}
