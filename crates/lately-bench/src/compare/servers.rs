//! Compares the servers: HIT and LIMIT at three depths of pipelining, with two load generators, in memory and
//! with a journal.

use std::ffi::OsStr;

use lately_load::Plan;

use super::{Compared, Side};
use crate::folder;
use crate::options::Options;
use crate::output;
use crate::rounds::{Contender, interleave};
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::plans::{KEYS, fill, round};
use crate::server::process::Process;

/// The depths, and the number of requests that redis-benchmark sends in a round of each.
const DEPTHS: [(usize, u64); 3] = [(64, 3_000_000), (16, 1_500_000), (1, 150_000)];

/// The requests: a name, the words for redis-benchmark, and those for our generator.
const REQUESTS: [(&str, &[&str], &str); 2] = [
    ("HIT", &["HIT", "key:__rand_int__"], "HIT {key}"),
    ("LIMIT", &["LIMIT", "key:__rand_int__", "1000000", "1m"], "LIMIT {key} 1000000 1m"),
];

pub(super) fn compare(options: &Options, before: &Side, now: &Side) -> Result<Vec<Compared>, Failure> {
    let mut compared = Vec::new();
    for (mode, words) in
        [("in memory", &["--in-memory"][..]), ("interval", &["--durability", "interval"][..])]
    {
        let section = format!("server/{mode}");
        if options.wants(&section) {
            compared.extend(output::section(&section, || mode_of(options, [before, now], mode, words))?);
        }
    }
    Ok(compared)
}

/// Both servers run all the time: an idle one takes no processor time.
fn mode_of(
    options: &Options,
    sides: [&Side; 2],
    mode: &str,
    words: &[&str],
) -> Result<Vec<Compared>, Failure> {
    let start = |side: &Side| -> Result<_, Failure> {
        let folder = folder::on_disk()?;
        let mut all: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        if !words.contains(&"--in-memory") {
            all.extend([OsStr::new("--data"), folder.path().as_os_str()]);
        }
        let server = Process::lately_at(&side.lately, &all)?;
        lately_load::run(&fill(&server, "HIT {key}", "key:", KEYS))?;
        Ok((server, folder))
    };
    let [before, now] = [start(sides[0])?, start(sides[1])?];
    let servers = [&before.0, &now.0];
    let mut compared = Vec::new();
    for (pipeline, requests) in DEPTHS {
        for (name, benchmark, load) in REQUESTS {
            let requests = options.pick(requests, requests / 3);
            let by_benchmark =
                |server: &Process| Measured::redis_benchmark(server, benchmark, pipeline, requests);
            let title = format!("{mode}: {name}, pipeline {pipeline}");
            compared.extend(rows(options, servers, &format!("{title}, redis-benchmark"), by_benchmark));
            let by_load = |server: &Process| Measured::load(server, &plan(options, server, load, pipeline));
            compared.extend(rows(options, servers, &format!("{title}, lately bench"), by_load));
        }
    }
    Ok(compared)
}

fn plan(options: &Options, server: &Process, request: &str, pipeline: usize) -> Plan {
    let plan = round(options, server, request, "key:", pipeline);
    match request.starts_with("LIMIT") {
        true => Plan { answer: lately_load::Answer::Decision { allowed: b'1' }, ..plan },
        false => plan,
    }
}

/// The throughput, and the server's processor time per request.
fn rows(
    options: &Options,
    servers: [&Process; 2],
    name: &str,
    measure: impl Fn(&Process) -> Measured,
) -> [Compared; 2] {
    let mut contenders = [("before", servers[0]), ("now", servers[1])]
        .map(|(name, server)| Contender::new(name, || measure(server)));
    let rounds = interleave(&mut contenders, options.rounds());
    let of =
        |side: usize, figure: fn(&Measured) -> f64| rounds[side].iter().map(figure).collect::<Vec<f64>>();
    let row = |name: String, unit, is_rate, figure: fn(&Measured) -> f64| Compared {
        name,
        unit,
        is_rate,
        before: of(0, figure),
        now: of(1, figure),
    };
    [
        row(name.to_owned(), "M/s", true, |measured| measured.per_second / 1e6),
        row(format!("{name}, CPU"), "µs", false, |measured| measured.cpu_us),
    ]
}
