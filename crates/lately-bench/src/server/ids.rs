//! HIT with an id compared with HIT, on keys of one class.

use std::cell::Cell;
use std::fs;

use lately_load::{Plan, run};

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
/// Ids of the rounds do not meet: a round sends far fewer.
const IDS_OF_A_ROUND: u64 = 1_000_000_000;
/// Ids that are over are dropped during the rounds, as on a server that has run for long.
const CONFIG: &str = "[memory]\nceiling = \"8GiB\"\n\n[[class]]\nmatch = \"once:*\"\ndedupe = \"3s\"\n";

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let folder = folder::on_disk()?;
    let config = folder.path().join("lately.toml");
    fs::write(&config, CONFIG)?;
    let lately = &Process::ours_with(options, &config, &["--in-memory"])?;
    for prefix in ["key:", "once:"] {
        run(&fill(lately, "HIT {key}", prefix, KEYS))?;
    }
    let begun = &Cell::new(0);
    let load = |name: &'static str, request: &str, prefix: &str| {
        let plan = round(options, lately, request, prefix, PIPELINE);
        Contender::new(name, move || {
            let first_id = begun.replace(begun.get() + IDS_OF_A_ROUND);
            Measured::load(lately, &Plan { first_id, ..plan.clone() })
        })
    };
    let mut contenders = [
        load("HIT", "HIT {key}", "key:"),
        load("HIT of a class with dedupe", "HIT {key}", "once:"),
        load("HIT with an id", "HIT {key} ID {id}", "once:"),
    ];
    let names = contenders.each_ref().map(|contender| contender.name);
    let figures = interleave(&mut contenders, options.rounds());
    let throughput = |at: usize| figures[at].iter().map(|measured| measured.per_second).collect::<Vec<f64>>();
    let row = |at: usize, must: Must| {
        let millions = |at: usize| {
            let per_second = Measured::median(&figures[at]).per_second;
            format!("{} {} M/s", names[at], number(per_second / 1e6))
        };
        let value = median_ratio(&throughput(at), &throughput(0));
        let name = format!("{} ÷ HIT, 1 M keys, pipeline {PIPELINE}", names[at]);
        let note = [millions(at), millions(0), Measured::median(&figures[at]).describe()].join("; ");
        Row::new(TABLE, name, value, "×", must).note(note)
    };
    Ok(vec![row(2, Must::AtLeast(0.5, 0.6)), row(1, Must::AtLeast(0.95, 1.0))])
}
