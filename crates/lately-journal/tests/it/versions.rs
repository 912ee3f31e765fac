//! Folders of earlier versions must stay readable.

use std::fs;
use std::path::Path;

use lately::{Cursor, Request, Source, Store, Timestamp, days, hours, minutes, seconds};
use lately_journal::{Folder, Intent, Progress, Recovery, recover};

/// Loads a copy of a folder of the test data into a store, so that the original stays unchanged.
fn put_back(name: &str, store: &Store) -> Recovery {
    let folder = tempfile::tempdir().expect("a folder");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    for file in fs::read_dir(data).expect("there is one") {
        let file = file.expect("a file");
        fs::copy(file.path(), folder.path().join(file.file_name())).expect("copied");
    }
    let disk = Folder::open(folder.path()).expect("opened");
    let recovery =
        recover(&disk, store, Intent::Continue, Timestamp::MAX, 2, &Progress::default()).expect("read");
    assert_eq!(recovery.losses, []);
    store.check_consistency();
    recovery
}

/// A checkpoint and a log of the last version with format 2, which was then killed. It had: a hit, a list, a
/// ring and old panes; a key that was deleted and came back; a lockout of 30 days with denied hits; a rate.
/// After the checkpoint: more hits, some of them late, a deleted key, another denial.
#[test]
fn a_folder_of_version_2_is_read() {
    let store = Store::builder().build().expect("the defaults are valid");
    put_back("folder-2", &store);
    let now = Timestamp::from_seconds(1_795_621_303).expect("a time");
    let long = "long".repeat(30);
    let keys = ["one", "list", "ring", "panes", "again", "locked", "rate", &long, "late"];
    let counts =
        |key: &str| [hours(1), days(7)].map(|window| store.hits(key.as_bytes(), window, now).estimate);
    let wanted = [[5, 5], [1, 1], [3_005, 3_005], [56, 9_000], [2, 2], [1, 1], [2, 2], [7, 7], [0, 3]];
    assert_eq!(keys.map(counts), wanted);
    assert_eq!(store.denied(b"locked", Some(hours(1)), None, now).estimate, 2);
    let request = Request { is_peek: true, ..Request::new(b"locked", 9, hours(1), 1) };
    let decision = store.decide(request, now).expect("decided");
    assert!(!decision.is_allowed(), "the lockout holds");
}

/// A checkpoint and a log of format 3, of a server that was killed. It had: hits, old panes, a lockout with
/// denied hits, a rate, a key that was deleted and came back, two sources. After the checkpoint: more of a
/// source, another source, a deleted key.
#[test]
fn a_folder_of_version_3_is_read() {
    let store = Store::builder().build().expect("the defaults are valid");
    put_back("folder-3", &store);
    let now = Timestamp::from_seconds(1_795_648_802).expect("a time");
    let keys = ["one", "list", "panes", "locked", "rate", "again", "a", "b", "c"];
    let counts =
        |key: &str| [hours(1), days(7)].map(|window| store.hits(key.as_bytes(), window, now).estimate);
    let wanted = [[6, 6], [0, 0], [56, 9_056], [1, 1], [1, 1], [2, 2], [3, 3], [6, 6], [4, 4]];
    assert_eq!(keys.map(counts), wanted);
    assert_eq!(store.denied(b"locked", Some(hours(1)), None, now).estimate, 2);
    let request = Request { is_peek: true, ..Request::new(b"locked", 9, hours(1), 1) };
    assert!(!store.decide(request, now).expect("decided").is_allowed(), "the lockout holds");
    let position = |name: &str| store.position(Source::new(name.as_bytes()).expect("a name"));
    let positions = ["access.log", "old.log", "new.log", "other.log"].map(position);
    assert_eq!(positions, [Some(300), Some(7), Some(2_000), None]);
}

/// All keys with their hits of the last week, by name.
fn counts(store: &Store, now: Timestamp) -> Vec<(String, u64, u64)> {
    let page = store.scan(Cursor::START, None, usize::MAX, now);
    assert_eq!(page.next, Cursor::START, "all keys are on one page");
    let count = |key: &[u8]| {
        let count = store.hits(key, days(7), now);
        (String::from_utf8_lossy(key).into_owned(), count.lower, count.upper.unwrap_or(u64::MAX))
    };
    let mut counts: Vec<_> = page.keys.iter().map(|key| count(key)).collect();
    counts.sort();
    counts
}

/// Symptom: a start reported "damaged … not a key with its hits". Cause: a dump was restored with panes of 1
/// ms into a class of 1 s, and late hits put panes out of order, which were then written. Fix: hits from
/// elsewhere are fitted to the grid of the class, and panes out of order can be read.
#[test]
fn panes_written_out_of_order_are_read() {
    let store = Store::builder().build().expect("the defaults are valid");
    put_back("folder-2-unordered", &store);
    let now = store.now();
    let before = counts(&store, now);
    assert_eq!(before.len(), 30);
    assert!(before.iter().all(|(_, lower, upper)| 0 < *lower && lower <= upper));
    late_hits_add_up(&store, now);
}

/// Symptom: a panic during a replay, "index out of bounds", and a server that neither started nor stopped.
/// Cause: as above, in a folder whose class had become wider.
#[test]
fn panes_narrower_than_the_class_are_widened() {
    let builder = Store::builder().resolution(seconds(10)).window(minutes(5)).retain(days(2));
    let store = builder.build().expect("valid");
    put_back("folder-2-narrow", &store);
    let now = store.now();
    let before = counts(&store, now);
    assert_eq!(before.len(), 8);
    late_hits_add_up(&store, now);
}

/// The hits of all keys at many times of the last day. Each of them adds one to both bounds of the week.
fn late_hits_add_up(store: &Store, now: Timestamp) {
    let before = counts(store, now);
    for late in 1..=200_u64 {
        for (key, ..) in &before {
            let at = now.saturating_sub(seconds(late * 431));
            store.hit_at(key.as_bytes(), at, now).expect("it is kept for longer");
        }
    }
    store.check_consistency();
    for (before, after) in before.into_iter().zip(counts(store, now)) {
        assert_eq!((before.1 + 200, before.2.saturating_add(200)), (after.1, after.2), "{}", before.0);
    }
}
