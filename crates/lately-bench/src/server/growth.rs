//! Ten million keys: what a hit waits while the table grows, and what it costs when it has grown.

use lately_load::{Ending, Order, Plan, Request};

use crate::options::Options;
use crate::rounds::{least, median, median_ratio};
use crate::row::{Must, Rival, Row};
use crate::server::TABLE;
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::nothing::Way;
use crate::server::plans::{MANY_KEYS, round};
use crate::server::process::Process;
use crate::table::{number, numbers};

/// The most that a pause is to take, in milliseconds.
const MOST_MS: f64 = 1.0;

/// The most that the 99.9th percentile is to be while the table grows, over what it is then.
const MOST_GROWING: f64 = 3.0;

/// Few requests under way: one that waits for a pause is not hidden by waiting for its turn.
const CLIENTS: usize = 4;
const PIPELINE: usize = 32;

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let nothing = Process::nothing(Way::Tokio)?;
    let (mut floor, mut growing, mut grown, mut many) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.rounds() {
        let lately = Process::lately(options)?;
        growing.push(Measured::load(&lately, &each_key_once(&lately)));
        // As many again: the longer the load, the longer the longest pause.
        floor.push(Measured::load(&nothing, &each_key_once(&nothing)));
        grown.push(Measured::load(&lately, &each_key_once(&lately)));
        let plan = Plan { keys: MANY_KEYS, ..round(options, &lately, "HIT {key}", "key:", 64) };
        many.push(Measured::load(&lately, &plan));
        if options.quick
            && least(&worst(&growing)) <= least(&worst(&floor)) + MOST_MS
            && median_ratio(&p999(&growing), &p999(&grown)) <= MOST_GROWING
        {
            break;
        }
    }
    let milliseconds = |figures: &[f64]| number(median(figures) / 1e3);
    let (growing_ms, floor_ms) = (worst(&growing), worst(&floor));
    // What the machine does comes at random; what growing does comes in every round.
    let pause = least(&growing_ms);
    // The machine pauses, too, and is taken not to have where the must was set: by ratio it is to be no more beyond that.
    let machine = Rival { name: "doing nothing and 1 ms", here: least(&floor_ms) + MOST_MS, there: MOST_MS };
    let pauses = format!(
        "the least of the rounds' worst batches of {PIPELINE}, {}; grown {}; doing nothing {}",
        numbers(&growing_ms),
        numbers(&worst(&grown)),
        numbers(&floor_ms)
    );
    let ratio = median_ratio(&p999(&growing), &p999(&grown));
    let ratios = format!(
        "growing {} ms, grown {} ms, doing nothing {} ms",
        milliseconds(&p999(&growing)),
        milliseconds(&p999(&grown)),
        milliseconds(&p999(&floor))
    );
    let many = Measured::median(&many);
    Ok(vec![
        Row::new(
            TABLE,
            "worst pause while growing from 0 to 10 M keys",
            pause,
            "ms",
            Must::AtMost(MOST_MS, 0.3),
        )
        .beside(pauses)
        .by(Some(machine)),
        Row::new(
            TABLE,
            "p99.9 growing from 0 to 10 M keys ÷ grown",
            ratio,
            "×",
            Must::AtMost(MOST_GROWING, MOST_GROWING),
        )
        .beside(ratios),
        Row::new(TABLE, "lately HIT, 10 M keys, pipeline 64", many.per_second / 1e6, "M/s", Must::Nothing)
            .beside(many.describe()),
    ])
}

/// The latencies of rounds, in microseconds and in milliseconds.
fn p999(rounds: &[Measured]) -> Vec<f64> {
    rounds.iter().map(|measured| measured.p999_us).collect()
}

fn worst(rounds: &[Measured]) -> Vec<f64> {
    rounds.iter().map(|measured| measured.worst_us / 1e3).collect()
}

fn each_key_once(server: &Process) -> Plan {
    Plan {
        keys: MANY_KEYS,
        order: Order::Permuted,
        clients: CLIENTS,
        pipeline: PIPELINE,
        ending: Ending::Requests(MANY_KEYS),
        ..Plan::new(server.address, Request::parse("HIT {key}", "key:"))
    }
}
