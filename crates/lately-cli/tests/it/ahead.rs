//! A folder that was written while the clock was years ahead.

use std::path::Path;
use std::sync::Arc;

use lately::{Clock, DeltaBatch, Op, Store, SystemClock, Timestamp, days};
use lately_journal::{Durability, Folder, Intent, Journal, Progress, recover};

use crate::common::lately;
use crate::running::{FREE, Running, becomes, serve_in, start};

/// Counts a hit of a key in a folder, at the time `now`.
fn count(folder: &Path, key: &str, now: Timestamp) {
    let store = Arc::new(Store::builder().build().expect("the defaults are valid"));
    // A process that another test is starting inherits the lock of the last call, and has it until it runs its program.
    let mut opened = None;
    assert!(becomes(|| {
        opened = Folder::open(folder).ok();
        opened.is_some()
    }));
    let folder = opened.expect("a folder");
    let recovery = recover(&folder, &store, Intent::Continue, now, 1, &Progress::default()).expect("read");
    let journal = Journal::begin(folder, Arc::clone(&store), Durability::Always, &recovery).expect("begun");
    let mut deltas = DeltaBatch::default();
    let hit = Op::Hit { key: key.as_bytes(), weight: 1, at: None };
    store.apply_into(&[hit], now, &mut Vec::new(), &mut deltas);
    journal.write([&deltas].into_iter()).expect("written");
    journal.close().expect("closed");
}

fn stop(server: Running) -> String {
    server.signal("TERM");
    let run = server.ended();
    assert_eq!(run.code, Some(0), "{}", run.err);
    run.err
}

#[test]
fn a_folder_years_ahead_is_refused_and_repaired() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("data");
    let now = SystemClock::new().now();
    count(&folder, "right", now);
    count(&folder, "wrong", now.saturating_add(days(3_650)));
    let data = ["--data", folder.to_str().expect("text")];
    let dump = root.path().join("dump");
    let dump = dump.to_str().expect("text");
    for (args, hint) in [
        ([&FREE[..], &data].concat(), "--repair"),
        ([&["dump", "--output", dump], &data[..]].concat(), "lately serve --repair"),
    ] {
        let run = lately(&args);
        assert_eq!(run.code, Some(2), "{args:?}: {}", run.err);
        assert!(run.err.contains("days ahead of the clock: one of the two is wrong"), "{}", run.err);
        assert!(run.err.contains("hint: correct the clock") && run.err.contains(hint), "{}", run.err);
    }
    let server = start(&[&FREE[..], &data, &["--repair"]].concat()).loaded();
    assert_eq!(server.ask::<Vec<u64>>("MHITS 1h right wrong"), [1, 1]);
    assert!(server.ask::<Vec<i64>>("TIME")[0] < now.as_millis() / 1_000 + 600);
    assert!(becomes(|| server.info("rdb_saves") != "0"), "the repaired times are never saved");
    let messages = stop(server);
    assert!(messages.contains("by a clock that was ahead: what came then counts as of now"), "{messages}");
    // The repair is permanent.
    let server = serve_in(&folder, &[]);
    assert_eq!(server.ask::<Vec<u64>>("MHITS 1h right wrong"), [1, 1]);
    assert_eq!(server.ask::<u64>("HIT right"), 2);
    stop(server);
}
