//! Folders of earlier versions are read for as long as there are some.

use std::fs;
use std::path::Path;

use lately::{Request, Store, Timestamp, days, hours};
use lately_journal::{Folder, Intent, Progress, recover};

/// A checkpoint and a log that the last version with format 2 wrote, which was then killed. It had been sent: a hit, a
/// list, a ring and old panes; a key that was deleted and came back; a lockout of 30 days, with what it denied; a rate.
/// Behind the checkpoint: more hits, late ones among them, a deleted key, another denial.
#[test]
fn a_folder_of_version_2_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/folder-2");
    for file in ["checkpoint-0000000002", "log-0000000002"] {
        fs::copy(data.join(file), folder.path().join(file)).expect("copied");
    }
    let store = Store::builder().build().expect("the defaults are valid");
    let disk = Folder::open(folder.path()).expect("opened");
    let recovery = recover(&disk, &store, Intent::GoOn, 2, &Progress::default()).expect("read");
    assert_eq!(recovery.losses, []);
    store.check_consistency();
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
