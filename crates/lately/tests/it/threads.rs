//! Many threads use one store: no acknowledged hit is missed, and none is counted twice.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use lately::{Op, Outcome, Span, Store, Timestamp, days, hours, minutes, seconds};

const WRITERS: u64 = 4;
const READERS: u64 = 2;
const HITS_PER_WRITER: u64 = 20_000;
const SHARED_KEYS: u64 = 3;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + i64::try_from(millis).expect("small")).expect("a time")
}

/// A pseudo-random number for `n`, the same in every run.
fn scramble(n: u64) -> u64 {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
}

/// The sent and the acknowledged hits of a key.
#[derive(Default)]
struct Ledger {
    sent: AtomicU64,
    acknowledged: AtomicU64,
}

#[test]
fn every_read_lies_between_acknowledged_and_sent_hits() {
    let store = Store::builder().build().expect("valid");
    let ledgers: Vec<Ledger> = (0..SHARED_KEYS).map(|_| Ledger::default()).collect();
    let clock_ms = AtomicU64::new(700_000);
    let writing = AtomicU64::new(WRITERS);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, ledgers, clock_ms, writing) = (&store, &ledgers, &clock_ms, &writing);
            scope.spawn(move || {
                for n in 0..HITS_PER_WRITER {
                    let random = scramble(writer << 32 | n);
                    // The clock advances by half a day in total, so that panes roll and merge.
                    let now_ms = clock_ms.fetch_add(random % 1_100, SeqCst);
                    // Hits are up to 10 minutes late or 10 s early.
                    let hit_ms = now_ms + 10_000 - (random >> 8) % 610_000;
                    let key = random % SHARED_KEYS;
                    let ledger = &ledgers[usize::try_from(key).expect("small")];
                    let weight = 1 + random % 4;
                    ledger.sent.fetch_add(weight, SeqCst);
                    store
                        .hit_n(format!("shared:{key}").as_bytes(), weight, Some(at(hit_ms)), at(now_ms))
                        .expect("counted");
                    ledger.acknowledged.fetch_add(weight, SeqCst);
                    // Other keys make the table grow and shrink meanwhile.
                    let own = format!("own:{writer}:{n}");
                    store.hit(own.as_bytes(), at(now_ms)).expect("counted");
                    if n % 3 == 0 {
                        assert!(store.forget(own.as_bytes(), at(now_ms)));
                    }
                }
                writing.fetch_sub(1, SeqCst);
            });
        }
        for reader in 0..READERS {
            let (store, ledgers, clock_ms, writing) = (&store, &ledgers, &clock_ms, &writing);
            scope.spawn(move || {
                let mut n = reader;
                while writing.load(SeqCst) > 0 {
                    let key = n % SHARED_KEYS;
                    let ledger = &ledgers[usize::try_from(key).expect("small")];
                    let acknowledged = ledger.acknowledged.load(SeqCst);
                    let now = at(clock_ms.load(SeqCst));
                    // The window contains every hit, however far the clock moves meanwhile.
                    let end = now.saturating_add(hours(12));
                    let key = format!("shared:{key}");
                    let count = store.count(key.as_bytes(), Some(days(6)), Some(end), now);
                    let sent = ledger.sent.load(SeqCst);
                    assert!(
                        (acknowledged..=sent).contains(&count.estimate),
                        "{acknowledged} <= {count:?} <= {sent}"
                    );
                    assert_eq!(Some(count.lower), count.upper);
                    n += 1;
                }
            });
        }
    });
    let now = at(clock_ms.load(SeqCst) + 20_000);
    for (key, ledger) in ledgers.iter().enumerate() {
        let count = store.hits(format!("shared:{key}").as_bytes(), days(7), now);
        assert_eq!(count.estimate, ledger.sent.load(SeqCst));
    }
    for writer in 0..WRITERS {
        for n in 0..HITS_PER_WRITER {
            let own = format!("own:{writer}:{n}");
            assert_eq!(store.contains(own.as_bytes(), now), n % 3 != 0);
        }
    }
    store.check_consistency();
}

#[test]
fn batches_from_many_threads_add_up() {
    let store = Store::builder().build().expect("valid");
    let now = at(0);
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                let mut out = Vec::new();
                for _ in 0..200 {
                    out.clear();
                    let ops = [const { Op::Hit { key: b"hot", weight: 1, at: None } }; 64];
                    store.apply(&ops, now, &mut out);
                    let rising = out.windows(2).all(|pair| match pair {
                        [Outcome::Hit(Ok(a)), Outcome::Hit(Ok(b))] => a < b,
                        _ => false,
                    });
                    assert!(rising, "each hit of a batch sees those before it");
                }
            });
        }
    });
    assert_eq!(store.hits(b"hot", minutes(5), now).estimate, WRITERS * 200 * 64);
    assert_eq!(store.hits(b"hot", seconds(1), now.saturating_add(Span::MIN)).estimate, WRITERS * 200 * 64);
}
