//! HITS on keys with many panes: a hit each minute for a week, and each second of the last five minutes.

use lately_load::{Ending, Order, Plan, Request, Times, run};

use crate::options::Options;
use crate::output::section;
use crate::rounds::{Contender, interleave, median_ratio};
use crate::row::{Must, Row};
use crate::server::TABLE;
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::plans::{KEYS, fill, round};
use crate::server::process::Process;
use crate::table::number;

const MINUTES_A_WEEK: u64 = 7 * 24 * 60;
/// The longest window of seconds that is filled.
const SECONDS: u64 = 300;
/// The pipeline for comparing reads and hits, where the cost beside the work hardly counts.
const PIPELINE: usize = 64;
const PREFIX: &str = "wk7:";

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let lately = Process::lately(options)?;
    let keys = options.pick(1_000, 200);
    run(&fill(&lately, "HIT {key}", "key:", KEYS))?;
    section("server/reads, filling weeks", || fill_week(&lately, keys))?;
    let full = |name: &'static str, request: &str| {
        let plan = Plan { keys, ..round(options, &lately, request, PREFIX, PIPELINE) };
        let lately = &lately;
        Contender::new(name, move || Measured::load(lately, &plan))
    };
    let plain = |name: &'static str, request: &str| {
        let plan = round(options, &lately, request, "key:", PIPELINE);
        let lately = &lately;
        Contender::new(name, move || Measured::load(lately, &plan))
    };
    let mut contenders = [
        plain("HIT", "HIT {key}"),
        full("HIT on the same keys", "HIT {key}"),
        full("HITS over 5 min", "HITS {key} 5m"),
        full("HITS over 24 h", "HITS {key} 24h"),
        full("HITS over 7 d", "HITS {key} 7d"),
        plain("HITS over 5 min", "HITS {key} 5m"),
    ];
    let names = contenders.each_ref().map(|contender| contender.name);
    let figures = interleave(&mut contenders, options.rounds());
    let throughput = |at: usize| figures[at].iter().map(|measured| measured.per_second).collect::<Vec<f64>>();
    let mut rows = Vec::new();
    // The last one reads the keys of the first.
    for (at, must) in [
        (2, Must::AtLeast(0.9, 0.9)),
        (3, Must::Nothing),
        (4, Must::AtLeast(0.5, 0.5)),
        (names.len() - 1, Must::Nothing),
    ] {
        let is_full = at < names.len() - 1;
        let value = median_ratio(&throughput(at), &throughput(0));
        let measured = Measured::median(&figures[at]);
        let same = if is_full {
            format!("; ÷ HIT on the same keys {}", number(median_ratio(&throughput(at), &throughput(1))))
        } else {
            String::new()
        };
        let note = format!(
            "HITS {} M/s, HIT {} M/s{same}; {}",
            number(measured.per_second / 1e6),
            number(Measured::median(&figures[0]).per_second / 1e6),
            measured.describe()
        );
        let on = if is_full { format!("{} full keys", number(small(keys))) } else { "the same".to_owned() };
        let name = format!("{} on {on} ÷ HIT on 1 M keys, pipeline {PIPELINE}", names[at]);
        rows.push(Row::new(TABLE, name, value, "×", must).note(note));
    }
    Ok(rows)
}

/// Hits in order of time, all keys at each time, like a server that is fed by a log.
fn fill_week(lately: &Process, keys: u64) -> Result<(), Failure> {
    let now = seconds_of(lately)?;
    // Without the oldest minute, which would have expired before it is read.
    let minutes = MINUTES_A_WEEK - 10;
    in_time_order(
        lately,
        "HIT {key} 1 AT {time}",
        PREFIX,
        keys,
        Times { start: now - minutes * 60, step: 60 },
        minutes,
    )?;
    in_time_order(
        lately,
        "HIT {key} 1 AT {time}",
        PREFIX,
        keys,
        Times { start: now - SECONDS, step: 1 },
        SECONDS,
    )
}

/// Hits each key once at each of these times.
pub(super) fn in_time_order(
    server: &Process,
    request: &str,
    prefix: &str,
    keys: u64,
    times: Times,
    passes: u64,
) -> Result<(), Failure> {
    let plan = Plan {
        keys,
        order: Order::Sequential,
        times,
        clients: 2,
        // No key occurs twice in a pipeline, so the hits of each key arrive in order.
        pipeline: usize::try_from(keys / 2).unwrap_or(usize::MAX).clamp(1, 400),
        ending: Ending::Requests(keys * passes),
        ..Plan::new(server.address, Request::parse(request, prefix))
    };
    let report = run(&plan)?;
    match report.first_error {
        None => Ok(()),
        Some(first) => {
            Err(Failure::new(format!("filling: {} error replies, such as: {first}", report.errors)))
        }
    }
}

/// The server's time, in Unix seconds.
pub(super) fn seconds_of(server: &Process) -> Result<u64, Failure> {
    let time: Vec<u64> = redis::cmd("TIME").query(&mut server.connect()?)?;
    time.first().copied().ok_or_else(|| Failure::new("TIME without seconds"))
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn small(count: u64) -> f64 {
    count as f64
}
