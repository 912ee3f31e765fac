//! Servers: ours, its rivals, and one without work, on free ports and under the same load.

mod cluster;
mod doors;
mod durability;
mod exact;
pub(crate) mod failure;
mod growth;
mod ids;
mod limits;
pub(crate) mod measured;
mod members;
mod memory;
pub(crate) mod nothing;
mod peers;
mod pipelines;
pub(crate) mod plans;
mod postgres;
pub(crate) mod process;
mod reads;
mod scripts;
mod spread;
mod top;

use crate::options::Options;
use crate::output;
use crate::row::{Must, Row};
use crate::server::failure::Failure;

/// The table of the throughputs and latencies.
const TABLE: &str = "server";

type Section = fn(&Options) -> Result<Vec<Row>, Failure>;

/// The sections, in the order in which they run, each with its names for `--only`.
const SECTIONS: [(&[&str], Section); 15] = [
    (&pipelines::NAMES, pipelines::rows),
    (&["server/reads"], reads::rows),
    (&["server/ids"], ids::rows),
    (&["server/top"], top::rows),
    (&["server/members"], members::rows),
    (&["server/spread"], spread::rows),
    (&["server/growth"], growth::rows),
    (&["server/limits"], limits::rows),
    (&["server/durability"], durability::rows),
    (&["server/memory"], memory::rows),
    (&["server/cluster"], cluster::rows),
    (&["server/peers"], peers::rows),
    (&["server/exact"], exact::rows),
    (&["server/postgres"], postgres::rows),
    (&["server/doors"], doors::rows),
];

/// The rows of the servers. A section that cannot be measured is a missed row.
pub(crate) fn rows(options: &Options) -> Vec<Row> {
    let mut rows = Vec::new();
    for (names, section) in SECTIONS {
        let Some(name) = names.iter().find(|name| options.wants(name)) else { continue };
        rows.extend(output::section(name, || section(options)).unwrap_or_else(|failure| {
            let row = Row::new(TABLE, format!("{name}, not measured"), f64::NAN, "", Must::AtLeast(0.0, 0.0));
            vec![row.note(failure.to_string())]
        }));
    }
    rows
}
