//! HIT of a class that keeps its busy keys at hand, alone and with an alert on all keys, compared with HIT on a server that has
//! neither.

use std::fs;

use lately_load::{Order, Plan, run};

use crate::folder;
use crate::options::Options;
use crate::rounds::{Contender, interleave, median_ratio};
use crate::row::{Must, Row};
use crate::server::TABLE;
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::plans::{KEYS, fill, round};
use crate::server::process::Process;
use crate::table::number;

const PIPELINE: usize = 64;
const PREFIX: &str = "key:";
/// Some keys are far busier than most.
const ZIPF: f64 = 1.0;
/// An alert that all keys count for, and that never starts.
const ALERT: &str =
    "\n[[alert]]\nname = \"flood\"\nmatch = \"key:*\"\nabove = 1_000_000_000_000\nwindow = \"10s\"\n";

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let folder = folder::on_disk()?;
    let start = |name: &str, top: bool, alert: &str| {
        let config = folder.path().join(name);
        fs::write(
            &config,
            format!("[memory]\nceiling = \"8GiB\"\n\n[[class]]\nmatch = \"*\"\ntop = {top}\n{alert}"),
        )?;
        let server = Process::ours_with(options, &config, &["--in-memory"])?;
        run(&fill(&server, "HIT {key}", PREFIX, KEYS))?;
        Ok::<_, Failure>(server)
    };
    let servers =
        [start("off.toml", false, "")?, start("on.toml", true, "")?, start("alert.toml", true, ALERT)?];
    let load = |name: &'static str, server: usize, order: Order| {
        let server = &servers[server];
        let plan = Plan { order, ..round(options, server, "HIT {key}", PREFIX, PIPELINE) };
        Contender::new(name, move || Measured::load(server, &plan))
    };
    let mut contenders = [
        load("uniform, off", 0, Order::Uniform),
        load("uniform", 1, Order::Uniform),
        load("uniform, alert", 2, Order::Uniform),
        load("Zipf, off", 0, Order::Zipf(ZIPF)),
        load("Zipf", 1, Order::Zipf(ZIPF)),
        load("Zipf, alert", 2, Order::Zipf(ZIPF)),
    ];
    let figures = interleave(&mut contenders, options.rounds());
    let throughput = |at: usize| figures[at].iter().map(|measured| measured.per_second).collect::<Vec<f64>>();
    let row = |on: usize, off: usize, keys: &str| {
        let millions = |at: usize| number(Measured::median(&figures[at]).per_second / 1e6);
        let value = median_ratio(&throughput(on), &throughput(off));
        let with = if on == off + 1 { "top" } else { "top and an alert" };
        let name = format!("HIT with {with} ÷ HIT without, 1 M keys, {keys}, pipeline {PIPELINE}");
        let note = format!("with {} M/s, without {} M/s", millions(on), millions(off));
        let cost = [on, off].map(|at| Measured::median(&figures[at]).describe()).join("; ");
        Row::new(TABLE, name, value, "×", Must::AtLeast(0.9, 0.95)).note(format!("{note}; {cost}"))
    };
    Ok(vec![row(1, 0, "uniform"), row(2, 0, "uniform"), row(4, 3, "Zipf"), row(5, 3, "Zipf")])
}
