//! The distribution of hits over keys: all on one, Zipf, or uniform; and a fixed rate.

use lately_load::{Order, Plan, run};

use crate::options::Options;
use crate::rounds::{Contender, interleave, median_ratio};
use crate::row::{Must, Row};
use crate::server::TABLE;
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::plans::{KEYS, fill, round};
use crate::server::process::Process;
use crate::table::number;

/// Requests per second at the fixed rate, one at a time: half of what Redis can do on two cores.
const RATE: u64 = 40_000;

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let lately = Process::lately(options)?;
    run(&fill(&lately, "HIT {key}", "key:", KEYS))?;
    let mut rows = hot(options, &lately, 64);
    rows.extend(hot(options, &lately, 1));
    if !options.quick {
        rows.extend(fixed_rate(options, &lately)?);
    }
    Ok(rows)
}

fn hot(options: &Options, lately: &Process, pipeline: usize) -> Vec<Row> {
    let load = |name: &'static str, keys: u64, order: Order| {
        let plan = Plan { keys, order, ..round(options, lately, "HIT {key}", "key:", pipeline) };
        Contender::new(name, move || Measured::load(lately, &plan))
    };
    let mut contenders =
        vec![load("spread", KEYS, Order::Uniform), load("one hot key", 1, Order::Sequential)];
    if !options.quick {
        contenders.push(load("Zipf 1.0", KEYS, Order::Zipf(1.0)));
    }
    let names: Vec<&str> = contenders.iter().map(|contender| contender.name).collect();
    let figures = interleave(&mut contenders, options.rounds());
    let throughput = |at: usize| figures[at].iter().map(|measured| measured.per_second).collect::<Vec<f64>>();
    let musts = [Must::Nothing, Must::AtLeast(0.9, 0.9), Must::Nothing];
    let row = |at: usize| {
        let measured = Measured::median(&figures[at]);
        let spread = Measured::median(&figures[0]).per_second;
        let note = format!(
            "{} M/s, spread {} M/s; {}",
            number(measured.per_second / 1e6),
            number(spread / 1e6),
            measured.describe()
        );
        let name = format!("HIT on {} ÷ on 1 M keys, pipeline {pipeline}", names[at]);
        Row::new(TABLE, name, median_ratio(&throughput(at), &throughput(0)), "×", musts[at]).note(note)
    };
    (1..names.len()).map(row).collect()
}

/// Latency when the load does not wait for the server.
fn fixed_rate(options: &Options, lately: &Process) -> Result<Vec<Row>, Failure> {
    let redis = &Process::redis(&[])?;
    run(&fill(redis, "INCR {key}", "key:", KEYS))?;
    let load = |name: &'static str, server, request: &str| {
        let plan = Plan { rate: Some(RATE), ..round(options, server, request, "key:", 1) };
        Contender::new(name, move || Measured::load(server, &plan))
    };
    let mut contenders = [load("lately HIT", lately, "HIT {key}"), load("redis INCR", redis, "INCR {key}")];
    let names: Vec<&str> = contenders.iter().map(|contender| contender.name).collect();
    let figures = interleave(&mut contenders, options.rounds());
    let row = |(name, figures): (&&str, &Vec<Measured>)| {
        let measured = Measured::median(figures);
        let name = format!("{name} at 40,000 a second, from when it was due: p99");
        Row::new(TABLE, name, measured.p99_us / 1e3, "ms", Must::Nothing).note(measured.describe())
    };
    Ok(names.iter().zip(&figures).map(row).collect())
}
