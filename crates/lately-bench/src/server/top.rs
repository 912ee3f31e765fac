//! HIT of a class that keeps its busy keys at hand, compared with HIT on a server where no class does.

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

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let folder = folder::on_disk()?;
    let start = |name: &str, top: bool| {
        let config = folder.path().join(name);
        fs::write(
            &config,
            format!("[memory]\nceiling = \"8GiB\"\n\n[[class]]\nmatch = \"*\"\ntop = {top}\n"),
        )?;
        let server = Process::ours_with(options, &config, &["--in-memory"])?;
        run(&fill(&server, "HIT {key}", PREFIX, KEYS))?;
        Ok::<_, Failure>(server)
    };
    let servers = [start("off.toml", false)?, start("on.toml", true)?];
    let load = |name: &'static str, server: usize, order: Order| {
        let server = &servers[server];
        let plan = Plan { order, ..round(options, server, "HIT {key}", PREFIX, PIPELINE) };
        Contender::new(name, move || Measured::load(server, &plan))
    };
    let mut contenders = [
        load("uniform, off", 0, Order::Uniform),
        load("uniform", 1, Order::Uniform),
        load("Zipf, off", 0, Order::Zipf(ZIPF)),
        load("Zipf", 1, Order::Zipf(ZIPF)),
    ];
    let figures = interleave(&mut contenders, options.rounds());
    let throughput = |at: usize| figures[at].iter().map(|measured| measured.per_second).collect::<Vec<f64>>();
    let row = |on: usize, keys: &str| {
        let millions = |at: usize| number(Measured::median(&figures[at]).per_second / 1e6);
        let value = median_ratio(&throughput(on), &throughput(on - 1));
        let name = format!("HIT with top ÷ HIT without, 1 M keys, {keys}, pipeline {PIPELINE}");
        let note = format!("with {} M/s, without {} M/s", millions(on), millions(on - 1));
        let cost = [on, on - 1].map(|at| Measured::median(&figures[at]).describe()).join("; ");
        Row::new(TABLE, name, value, "×", Must::AtLeast(0.9, 0.95)).note(format!("{note}; {cost}"))
    };
    Ok(vec![row(1, "uniform"), row(3, "Zipf")])
}
