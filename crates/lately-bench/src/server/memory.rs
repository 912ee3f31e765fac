//! Bytes per key: the growth of a process by its keys, divided by their number. Compared with layouts in
//! Redis.

use lately_load::{Times, run};

use crate::jobs::{Job, side_by_side};
use crate::options::Options;
use crate::row::{Must, Row};
use crate::server::failure::Failure;
use crate::server::plans::{KEYS, fill};
use crate::server::process::Process;
use crate::server::reads::{in_time_order, seconds_of};
use crate::server::scripts;
use crate::table::number;

const TABLE: &str = "memory of the server";
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const WEEK: u64 = 7 * 24 * HOUR;
const FIVE_MINUTES: u64 = 5 * MINUTE;
/// Left out at the start of the week, so that no hit is too old when it arrives.
const MARGIN: u64 = 10 * MINUTE;

/// Keys with a hit that our server has before the measured ones, so that the fixed cost of each shard's first
/// keys does not count.
const BASE_KEYS: u64 = 4_096;

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let sizes = Sizes::of(options);
    // Unlike time, memory can be measured on both cores at once. The longest jobs first.
    let jobs: Vec<Job<'_, Result<Grown, Failure>>> = vec![
        Box::new(|| weeks(options, sizes.each_minute, &[(WEEK - MARGIN, 0, MINUTE, 1)])),
        // Hits older than two hours are kept in panes of a minute or more. A weight of 60 once a minute
        // leaves as many panes there as a hit each second, in a sixtieth of the time.
        Box::new(|| {
            let stretches = [(WEEK - MARGIN, 2 * HOUR, MINUTE, 60), (2 * HOUR, 0, 1, 1)];
            weeks(options, sizes.each_second, &stretches)
        }),
        Box::new(|| weeks(options, sizes.ten_a_day, &[(WEEK - MARGIN, 0, 24 * HOUR / 10, 1)])),
        Box::new(|| five_minutes(|| lately(options), "HIT {key} 1 AT {time}", sizes.five_minutes)),
        Box::new(|| five_minutes(redis, "ZADD {key} {time} {time}", sizes.five_minutes_redis)),
        Box::new(|| five_minutes(redis, "HINCRBY {key} {time} 1", sizes.five_minutes_redis)),
        Box::new(|| once(|| lately(options), "HIT {key}", sizes.once)),
        Box::new(|| once(redis, "INCR {key}", sizes.once_redis)),
        Box::new(|| once_by_script(scripts::INCR_EXPIRE, sizes.once_redis)),
        Box::new(|| once_by_script(scripts::SORTED_SET, sizes.once_redis)),
        Box::new(|| once_by_script(scripts::HASH, sizes.once_redis)),
    ];
    let grown = side_by_side(jobs).into_iter().collect::<Result<Vec<Grown>, Failure>>()?;
    let [minute, second, days, five, five_set, five_hash, one, incr, expire, set, hash] =
        grown.try_into().map_err(|_| Failure::new("a figure for each job"))?;
    let figure = |grown: Grown| number(grown.bytes_per_key);
    let name = |keys: u64, what: &str| format!("{} keys, {what}", number(count(keys)));
    Ok(vec![
        Row::new(TABLE, "an empty server", one.empty / 1_024.0, "KiB", Must::Nothing).note(format!(
            "with {} keys of a hit, which are there before the keys that are measured: {}; Redis {}",
            number(count(BASE_KEYS)),
            number(one.base / 1_024.0),
            number(incr.empty / 1_024.0)
        )),
        row("1 M keys, one hit", one, Must::AtMost(52.0, 42.0)).note(format!(
            "Redis: INCR {}, INCR + EXPIRE {}, sorted set {}, hash of seconds {}",
            figure(incr),
            figure(expire),
            figure(set),
            figure(hash)
        )),
        row(&name(sizes.five_minutes, "300 hits in 300 seconds"), five, Must::AtMost(450.0, 260.0))
            .note(format!("Redis: sorted set {}, hash of seconds {}", figure(five_set), figure(five_hash))),
        row(&name(sizes.ten_a_day, "10 hits a day for 7 d"), days, Must::AtMost(400.0, 300.0)),
        row(&name(sizes.each_minute, "a hit a minute for 7 d"), minute, Must::AtMost(2_500.0, 2_000.0)),
        row(&name(sizes.each_second, "a hit a second for 7 d"), second, Must::AtMost(5_000.0, 4_000.0))
            .note("beyond the last two hours: 60 hits at once each minute"),
    ])
}

/// Numbers of keys.
struct Sizes {
    once: u64,
    /// With a quarter of them, the tables, which double, are equally full.
    once_redis: u64,
    five_minutes: u64,
    /// Redis takes long, and has the same result with fewer.
    five_minutes_redis: u64,
    ten_a_day: u64,
    each_minute: u64,
    each_second: u64,
}

impl Sizes {
    fn of(options: &Options) -> Sizes {
        Sizes {
            once: KEYS,
            once_redis: options.pick(KEYS, KEYS / 4),
            five_minutes: 10_000,
            five_minutes_redis: options.pick(10_000, 2_000),
            ten_a_day: options.pick(20_000, 10_000),
            each_minute: options.pick(2_000, 240),
            each_second: options.pick(2_000, 500),
        }
    }
}

/// The memory of a server with keys.
#[derive(Clone, Copy)]
struct Grown {
    /// The bytes that each key added.
    bytes_per_key: f64,
    /// The memory of the empty server.
    empty: f64,
    /// The memory before the keys.
    base: f64,
}

/// Our server, with its base keys when it is filled.
fn lately(options: &Options) -> Result<(Process, u64), Failure> {
    Ok((Process::lately(options)?, BASE_KEYS))
}

fn redis() -> Result<(Process, u64), Failure> {
    Ok((Process::redis(&[])?, 0))
}

/// The first keys cause fixed costs. This share of all keys does not count.
const FIRST: u64 = 4;

/// The bytes per key: the memory that the keys after the first share added, in servers that `give` fills.
fn grown(
    start: impl Fn() -> Result<(Process, u64), Failure>,
    keys: u64,
    give: impl Fn(&Process, u64) -> Result<(), Failure>,
) -> Result<Grown, Failure> {
    let of = |keys: u64| {
        let (server, base_keys) = start()?;
        // The first request allocates what every request needs.
        run(&fill(&server, "PING", "key:", 10_000))?;
        let empty = server.resident_bytes()?;
        if base_keys > 0 {
            run(&fill(&server, "HIT {key}", "base:", base_keys))?;
        }
        let base = server.resident_bytes()?;
        give(&server, keys)?;
        // Redis can free what growing has left behind. Other servers do not know the command; that error is
        // ignored.
        _ = redis::cmd("MEMORY").arg("PURGE").query::<redis::Value>(&mut server.connect()?);
        Ok::<_, Failure>((server.resident_bytes()? - base, empty, base))
    };
    let (first, ..) = of(keys / FIRST)?;
    let (all, empty, base) = of(keys)?;
    Ok(Grown { bytes_per_key: (all - first) / count(keys - keys / FIRST), empty, base })
}

fn once(
    start: impl Fn() -> Result<(Process, u64), Failure>,
    request: &str,
    keys: u64,
) -> Result<Grown, Failure> {
    grown(start, keys, |server, keys| give_once(server, request, keys))
}

fn give_once(server: &Process, request: &str, keys: u64) -> Result<(), Failure> {
    let report = run(&fill(server, request, "key:", keys))?;
    report.first_error.map_or(Ok(()), |first| Err(Failure::new(first)))
}

fn once_by_script(script: &str, keys: u64) -> Result<Grown, Failure> {
    grown(redis, keys, |server, keys| give_once(server, &scripts::load(server, script)?, keys))
}

fn five_minutes(
    start: impl Fn() -> Result<(Process, u64), Failure>,
    request: &str,
    keys: u64,
) -> Result<Grown, Failure> {
    grown(start, keys, |server, keys| {
        let times = Times { start: seconds_of(server)? - FIVE_MINUTES, step: 1 };
        in_time_order(server, request, "key:", keys, times, FIVE_MINUTES)
    })
}

/// Hits at a fixed distance, from one age to another, each with this weight.
type Stretch = (u64, u64, u64, u64);

fn weeks(options: &Options, keys: u64, stretches: &[Stretch]) -> Result<Grown, Failure> {
    grown(
        || lately(options),
        keys,
        |server, keys| {
            let now = seconds_of(server)?;
            stretches.iter().try_for_each(|&(from, to, step, weight)| {
                let request = format!("HIT {{key}} {weight} AT {{time}}");
                let times = Times { start: now - from, step };
                in_time_order(server, &request, "key:", keys, times, (from - to) / step)
            })
        },
    )
}

fn row(what: &str, grown: Grown, must: Must) -> Row {
    Row::new(TABLE, format!("bytes per key: {what}"), grown.bytes_per_key, "bytes", must)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn count(keys: u64) -> f64 {
    keys as f64
}
