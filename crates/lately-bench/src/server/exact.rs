//! Exact limits: what a request takes on a node that has to ask the owner of the key, beside one that the node decides itself.

use std::time::Duration;

use lately::route::Nodes;
use lately_load::{Answer, Ending, Order, Plan, Request, Stopwatch, run};
use redis::Connection;

use crate::options::Options;
use crate::rounds::{Contender, interleave, median};
use crate::row::{Must, Row};
use crate::server::TABLE;
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::process::{Process, free_address};
use crate::table::number;

/// Requests a second, of all clients together.
const PER_SECOND: u64 = 20_000;

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let redis = Process::redis(&[])?;
    let folder = tempfile::tempdir()?;
    let peers = [free_address()?, free_address()?];
    let node = |number: usize| -> Result<Process, Failure> {
        let name = ["a", "b"][number];
        let config = format!(
            "[storage]\npath = \"{data}\"\n[cluster]\nengine = \"redis\"\nnode = \"{name}\"\nurls = [\"redis://{}\"]\n\
             peer = \"{}\"\nowners = {{ a = \"{}\", b = \"{}\" }}\n\
             [[limit]]\nname = \"exact\"\nmax = 1000000000\nwindow = \"1h\"\nexact = true\n",
            redis.address,
            peers[number],
            peers[0],
            peers[1],
            data = folder.path().join(name).display(),
        );
        let path = folder.path().join(format!("{name}.toml"));
        std::fs::write(&path, config)?;
        Process::ours_with(options, &path, &[])
    };
    let nodes = [node(0)?, node(1)?];
    let owners = Nodes::new(["a", "b"]);
    let key_of = |name: &str| {
        let mut keys = (0..).map(|key| format!("key:{key}"));
        keys.find(|key| owners.of(key.as_bytes()).is_some_and(|owner| *owner == name))
            .expect("there are many")
    };
    let (asked, own) = (key_of("b"), key_of("a"));
    wait(&nodes[0], &asked)?;
    let time = options.pick(Duration::from_secs(3), Duration::from_secs(1));
    let paced = |name: &'static str, key: String| {
        let plan = Plan {
            keys: 1,
            order: Order::Sequential,
            answer: Answer::Decision { allowed: b'1' },
            ending: Ending::After(time),
            rate: Some(PER_SECOND),
            ..Plan::new(nodes[0].address, Request::parse(&format!("LIMIT {key} @exact"), ""))
        };
        let latency = move || match run(&plan) {
            Ok(report) => [0.5, 0.99].map(|share| report.latency(share).as_secs_f64() * 1e3),
            Err(error) => [Measured::number_or_none(Err(error.into())); 2],
        };
        Contender::new(name, latency)
    };
    let figures = interleave(&mut [paced("asked", asked), paced("own", own)], options.rounds());
    let of = |at: usize, share: usize| {
        median(&figures[at].iter().map(|figure: &[f64; 2]| figure[share]).collect::<Vec<f64>>())
    };
    let name = format!("exact limits: LIMIT on a node that is not the owner, p99 at {PER_SECOND} a second");
    let [p50, own_p50, own_p99] = [of(0, 0), of(1, 0), of(1, 1)].map(number);
    let note = format!("p50 {p50} ms; on the owner p50 {own_p50} ms, p99 {own_p99} ms");
    Ok(vec![Row::new(TABLE, name, of(0, 1), "ms", Must::AtMost(2.0, 1.0)).note(note)])
}

/// Waits until a node reaches the owner of a key.
fn wait(node: &Process, key: &str) -> Result<(), Failure> {
    let mut connection = node.connect()?;
    let watch = Stopwatch::start();
    while limit(&mut connection, key)?.first() != Some(&1) {
        if watch.elapsed() > Duration::from_secs(10) {
            return Err(Failure::new("the owner is not reached"));
        }
    }
    Ok(())
}

fn limit(connection: &mut Connection, key: &str) -> Result<Vec<i64>, Failure> {
    Ok(redis::cmd("LIMIT").arg(key).arg("@exact").query(connection)?)
}
