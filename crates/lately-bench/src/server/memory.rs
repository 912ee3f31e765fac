//! Bytes per key: how much the process grew, over the keys it was given. Redis's four layouts beside.

use lately_load::{Times, run};

use crate::options::Options;
use crate::row::{Must, Row};
use crate::say::section;
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
/// Left out at the far end of the week, so that no hit is too old when it arrives.
const MARGIN: u64 = 10 * MINUTE;

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let mut rows = vec![
        section("server/memory, one hit", || one_hit(options))?,
        section("server/memory, five minutes", || five_minutes(options))?,
    ];
    rows.extend(section("server/memory, weeks", || weeks(options))?);
    Ok(rows)
}

/// How many bytes a key is, after a server was given so many by `give`.
fn bytes_per_key(
    server: &Process,
    keys: u64,
    give: impl FnOnce(&Process) -> Result<(), Failure>,
) -> Result<f64, Failure> {
    // The first request makes what any request needs.
    run(&fill(server, "PING", "key:", 10_000))?;
    let before = server.resident_bytes()?;
    give(server)?;
    // Redis can give back what growing has left behind. Others do not know the word, and that is fine.
    _ = redis::cmd("MEMORY").arg("PURGE").query::<redis::Value>(&mut server.connect()?);
    Ok((server.resident_bytes()? - before) / count(keys))
}

fn one_hit(options: &Options) -> Result<Row, Failure> {
    let ours = Process::lately(options)?;
    let value = bytes_per_key(&ours, KEYS, |server| once(server, "HIT {key}", KEYS))?;
    // A quarter fills the tables, which double, just as far.
    let keys = options.pick(KEYS, KEYS / 4);
    let theirs = |request: &str| {
        let redis = Process::redis(&[])?;
        bytes_per_key(&redis, keys, |server| once(server, request, keys))
    };
    let script = |script: &str| {
        let redis = Process::redis(&[])?;
        let request = scripts::load(&redis, script)?;
        bytes_per_key(&redis, keys, |server| once(server, &request, keys))
    };
    let beside = format!(
        "Redis: INCR {}, INCR + EXPIRE {}, sorted set {}, hash of seconds {}",
        number(theirs("INCR {key}")?),
        number(script(scripts::INCR_EXPIRE)?),
        number(script(scripts::SORTED_SET)?),
        number(script(scripts::HASH)?)
    );
    Ok(row("1 M keys, one hit", value, Must::AtMost(52.0, 42.0), beside))
}

fn once(server: &Process, request: &str, keys: u64) -> Result<(), Failure> {
    let report = run(&fill(server, request, "key:", keys))?;
    report.first_error.map_or(Ok(()), |first| Err(Failure::new(first)))
}

fn five_minutes(options: &Options) -> Result<Row, Failure> {
    let seconds = 300;
    let keys = 10_000;
    // Theirs takes long, and is the same for fewer.
    let theirs = options.pick(keys, 3_000);
    let measure = |server: &Process, request: &str, keys: u64| {
        let start = seconds_of(server)? - seconds;
        bytes_per_key(server, keys, |server| {
            in_time_order(server, request, "key:", keys, Times { start, step: 1 }, seconds)
        })
    };
    let value = measure(&Process::lately(options)?, "HIT {key} 1 AT {time}", keys)?;
    let sorted_set = measure(&Process::redis(&[])?, "ZADD {key} {time} {time}", theirs)?;
    let hash = measure(&Process::redis(&[])?, "HINCRBY {key} {time} 1", theirs)?;
    let beside = format!("Redis: sorted set {}, hash of seconds {}", number(sorted_set), number(hash));
    let name = format!("{} keys, 300 hits in 300 seconds", number(count(keys)));
    Ok(row(&name, value, Must::AtMost(450.0, 260.0), beside))
}

fn weeks(options: &Options) -> Result<Vec<Row>, Failure> {
    let few = 20_000;
    let many = options.pick(4_000, 500);
    let most = options.pick(2_000, 200);
    let ten_a_day = week(options, few, &[(WEEK - MARGIN, 0, 24 * HOUR / 10, 1)])?;
    let each_minute = week(options, many, &[(WEEK - MARGIN, 0, MINUTE, 1)])?;
    // What is older than two hours is kept by the minute or coarser: a weight of 60 a minute leaves there
    // what a hit a second does, in a sixtieth of the time.
    let each_second = week(options, most, &[(WEEK - MARGIN, 2 * HOUR, MINUTE, 60), (2 * HOUR, 0, 1, 1)])?;
    let name = |keys: u64, what: &str| format!("{} keys, {what} for 7 d", number(count(keys)));
    let sixty = "beyond the last two hours: 60 hits at once each minute".to_owned();
    Ok(vec![
        row(&name(few, "10 hits a day"), ten_a_day, Must::AtMost(400.0, 300.0), String::new()),
        row(&name(many, "a hit a minute"), each_minute, Must::AtMost(2_500.0, 2_000.0), String::new()),
        row(&name(most, "a hit a second"), each_second, Must::AtMost(5_000.0, 4_000.0), sixty),
    ])
}

/// From so many seconds ago, up to so many seconds ago, a hit each so many seconds, of this weight.
type Stretch = (u64, u64, u64, u64);

fn week(options: &Options, keys: u64, stretches: &[Stretch]) -> Result<f64, Failure> {
    let lately = Process::lately(options)?;
    let now = seconds_of(&lately)?;
    bytes_per_key(&lately, keys, |server| {
        stretches.iter().try_for_each(|&(from, to, step, weight)| {
            let request = format!("HIT {{key}} {weight} AT {{time}}");
            in_time_order(
                server,
                &request,
                "key:",
                keys,
                Times { start: now - from, step },
                (from - to) / step,
            )
        })
    })
}

fn row(what: &str, value: f64, must: Must, beside: String) -> Row {
    Row::new(TABLE, format!("bytes per key: {what}"), value, "bytes", must).beside(beside)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn count(keys: u64) -> f64 {
    keys as f64
}
