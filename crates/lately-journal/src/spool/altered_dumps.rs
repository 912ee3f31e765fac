//! Dumps with odd content and correct checksums, such as another program or a bug may write.

use std::collections::HashSet;
use std::io::Cursor;

use lately::{
    Admission, DeltaBatch, HitOnce, Lockout, MemberHit, Rate, Request, Settings, Source, Store, Throttle,
    Timestamp, days, hours, milliseconds, minutes, seconds,
};
use test_support::{ReportOnPanic, Rng, seeds, trace};

use super::Spool;
use crate::dump::{Dump, DumpError};
use crate::frame::{self, HEAD_BYTES, Head, Kind, MAGIC_BYTES};
use crate::part::{PART_HEAD_BYTES, PARTS, seal_part, take_part};
use crate::sorted::Sorted;

const KEYS: u64 = 24;

fn start() -> Timestamp {
    Timestamp::from_seconds(1_700_000_000).expect("a time")
}

/// A store with other classes for each `kind`, and with a ceiling for some.
fn store(kind: u64) -> Store {
    let all = Settings::builder().dedupe(hours(1)).unique(true);
    let all = match kind % 4 {
        0 => all,
        1 => all.resolution(milliseconds(1)).exact(minutes(17)),
        2 => all.resolution(minutes(1)).window(hours(1)).exact(hours(2)).retain(days(400)),
        _ => all.resolution(hours(1)).window(days(1)).exact(days(30)).retain(days(900)),
    };
    let builder = Store::builder().settings(all).seed(7);
    let builder = if kind < 4 { builder } else { builder.memory_ceiling(4 << 20) };
    builder.build().expect("valid")
}

fn name(key: u64) -> Vec<u8> {
    format!("key:{key}{}", "x".repeat(usize::from(key.is_multiple_of(5)) * 60)).into_bytes()
}

/// Makes a change of any kind, and sometimes a deletion and a new position of a source. Appends them to `deltas`.
fn change(store: &Store, rng: &mut Rng, now: Timestamp, deltas: &mut DeltaBatch) {
    let name = name(rng.below(KEYS));
    let key = &name[..];
    let ago = [seconds(1), seconds(7), minutes(3), hours(2), days(1)][rng.index(5)];
    let at = rng.once_in(2).then(|| now.saturating_sub(ago));
    let weight = if rng.once_in(50) { 1 << rng.below(63) } else { 1 + rng.below(3) };
    let id = rng.next_u64().to_le_bytes();
    let lockout = rng.once_in(2).then(|| Lockout::of(minutes(5)));
    let request = Request { lockout, admission: Admission::Whole, ..Request::new(key, 3, hours(1), 2) };
    let op = match rng.below(9) {
        0 => lately::Op::of_once(HitOnce { key, weight, at, id: &id }),
        1 => lately::Op::HitMember(Box::new(MemberHit { key, weight, at, id: None, member: &id })),
        2 => lately::Op::Decide(Box::new(request)),
        3 => lately::Op::Refund(Box::new(Request { lockout: None, ..request })),
        4 => {
            let rate = Rate::new(2, 1, minutes(1)).expect("a rate");
            lately::Op::ThrottleBy(Box::new(Throttle { key, rate, quantity: 1 }))
        }
        _ => lately::Op::Hit { key, weight, at },
    };
    store.apply_into(&[op], now, &mut Vec::new(), deltas);
    if rng.once_in(40) {
        store.forget_into(key, now, Some(deltas));
    }
    if rng.once_in(40) {
        let source = Source::new(b"source").expect("a name");
        store.set_position(source, rng.below(1_000), now, Some(deltas));
    }
}

fn dumped(rng: &mut Rng) -> Vec<u8> {
    let store = store(rng.below(8));
    let mut now = start();
    let step_ms = [5, 500, 20_000][rng.index(3)];
    for _ in 0..rng.below(3_000) {
        now = now.saturating_add(milliseconds(1 + rng.below(step_ms)));
        change(&store, rng, now, &mut DeltaBatch::default());
    }
    let mut out = Vec::new();
    let mut dump = Dump::begin(&store, &mut out);
    loop {
        let more = dump.parts(&mut out);
        for _ in 0..rng.below(20) {
            let mut deltas = DeltaBatch::default();
            change(&store, rng, now, &mut deltas);
            dump.record(deltas.now(), deltas.bytes(), &mut out);
        }
        if !more {
            break;
        }
    }
    dump.end(&mut out);
    out
}

/// Changes some bytes of the keys, of the heads of parts, and of records. All checksums are correct.
fn altered(dump: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = Kind::Dump.magic().to_vec();
    let mut rest = &dump[MAGIC_BYTES..];
    let has_copies = rng.once_in(4);
    let mut last_part = Vec::new();
    while let Some(head) = Head::read(rest) {
        let payload = &rest[HEAD_BYTES..HEAD_BYTES + head.len];
        rest = &rest[HEAD_BYTES + head.len..];
        let mut written = Vec::new();
        if payload[0] == PARTS {
            written.push(PARTS);
            let mut parts = &payload[1..];
            while !parts.is_empty() {
                let before = parts;
                let keys = take_part(&mut parts, frame::VERSION).expect("a part").keys;
                let mut part = before[..PART_HEAD_BYTES + keys.len()].to_vec();
                if !keys.is_empty() {
                    last_part = part.clone();
                } else if has_copies && !last_part.is_empty() && rng.once_in(30) {
                    // The keys and sources of another part.
                    let number = [part[0], part[1]];
                    part = last_part.clone();
                    part[..2].copy_from_slice(&number);
                    seal_part(&mut part);
                }
                if !keys.is_empty() && rng.once_in(8) {
                    // The number of the part and its length stay.
                    let len = part.len() - PART_HEAD_BYTES;
                    let place = |rng: &mut Rng| match rng.below(5) {
                        0 => 2 + rng.index(16),
                        _ => PART_HEAD_BYTES + rng.index(len),
                    };
                    alter(&mut part, place, rng);
                    seal_part(&mut part);
                }
                written.extend_from_slice(&part);
            }
        } else {
            written.extend_from_slice(payload);
            let len = written.len();
            if rng.once_in(40) {
                alter(&mut written, |rng| 1 + rng.index(len - 1), rng);
            }
        }
        frame::append(&mut out, head.number, head.synced, |payload| payload.extend_from_slice(&written));
    }
    out
}

fn alter(bytes: &mut [u8], place: impl Fn(&mut Rng) -> usize, rng: &mut Rng) {
    for _ in 0..1 + rng.below(3) {
        let place = place(rng);
        bytes[place] = match rng.below(4) {
            0 => 0xff,
            1 => 0x7f,
            2 => bytes[place] ^ 1 << rng.below(8),
            _ => rng.next_u64().to_le_bytes()[0],
        };
    }
}

/// Restores a dump as a server does. Returns the store with its keys.
fn restore(dump: &[u8], into: Store, now: Timestamp) -> Result<Store, DumpError> {
    into.set_now(now);
    let mut spool = Spool::receive(&mut &dump[..], Cursor::new(Vec::new()))?;
    let mut sorted = Sorted::new(Cursor::new(Vec::new()));
    let mut sources = HashSet::new();
    for share in spool.shares() {
        let scratch = into.empty_like();
        scratch.set_now(now);
        scratch.repair_clock(Some((now.saturating_add(seconds(10)), now)));
        spool.read(share, &scratch)?;
        scratch.repair_clock(None);
        scratch.check_consistency();
        for (source, _) in scratch.positions() {
            assert!(sources.insert(source), "a source is there once");
        }
        sorted.add(&scratch, scratch.now())?;
    }
    for share in sorted.shares() {
        let scratch = into.empty_like();
        scratch.set_now(now);
        sorted.try_in(share, &scratch)?;
        sorted.pieces(
            share,
            |error| error,
            |keys| {
                into.bring_part(keys, into.now(), &mut DeltaBatch::default()).expect("it was tried");
                Ok(())
            },
        )?;
    }
    Ok(into)
}

#[test]
fn a_dump_with_odd_content_is_restored_or_refused() {
    let (mut restored, mut refused) = (0, 0);
    for seed in seeds(80) {
        let report = ReportOnPanic(seed);
        trace(|| format!("seed {seed}"));
        let mut rng = Rng::new(seed);
        let dump = dumped(&mut rng);
        let dump = altered(&dump, &mut rng);
        let now = start().saturating_add([hours(1), days(1), days(400)][rng.index(3)]);
        match restore(&dump, store(rng.below(8)), now) {
            Err(_) => refused += 1,
            Ok(store) => {
                restored += 1;
                store.check_consistency();
                for step in 0..40 {
                    change(
                        &store,
                        &mut rng,
                        now.saturating_add(minutes(1 + step)),
                        &mut DeltaBatch::default(),
                    );
                }
                store.set_now(now.saturating_add(days(500)));
                store.check_consistency();
            }
        }
        drop(report);
    }
    assert!(
        restored > 0 && refused > 0 || std::env::var_os("LATELY_SIM_SEED").is_some(),
        "{restored} {refused}"
    );
}
