//! HIT that is durable before its reply: the number of hits per sync.

use std::cell::RefCell;

use lately_load::{Plan, run};

use super::TABLE;
use super::kept::Kept;
use crate::options::Options;
use crate::rounds::{Contender, interleave, median};
use crate::row::{Must, Row};
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::plans::{KEYS, fill, round};
use crate::server::process::Process;
use crate::table::number;

const CLIENTS: usize = 200;

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let lately = Kept::start(options, "always")?;
    let redis = Process::redis_appending("always")?;
    let filling = |server, request: &str| Plan { clients: CLIENTS, ..fill(server, request, "key:", KEYS) };
    run(&filling(&lately.process, "HIT {key}"))?;
    run(&filling(&redis, "INCR {key}"))?;
    let plan =
        |server, request: &str| Plan { clients: CLIENTS, ..round(options, server, request, "key:", 1) };
    let (our_plan, plan_of_redis) = (plan(&lately.process, "HIT {key}"), plan(&redis, "INCR {key}"));
    let shares = RefCell::new(Vec::new());
    let ours = || {
        let before = lately.persistence()?;
        let measured = Measured::load(&lately.process, &our_plan);
        shares.borrow_mut().extend(lately.persistence()?.hits_a_sync(&before));
        Ok(measured)
    };
    let mut contenders = [
        Contender::new("HIT", || Measured::or_none(ours())),
        Contender::new("INCR", || Measured::load(&redis, &plan_of_redis)),
    ];
    let figures = interleave(&mut contenders, options.rounds());
    drop(contenders);
    let describe = |at: usize| {
        let measured = Measured::median(&figures[at]);
        format!("{} k/s, {}", number(measured.per_second / 1e3), measured.describe())
    };
    let note = format!("{}; INCR, append-only file always {}", describe(0), describe(1));
    let name = format!("HIT, durability always, {CLIENTS} connections: hits per sync");
    Ok(vec![
        Row::new(TABLE, name, median(&shares.into_inner()), "hits", Must::AtLeast(40.0, 40.0)).note(note),
    ])
}
