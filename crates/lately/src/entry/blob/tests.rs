//! Round trips of entries through bytes.

use super::*;
use crate::number::Number;
use crate::time::{Span, days, minutes, seconds};

const START_MS: i64 = 1_700_000_000_000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(START_MS + ms).expect("a time")
}

/// An entry with `count` hits, one every `step_ms`, and the time of the last.
fn entry(step_ms: i64, count: i64) -> (Entry, i64) {
    let mut entry = Entry::new();
    for n in 0..count {
        let hits = 1 + n.unsigned_abs() % 3;
        entry.add(at(n * step_ms), hits, &Settings::default(), at(n * step_ms)).expect("counted");
    }
    (entry, (count - 1) * step_ms)
}

fn written(entry: &Entry, settings: &Settings) -> Vec<u8> {
    let mut bytes = Vec::new();
    entry.write(settings, &mut bytes);
    bytes
}

/// Counts of many windows that end at many times.
fn answers(entry: &Entry, settings: &Settings, now_ms: i64) -> Vec<crate::Count> {
    let spans = [seconds(1), seconds(59), minutes(5), minutes(61), days(1), days(7)];
    let ends = [0, 1, 299_000, 3_600_000, 90_000_000];
    let all = ends.iter().flat_map(|ms| spans.map(|span| (now_ms - ms, span)));
    all.map(|(ms, span)| entry.count(at(ms), span, settings, at(now_ms))).collect()
}

#[test]
fn entries_of_every_form_round_trip() {
    let settings = Settings::default();
    for (step_ms, count) in [
        (1, 1),
        (5, 9),
        (1_000, 4),
        (1_000, 100),
        (60_000, 256),
        (60_000, 5_000),
        (900, 3_000),
        (1, 700),
        (3_600_001, 160),
        (9_000_007, 60),
        (150_000_001, 4),
    ] {
        let (entry, newest_ms) = entry(step_ms, count);
        let bytes = written(&entry, &settings);
        for later_ms in [0, 20_000, 500_000, 100_000_000] {
            let now_ms = newest_ms + later_ms;
            let copy = Entry::read(&bytes, &settings, at(now_ms)).expect("well formed");
            copy.check_consistency(&settings, at(now_ms));
            assert_eq!(answers(&copy, &settings, now_ms), answers(&entry, &settings, now_ms));
            assert_eq!((copy.total(), copy.newest()), (entry.total(), entry.newest()));
            let again = Entry::read(&written(&copy, &settings), &settings, at(now_ms)).expect("well formed");
            assert_eq!(answers(&again, &settings, now_ms), answers(&entry, &settings, now_ms));
        }
    }
}

#[test]
fn moments_of_the_old_format_are_read() {
    let settings = Settings::default();
    for (step_ms, count) in [(1_000, 100), (77_777, 200), (3_600_001, 160), (150_000_001, 4)] {
        let (entry, newest_ms) = entry(step_ms, count);
        let mut items = Vec::new();
        let mut number =
            |value| items.extend_from_slice(&Number::new(value).word.to_le_bytes()[..Number::new(value).len]);
        for n in 0..count {
            let (gap_ms, hits) = (if n == 0 { 1 } else { step_ms.unsigned_abs() }, 1 + n.unsigned_abs() % 3);
            let gap = if gap_ms % 1_000 == 0 { (gap_ms / 1_000) << 2 | 2 } else { gap_ms << 2 };
            number(gap | u64::from(hits > 1));
            if hits > 1 {
                number(hits);
            }
        }
        let mut bytes = vec![Kind::MomentsBefore.byte()];
        leb128::push(&mut bytes, items.len() as u64);
        leb128::push(&mut bytes, START_MS.unsigned_abs());
        bytes.extend_from_slice(&items);
        let copy = Entry::read(&bytes, &settings, at(newest_ms)).expect("well formed");
        copy.check_consistency(&settings, at(newest_ms));
        assert_eq!(answers(&copy, &settings, newest_ms), answers(&entry, &settings, newest_ms));
        for end in 0..bytes.len() {
            assert!(Entry::read(&bytes[..end], &settings, at(newest_ms)).is_err() || end == 0, "{end}");
        }
    }
}

#[test]
fn one_hit_takes_nine_bytes() {
    assert_eq!(written(&entry(1, 1).0, &Settings::default()).len(), 9);
}

#[test]
fn hits_survive_a_change_of_settings() {
    let wide = Settings::builder().resolution(seconds(10)).build().expect("valid");
    for (step_ms, count) in [(1, 1), (1_000, 100), (60_000, 5_000), (900, 3_000)] {
        let (entry, newest_ms) = entry(step_ms, count);
        let bytes = written(&entry, &Settings::default());
        let copy = Entry::read(&bytes, &wide, at(newest_ms)).expect("well formed");
        assert_eq!(copy.total(), entry.total());
        let all = |entry: &Entry, settings: &Settings| {
            entry.count(at(newest_ms), days(7), settings, at(newest_ms)).estimate
        };
        assert_eq!(all(&copy, &wide), all(&entry, &Settings::default()));
    }
}

#[test]
fn subtracted_hits_leave_no_trace() {
    let settings = Settings::default();
    for (step_ms, count) in [(1, 1), (1_000, 4), (1_000, 100), (60_000, 256), (60_000, 5_000), (900, 3_000)] {
        let (before, newest_ms) = entry(step_ms, count);
        for (late_ms, hits) in [(0, 1), (1, 7), (step_ms, 2), (400_000, 1), (5_000_000, 3)] {
            let now_ms = newest_ms + 10;
            let (mut entry, _) = entry(step_ms, count);
            let time = at((newest_ms - late_ms).max(0));
            entry.add(time, hits, &settings, at(now_ms)).expect("counted");
            entry.subtract(time, hits, &settings, at(now_ms));
            entry.check_consistency(&settings, at(now_ms));
            assert_eq!(answers(&entry, &settings, now_ms), answers(&before, &settings, now_ms));
            assert_eq!(entry.total(), before.total());
        }
    }
    let (mut only, _) = entry(1, 1);
    only.subtract(at(0), 1, &settings, at(0));
    assert!(only.is_empty());
}

#[test]
fn invalid_entries_are_refused() {
    let settings = Settings::default();
    let (entry, newest_ms) = entry(60_000, 5_000);
    let bytes = written(&entry, &settings);
    let read = |bytes: &[u8]| Entry::read(bytes, &settings, at(newest_ms));
    for len in 1..bytes.len() {
        // Cut between two pieces, it is a valid entry with fewer hits.
        if let Ok(cut) = read(&bytes[..len]) {
            assert!(cut.total() < entry.total() || len > bytes.len() - 9, "{len}");
        }
    }
    let run = |kind: Kind, rung: u8| (kind as u8) << RUNG_BITS | rung;
    let bad: [&[u8]; 7] = [
        &[run(Kind::MomentsBefore, 1), 1],
        &[run(Kind::Pane, 31), 1],
        &[0xff, 1],
        &[run(Kind::MomentsBefore, 0)],
        &[run(Kind::MomentsBefore, 0), 2, 0],
        &[run(Kind::MomentsBefore, 0), 1, 0, run(Kind::Pane, 3), 1],
        &[run(Kind::MomentsBefore, 0), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    ];
    for bytes in bad {
        assert_eq!(read(bytes).err(), Some(Malformed::Entry), "{bytes:?}");
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_an_entry_or_are_refused(bytes in proptest::collection::vec(0_u8.., 0..64)) {
        let settings = Settings::default();
        if let Ok(entry) = Entry::read(&bytes, &settings, at(0)) {
            let copy = Entry::read(&written(&entry, &settings), &settings, at(0));
            proptest::prop_assert_eq!(copy.map(|copy| copy.total()), Ok(entry.total()));
            entry.count(at(0), Span::MAX, &settings, at(0));
        }
    }
}
