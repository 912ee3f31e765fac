//! Checks that each key has counted exactly the allowed hits.

use lately_load::{Checked, Counted, Counts, Ending, Plan, run};

use super::TABLE;
use super::load::Load;
use super::servers::Servers;
use crate::options::Options;
use crate::row::{Must, Row};
use crate::server::failure::Failure;
use crate::server::plans::KEYS;
use crate::server::process::Process;
use crate::table::number;

pub(super) fn row(options: &Options, servers: &Servers) -> Result<Row, Failure> {
    let mut counts = Vec::new();
    let mut wrong_keys = 0;
    for (name, server, load) in [
        ("LIMIT", &servers.limit, Load::limit()),
        ("MLIMIT", &servers.joint, Load::joint()),
        ("CL.THROTTLE", &servers.throttle, Load::throttle()),
    ] {
        let checked = check(options, server, &load)?;
        wrong_keys += checked.wrong_keys;
        let (counted, sent) = (number(to_f64(checked.counted)), number(to_f64(checked.sent)));
        counts.push(format!("{name} {counted} of {sent} hits counted"));
    }
    let name = "keys whose count is not what they were allowed, pipeline 64";
    Ok(Row::new(TABLE, name, to_f64(wrong_keys), "", Must::AtMost(0.0, 0.0)).note(counts.join(", ")))
}

/// A request for each key, or for three; all are allowed.
fn check(options: &Options, server: &Process, load: &Load) -> Result<Checked, Failure> {
    let keys = options.pick(KEYS, KEYS / 10);
    let plan = Plan { keys, ending: Ending::Requests(keys), ..load.round(options, server, 64) };
    let before = Counts::read(&plan, Counted::Hits)?;
    let report = run(&plan)?;
    if report.allowed < report.requests {
        let what = format!("{} of {} requests were allowed", report.allowed, report.requests);
        return Err(Failure::new(format!("{what}; all should have been")));
    }
    Ok(Counts::read(&plan, Counted::Hits)?.check(&before, &plan, report.requests))
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn to_f64(count: u64) -> f64 {
    count as f64
}
