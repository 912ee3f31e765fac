//! One round of the library alone, with a figure per line. It uses only what `lately` has had since its first
//! journal, so it also builds with the library of another revision. So two revisions can be compared.

use std::hint::black_box;
use std::time::Instant;

use lately::{Op, Span, Store, Timestamp, minutes, seconds};

const KEYS: usize = 1_000_000;
const OPERATIONS: usize = 2_000_000;
const BATCH: usize = 64;
/// The number of keys with several hits, and of their hits, one a second.
const FEW_KEYS: usize = 50_000;
const SECONDS: i64 = 60;

fn main() {
    let names: Vec<Vec<u8>> = (0..KEYS).map(|key| format!("key:{key:012}").into_bytes()).collect();
    let key = |step: usize| names[scattered(step)].as_slice();
    // Memory is measured first, and the measured stores are kept, because freed memory would be reused and not show.
    let base = resident_bytes();
    let few = Store::builder().seed(1).build().expect("the settings are the default ones");
    for second in 0..SECONDS {
        for name in &names[..FEW_KEYS] {
            few.hit(name, at(second * seconds(1).as_millis())).expect("room");
        }
    }
    print("bytes per key, a hit a second for a minute", "B", (resident_bytes() - base) / to_f64(FEW_KEYS));
    let base = resident_bytes();
    let store = Store::builder().seed(1).build().expect("the settings are the default ones");
    for (name, now) in names.iter().zip(1..) {
        store.hit(name, at(now / 1_000)).expect("room");
    }
    print("bytes per key, one hit", "B", (resident_bytes() - base) / to_f64(KEYS));
    let now = at(2_000);
    print("a hit alone", "ns", nanos(OPERATIONS, |step| _ = black_box(store.hit(key(step), now))));
    print(
        "a hit in batches of 64",
        "ns",
        nanos_in_batches(&store, now, |key| Op::Hit { key, weight: 1, at: None }, key),
    );
    let limit = |key| Op::Limit { key, max: 1_000_000, window: minutes(1), cost: 1 };
    print("LIMIT in batches of 64", "ns", nanos_in_batches(&store, now, limit, key));
    let window: Option<Span> = Some(minutes(5));
    print(
        "HITS in batches of 64",
        "ns",
        nanos_in_batches(&store, now, |key| Op::Hits { key, window, at: None }, key),
    );
}

/// A pseudo-random place for each step (multiplicative hashing: Knuth, The Art of Computer Programming 3,
/// 6.4).
fn scattered(step: usize) -> usize {
    (step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % KEYS
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms).expect("a time")
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn nanos(count: usize, mut work: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    (0..count).for_each(&mut work);
    start.elapsed().as_secs_f64() * 1e9 / to_f64(count)
}

fn nanos_in_batches<'a>(
    store: &Store,
    now: Timestamp,
    op: impl Fn(&'a [u8]) -> Op<'a>,
    key: impl Fn(usize) -> &'a [u8],
) -> f64 {
    let (mut ops, mut outcomes) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let batch = |batch: usize| {
        ops.clear();
        outcomes.clear();
        ops.extend((0..BATCH).map(|step| op(key(batch * BATCH + step))));
        store.apply(&ops, now, &mut outcomes);
        black_box(&outcomes);
    };
    nanos(OPERATIONS / BATCH, batch) / to_f64(BATCH)
}

/// The resident memory of the process, without its program.
fn resident_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("Linux has it");
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a line of it");
    let kib: u32 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    f64::from(kib) * 1_024.0
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn to_f64(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::print_stdout, reason = "its output is its figures")]
fn print(name: &str, unit: &str, figure: f64) {
    println!("{name}\t{unit}\t{figure}");
}
