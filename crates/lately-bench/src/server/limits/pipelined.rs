//! Decisions at pipeline 64, compared with hits, and with scripts that decide in Redis.

use std::time::Duration;

use lately::{Clock, SystemClock};
use lately_load::{Ending, Plan, run};

use super::figures::Figures;
use super::load::{Load, PREFIX};
use super::servers::Servers;
use crate::options::Options;
use crate::rounds::Contender;
use crate::row::{Must, Row};
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::plans::{KEYS, fill};
use crate::server::process::Process;
use crate::server::scripts::{self, DECIDING_COUNTER, DECIDING_SET, Deciding};

const PIPELINE: usize = 64;

const HIT: &str = "HIT";
const LIMIT: &str = "LIMIT";
const JOINT: &str = "MLIMIT of 3 keys";
const THROTTLE: &str = "CL.THROTTLE";
const SET: &str = "redis sorted set, script that decides";
const COUNTER: &str = "redis INCR + EXPIRE, script that decides";

pub(super) fn rows(options: &Options, servers: &Servers) -> Result<Vec<Row>, Failure> {
    let Servers { hit, limit, joint, throttle } = servers;
    // They use the machine's clock, too.
    let now_us = SystemClock::new().now().as_millis() * 1_000;
    let (set, set_load) = deciding(&DECIDING_SET, &format!("ZADD {{key}} {now_us} {now_us}"))?;
    let (counter, counter_load) = deciding(&DECIDING_COUNTER, "SET {key} 1 EX 60")?;
    let contender = |name, server, load: &Load| {
        let ending = Ending::After(Duration::from_millis(500));
        let plan = Plan { ending, ..load.round(options, server, PIPELINE) };
        Contender::new(name, move || Measured::load(server, &plan))
    };
    let contenders = vec![
        contender(HIT, hit, &Load::hit()),
        contender(LIMIT, limit, &Load::limit()),
        contender(JOINT, joint, &Load::joint()),
        contender(THROTTLE, throttle, &Load::throttle()),
        contender(SET, &set, &set_load),
        contender(COUNTER, &counter, &counter_load),
    ];
    // Many short rounds: the figures are close to each other, and the machine's speed changes within a
    // second.
    let figures = Figures::of(contenders, options.pick(3, 1) * options.rounds(), PIPELINE);
    Ok(vec![
        figures.throughput(LIMIT, HIT, Must::AtLeast(0.85, 0.85)),
        figures.throughput(LIMIT, SET, Must::AtLeast(10.0, 10.0)),
        figures.throughput(LIMIT, COUNTER, Must::AtLeast(5.0, 5.0)),
        figures.throughput(JOINT, LIMIT, Must::AtLeast(0.3, 0.3)),
        figures.throughput(THROTTLE, HIT, Must::AtLeast(0.9, 0.9)),
    ])
}

/// A Redis with a script that decides, and a hit for each key.
fn deciding(script: &Deciding, hit: &str) -> Result<(Process, Load), Failure> {
    let redis = Process::redis(&[])?;
    script.check(&redis)?;
    let request = format!("{} 1000 60", scripts::load(&redis, script.text)?);
    run(&fill(&redis, hit, PREFIX, KEYS))?;
    Ok((redis, Load::decision(request)))
}
