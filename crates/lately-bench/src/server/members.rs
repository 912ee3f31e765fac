//! HIT with a member compared with HIT: on keys with few members, and on keys whose members are in a sketch.

use std::cell::Cell;
use std::fs;

use lately_load::{Ending, Plan, run};

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
/// Members of the rounds do not meet: a round sends far fewer.
const MEMBERS_OF_A_ROUND: u64 = 1_000_000_000;
/// Keys with many members, and how many they have at first.
const KEYS_WITH_MANY: u64 = 1_000;
const MANY: u64 = 3_000;
const CONFIG: &str = "[memory]\nceiling = \"8GiB\"\n\n[[class]]\nmatch = \"seen:*\"\nunique = true\n";

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let folder = folder::on_disk()?;
    let config = folder.path().join("lately.toml");
    fs::write(&config, CONFIG)?;
    let lately = &Process::ours_with(options, &config, &["--in-memory"])?;
    for prefix in ["key:", "seen:"] {
        run(&fill(lately, "HIT {key}", prefix, KEYS))?;
    }
    let begun = &Cell::new(MEMBERS_OF_A_ROUND);
    let many = fill(lately, "HIT {key} MEMBER {id}", "seen:many:", KEYS_WITH_MANY);
    run(&Plan { ending: Ending::Requests(KEYS_WITH_MANY * MANY), ..many })?;
    let load = |name: &'static str, request: &str, prefix: &str, keys: u64| {
        let plan = Plan { keys, ..round(options, lately, request, prefix, PIPELINE) };
        Contender::new(name, move || {
            let first_id = begun.replace(begun.get() + MEMBERS_OF_A_ROUND);
            Measured::load(lately, &Plan { first_id, ..plan.clone() })
        })
    };
    let with = "HIT {key} MEMBER {id}";
    let mut contenders = [
        load("HIT", "HIT {key}", "key:", KEYS),
        load("HIT with a member", with, "seen:", KEYS),
        load("HIT of a thousand keys", "HIT {key}", "key:", KEYS_WITH_MANY),
        load("HIT with a member, of a thousand keys", with, "seen:many:", KEYS_WITH_MANY),
    ];
    let names = contenders.each_ref().map(|contender| contender.name);
    let figures = interleave(&mut contenders, options.rounds());
    let throughput = |at: usize| figures[at].iter().map(|measured| measured.per_second).collect::<Vec<f64>>();
    let row = |at: usize, what: &str| {
        let millions = |at: usize| {
            let per_second = Measured::median(&figures[at]).per_second;
            format!("{} {} M/s", names[at], number(per_second / 1e6))
        };
        let value = median_ratio(&throughput(at), &throughput(at - 1));
        let name = format!("HIT with a member ÷ HIT, {what}, pipeline {PIPELINE}");
        let note = [millions(at), millions(at - 1), Measured::median(&figures[at]).describe()].join("; ");
        Row::new(TABLE, name, value, "×", Must::AtLeast(0.5, 0.6)).note(note)
    };
    Ok(vec![row(1, "1 M keys"), row(3, "1,000 keys with thousands of members")])
}
