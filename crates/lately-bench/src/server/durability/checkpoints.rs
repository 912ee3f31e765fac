//! The latency of hits during continuous checkpoints, under full load and at half of it.

use std::cell::Cell;
use std::time::Duration;

use lately_load::{Ending, Plan, run};

use super::TABLE;
use super::kept::Kept;
use crate::options::Options;
use crate::rounds::{Contender, interleave, median_ratio};
use crate::row::{Must, Row};
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::plans::{KEYS, fill, round};
use crate::server::process::Process;
use crate::table::number;

/// Fewer keys would need shorter rounds, and their checkpoints would end too often. A quick run leaves out a
/// depth.
const DEPTHS: [usize; 2] = [64, 1];
const QUICK_DEPTHS: [usize; 1] = [64];

/// Rounds without a journal, and with checkpoints.
const OFF_ROUND: Duration = Duration::from_secs(2);
const QUICK_OFF_ROUND: Duration = Duration::from_millis(800);
const KEPT_ROUND: Duration = Duration::from_secs(4);
const QUICK_KEPT_ROUND: Duration = Duration::from_secs(3);

/// A round in which no checkpoint ended is repeated with twice the length, which the following rounds keep,
/// up to this many times the normal length. On a busy machine a checkpoint takes many times as long.
const LONGEST: u32 = 4;

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let servers = Servers {
        off: Process::lately(options)?,
        kept: Kept::start(options, "interval")?,
        longer: Cell::new(1),
    };
    for server in [&servers.off, &servers.kept.process] {
        run(&fill(server, "HIT {key}", "key:", KEYS))?;
    }
    let mut rows = Vec::new();
    for &pipeline in options.pick(&DEPTHS[..], &QUICK_DEPTHS) {
        let full = (!options.quick).then(|| servers.rounds(options, pipeline, None));
        let off = match &full {
            Some(full) => Measured::median(&full.off),
            None => {
                Measured::load(&servers.off, &plan(options, &servers.off, (pipeline, None), QUICK_OFF_ROUND))
            }
        };
        let half = servers.rounds(options, pipeline, Some(half_of(off.per_second)?));
        let at_half = format!("half the load of off, pipeline {pipeline}");
        rows.push(half.row(&at_half, Must::AtMost(3.0, 3.0)));
        rows.extend(full.map(|full| full.row(&format!("full load, pipeline {pipeline}"), Must::Nothing)));
    }
    Ok(rows)
}

struct Servers {
    off: Process,
    kept: Kept,
    /// The length of rounds with checkpoints, as a multiple of the normal length.
    longer: Cell<u32>,
}

/// The rounds of both.
struct Rounds {
    off: Vec<Measured>,
    kept: Vec<Measured>,
}

impl Servers {
    /// Rounds without a journal, and with checkpoints.
    fn rounds(&self, options: &Options, pipeline: usize, rate: Option<u64>) -> Rounds {
        let load = (pipeline, rate);
        let off = plan(options, &self.off, load, options.pick(OFF_ROUND, QUICK_OFF_ROUND));
        // A checkpoint must end in it.
        let kept_round = options.pick(KEPT_ROUND, QUICK_KEPT_ROUND);
        let kept = |times: u32| plan(options, &self.kept.process, load, kept_round * times);
        let mut contenders = [
            Contender::new("off", || Measured::load(&self.off, &off)),
            Contender::new("checkpoints", || Measured::or_none(self.with_checkpoints(kept))),
        ];
        let mut figures = interleave(&mut contenders, options.rounds()).into_iter();
        let mut next = || figures.next().unwrap_or_default();
        Rounds { off: next(), kept: next() }
    }

    /// A round in which a checkpoint was made.
    fn with_checkpoints(&self, plan: impl Fn(u32) -> Plan) -> Result<Measured, Failure> {
        loop {
            let plan = plan(self.longer.get());
            let mut measured = None;
            let work = || measured = Some(Measured::load(&self.kept.process, &plan));
            let made = self.kept.while_checkpointing(work)?;
            if let Some(measured) = measured.filter(|_| made > 0) {
                return Ok(measured);
            }
            if self.longer.get() >= LONGEST {
                return Err(Failure::new("no checkpoint came to its end in a round"));
            }
            self.longer.set(self.longer.get() * 2);
        }
    }
}

/// A round of this length, with pipelines of a depth, at a rate if there is one.
fn plan(options: &Options, server: &Process, (pipeline, rate): (usize, Option<u64>), time: Duration) -> Plan {
    Plan { rate, ending: Ending::After(time), ..round(options, server, "HIT {key}", "key:", pipeline) }
}

impl Rounds {
    fn row(&self, load: &str, must: Must) -> Row {
        let pairs = self.off.iter().copied().zip(self.kept.iter().copied());
        // A round without a checkpoint does not count, nor does the one it is compared with.
        let (off, kept): (Vec<Measured>, Vec<Measured>) =
            pairs.filter(|(off, kept)| off.p999_us.is_finite() && kept.p999_us.is_finite()).unzip();
        let p999 = |rounds: &[Measured]| rounds.iter().map(|measured| measured.p999_us).collect::<Vec<f64>>();
        let describe = |rounds: &[Measured]| {
            let measured = Measured::median(rounds);
            format!("{}; {} M/s", measured.describe(), number(measured.per_second / 1e6))
        };
        let name = format!("p99.9 of HIT while checkpoints are made ÷ off, {load}");
        let note = format!("{}; off {}; {} rounds", describe(&kept), describe(&off), kept.len());
        Row::new(TABLE, name, median_ratio(&p999(&kept), &p999(&off)), "×", must).note(note)
    }
}

/// Half of the rate of requests.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate that was measured")]
fn half_of(per_second: f64) -> Result<u64, Failure> {
    match per_second {
        rate if rate >= 2.0 => Ok((rate / 2.0) as u64),
        _ => Err(Failure::new("no rate was measured")),
    }
}
