//! Exact limits: what a request takes on a node that has to ask the owner of the key, beside one that the node decides itself.

use std::net::SocketAddr;
use std::time::Duration;

use lately::route::Nodes;
use lately_load::Stopwatch;
use redis::Connection;

use crate::options::Options;
use crate::row::{Must, Row};
use crate::server::TABLE;
use crate::server::failure::Failure;
use crate::server::process::{Process, free_address};
use crate::table::number;

/// Requests a second, of all clients together.
const PER_SECOND: u32 = 20_000;
const CLIENTS: u32 = 20;
const KEYS: usize = 1_000;

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let redis = Process::redis(&[])?;
    let folder = tempfile::tempdir()?;
    let peers = [free_address()?, free_address()?];
    let node = |number: usize| -> Result<Process, Failure> {
        let name = ["a", "b"][number];
        let config = format!(
            "[storage]\npath = \"{data}\"\n[cluster]\nengine = \"redis\"\nnode = \"{name}\"\nurls = [\"redis://{}\"]\n\
             peer = \"{}\"\nowners = {{ a = \"{}\", b = \"{}\" }}\n\
             [[limit]]\nname = \"exact\"\nmax = 100000\nwindow = \"1h\"\nexact = true\n",
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
    let keys = |name: &str| -> Vec<String> {
        let keys = (0..).map(|key| format!("key:{key}"));
        keys.filter(|key| owners.of(key.as_bytes()).is_some_and(|owner| *owner == name)).take(KEYS).collect()
    };
    let (asked, own) = (keys("b"), keys("a"));
    wait(&nodes[0], &asked[0])?;
    let time = options.pick(Duration::from_secs(10), Duration::from_secs(2));
    let asked = paced(nodes[0].address, &asked, time)?;
    let own = paced(nodes[0].address, &own, time)?;
    let name = format!("exact limits: LIMIT on a node that is not the owner, p99 at {PER_SECOND} a second");
    let note = format!(
        "p50 {} µs, {} a second; keys of the node itself: p50 {} µs, p99 {} µs",
        number(asked.p50_us),
        number(asked.per_second),
        number(own.p50_us),
        number(own.p99_us)
    );
    Ok(vec![Row::new(TABLE, name, asked.p99_us / 1e3, "ms", Must::AtMost(2.0, 1.0)).note(note)])
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

struct Paced {
    p50_us: f64,
    p99_us: f64,
    per_second: f64,
}

/// Clients that send at a rate, each a request at a time. A client that is late sends at once.
fn paced(node: SocketAddr, keys: &[String], time: Duration) -> Result<Paced, Failure> {
    let step = Duration::from_secs(1) * CLIENTS / PER_SECOND;
    let watch = Stopwatch::start();
    let client = |number: u32| -> Result<Vec<Duration>, Failure> {
        let mut connection = redis::Client::open(format!("redis://{node}/"))?.get_connection()?;
        let mut taken = Vec::new();
        let mut due = watch.elapsed() + step * number / CLIENTS;
        for key in keys.iter().cycle().skip(number as usize * keys.len() / CLIENTS as usize) {
            let now = watch.elapsed();
            if now >= time {
                break;
            }
            std::thread::park_timeout(due.saturating_sub(now));
            due += step;
            let begun = watch.elapsed();
            limit(&mut connection, key)?;
            taken.push(watch.elapsed().saturating_sub(begun));
        }
        Ok(taken)
    };
    let taken: Result<Vec<Vec<Duration>>, Failure> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
        running.into_iter().map(|client| client.join().expect("it does not panic")).collect()
    });
    let mut taken = taken?.concat();
    taken.sort_unstable();
    let at = |part: usize| {
        let place = (taken.len() * part / 100).min(taken.len().saturating_sub(1));
        taken.get(place).map_or(f64::NAN, |taken| taken.as_secs_f64() * 1e6)
    };
    #[expect(clippy::cast_precision_loss, reason = "few")]
    let per_second = taken.len() as f64 / watch.elapsed().as_secs_f64();
    Ok(Paced { p50_us: at(50), p99_us: at(99), per_second })
}
