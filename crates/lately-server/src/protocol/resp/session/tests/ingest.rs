//! `INGEST`: each batch of a source counts once.

use super::*;

/// The reply to a batch that does not begin at the position of its source.
fn elsewhere(position: u64, from: u64) -> String {
    format!("-ERR the source is at {position} and the batch begins at {from}: go on from {position}|")
}

#[test]
fn a_batch_of_a_source_counts_once() {
    let mut talk = Talk::new();
    let at = ago(10);
    let first = format!("INGEST log 0 100 a 2 {at} b 1 {at} a 1 {at}");
    talk.check_all(&[
        ("INGEST log", "$-1|"),
        (&first, "*3|:100|:4|:0|"),
        ("INGEST log", ":100|"),
        // A repeated batch, whole or in part, is not counted again.
        (&first, "*3|:100|:0|:0|"),
        ("INGEST log 0 60 a 9 1700000000", "*3|:100|:0|:0|"),
        ("MHITS 5m a b", "*2|:3|:1|"),
        // These batches do not begin at the position of the source.
        (&format!("INGEST log 101 200 a 1 {at}"), &elsewhere(100, 101)),
        (&format!("INGEST log 0 200 a 1 {at}"), &elsewhere(100, 0)),
        (&format!("INGEST log 100 200 a 1 {at}"), "*3|:200|:1|:0|"),
        // Each source has its own position.
        (&format!("INGEST other 5000 6000 a 1 {at}"), "*3|:6000|:1|:0|"),
        ("HITS a", ":5|"),
        // A flush deletes counts and keeps positions.
        ("FLUSHALL", "+OK|"),
        ("INGEST log", ":200|"),
        ("INGEST log 200 200", "*3|:200|:0|:0|"),
    ]);
    assert_eq!(talk.info("total_hits"), "6");
}

#[test]
fn refused_hits_do_not_stop_a_batch_of_a_source() {
    let mut talk = Talk::new();
    let (at, late, ahead) = (ago(1), ago(9 * 86_400), (NOW_S + 3_600).to_string());
    let line = format!("INGEST log 0 9 a 2 {at} b 3 {late} c 4 {ahead} d 1 {at}");
    talk.check_all(&[
        (&line, "*3|:9|:3|:7|"),
        ("MHITS 7d a b c d", "*4|:2|:0|:0|:1|"),
        (&line, "*3|:9|:0|:0|"),
    ]);
}

#[test]
fn a_batch_of_a_source_without_room_changes_nothing() {
    let mut talk = Talk::with(Config { ceiling_bytes: 1 << 20, ..Config::default() });
    // Locked keys cannot be evicted. Enough of them leave no room for others.
    let mut locked = 0;
    while talk.ask(&format!("LIMIT locked:{locked} 0 1m LOCKOUT 1d")).starts_with("*5") {
        locked += 1;
    }
    let at = ago(1);
    let hits = |count: usize| -> String { (0..count).map(|key| format!(" new:{key} 1 {at}")).collect() };
    let reply = talk.ask(&format!("INGEST log 0 9 locked:0 1 {at} locked:1 1 {at}{}", hits(300)));
    assert!(reply.starts_with("-OOM "), "{reply}");
    talk.check_all(&[
        ("INGEST log", "$-1|"),
        ("MHITS 5m locked:0 locked:1 new:0", "*3|:0|:0|:0|"),
        (&format!("INGEST log 0 9 locked:0 1 {at}"), "*3|:9|:1|:0|"),
        ("HITS locked:0", ":1|"),
    ]);
    talk.service.check_consistency();
}

/// Symptom: a client reconnected, got a position that the journal had not written yet, and continued from there; a crash
/// then lost a batch. Cause: positions were returned before they were committed. Fix: a source takes one batch at a time,
/// and the next one only after the last was committed.
#[test]
fn a_source_is_busy_until_its_batch_is_committed() {
    let mut talk = Talk::new();
    let mut written = Written::default();
    let now = talk.service.now();
    let source = lately::Source::new(b"log").expect("a name");
    let stretch = crate::service::Stretch { source, from: 0, to: 7 };
    let hits = [(&b"a"[..], 1, now)];
    let counted = talk.service.ingest(&stretch, hits.into_iter(), &mut written.changes, now);
    assert_eq!(counted.expect("counted").position, 7);
    let busy = "-TRYAGAIN another batch of the source, or a restore, is being written: wait for its reply|";
    talk.check_all(&[("INGEST log", busy), ("INGEST log 7 8", busy), ("INGEST other 0 1", "*3|:1|:0|:0|")]);
    assert!(matches!(talk.service.commit(&mut [&mut written.changes]), crate::service::commit::Commit::Kept));
    talk.check_all(&[("INGEST log", ":7|"), ("INGEST log 7 8", "*3|:8|:0|:0|")]);
}
