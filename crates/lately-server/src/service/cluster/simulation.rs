//! Nodes, an engine and what goes wrong between them, on virtual time. A run depends on its seed only.
//!
//! Writes are lost, repeated and late; an engine fails over to a server without the last writes, or is emptied; nodes are
//! killed and started again with their data folder; their clocks differ. Once all of that has ended, every node answers as
//! one store that all hits went to.
//!
//! `LATELY_SIM_SEED` runs one seed, `LATELY_SIM_SEEDS` this number of them, `LATELY_SIM_SECONDS` new ones for this long.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lately::{Cell, ManualClock, Op, Origin, Span, Store, Timestamp, minutes};
use lately_engines::{Block, Engine, EngineError, Known, Told, Write};
use test_support::{ReportOnPanic, Rng, print_uncaptured, seeds, trace};

use super::worker::{Worker, start};
use super::{Cluster, ClusterConfig};
use crate::config::{Config, Storage};
use crate::service::Service;
use crate::service::commit::Changes;

const START_MS: i64 = 1_700_000_000_000;
const KEYS: [&[u8]; 4] = [b"login:alice", b"page", b"k208", b"b"];
const STEPS: usize = 120;
/// Seeds of a run in CI.
const SEEDS: u64 = 60;

/// Blocks by key, width and number.
type Blocks = HashMap<(Box<[u8]>, i64, i64), HashMap<(Origin, Cell), Known>>;

/// A write to a block, owned.
type OwnWrite = ((Box<[u8]>, i64, i64), Known);

/// The engine: what it has, and what its replica has not.
struct World {
    rng: Rng,
    now_ms: i64,
    blocks: Blocks,
    replica: Blocks,
    /// Writes that the replica lacks.
    unreplicated: Vec<OwnWrite>,
    /// Writes whose senders were told that they failed, and that arrive later.
    late: Vec<(i64, OwnWrite)>,
    /// Raised when all connections are lost.
    failovers: u64,
    /// Raised when it is emptied.
    flushes: u64,
    /// One of this many calls fails; 0 for none.
    fails_once_in: u64,
}

/// The connection of a node to the engine.
struct Connection {
    world: Arc<Mutex<World>>,
    life: u64,
    failovers: u64,
    flushes: u64,
}

fn merge(blocks: &mut Blocks, (block, known): OwnWrite) {
    let held = blocks.entry(block).or_default();
    held.entry((known.origin.clone(), known.cell)).and_modify(|held| held.merge(&known)).or_insert(known);
}

impl World {
    fn write(&mut self, write: OwnWrite) {
        merge(&mut self.blocks, write.clone());
        self.unreplicated.push(write);
    }

    fn deliver_late(&mut self) {
        let now_ms = self.now_ms;
        let due: Vec<_> = self.late.extract_if(.., |(at_ms, _)| *at_ms <= now_ms).collect();
        due.into_iter().for_each(|(_, write)| self.write(write));
    }
}

impl Connection {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails when the connection is lost, by itself or with the server.
    fn check(&mut self) -> Result<(), EngineError> {
        let mut world = self.world();
        world.deliver_late();
        let (failovers, once_in) = (world.failovers, world.fails_once_in);
        let fails = once_in > 0 && world.rng.once_in(once_in);
        drop(world);
        if self.failovers != failovers || fails {
            self.failovers = failovers;
            self.life += 1;
            return Err(EngineError::Away("the connection is lost".to_owned()));
        }
        Ok(())
    }
}

impl Engine for Connection {
    async fn send(&mut self, writes: &[Write<'_>]) -> Result<(), EngineError> {
        let checked = self.check();
        let mut world = self.world();
        let writes = writes.iter().flat_map(|write| {
            let Block { key, width_ms, number } = write.block;
            write.counts.iter().map(move |known| ((key.into(), width_ms, number), (*known).clone()))
        });
        // In an order that does not depend on the hashes of this process.
        let mut writes: Vec<OwnWrite> = writes.collect();
        writes.sort_by_key(|(block, known)| (block.clone(), known.cell, known.origin.to_string()));
        for write in writes {
            // Of a write that failed it is not known whether it arrives.
            match (checked.is_ok(), world.rng.below(3)) {
                (true, _) | (false, 0) => world.write(write),
                (false, 1) => {
                    let at_ms = world.now_ms + i64::try_from(world.rng.below(1_000)).expect("small");
                    world.late.push((at_ms, write));
                }
                _ => {}
            }
        }
        checked
    }

    async fn claim(
        &mut self,
        _: &str,
        _: &str,
        _: &(dyn Fn(&str) -> bool + Sync),
        _: Duration,
    ) -> Result<Option<String>, EngineError> {
        self.check()?;
        let flushes = self.world().flushes;
        self.life += u64::from(self.flushes != flushes);
        self.flushes = flushes;
        Ok(None)
    }

    async fn report(&mut self, _: &str, _: Option<&str>, _: Duration) -> Result<(), EngineError> {
        self.check()
    }

    async fn nodes(&mut self) -> Result<Vec<(String, String)>, EngineError> {
        self.check().map(|()| Vec::new())
    }

    fn life(&self) -> u64 {
        self.life
    }

    async fn read(&mut self, blocks: &[Block<'_>]) -> Result<Vec<Told>, EngineError> {
        self.check()?;
        let world = self.world();
        let told = blocks.iter().map(|&Block { key, width_ms, number }| {
            let held = world.blocks.get(&(key.into(), width_ms, number));
            held.into_iter().flat_map(HashMap::values).cloned().collect()
        });
        Ok(told.collect())
    }
}

/// A server.
struct Node {
    worker: Worker<Connection>,
    clock: Arc<ManualClock>,
    /// How far its clock is ahead.
    ahead_ms: i64,
    _folder: tempfile::TempDir,
}

fn connection(world: &Arc<Mutex<World>>) -> Connection {
    let (failovers, flushes) = {
        let world = world.lock().unwrap_or_else(PoisonError::into_inner);
        (world.failovers, world.flushes)
    };
    Connection { world: Arc::clone(world), life: 1, failovers, flushes }
}

fn cluster_config(number: usize) -> ClusterConfig {
    ClusterConfig::new(&format!("node-{number}"), &["redis://127.0.0.1:1"]).expect("a name")
}

impl Node {
    fn new(number: usize, ahead_ms: i64, world: &Arc<Mutex<World>>) -> Node {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = Storage { path: PathBuf::from(folder.path()), ..Storage::default() };
        let (cluster, storage) = (Some(cluster_config(number)), Some(storage));
        let config = Config { cluster, storage, ..Config::default() };
        let clock = Arc::new(ManualClock::new(at(START_MS + ahead_ms)));
        let service =
            Arc::new(Service::new(config, Arc::<ManualClock>::clone(&clock)).expect("valid settings"));
        service.loaded_nothing();
        start(&service).expect("the folder is there");
        Node { worker: Worker::new(service, connection(world)), clock, ahead_ms, _folder: folder }
    }

    fn service(&self) -> &Service {
        &self.worker.service
    }

    fn store(&self) -> &Store {
        &self.service().store
    }

    /// Ends it at once, and starts it with what is in the journal: all that it counted.
    fn restart(self, number: usize, world: &Arc<Mutex<World>>) -> Node {
        let Node { worker, clock, ahead_ms, _folder } = self;
        let Worker { service, .. } = worker;
        let mut service = Arc::into_inner(service).expect("nobody else has it");
        service.cluster = Some(Cluster::new(cluster_config(number), service.config.ceiling_bytes));
        start(&service).expect("the folder is there");
        // What was known of others is not in the journal.
        KEYS.iter().for_each(|key| service.store.unlearn(key));
        Node { worker: Worker::new(Arc::new(service), connection(world)), clock, ahead_ms, _folder }
    }

    fn apply(&self, op: Op<'_>) {
        let service = self.service();
        let now = service.now();
        let _entered = service.enter();
        let (mut changes, mut outcomes) = (Changes::default(), Vec::new());
        service.store.apply_into(&[op], now, &mut outcomes, &mut changes.deltas);
        _ = service.commit(&mut [&mut changes]);
    }

    fn delete(&self, key: &[u8]) {
        let service = self.service();
        let _entered = service.enter();
        let mut changes = Changes::default();
        service.store.forget_into(key, service.now(), Some(&mut changes.deltas));
        _ = service.commit(&mut [&mut changes]);
    }

    fn ask(&self, window: Span) {
        let cluster = self.service().cluster.as_ref().expect("it has one");
        KEYS.iter().for_each(|key| cluster.note_read(key, window, self.store(), self.service().now()));
    }

    async fn exchange(&mut self) {
        _ = self.worker.exchange(false).await;
    }
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms).expect("a time")
}

/// The whole system.
struct Simulation {
    rng: Rng,
    world: Arc<Mutex<World>>,
    nodes: Vec<Node>,
    /// All hits go here, too.
    all: Store,
    hits: Vec<(usize, i64, u64)>,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let mut rng = Rng::new(seed);
        let world = World {
            rng: Rng::new(rng.next_u64()),
            now_ms: START_MS,
            blocks: Blocks::new(),
            replica: Blocks::new(),
            unreplicated: Vec::new(),
            late: Vec::new(),
            failovers: 0,
            flushes: 0,
            fails_once_in: [0, 3, 10, 30][rng.index(4)],
        };
        let world = Arc::new(Mutex::new(world));
        let count = 2 + rng.index(2);
        let nodes = (0..count).map(|number| {
            let ahead_ms = [0, 0, 700, -1_300][rng.index(4)];
            Node::new(number, ahead_ms, &world)
        });
        let nodes = nodes.collect();
        let all = Store::builder().build().expect("the defaults are valid");
        Simulation { rng, world, nodes, all, hits: Vec::new() }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&mut self, ms: u64) {
        let mut world = self.world();
        world.now_ms += i64::try_from(ms).expect("small");
        let now_ms = world.now_ms;
        drop(world);
        for Node { clock, ahead_ms, .. } in &self.nodes {
            clock.set(at(now_ms + *ahead_ms));
        }
    }

    fn hit(&mut self) {
        let (node, key) = (self.rng.index(self.nodes.len()), self.rng.index(KEYS.len()));
        let node = &self.nodes[node];
        let ago_ms = match self.rng.below(10) {
            0 => self.rng.below(1_200_000),
            1 => self.rng.below(100_000_000),
            2 | 3 => self.rng.below(5_000),
            _ => 0,
        };
        let (now, hits) = (node.service().now(), 1 + self.rng.below(3));
        let time = at(now.as_millis() - i64::try_from(ago_ms).expect("small"));
        let is_now = ago_ms == 0;
        node.apply(Op::Hit { key: KEYS[key], weight: hits, at: (!is_now).then_some(time) });
        self.all.hit_n(KEYS[key], hits, Some(time), at(self.world().now_ms)).expect("counted");
        self.hits.push((key, time.as_millis(), hits));
        trace(|| format!("{} hit {key} {hits}", time.as_millis() - START_MS));
    }

    /// One thing happens.
    async fn step(&mut self) {
        match self.rng.below(24) {
            0..=8 => self.hit(),
            9..=14 => {
                let node = self.rng.index(self.nodes.len());
                self.nodes[node].exchange().await;
            }
            15..=17 => {
                let most_ms = [50, 200, 3_000, 20_000][self.rng.index(4)];
                let ms = 1 + self.rng.below(most_ms);
                self.pass(ms);
            }
            18 if self.rng.once_in(2) => {
                let ms = 1 + self.rng.below(4_000_000);
                self.pass(ms);
            }
            19 => {
                // The replica catches up a part of the way.
                let mut world = self.world();
                let count = world.unreplicated.len();
                let upto = if count == 0 { 0 } else { world.rng.index(count + 1) };
                let writes: Vec<_> = world.unreplicated.drain(..upto).collect();
                writes.into_iter().for_each(|write| merge(&mut world.replica, write));
            }
            20 if self.rng.once_in(3) => {
                let mut world = self.world();
                trace(|| {
                    format!("{} failover, {} writes lost", world.now_ms - START_MS, world.unreplicated.len())
                });
                world.blocks = world.replica.clone();
                world.unreplicated.clear();
                world.late.clear();
                world.failovers += 1;
            }
            21 if self.rng.once_in(6) => {
                let mut world = self.world();
                trace(|| format!("{} emptied", world.now_ms - START_MS));
                (world.blocks, world.replica) = Default::default();
                world.unreplicated.clear();
                world.flushes += 1;
            }
            22 => {
                let number = self.rng.index(self.nodes.len());
                trace(|| format!("{} node {number} restarts", self.world().now_ms - START_MS));
                let node = self.nodes.remove(number).restart(number, &self.world);
                self.nodes.insert(number, node);
            }
            23 => {
                let node = self.rng.index(self.nodes.len());
                let window = [minutes(5), Span::MAX][self.rng.index(2)];
                self.nodes[node].ask(window);
            }
            _ => {}
        }
    }

    /// Nothing goes wrong any more, until everybody has everything.
    async fn settle(&mut self) {
        self.world().fails_once_in = 0;
        for _ in 0..120 {
            self.pass(200);
            for node in &mut self.nodes {
                node.ask(Span::MAX);
                node.exchange().await;
            }
        }
        // A replica lags by seconds.
        let mut world = self.world();
        world.replica = world.blocks.clone();
        world.unreplicated.clear();
    }

    /// Traces what the engine has of a key.
    fn trace(&self, key: usize) {
        let world = self.world();
        let of_key = world.blocks.iter().filter(|((of, ..), _)| **of == *KEYS[key]);
        let mut cells: Vec<_> = of_key.flat_map(|(_, held)| held.values()).collect();
        cells.sort_by_key(|known| (known.cell.width_ms, known.cell.start_ms, known.origin.to_string()));
        for Known { origin, cell, tally, removed } in cells {
            let start_ms = cell.start_ms - START_MS;
            trace(|| format!("{} {start_ms} {origin} {tally:?} {removed}", cell.width_ms));
        }
    }

    fn check(&mut self, seed: u64) {
        // Later than the clock of any node. Reading advances the time of a store, so the clocks follow.
        let now = at(self.world().now_ms + 2_000);
        self.pass(4_000);
        for (number, node) in self.nodes.iter().enumerate() {
            node.service().check_consistency();
            for (index, key) in KEYS.into_iter().enumerate() {
                for window_s in [1, 5, 60, 300, 1_000, 3_600, 86_400, 604_800] {
                    let window = Span::from_seconds(window_s).expect("a span");
                    let (here, there) =
                        (node.store().hits(key, window, now), self.all.hits(key, window, now));
                    let about = format!(
                        "seed {seed}, node {number}, key {index}, {window}: {here:?}, one store {there:?}"
                    );
                    let second = |ms: i64| ms.div_euclid(1_000);
                    let is_in = |at_ms: i64| {
                        let age = second(now.as_millis()) - second(at_ms);
                        u64::try_from(age).is_ok_and(|age| age < window_s)
                    };
                    let its = self.hits.iter().filter(|(of, at_ms, _)| *of == index && is_in(*at_ms));
                    let truth: u64 = its.map(|(.., hits)| hits).sum();
                    let upper = here.upper.unwrap_or(u64::MAX);
                    let is_right =
                        here.lower <= truth && truth <= upper && (window > minutes(5) || here == there);
                    if !is_right {
                        self.trace(index);
                    }
                    assert!(is_right, "{truth} hits: {about}");
                }
            }
        }
    }

    /// A key is deleted while everybody has everything.
    async fn delete(&mut self) {
        let (node, key) = (self.rng.index(self.nodes.len()), self.rng.index(KEYS.len()));
        trace(|| format!("{} node {node} deletes key {key}", self.world().now_ms - START_MS));
        self.nodes[node].delete(KEYS[key]);
        self.all.forget(KEYS[key], at(self.world().now_ms));
        self.hits.retain(|(of, ..)| *of != key);
        self.settle().await;
    }
}

async fn simulate(seed: u64) -> usize {
    let _report = ReportOnPanic(seed);
    let mut simulation = Simulation::new(seed);
    let fails_once_in = simulation.world().fails_once_in;
    let rounds = 1 + simulation.rng.index(3);
    for _ in 0..rounds {
        for _ in 0..STEPS {
            simulation.step().await;
        }
        simulation.settle().await;
        simulation.check(seed);
        if simulation.rng.once_in(2) {
            simulation.delete().await;
            simulation.check(seed);
        }
        simulation.world().fails_once_in = fails_once_in;
    }
    rounds * STEPS
}

#[test]
fn nodes_agree_whatever_goes_wrong() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (mut played, mut steps) = (0, 0);
    for seed in seeds(SEEDS) {
        steps += runtime.block_on(simulate(seed));
        played += 1;
    }
    print_uncaptured(&format!("{played} seeds, {steps} steps"));
}
