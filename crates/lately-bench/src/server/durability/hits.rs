//! HIT with a journal, compared with HIT without and with INCR with an append-only file; and the bytes of a
//! hit in the log.

use std::cell::RefCell;

use lately_load::run;

use super::TABLE;
use super::kept::Kept;
use crate::options::Options;
use crate::output;
use crate::rounds::{Contender, interleave, median, median_ratio};
use crate::row::{Must, Row};
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::plans::{KEYS, fill, round};
use crate::server::process::Process;
use crate::table::number;

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let servers = Servers::start(options)?;
    let mut rows = rows_at(options, &servers, 64, Must::AtLeast(0.85, 0.85));
    rows.extend(rows_at(options, &servers, 1, Must::AtLeast(0.9, 0.9)));
    Ok(rows)
}

struct Servers {
    off: Process,
    interval: Kept,
    redis: Process,
}

impl Servers {
    /// Starts the servers and fills them with keys.
    fn start(options: &Options) -> Result<Servers, Failure> {
        let servers = Servers {
            off: Process::lately(options)?,
            interval: Kept::start(options, "interval")?,
            redis: Process::redis_appending("everysec")?,
        };
        for lately in [&servers.off, &servers.interval.process] {
            run(&fill(lately, "HIT {key}", "key:", KEYS))?;
        }
        run(&fill(&servers.redis, "INCR {key}", "key:", KEYS))?;
        Ok(servers)
    }
}

fn rows_at(options: &Options, servers: &Servers, pipeline: usize, must: Must) -> Vec<Row> {
    let Servers { off, interval, redis } = servers;
    let plan = |server, request: &str| round(options, server, request, "key:", pipeline);
    let (off_plan, plan_of_redis) = (plan(off, "HIT {key}"), plan(redis, "INCR {key}"));
    let kept_plan = plan(&interval.process, "HIT {key}");
    let log = RefCell::new(Vec::new());
    let mut contenders = [
        Contender::new("off", || Measured::load(off, &off_plan)),
        Contender::new("interval", || {
            let before = interval.persistence();
            let measured = Measured::load(&interval.process, &kept_plan);
            let bytes = before.and_then(|before| Ok(interval.persistence()?.log_bytes_a_hit(&before)));
            // If the log was cut in a round, the bytes of its hits are unknown.
            match bytes {
                Ok(bytes) => log.borrow_mut().extend(bytes),
                Err(failure) => output::message(format_args!("lately-bench: {failure}")),
            }
            measured
        }),
        Contender::new("INCR", || Measured::load(redis, &plan_of_redis)),
    ];
    let figures = interleave(&mut contenders, options.rounds());
    drop(contenders);
    let throughput = |at: usize| figures[at].iter().map(|measured| measured.per_second).collect::<Vec<f64>>();
    let ratio = |name: &str, theirs: usize, must: Must| {
        let describe = |at: usize| {
            let measured = Measured::median(&figures[at]);
            format!("{} M/s, {}", number(measured.per_second / 1e6), measured.describe())
        };
        let value = median_ratio(&throughput(1), &throughput(theirs));
        let name = format!("HIT, durability interval ÷ {name}, pipeline {pipeline}");
        Row::new(TABLE, name, value, "×", must).note(format!("{}; beside {}", describe(1), describe(theirs)))
    };
    let must_by_redis = if pipeline == 64 { Must::AtLeast(2.5, 2.5) } else { Must::Nothing };
    let bytes = median(&log.into_inner());
    vec![
        ratio("off", 0, must),
        ratio("INCR with an append-only file each second", 2, must_by_redis),
        Row::new(TABLE, format!("log per HIT, pipeline {pipeline}"), bytes, "bytes", Must::Nothing),
    ]
}
