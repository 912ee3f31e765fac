//! Ten million keys: the pauses of hits while the table grows, and the cost of a hit afterwards.

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

/// The longest acceptable pause, in milliseconds.
const MOST_MS: f64 = 1.0;

/// Few requests at a time, so that a request that waits for a pause is not hidden by queueing.
const CLIENTS: usize = 4;
const PIPELINE: usize = 32;

/// The results of the rounds.
#[derive(Default)]
struct Rounds {
    floor: Vec<Measured>,
    growing: Vec<Measured>,
    grown: Vec<Measured>,
    many: Vec<Measured>,
}

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let nothing = Process::nothing(Way::Tokio)?;
    let mut rounds = Rounds::default();
    for _ in 0..options.rounds() {
        let lately = Process::lately(options)?;
        rounds.growing.push(Measured::load(&lately, &each_key_once(&lately)));
        // As many hits again, because a longer load has longer pauses.
        rounds.floor.push(Measured::load(&nothing, &each_key_once(&nothing)));
        rounds.grown.push(Measured::load(&lately, &each_key_once(&lately)));
        let plan = Plan { keys: MANY_KEYS, ..round(options, &lately, "HIT {key}", "key:", 64) };
        rounds.many.push(Measured::load(&lately, &plan));
        if options.quick && rounds.rows().iter().all(Row::holds) {
            break;
        }
    }
    Ok(rounds.rows())
}

impl Rounds {
    fn rows(&self) -> Vec<Row> {
        let p999 = |rounds: &[Measured]| rounds.iter().map(|measured| measured.p999_us).collect::<Vec<f64>>();
        let worst =
            |rounds: &[Measured]| rounds.iter().map(|measured| measured.worst_us / 1e3).collect::<Vec<f64>>();
        let milliseconds = |figures: &[f64]| number(median(figures) / 1e3);
        let Rounds { floor, growing, grown, many } = self;
        let (growing_ms, floor_ms) = (worst(growing), worst(floor));
        // Pauses of the machine are random; pauses of growth occur in every round.
        let pause = least(&growing_ms);
        // The machine pauses, too. It is assumed not to have paused when the bound was set. Relative to it,
        // the bound is 1 ms more than the machine's pause.
        let machine =
            Rival { name: "doing nothing and 1 ms", here: least(&floor_ms) + MOST_MS, there: MOST_MS };
        let pauses = format!(
            "the least of the rounds' worst batches of {PIPELINE}, {}; grown {}; doing nothing {}",
            numbers(&growing_ms),
            numbers(&worst(grown)),
            numbers(&floor_ms)
        );
        let ratio = median_ratio(&p999(growing), &p999(grown));
        let ratios = format!(
            "growing {} ms, grown {} ms, doing nothing {} ms",
            milliseconds(&p999(growing)),
            milliseconds(&p999(grown)),
            milliseconds(&p999(floor))
        );
        let many = Measured::median(many);
        let row = |name: &str, value: f64, unit, must| Row::new(TABLE, name, value, unit, must);
        vec![
            row("worst pause while growing from 0 to 10 M keys", pause, "ms", Must::Nothing)
                .note(pauses)
                .by(Some(machine)),
            row("p99.9 growing from 0 to 10 M keys ÷ grown", ratio, "×", Must::AtMost(3.0, 3.0)).note(ratios),
            row("lately HIT, 10 M keys, pipeline 64", many.per_second / 1e6, "M/s", Must::Nothing)
                .note(many.describe()),
        ]
    }
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
