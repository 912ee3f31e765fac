//! Nodes, an engine and what goes wrong between them, on virtual time. A run depends on its seed only.
//!
//! Writes are lost, repeated and late; an engine fails over to a server without the last writes, or is emptied; nodes are
//! killed and started again with their data folder; their clocks differ. Once all of that has ended, every node answers as
//! one store that all hits went to.
//!
//! The same is played with two data centres: an engine in each, and one that both share, which is cut off for a while, too.
//!
//! `LATELY_SIM_SEED` runs one seed, `LATELY_SIM_SEEDS` this number of them, `LATELY_SIM_SECONDS` new ones for this long.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lately::{Cell, ManualClock, Op, Origin, Span, Store, Timestamp, minutes};
use lately_engines::{Block, Engine, EngineError, Known, OwnedBlock, Place, Told, Write};
use test_support::{ReportOnPanic, Rng, print_uncaptured, seeds, trace};

use super::aggregator::Aggregator;
use super::upstream::UpstreamReader;
use super::worker::{Worker, start};
use super::{Cluster, ClusterConfig};
use crate::config::{Config, Storage};
use crate::limits::UPSTREAM_MOST_CHANGED;
use crate::service::Service;
use crate::service::commit::Changes;

const START_MS: i64 = 1_700_000_000_000;
const KEYS: [&[u8]; 4] = [b"login:alice", b"page", b"k208", b"b"];
const STEPS: usize = 120;
/// Seeds of a run in CI.
const SEEDS: u64 = 60;

type Blocks = HashMap<OwnedBlock, HashMap<(Origin, Cell), Known>>;

/// A write to a block, owned.
type OwnWrite = (OwnedBlock, Known);

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
    /// All calls fail.
    is_cut: bool,
    /// The blocks that were noted as changed.
    changed: BTreeSet<OwnedBlock>,
    /// Who has a name, and until when.
    claims: HashMap<String, (String, i64)>,
}

/// The connection of a node to the engine.
struct Connection {
    world: Arc<Mutex<World>>,
    life: u64,
    failovers: u64,
    flushes: u64,
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
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
        lock(&self.world)
    }

    /// Fails when the connection is lost, by itself or with the server.
    fn check(&mut self) -> Result<(), EngineError> {
        let mut world = self.world();
        world.deliver_late();
        let (failovers, once_in) = (world.failovers, world.fails_once_in);
        let fails = (once_in > 0 && world.rng.once_in(once_in)) || world.is_cut;
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
            write.counts.iter().map(|known| (OwnedBlock::from(write.block), (*known).clone()))
        });
        // In an order that does not depend on the hashes of this process.
        let mut writes: Vec<OwnWrite> = writes.collect();
        writes.sort_by_key(|(block, known)| (block.clone(), known.cell, known.origin.to_string()));
        let is_cut = world.is_cut;
        for write in writes {
            // Of a write that failed it is not known whether it arrives.
            match (checked.is_ok(), world.rng.below(3)) {
                (true, _) => world.write(write),
                (false, 0) if !is_cut => world.write(write),
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
        node: &str,
        holder: &str,
        is_former: &(dyn Fn(&str) -> bool + Sync),
        lasts: Duration,
    ) -> Result<Option<String>, EngineError> {
        self.check()?;
        let mut world = self.world();
        let (flushes, now_ms) = (world.flushes, world.now_ms);
        let held = world.claims.get(node).filter(|(_, until_ms)| now_ms < *until_ms);
        let other = held.map(|(other, _)| other.clone()).filter(|other| other != holder && !is_former(other));
        if other.is_none() {
            let until_ms = now_ms + i64::try_from(lasts.as_millis()).expect("short");
            world.claims.insert(node.to_owned(), (holder.to_owned(), until_ms));
        }
        drop(world);
        self.life += u64::from(self.flushes != flushes);
        self.flushes = flushes;
        Ok(other)
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
        let told = blocks.iter().map(|block| {
            let held = world.blocks.get(&OwnedBlock::from(*block));
            held.into_iter().flat_map(HashMap::values).cloned().collect()
        });
        Ok(told.collect())
    }

    async fn note_changed(&mut self, blocks: &[Block<'_>]) -> Result<(), EngineError> {
        self.check()?;
        self.world().changed.extend(blocks.iter().map(|block| OwnedBlock::from(*block)));
        Ok(())
    }

    async fn take_changed(&mut self, most: usize) -> Result<Vec<OwnedBlock>, EngineError> {
        let checked = self.check();
        let mut world = self.world();
        // When the answer is lost, so are the names.
        let is_done = checked.is_ok() || world.rng.once_in(2);
        let most = if is_done { most.min(world.changed.len()) } else { 0 };
        let taken = (0..most).filter_map(|_| world.changed.pop_first()).collect();
        checked.map(|()| taken)
    }

    async fn changed(&mut self) -> Result<usize, EngineError> {
        self.check()?;
        Ok(self.world().changed.len())
    }

    async fn scan(
        &mut self,
        from: Option<&Place>,
        count: usize,
    ) -> Result<(Vec<OwnedBlock>, Option<Place>), EngineError> {
        self.check()?;
        let world = self.world();
        let mut names: Vec<&OwnedBlock> = world.blocks.keys().collect();
        names.sort_unstable();
        let first = from.map_or(0, |place| usize::try_from(place.cursor).expect("few"));
        let page = names.iter().skip(first).take(count).copied().cloned().collect();
        let place = Place { server: String::new(), cursor: (first + count) as u64 };
        Ok((page, (first + count < names.len()).then_some(place)))
    }
}

/// The engines of a server.
#[derive(Clone)]
struct Engines {
    local: Arc<Mutex<World>>,
    upstream: Option<Arc<Mutex<World>>>,
}

/// What a server has for the upstream engine.
struct Above {
    reader: UpstreamReader<Connection>,
    aggregator: Aggregator<Connection>,
}

impl Engines {
    fn above(&self, service: &Arc<Service>) -> Option<Above> {
        let upstream = self.upstream.as_ref()?;
        let reader = UpstreamReader::new(Arc::clone(service), connection(upstream));
        let aggregator = Aggregator::new(Arc::clone(service), connection(&self.local), connection(upstream));
        Some(Above { reader, aggregator })
    }

    fn cluster_config(&self, number: usize) -> ClusterConfig {
        let config = ClusterConfig::new(&format!("node-{number}"), &["redis://127.0.0.1:1"]).expect("a name");
        match self.upstream {
            Some(_) => config.with_upstream(&["redis://127.0.0.1:2"]).expect("another server"),
            None => config,
        }
    }
}

/// A server.
struct Node {
    worker: Worker<Connection>,
    above: Option<Above>,
    engines: Engines,
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

impl Node {
    fn new(number: usize, ahead_ms: i64, engines: Engines) -> Node {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = Storage { path: PathBuf::from(folder.path()), ..Storage::default() };
        let (cluster, storage) = (Some(engines.cluster_config(number)), Some(storage));
        let config = Config { cluster, storage, ..Config::default() };
        let clock = Arc::new(ManualClock::new(at(START_MS + ahead_ms)));
        let service =
            Arc::new(Service::new(config, Arc::<ManualClock>::clone(&clock)).expect("valid settings"));
        service.loaded_nothing();
        start(&service).expect("the folder is there");
        let (above, worker) = (engines.above(&service), Worker::new(service, connection(&engines.local)));
        Node { worker, above, engines, clock, ahead_ms, _folder: folder }
    }

    fn service(&self) -> &Service {
        &self.worker.service
    }

    fn store(&self) -> &Store {
        &self.service().store
    }

    /// Ends it at once, and starts it with what is in the journal: all that it counted.
    fn restart(self, number: usize) -> Node {
        let Node { worker, above, engines, clock, ahead_ms, _folder } = self;
        drop(above);
        let Worker { service, .. } = worker;
        let mut service = Arc::into_inner(service).expect("nobody else has it");
        service.cluster = Some(Cluster::new(engines.cluster_config(number), service.config.ceiling_bytes));
        start(&service).expect("the folder is there");
        // What was known of others is not in the journal.
        KEYS.iter().for_each(|key| service.store.unlearn(key));
        let service = Arc::new(service);
        let (above, worker) = (engines.above(&service), Worker::new(service, connection(&engines.local)));
        Node { worker, above, engines, clock, ahead_ms, _folder }
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

    async fn read_above(&mut self) {
        if let Some(above) = &mut self.above {
            _ = above.reader.exchange(&|_: &str| ()).await;
        }
    }

    async fn copy(&mut self) {
        if let Some(above) = &mut self.above {
            _ = above.aggregator.pass().await;
        }
    }
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms).expect("a time")
}

/// The whole system.
struct Simulation {
    rng: Rng,
    /// The engine of each data centre, and then the upstream one if there are several.
    worlds: Vec<Arc<Mutex<World>>>,
    nodes: Vec<Node>,
    /// All hits go here, too.
    all: Store,
    hits: Vec<(usize, i64, u64)>,
}

impl Simulation {
    fn new(seed: u64, centres: usize) -> Simulation {
        let mut rng = Rng::new(seed);
        let mut world = || World {
            rng: Rng::new(rng.next_u64()),
            now_ms: START_MS,
            blocks: Blocks::new(),
            replica: Blocks::new(),
            unreplicated: Vec::new(),
            late: Vec::new(),
            failovers: 0,
            flushes: 0,
            fails_once_in: [0, 3, 10, 30][rng.index(4)],
            is_cut: false,
            changed: BTreeSet::new(),
            claims: HashMap::new(),
        };
        let worlds = if centres == 1 { 1 } else { centres + 1 };
        let worlds: Vec<_> = (0..worlds).map(|_| Arc::new(Mutex::new(world()))).collect();
        let count = if centres == 1 { 2 + rng.index(2) } else { 2 * centres };
        let nodes = (0..count).map(|number| {
            let ahead_ms = [0, 0, 700, -1_300][rng.index(4)];
            let local = Arc::clone(&worlds[number % centres]);
            Node::new(number, ahead_ms, Engines { local, upstream: worlds.get(centres).cloned() })
        });
        let nodes = nodes.collect();
        let all = Store::builder().build().expect("the defaults are valid");
        Simulation { rng, worlds, nodes, all, hits: Vec::new() }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.worlds[0])
    }

    fn has_upstream(&self) -> bool {
        self.worlds.len() > 1
    }

    /// One of the engines.
    fn any_world(&mut self) -> (usize, Arc<Mutex<World>>) {
        let number = self.rng.index(self.worlds.len());
        (number, Arc::clone(&self.worlds[number]))
    }

    fn pass(&mut self, ms: u64) {
        let now_ms = self.world().now_ms + i64::try_from(ms).expect("small");
        self.worlds.iter().for_each(|world| lock(world).now_ms = now_ms);
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
        match self.rng.below(if self.has_upstream() { 33 } else { 24 }) {
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
                let (_, world) = self.any_world();
                let mut world = lock(&world);
                let count = world.unreplicated.len();
                let upto = if count == 0 { 0 } else { world.rng.index(count + 1) };
                let writes: Vec<_> = world.unreplicated.drain(..upto).collect();
                writes.into_iter().for_each(|write| merge(&mut world.replica, write));
            }
            20 if self.rng.once_in(3) => {
                let (number, world) = self.any_world();
                let mut world = lock(&world);
                trace(|| {
                    let lost = world.unreplicated.len();
                    format!("{} engine {number} fails over, {lost} writes lost", world.now_ms - START_MS)
                });
                world.changed.clear();
                world.blocks = world.replica.clone();
                world.unreplicated.clear();
                world.late.clear();
                world.failovers += 1;
            }
            21 if self.rng.once_in(6) => {
                let (number, world) = self.any_world();
                let mut world = lock(&world);
                trace(|| format!("{} engine {number} is emptied", world.now_ms - START_MS));
                world.changed.clear();
                world.claims.clear();
                (world.blocks, world.replica) = Default::default();
                world.unreplicated.clear();
                world.flushes += 1;
            }
            22 => {
                let number = self.rng.index(self.nodes.len());
                trace(|| format!("{} node {number} restarts", self.world().now_ms - START_MS));
                let node = self.nodes.remove(number).restart(number);
                self.nodes.insert(number, node);
            }
            23 => {
                let node = self.rng.index(self.nodes.len());
                let window = [minutes(5), Span::MAX][self.rng.index(2)];
                self.nodes[node].ask(window);
            }
            24..=27 => {
                let node = self.rng.index(self.nodes.len());
                self.nodes[node].read_above().await;
            }
            28..=31 => {
                let node = self.rng.index(self.nodes.len());
                self.nodes[node].copy().await;
            }
            32 => {
                let mut world = lock(&self.worlds[self.worlds.len() - 1]);
                world.is_cut = !world.is_cut;
                trace(|| {
                    format!("{} the upstream engine is cut off: {}", world.now_ms - START_MS, world.is_cut)
                });
            }
            _ => {}
        }
    }

    /// Nothing goes wrong any more, until everybody has everything.
    async fn settle(&mut self) {
        for world in &self.worlds {
            let mut world = lock(world);
            (world.fails_once_in, world.is_cut) = (0, false);
        }
        for _ in 0..120 {
            self.pass(200);
            for node in &mut self.nodes {
                node.ask(Span::MAX);
                node.exchange().await;
                node.copy().await;
                node.read_above().await;
            }
        }
        // A replica lags by seconds.
        for world in &self.worlds {
            let mut world = lock(world);
            world.replica = world.blocks.clone();
            world.unreplicated.clear();
        }
    }

    /// Traces what the engines have of a key.
    fn trace(&self, key: usize) {
        for (number, world) in self.worlds.iter().enumerate() {
            let world = lock(world);
            let of_key = world.blocks.iter().filter(|(block, _)| *block.key == *KEYS[key]);
            let mut cells: Vec<_> = of_key.flat_map(|(_, held)| held.values()).collect();
            cells.sort_by_key(|known| (known.cell.width_ms, known.cell.start_ms, known.origin.to_string()));
            for Known { origin, cell, tally, removed } in cells {
                let start_ms = cell.start_ms - START_MS;
                trace(|| {
                    format!("engine {number}: {} {start_ms} {origin} {tally:?} {removed}", cell.width_ms)
                });
            }
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

async fn simulate(seed: u64, centres: usize) -> usize {
    let _report = ReportOnPanic(seed);
    let mut simulation = Simulation::new(seed, centres);
    let fails_once_in: Vec<_> = simulation.worlds.iter().map(|world| lock(world).fails_once_in).collect();
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
        let worlds = simulation.worlds.iter().zip(&fails_once_in);
        worlds.for_each(|(world, once_in)| lock(world).fails_once_in = *once_in);
    }
    rounds * STEPS
}

fn simulate_all(centres: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (mut played, mut steps) = (0, 0);
    for seed in seeds(SEEDS) {
        steps += runtime.block_on(simulate(seed, centres));
        played += 1;
    }
    print_uncaptured(&format!("{played} seeds, {steps} steps"));
}

#[test]
fn names_of_changed_blocks_are_bounded_while_the_upstream_engine_is_away() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut simulation = Simulation::new(0, 2);
    lock(&simulation.worlds[2]).is_cut = true;
    lock(&simulation.worlds[0]).fails_once_in = 0;
    let note = |simulation: &Simulation, count: usize| {
        let names = 0..i64::try_from(count).expect("few");
        let names = names.map(|number| OwnedBlock { key: Box::from(&b"k"[..]), width_ms: 1_000, number });
        lock(&simulation.worlds[0]).changed = names.collect();
    };
    for (count, left) in
        [(UPSTREAM_MOST_CHANGED, UPSTREAM_MOST_CHANGED), (UPSTREAM_MOST_CHANGED + 5, UPSTREAM_MOST_CHANGED)]
    {
        note(&simulation, count);
        runtime.block_on(simulation.nodes[0].copy());
        assert_eq!(lock(&simulation.worlds[0]).changed.len(), left);
    }
}

#[test]
fn nodes_agree_whatever_goes_wrong() {
    simulate_all(1);
}

#[test]
fn data_centres_agree_whatever_goes_wrong() {
    simulate_all(2);
}

/// Symptom: hits counted twice, or not at all, in windows of a day. Causes: marks of a deletion that came one by one; late hits of a key that was
/// being compared; a local engine that was emptied while the upstream one was away. Fixes: see `removals` and `Reconcile`.
#[test]
fn data_centres_agree_where_they_once_did_not() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for seed in [68, 69, 79, 110, 124, 196, 396] {
        runtime.block_on(simulate(seed, 2));
    }
}
