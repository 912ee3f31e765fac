//! Nodes that count together through a Redis: what that costs, how soon a hit shows elsewhere, and beside the recipe that it
//! replaces, an `INCR` at Redis for each hit.

use std::time::Duration;

use lately_load::{Ending, Order, Plan, Report, Stopwatch, run};

use crate::options::Options;
use crate::rounds::{Contender, interleave, median, median_ratio};
use crate::row::{Must, Row};
use crate::server::TABLE;
use crate::server::failure::Failure;
use crate::server::measured::{Measured, microseconds_each};
use crate::server::plans::{KEYS, fill, round};
use crate::server::process::Process;
use crate::table::number;

/// The nodes of the rows about several.
const NODES: [&str; 3] = ["a", "b", "c"];

/// Hits whose way to another node is timed.
const TIMED_HITS: usize = 200;

/// How long a hit may take to show on another node.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::from(cost(options)?);
    let redis = Process::redis(&[])?;
    let nodes = nodes(options, &redis)?;
    rows.push(hot_key(options, &redis, &nodes)?);
    rows.push(delay("cluster", &nodes, Must::AtMost(100.0, 75.0))?);
    rows.extend(recipe(options, &redis, &nodes)?);
    // The last one left a load on many keys.
    rows.push(staleness(&nodes)?);
    Ok(rows)
}

fn url(redis: &Process) -> String {
    format!("redis://{}", redis.address)
}

fn node(options: &Options, redis: &Process, name: &str) -> Result<Process, Failure> {
    Process::ours(options, &["--in-memory", "--cluster", &url(redis), "--node", name].map(AsRef::as_ref))
}

/// A node of a data centre, with an upstream engine.
fn node_below(
    options: &Options,
    redis: &Process,
    upstream: &Process,
    name: &str,
) -> Result<Process, Failure> {
    let (local, global) = (url(redis), url(upstream));
    let words = ["--in-memory", "--cluster", &local, "--upstream", &global, "--node", name];
    Process::ours(options, &words.map(AsRef::as_ref))
}

fn nodes(options: &Options, redis: &Process) -> Result<Vec<Process>, Failure> {
    NODES.iter().map(|name| node(options, redis, name)).collect()
}

/// The processor time of a hit on a node, beside a server that counts alone; and with an upstream engine, beside a node without one.
fn cost(options: &Options) -> Result<[Row; 2], Failure> {
    let alone = Process::lately(options)?;
    let (redis, local, global) = (Process::redis(&[])?, Process::redis(&[])?, Process::redis(&[])?);
    let node = node(options, &redis, "a")?;
    let below = node_below(options, &local, &global, "a")?;
    let times = processor_times(options, [("alone", &alone), ("node", &node), ("upstream", &below)])?;
    let [off, on, upstream] = &times;
    Ok([
        cost_row("cluster", "alone", [off, on], Must::AtMost(1.25, 1.1)),
        cost_row("cluster with upstream", "without", [on, upstream], Must::Nothing),
    ])
}

/// The processor time of a hit on each of these servers, in each round, in microseconds.
pub(super) fn processor_times<const N: usize>(
    options: &Options,
    servers: [(&'static str, &Process); N],
) -> Result<[Vec<f64>; N], Failure> {
    for (_, server) in servers {
        run(&fill(server, "HIT {key}", "key:", KEYS))?;
    }
    let mut contenders = servers.map(|(name, server)| {
        let plan = Plan {
            order: Order::Zipf(1.0),
            ending: Ending::After(options.pick(Duration::from_secs(3), Duration::from_secs(1))),
            ..round(options, server, "HIT {key}", "key:", 64)
        };
        Contender::new(name, move || Measured::load(server, &plan))
    });
    let figures = interleave(&mut contenders, options.rounds());
    Ok(std::array::from_fn(|at| figures[at].iter().map(|measured| measured.cpu_us).collect()))
}

/// A row of two of these times, without and with what is measured.
pub(super) fn cost_row(what: &str, without: &str, [off, on]: [&[f64]; 2], must: Must) -> Row {
    let name = format!("{what}: processor time of a HIT, on ÷ off, Zipf over 1 M keys, pipeline 64");
    let [off_us, on_us] = [off, on].map(|times| number(median(times)));
    Row::new(TABLE, name, median_ratio(on, off), "×", must).note(format!("{on_us} µs, {without} {off_us} µs"))
}

/// Loads all nodes at once. Returns their reports.
fn load(options: &Options, servers: &[&Process], request: &str, keys: u64) -> Result<Vec<Report>, Failure> {
    let plan = |server: &&Process| Plan {
        keys,
        order: if keys == 1 { Order::Sequential } else { Order::Uniform },
        clients: 8,
        ending: Ending::After(options.pick(Duration::from_secs(3), Duration::from_secs(1))),
        ..round(options, server, request, "key:", 64)
    };
    let plans: Vec<Plan> = servers.iter().map(plan).collect();
    std::thread::scope(|scope| {
        let running: Vec<_> = plans.iter().map(|plan| scope.spawn(|| run(plan))).collect();
        let reports = running.into_iter().map(|load| load.join().expect("it does not panic"));
        reports.map(|report| report.map_err(Failure::from)).collect()
    })
}

fn per_second(reports: &[Report]) -> f64 {
    reports.iter().map(Report::per_second).sum()
}

/// The writes of three nodes that count one key.
fn hot_key(options: &Options, redis: &Process, nodes: &[Process]) -> Result<Row, Failure> {
    let mut connection = redis.connect()?;
    let mut writes = || -> Result<f64, Failure> {
        let text: String = redis::cmd("INFO").arg("commandstats").query(&mut connection)?;
        let calls = |line: &str| line.split("calls=").nth(1)?.split(',').next()?.parse::<f64>().ok();
        let is_write =
            |line: &&str| line.starts_with("cmdstat_zadd") || line.starts_with("cmdstat_pexpireat");
        Ok(text.lines().filter(is_write).filter_map(calls).sum())
    };
    let (watch, before) = (Stopwatch::start(), writes()?);
    let reports = load(options, &nodes.iter().collect::<Vec<_>>(), "HIT {key}", 1)?;
    let each_second = (writes()? - before) / watch.elapsed().as_secs_f64();
    let name = "cluster: writes to Redis per second, one hot key on three nodes";
    let note = format!("{} M hits/s", number(per_second(&reports) / 1e6));
    Ok(Row::new(TABLE, name, each_second, "", Must::AtMost(1_000.0, 100.0)).note(note))
}

/// How long a hit takes to show on another node.
pub(super) fn delay(what: &str, nodes: &[Process], must: Must) -> Result<Row, Failure> {
    let (mut one, mut other) = (nodes[0].connect()?, nodes[1].connect()?);
    let mut delays = Vec::with_capacity(TIMED_HITS);
    for count in 1..=TIMED_HITS {
        redis::cmd("HIT").arg("delay").query::<u64>(&mut one)?;
        let watch = Stopwatch::start();
        while redis::cmd("HITS").arg("delay").arg("1d").query::<usize>(&mut other)? < count {
            if watch.elapsed() > PATIENCE {
                return Err(Failure::new("a hit did not show on another node"));
            }
        }
        delays.push(watch.elapsed().as_secs_f64() * 1e3);
    }
    delays.sort_by(f64::total_cmp);
    let name = format!("{what}: a hit shows on another node, p99");
    let note = format!("p50 {} ms; flush 50 ms", number(delays[TIMED_HITS / 2]));
    let p99 = delays[TIMED_HITS * 99 / 100];
    Ok(Row::new(TABLE, name, p99, "ms", must).note(note))
}

/// What a round of the recipe and its rival has shown. The times are processor time for each hit: that of the servers which the
/// load speaks to, and that of the Redis behind them. The load's own time is left out.
struct Counted {
    per_second: f64,
    servers_us: f64,
    behind_us: f64,
}

/// The hits of three nodes beside three clients that have Redis count: how many a second on the processors that all share here,
/// and how many if each server had a processor of its own.
fn recipe(options: &Options, shared: &Process, nodes: &[Process]) -> Result<[Row; 2], Failure> {
    let redis = Process::redis(&[])?;
    let counted = |servers: &[&Process], request: &str, all: &[&Process], behind: Option<&Process>| {
        let spent = |of: &[&Process]| of.iter().map(|process| process.cpu_ns()).sum::<Result<u64, Failure>>();
        let measure = || -> Result<Counted, Failure> {
            let before = (spent(all)?, spent(behind.as_slice())?);
            let reports = load(options, servers, request, KEYS)?;
            let requests = reports.iter().map(|report| report.requests).sum();
            let each = |after: u64, before: u64| microseconds_each(after - before, requests);
            Ok(Counted {
                per_second: per_second(&reports),
                servers_us: each(spent(all)?, before.0),
                behind_us: each(spent(behind.as_slice())?, before.1),
            })
        };
        measure().unwrap_or_else(|failure| Counted {
            per_second: Measured::number_or_none(Err(failure)),
            servers_us: f64::NAN,
            behind_us: f64::NAN,
        })
    };
    let servers: Vec<&Process> = nodes.iter().collect();
    let mut contenders = [
        Contender::new("nodes", || counted(&servers, "HIT {key}", &servers, Some(shared))),
        Contender::new("INCR", || counted(&[&redis; 3], "INCR {key}", &[&redis], None)),
    ];
    let figures = interleave(&mut contenders, options.rounds());
    let [ours, theirs] =
        [0, 1].map(|at: usize| figures[at].iter().map(|round| round.per_second).collect::<Vec<f64>>());
    let name = "cluster: hits/s of three nodes ÷ INCR at Redis for each hit, pipeline 64";
    let [our_rate, their_rate] = [&ours, &theirs].map(|rates| number(median(rates) / 1e6));
    let note = format!("{our_rate} M/s, INCR {their_rate} M/s; all share the processors");
    let seen = Row::new(TABLE, name, median_ratio(&ours, &theirs), "×", Must::AtLeast(5.0, 5.0)).note(note);

    // Three nodes count until their processors, or that of the Redis behind them, are busy.
    let most = |round: &Counted, servers: f64| (servers / round.servers_us).min(1.0 / round.behind_us);
    let ours: Vec<f64> = figures[0].iter().map(|round| most(round, 3.0)).collect();
    let theirs: Vec<f64> = figures[1].iter().map(|round| most(round, 1.0)).collect();
    let of = |at: usize, time: fn(&Counted) -> f64| {
        number(median(&figures[at].iter().map(time).collect::<Vec<f64>>()))
    };
    let note = format!(
        "processor time of a hit: a node {} µs and the Redis behind it {} µs; INCR {} µs",
        of(0, |round| round.servers_us),
        of(0, |round| round.behind_us),
        of(1, |round| round.servers_us),
    );
    let name = "cluster: the same, if each server had a processor of its own, from processor times";
    let own = Row::new(TABLE, name, median_ratio(&ours, &theirs), "×", Must::Nothing).note(note);
    Ok([seen, own])
}

/// How old the oldest unsent hits are after a load on many keys, and the memory of the nodes.
fn staleness(nodes: &[Process]) -> Result<Row, Failure> {
    let mut ages = Vec::with_capacity(nodes.len());
    let mut resident = Vec::with_capacity(nodes.len());
    for node in nodes {
        let text: String = redis::cmd("INFO").arg("cluster").query(&mut node.connect()?)?;
        let age = text.lines().find_map(|line| line.strip_prefix("lately_lag_ms:")?.trim().parse().ok());
        ages.push(age.ok_or_else(|| Failure::new("INFO has no lately_lag_ms"))?);
        resident.push(node.resident_bytes()?);
    }
    let name = "cluster: oldest unsent hits after a load on 1 M keys, evenly, on three nodes";
    let most = |figures: &[f64]| figures.iter().copied().fold(0.0, f64::max);
    let note = format!("{} MiB resident", number(most(&resident) / f64::from(1 << 20)));
    Ok(Row::new(TABLE, name, most(&ages) / 1e3, "s", Must::Nothing).note(note))
}
