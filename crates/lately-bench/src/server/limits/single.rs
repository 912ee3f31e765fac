//! Decisions one at a time, compared with hits, and with throttlecrab-server.

use lately_load::Plan;

use super::TABLE;
use super::figures::Figures;
use super::load::Load;
use super::servers::Servers;
use crate::options::Options;
use crate::output;
use crate::rounds::Contender;
use crate::row::{Must, Row};
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::plans::KEYS;
use crate::server::process::{Process, THROTTLECRAB_MISSING};

const HIT: &str = "HIT";
const LIMIT: &str = "LIMIT";
const THROTTLE: &str = "CL.THROTTLE";
const RIVAL: &str = "THROTTLE of throttlecrab-server";

pub(super) fn rows(options: &Options, servers: &Servers) -> Result<Vec<Row>, Failure> {
    // The rival takes seconds for a million.
    let keys = options.pick(KEYS, KEYS / 10);
    let rival = Process::throttlecrab().transpose()?;
    if let Some(rival) = &rival {
        Load::rival_throttle().fill_singly(rival, keys)?;
    }
    let contender = |name, server, load: &Load| {
        let plan = Plan { keys, ..load.round(options, server, 1) };
        Contender::new(name, move || Measured::load(server, &plan))
    };
    let mut contenders = vec![
        contender(HIT, &servers.hit, &Load::hit()),
        contender(LIMIT, &servers.limit, &Load::limit()),
        contender(THROTTLE, &servers.throttle, &Load::throttle()),
    ];
    if let Some(rival) = &rival {
        contenders.push(contender(RIVAL, rival, &Load::rival_throttle()));
    }
    let figures = Figures::of(contenders, options.rounds(), 1);
    let mut rows =
        vec![figures.throughput(LIMIT, HIT, Must::Nothing), figures.throughput(THROTTLE, HIT, Must::Nothing)];
    if rival.is_some() {
        rows.push(figures.cpu(THROTTLE, RIVAL, Must::AtMost(0.8, 0.8)));
        rows.push(figures.throughput(THROTTLE, RIVAL, Must::Nothing));
    } else {
        output::message(format_args!("lately-bench: throttlecrab-server: {THROTTLECRAB_MISSING}"));
        let name = format!("server CPU per {THROTTLE} ÷ {RIVAL}, pipeline 1");
        rows.push(Row::new(TABLE, name, f64::NAN, "×", Must::Nothing).note(THROTTLECRAB_MISSING));
    }
    Ok(rows)
}
