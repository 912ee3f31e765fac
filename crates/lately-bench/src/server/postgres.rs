//! PostgreSQL: how many counts a node sends to it, and two ways to count there without nodes: an upsert for each hit, and a
//! compare-and-swap on the version of a row, which is tried again when another writer was first. All connections are on loopback, and the
//! server does not wait for the disk.

use std::cell::Cell as Counter;
use std::time::Duration;

use lately::{Cell, Origin, Settings, Tally, Timestamp};
use lately_engines::{Block, Engine, Known, Postgres, Write};
use lately_load::{Ending, Order, Plan, Stopwatch};
use test_support::{PostgresPrograms, PostgresServer};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tokio_postgres::{Client, NoTls};

use crate::options::Options;
use crate::rounds::{Contender, interleave, median, median_ratio};
use crate::row::{Must, Row};
use crate::server::TABLE;
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::plans::{KEYS, round};
use crate::server::process::Process;
use crate::table::number;

/// Counts that the engine gets at once, each of another key.
const COUNTS: usize = 10_000;

/// Connections that send an upsert for each hit.
const UPSERTERS: usize = 8;

/// Writers that count on one row.
const WRITERS: [usize; 4] = [1, 4, 16, 64];

/// A time within the retention of no one: partitions are made for it, and none is over.
const START_MS: i64 = 4_000_000_000_000;

const TABLES: &str = "CREATE TABLE plain (key bigint PRIMARY KEY, value bigint NOT NULL);
    CREATE TABLE versioned (key bigint PRIMARY KEY, value bigint NOT NULL, version bigint NOT NULL);
    INSERT INTO versioned VALUES (0, 0, 0)";

const UPSERT: &str =
    "INSERT INTO plain VALUES ($1, 1) ON CONFLICT (key) DO UPDATE SET value = plain.value + 1";

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let Some(programs) = PostgresPrograms::find() else {
        return Err(Failure::new("PostgreSQL is not installed: apt-get install postgresql"));
    };
    let server = PostgresServer::start(&programs);
    server.succeed(TABLES);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bench = Bench { server: &server, runtime: &runtime, time: options.pick(SECONDS, SECOND) };
    let mut rows = vec![bench.changes(options), bench.against_upserts(options)?];
    for writers in WRITERS {
        rows.push(bench.compare_and_swap(options, writers));
    }
    Ok(rows)
}

const SECONDS: Duration = Duration::from_secs(3);
const SECOND: Duration = Duration::from_secs(1);

struct Bench<'b> {
    server: &'b PostgresServer,
    runtime: &'b Runtime,
    /// How long a round takes.
    time: Duration,
}

/// What writers of one row did.
struct Swaps {
    per_second: f64,
    /// Statements that try to write, for each hit.
    tries: f64,
}

impl Bench<'_> {
    /// Counts that the engine takes a second, each in a row of its own.
    fn changes(&self, options: &Options) -> Row {
        let mut first = 0;
        let mut contenders = [Contender::new("engine", || {
            let sent = self.runtime.block_on(self.send(&mut first));
            Measured::number_or_none(sent)
        })];
        let figures = interleave(&mut contenders, options.rounds());
        let name = "PostgreSQL: changes a second, each of another key, from one node";
        Row::new(TABLE, name, median(&figures[0]) / 1e3, "k/s", Must::AtLeast(50.0, 100.0))
            .note(format!("in calls of {} k", number(COUNTS as f64 / 1e3)))
    }

    async fn send(&self, first: &mut u64) -> Result<f64, Failure> {
        let mut engine = Postgres::new(&[self.server.url()])?;
        let levels = Settings::default().levels().id();
        let keep_until = Timestamp::from_millis(START_MS + 3_600_000).expect("a time");
        let known = Known {
            origin: Origin::new("a", 1).expect("a name"),
            levels,
            cell: Cell::of(START_MS, 1_000),
            tally: Tally { counted: 7, deleted: 0 },
            removed: 0,
        };
        let (watch, mut sent) = (Stopwatch::start(), 0);
        while watch.elapsed() < self.time {
            let keys: Vec<String> = (*first..).take(COUNTS).map(|key| format!("user:{key:010}")).collect();
            let writes = keys.iter().map(|key| {
                let block = Block::of(key.as_bytes(), levels, known.cell);
                Write { block, keep_until, counts: vec![&known] }
            });
            engine.send(&writes.collect::<Vec<_>>()).await?;
            *first += COUNTS as u64;
            sent += COUNTS;
        }
        Ok(sent as f64 / watch.elapsed().as_secs_f64())
    }

    /// Hits of a node that sends its counts, beside an upsert for each hit.
    fn against_upserts(&self, options: &Options) -> Result<Row, Failure> {
        let url = self.server.url();
        let words = ["--in-memory", "--cluster", &url, "--node", "a"];
        let node = Process::ours(options, &words.map(AsRef::as_ref))?;
        let plan = Plan {
            order: Order::Uniform,
            clients: UPSERTERS,
            ending: Ending::After(self.time),
            ..round(options, &node, "HIT {key}", "key:", 64)
        };
        let mut contenders = [
            Contender::new("node", || Measured::load(&node, &plan).per_second),
            Contender::new("upsert", || Measured::number_or_none(self.upserts(UPSERTERS, KEYS))),
        ];
        let figures = interleave(&mut contenders, options.rounds());
        let [ours, theirs] = [0, 1].map(|at: usize| number(median(&figures[at]) / 1e3));
        let name = "PostgreSQL: hits/s of a node ÷ an upsert for each hit, evenly over 1 M keys";
        let ratio = median_ratio(&figures[0], &figures[1]);
        Ok(Row::new(TABLE, name, ratio, "×", Must::AtLeast(20.0, 100.0))
            .note(format!("{ours} k/s, upserts {theirs} k/s over {UPSERTERS} connections")))
    }

    /// Hits a second of these connections, each an upsert of one of `rows` rows.
    fn upserts(&self, connections: usize, rows: u64) -> Result<f64, Failure> {
        let hits = Counter::new(0);
        let elapsed = self.write(connections, &async |client, writer, watch| {
            let statement = client.prepare(UPSERT).await?;
            // A step that shares no divisor with the number of rows visits all of them.
            let mut key = writer as u64 * 7_919 % rows;
            while watch.elapsed() < self.time {
                client.execute(&statement, &[&i64::try_from(key).unwrap_or(0)]).await?;
                key = (key + 104_729) % rows;
                hits.set(hits.get() + 1);
            }
            Ok(())
        })?;
        Ok(f64::from(hits.get()) / elapsed)
    }

    /// Hits a second on one row, of writers that read its version and write if it is still the same.
    fn swaps(&self, writers: usize) -> Result<Swaps, Failure> {
        let (hits, tries) = (Counter::new(0), Counter::new(0));
        let elapsed = self.write(writers, &async |client, _, watch| {
            let read = client.prepare("SELECT value, version FROM versioned WHERE key = 0").await?;
            let swap = "UPDATE versioned SET value = $1, version = $2 + 1 WHERE key = 0 AND version = $2";
            let swap = client.prepare(swap).await?;
            while watch.elapsed() < self.time {
                let row = client.query_one(&read, &[]).await?;
                let (value, version): (i64, i64) = (row.get(0), row.get(1));
                let written = client.execute(&swap, &[&(value + 1), &version]).await?;
                tries.set(tries.get() + 1);
                hits.set(hits.get() + u32::try_from(written).unwrap_or(0));
            }
            Ok(())
        })?;
        let (hits, tries) = (f64::from(hits.get()), f64::from(tries.get()));
        Ok(Swaps { per_second: hits / elapsed, tries: tries / hits })
    }

    fn compare_and_swap(&self, options: &Options, writers: usize) -> Row {
        let swaps = || {
            self.swaps(writers).unwrap_or_else(|failure| {
                let per_second = Measured::number_or_none(Err(failure));
                Swaps { per_second, tries: f64::NAN }
            })
        };
        let upserts = || {
            let per_second = Measured::number_or_none(self.upserts(writers, 1));
            Swaps { per_second, tries: 1.0 }
        };
        let mut contenders = [Contender::new("swap", swaps), Contender::new("upsert", upserts)];
        let figures = interleave(&mut contenders, options.rounds());
        let of = |at: usize, figure: fn(&Swaps) -> f64| {
            median(&figures[at].iter().map(figure).collect::<Vec<f64>>())
        };
        let name = format!("PostgreSQL: hits/s on one row by compare-and-swap, {writers} writers");
        let (tries, upserts) = (number(of(0, |swaps| swaps.tries)), number(of(1, |swaps| swaps.per_second)));
        Row::new(TABLE, name, of(0, |swaps| swaps.per_second), "", Must::Nothing)
            .note(format!("{tries} tries a hit; upserts of that row {upserts} a second"))
    }

    /// Has each writer work on a connection of its own. Returns how long it took, in seconds.
    fn write(
        &self,
        writers: usize,
        work: &impl AsyncFn(&Client, usize, &Stopwatch) -> Result<(), Failure>,
    ) -> Result<f64, Failure> {
        LocalSet::new().block_on(self.runtime, async {
            let mut clients = Vec::with_capacity(writers);
            for _ in 0..writers {
                let (client, connection) = tokio_postgres::connect(&self.server.url(), NoTls).await?;
                tokio::task::spawn_local(connection);
                clients.push(client);
            }
            let watch = Stopwatch::start();
            let work = clients.iter().enumerate().map(|(writer, client)| work(client, writer, &watch));
            futures_util::future::try_join_all(work).await?;
            Ok(watch.elapsed().as_secs_f64())
        })
    }
}
