//! HIT compared with INCR, at one depth of pipelining, with two load generators.

use std::time::Duration;

use lately_load::{Counted, Counts, Ending, Plan, run};

use crate::options::Options;
use crate::output;
use crate::rounds::{Contender, interleave, median_ratio};
use crate::row::{Must, Rival, Row};
use crate::server::TABLE;
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::nothing::Way;
use crate::server::plans::{KEYS, fill, round};
use crate::server::process::{Process, THROTTLECRAB_MISSING};
use crate::server::scripts;
use crate::table::number;

/// The depths, deepest first.
const DEPTHS: [usize; 3] = [64, 16, 1];
pub(super) const NAMES: [&str; 3] = ["server/pipeline 64", "server/pipeline 16", "server/pipeline 1"];

/// Rounds of the contenders with rows. During the first quarter of a second of a load, our server checks
/// whether the machine has a free core for its last event loop.
const LONG_ROUND: Duration = Duration::from_secs(3);
const QUICK_LONG_ROUND: Duration = Duration::from_secs(1);

/// All servers of the section except Redis with scripts, whose keys expire, which costs time later.
struct Servers {
    lately: Process,
    redis: Process,
    /// With an append-only file, flushed each second.
    durable: Process,
    tokio: Process,
    queue: Process,
    throttlecrab: Option<Process>,
}

/// Names of the contenders with rows.
const HIT: &str = "lately HIT";
const INCR: &str = "redis INCR";
const NOTHING: &str = "doing nothing, tokio";
const BENCHMARK_HIT: &str = "lately HIT, redis-benchmark";
const BENCHMARK_INCR: &str = "redis INCR, redis-benchmark";
const BENCHMARK_NOTHING: &str = "doing nothing, tokio, redis-benchmark";

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let servers = output::section("server/pipeline, filling", || Servers::start(options))?;
    let mut rows = vec![counts_row(options, &servers.lately)?];
    for (pipeline, name) in DEPTHS.into_iter().zip(NAMES).filter(|(_, name)| options.wants(name)) {
        rows.extend(output::section(name, || rows_at(options, &servers, pipeline))?);
    }
    if servers.throttlecrab.is_none() {
        output::message(format_args!("lately-bench: throttlecrab-server: {THROTTLECRAB_MISSING}"));
    }
    Ok(rows)
}

fn rows_at(options: &Options, servers: &Servers, pipeline: usize) -> Result<Vec<Row>, Failure> {
    let (names, figures) = measure(options, servers, pipeline)?;
    let mut rows = Vec::new();
    let of =
        |name: &str| names.iter().position(|candidate| *candidate == name).map(|at| figures[at].as_slice());
    let throughput = |name: &str| -> Vec<f64> {
        of(name).unwrap_or_default().iter().map(|measured| measured.per_second).collect()
    };
    let ratio = |name: &str, ours: &str, theirs: &str, ceiling: Option<&str>, must: Must| {
        let value = median_ratio(&throughput(ours), &throughput(theirs));
        let millions = |name: &str| {
            let per_second = Measured::median(of(name).unwrap_or_default()).per_second;
            format!("{name} {} M/s", number(per_second / 1e6))
        };
        let note: Vec<String> = [ours, theirs].into_iter().chain(ceiling).map(millions).collect();
        Row::new(TABLE, format!("{name}, pipeline {pipeline}"), value, "×", must).note(note.join("; "))
    };
    let (by_benchmark, by_load) = musts(pipeline);
    rows.push(ratio(
        "HIT ÷ INCR, redis-benchmark",
        BENCHMARK_HIT,
        BENCHMARK_INCR,
        Some(BENCHMARK_NOTHING),
        by_benchmark,
    ));
    rows.push(ratio("HIT ÷ INCR, lately bench", HIT, INCR, Some(NOTHING), by_load));
    if pipeline == 1 {
        rows.push(ratio("HIT ÷ doing nothing, lately bench", HIT, NOTHING, None, Must::AtLeast(0.9, 0.9)));
    }
    if pipeline == 64 {
        let cpu = |name: &str| Measured::median(of(name).unwrap_or_default()).cpu_us;
        let note =
            format!("INCR {}, doing nothing {}", number(cpu(BENCHMARK_INCR)), number(cpu(BENCHMARK_NOTHING)));
        let incr = Rival { name: "INCR", here: cpu(BENCHMARK_INCR), there: 0.87 };
        let name = "server CPU per HIT, redis-benchmark, pipeline 64";
        let row = Row::new(TABLE, name, cpu(BENCHMARK_HIT), "µs", Must::AtMost(0.36, 0.26));
        rows.push(row.note(note).by(Some(incr)));
    }
    for (name, figures) in names.iter().zip(&figures) {
        let measured = Measured::median(figures);
        let row = Row::new(
            TABLE,
            format!("{name}, pipeline {pipeline}"),
            measured.per_second / 1e6,
            "M/s",
            Must::Nothing,
        );
        rows.push(row.note(measured.describe()));
    }
    Ok(rows)
}

/// HIT ÷ INCR by redis-benchmark, and by our generator.
fn musts(pipeline: usize) -> (Must, Must) {
    match pipeline {
        64 => (Must::AtLeast(2.4, 3.0), Must::AtLeast(3.2, 4.2)),
        16 => (Must::AtLeast(1.3, 1.45), Must::AtLeast(1.9, 2.5)),
        _ => (Must::AtLeast(0.93, 1.05), Must::AtLeast(1.08, 1.25)),
    }
}

impl Servers {
    /// Starts the servers and fills them with keys.
    fn start(options: &Options) -> Result<Servers, Failure> {
        let servers = Servers {
            lately: Process::lately(options)?,
            redis: Process::redis(&[])?,
            durable: Process::redis_appending("everysec")?,
            tokio: Process::nothing(Way::Tokio)?,
            queue: Process::nothing(Way::Queue)?,
            throttlecrab: Process::throttlecrab().transpose()?,
        };
        run(&fill(&servers.lately, "HIT {key}", "key:", KEYS))?;
        for redis in [&servers.redis, &servers.durable] {
            run(&fill(redis, "INCR {key}", "key:", KEYS))?;
        }
        Ok(servers)
    }
}

type Named = (Vec<&'static str>, Vec<Vec<Measured>>);

fn measure(options: &Options, servers: &Servers, pipeline: usize) -> Result<Named, Failure> {
    let Servers { lately, redis, durable, tokio, queue, throttlecrab } = servers;
    let scripts = &Process::redis(&[])?;
    let of = |script: &str| scripts::load(scripts, script);
    let (incr_expire, sorted_set, hash) =
        (of(scripts::INCR_EXPIRE)?, of(scripts::SORTED_SET)?, of(scripts::HASH)?);
    let load = |name: &'static str, server, request: &str, prefix: &str| {
        let plan = round(options, server, request, prefix, pipeline);
        Contender::new(name, move || Measured::load(server, &plan))
    };
    let long_load = |name: &'static str, server, request: &str| {
        let plan = Plan {
            ending: Ending::After(options.pick(LONG_ROUND, QUICK_LONG_ROUND)),
            ..round(options, server, request, "key:", pipeline)
        };
        Contender::new(name, move || Measured::load(server, &plan))
    };
    let requests = requests(options, pipeline);
    let benchmark = |name: &'static str, server, words: &'static [&'static str], pipeline, requests| {
        Contender::new(name, move || Measured::redis_benchmark(server, words, pipeline, requests))
    };
    let mut contenders = vec![
        long_load(HIT, lately, "HIT {key}"),
        long_load(INCR, redis, "INCR {key}"),
        long_load(NOTHING, tokio, "HIT {key}"),
        benchmark(BENCHMARK_HIT, lately, &["HIT", RANDOM_KEY], pipeline, requests),
        benchmark(BENCHMARK_INCR, redis, &["INCR", RANDOM_KEY], pipeline, requests),
        benchmark(BENCHMARK_NOTHING, tokio, &["HIT", RANDOM_KEY], pipeline, requests),
    ];
    // No bound depends on these.
    if !options.quick {
        contenders.extend([
            load("doing nothing, event queue", queue, "HIT {key}", "key:"),
            load("redis INCR, append-only file each second", durable, "INCR {key}", "key:"),
            load("redis INCR + EXPIRE, script", scripts, &incr_expire, "exp:"),
            load("redis sorted set, script", scripts, &sorted_set, "set:"),
            load("redis hash of seconds, script", scripts, &hash, "sec:"),
        ]);
    }
    if let Some(throttlecrab) = throttlecrab.as_ref().filter(|_| pipeline == 1) {
        // It decides and does not count; the limit is never reached. It stalls with pipelines.
        let words = &["THROTTLE", RANDOM_KEY, "1000000", "1000000", "60"];
        let name = "throttlecrab THROTTLE, redis-benchmark";
        contenders.push(benchmark(name, throttlecrab, words, 1, requests));
    }
    let names = contenders.iter().map(|contender| contender.name).collect();
    Ok((names, interleave(&mut contenders, options.rounds())))
}

/// The key for redis-benchmark: twelve digits, like ours.
const RANDOM_KEY: &str = "key:__rand_int__";

/// The number of requests of redis-benchmark: a round of about the same length as the others.
fn requests(options: &Options, pipeline: usize) -> u64 {
    match pipeline {
        64 => options.pick(3_000_000, 1_000_000),
        16 => options.pick(1_500_000, 500_000),
        _ => options.pick(150_000, 40_000),
    }
}

/// Whether each key has the right count under the load of this section.
fn counts_row(options: &Options, lately: &Process) -> Result<Row, Failure> {
    let plan = round(options, lately, "HIT {key}", "key:", 64);
    let before = Counts::read(&plan, Counted::Hits)?;
    let report = run(&plan)?;
    let checked = Counts::read(&plan, Counted::Hits)?.check(&before, &plan, report.requests);
    let note =
        format!("{} of {} hits counted", number(to_f64(checked.counted)), number(to_f64(checked.sent)));
    let name = "keys whose count is not what they were sent, pipeline 64";
    Ok(Row::new(TABLE, name, to_f64(checked.wrong_keys), "", Must::AtMost(0.0, 0.0)).note(note))
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn to_f64(count: u64) -> f64 {
    count as f64
}
