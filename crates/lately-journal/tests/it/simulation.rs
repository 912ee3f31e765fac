//! Simulation of whole lives of a journal, each from one seed: batches, checkpoints, failing disks, and all
//! kinds of ends at any byte, on virtual time. After each end, the next start must answer like a store with
//! exactly the valid batches.
//! `LATELY_SIM_SEED` runs one seed, `LATELY_SIM_SEEDS` this number of them. `LATELY_SIM_SECONDS` runs new
//! ones each time, for this long.

use std::sync::Arc;

use lately::Timestamp;
use lately_journal::limits::Bounds;
use lately_journal::{Checkpoint, Durability, Loss, LossKind};

use crate::life::{
    Action, Batch, Fate, IDS, Life, MEMBERS, Members, SOURCES, difference, hit_keys, keys, look, source_in,
    time,
};
use crate::past::{Past, State};
use crate::sim_disk::SimDisk;
use test_support::{ReportOnPanic, Rng, print_uncaptured, seeds, trace};

/// The default number of seeds.
const SEEDS: u64 = 40;
/// The lives of one seed.
const LIVES: usize = 8;
/// The room that is reserved for a checkpoint. Two disks of three are smaller than the data written to them.
const RESERVE_BYTES: u64 = 32 << 10;
const DISK_BYTES: usize = 80 << 10;
/// About the memory of the keys.
const KEYS_BYTES: usize = 40 << 10;
/// Keys that share a shard with others in some starts.
const CROWD: usize = 200;
/// The retention.
const RETENTION_MS: i64 = 604_800_000;
/// The longest time until an acknowledged batch is synced.
const UNSYNCED_MS: i64 = 1_000;

/// The end of a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// A stop.
    Close,
    /// The process is killed, maybe in the middle of a write.
    Kill,
    /// A loss of power.
    PowerLoss,
}

fn is_flush(batch: &Batch) -> bool {
    matches!(batch.actions[..], [Action::Flush])
}

struct Simulation {
    seed: u64,
    rng: Rng,
    disk: SimDisk,
    durability: Durability,
    now_ms: i64,
    past: Past,
    lives: usize,
    /// The losses that the last start reported.
    losses: Vec<Loss>,
    /// The positions of sources. No two batches have the same one.
    position: u64,
    /// Whether the denials of the reference are known to be right. Hits of a batch that was lost may have kept a key with its denials:
    /// in the reference, which has not got these hits, others that were taken back are all hits of the key, and it is dropped.
    knows_denials: bool,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let mut rng = Rng::new(seed);
        let durability = if rng.once_in(2) { Durability::Always } else { Durability::Interval };
        let disk = SimDisk::new(rng.next_u64());
        if !rng.once_in(3) {
            disk.resize(DISK_BYTES + rng.index(3 * DISK_BYTES));
        }
        Simulation {
            seed,
            rng,
            disk,
            durability,
            now_ms: 0,
            past: Past::default(),
            lives: 0,
            losses: Vec::new(),
            position: 0,
            knows_denials: true,
        }
    }

    fn now(&self) -> Timestamp {
        time(self.now_ms)
    }

    fn batch(&mut self) -> Batch {
        let (rng, keys) = (&mut self.rng, keys());
        let small = |number: usize| i64::try_from(number).expect("small");
        self.now_ms += match rng.index(20) {
            0 => small(rng.index(40_000_000)),
            1..5 => small(rng.index(60_000)),
            _ => small(rng.index(50)),
        };
        if rng.once_in(150) {
            return Batch { now: time(self.now_ms), actions: vec![Action::Flush] };
        }
        let is_hot = rng.once_in(3);
        let mut action = || {
            let key = keys[if is_hot { 0 } else { rng.index(keys.len()) }].clone();
            // Hits with many different weights, so that two different batches hardly have the same sum.
            let weight = 1 + rng.index(1_000) as u64;
            let id = u8::try_from(rng.index(IDS.into())).expect("few");
            let member = u8::try_from(rng.index(MEMBERS.into())).expect("few");
            match rng.index(42) {
                0 => Action::Delete { key },
                1..4 => Action::Hit { key, weight, late_ms: 1 + small(rng.index(1_000_000_000)) },
                // These expire a few seconds later.
                4 => Action::Hit { key, weight, late_ms: RETENTION_MS - small(rng.index(10_000)) },
                5 => Action::Hit { key, weight: 1 << rng.index(40), late_ms: 0 },
                6..9 => Action::Deny { key, hits: 1 + rng.index(5) as u64 },
                9 => Action::Abandon { key, weight },
                10 => Action::Refund { key, hits: weight },
                12 => {
                    let width_ms = [1_000, 60_000, 3_600_000][rng.index(3)];
                    Action::TakeBack { key, width_ms, hits: weight }
                }
                30..35 => Action::HitOnce { key, weight, late_ms: 0, id },
                35 => Action::HitOnce { key, weight, late_ms: small(rng.index(40_000_000)), id },
                36..41 => Action::HitMember { key, weight, late_ms: 0, member },
                41 => Action::HitMember { key, weight, late_ms: small(rng.index(40_000_000)), member },
                11 if rng.once_in(8) => Action::Refund { key, hits: u64::MAX },
                _ => Action::Hit { key, weight, late_ms: 0 },
            }
        };
        let actions = (0..if is_hot { 40 } else { 6 }).map(|_| action()).collect();
        Batch { now: time(self.now_ms), actions }
    }

    fn about(&self, what: &str) -> String {
        format!("{what}: seed {}, life {}, {:?}", self.seed, self.lives, self.durability)
    }

    /// Starts after an end. The start must find all batches that are certainly on the disk, and a prefix of the
    /// others in the order of writing.
    fn start(&mut self, end: End) -> Life {
        let mut end = end;
        let mut looked = None;
        let (life, recovery) = loop {
            if self.rng.once_in(3) {
                let files = self.disk.files();
                let found = look(&self.disk, self.rng.next_u64());
                looked = Some(found.unwrap_or_else(|error| panic!("{error}, {}", self.about("a look"))));
                assert_eq!(files, self.disk.files(), "{}", self.about("a look"));
            }
            if self.rng.once_in(3) {
                let most = 1 << self.rng.index(12);
                self.disk.end_after(Some(self.rng.next_u64() % most));
            }
            // Checkpoints of one block and of many.
            let [block, sync] = [10 + self.rng.index(6), 8 + self.rng.index(8)];
            let bounds = Bounds {
                block_bytes: 1 << block,
                sync_bytes: 1 << sync,
                reserve_bytes: RESERVE_BYTES,
                ..Bounds::default()
            };
            let started = Life::start_within(&self.disk, self.rng.next_u64(), self.durability, false, bounds);
            if !self.disk.is_dead() {
                self.disk.end_after(None);
                match started {
                    Ok(started) => break started,
                    Err(error) if self.disk.is_full() => {
                        trace(|| format!("{error}, {}", self.about("a start on a full disk")));
                        self.disk.resize(usize::MAX);
                        continue;
                    }
                    Err(error) => panic!("{error}, {}", self.about("a start")),
                }
            }
            // A start may end early, too.
            self.disk.restart();
            trace(|| self.about("a start that ended"));
            end = if end == End::PowerLoss || self.rng.once_in(2) { End::PowerLoss } else { End::Kill };
            if end == End::PowerLoss {
                self.disk.lose_power();
                looked = None;
            }
        };
        if let Some(looked) = looked {
            let different = difference(&keys(), &looked, &life.store, &Members::default(), true, self.now());
            assert_eq!(different, None, "{}", self.about("after a look"));
        }
        let losses = &recovery.losses;
        assert!(
            losses.iter().all(|loss| loss.kind == LossKind::Torn),
            "{losses:?}, {}",
            self.about("a start")
        );
        // Earlier losses are reported until there is a checkpoint.
        let is_known = |loss| end != End::Close || self.losses.contains(loss);
        assert!(losses.iter().all(is_known), "{losses:?}, {}", self.about("after a stop"));
        let certain = match end {
            End::PowerLoss => State::Synced,
            End::Close | End::Kill => State::Acknowledged,
        };
        let sure = self.past.ran.iter().rposition(|ran| ran.state >= certain).map_or(0, |last| last + 1);
        let least = if end == End::PowerLoss { State::Refused } else { State::InDoubt };
        trace(|| {
            format!("{}, {end:?}, {sure} of {}, {recovery:?}", self.about("start"), self.past.ran.len())
        });
        let refused = self.past.refused_members();
        let may_lack_hits = self.past.ran.iter().any(|ran| ran.is_late && ran.state < State::Acknowledged);
        // Reading advances a store's time, so each try needs another store.
        let differ = |found: usize, shadows: bool, has_denials: bool| {
            let wanted = self.past.wanted(sure, found, least, shadows);
            difference(&keys(), &life.store, &wanted, &refused, has_denials, self.now())
        };
        // Different batches may have the same effect by now: their hits were deleted, or never existed.
        let may_be = |found: &usize| self.past.lost_ms(*found) <= UNSYNCED_MS;
        let all =
            || (sure..=self.past.ran.len()).filter(may_be).flat_map(|found| [(found, false), (found, true)]);
        let knows = self.knows_denials;
        let fits = |denials: bool| all().find(|&(found, shadows)| differ(found, shadows, denials).is_none());
        let with_denials = fits(knows);
        let fitting = with_denials.or_else(|| if may_lack_hits { fits(false) } else { None });
        let Some((found, shadows)) = fitting else {
            let nearest: Vec<_> =
                all().map(|(found, shadows)| (found, shadows, differ(found, shadows, knows))).collect();
            panic!("{nearest:?}, {}", self.about("after a start"));
        };
        self.knows_denials &= with_denials.is_some();
        self.losses = recovery.losses;
        // A batch in doubt before valid ones was never written.
        self.past.found(sure, found, least, shadows);
        life
    }

    fn live(&mut self, mut life: Life) -> End {
        let end = [End::Close, End::Kill, End::Kill, End::PowerLoss, End::PowerLoss][self.rng.index(5)];
        if end != End::Close {
            if self.rng.once_in(2) {
                let most = 1 << (6 + self.rng.index(11));
                self.disk.end_after(Some(self.rng.next_u64() % most));
            } else {
                let most = 1 << self.rng.index(8);
                self.disk.end_after_calls(Some(self.rng.next_u64() % most));
            }
        }
        let journal = Arc::clone(&life.journal);
        let mut checkpoint = None;
        for _ in 0..self.rng.index(150) {
            match self.rng.index(14) {
                0 => {
                    if journal.sync() {
                        self.verdicts(&mut life);
                        self.past.synced();
                    }
                }
                1 if checkpoint.is_none() => checkpoint = journal.checkpoint().ok(),
                2..6 if checkpoint.is_some() => {
                    let made = checkpoint.as_mut().map(Checkpoint::step);
                    if !matches!(made, Some(Ok(false))) {
                        checkpoint = None;
                    }
                    if matches!(made, Some(Ok(true))) {
                        self.verdicts(&mut life);
                        self.past.synced();
                    }
                }
                6 if self.rng.once_in(5) => self.disk.fail_writes(true),
                7 if self.rng.once_in(8) => self.disk.fail_syncs(true),
                7 if self.rng.once_in(8) => self.disk.fail_file_syncs(),
                7 if self.rng.once_in(5) => {
                    if let Some(checkpoint) = checkpoint.take() {
                        checkpoint.abandon();
                    }
                }
                8 => {
                    self.disk.fail_writes(false);
                    self.disk.fail_syncs(false);
                }
                9 if journal.check().is_err() => {
                    checkpoint = None;
                    self.verdicts(&mut life);
                    if !life.is_short() && !self.past.is_torn_apart(&life) && journal.try_recover() {
                        self.verdicts(&mut life);
                        self.past.synced();
                        // From now on, refused batches cannot come back.
                        for ran in self.past.ran.iter_mut().filter(|ran| ran.state <= State::InDoubt) {
                            ran.state = State::Gone;
                        }
                    }
                }
                _ => self.run(&mut life, &mut checkpoint),
            }
            self.verdicts(&mut life);
            // Keys that were evicted and are still on the disk come back at the next start.
            if self.disk.is_dead() || life.is_short() || self.past.is_torn_apart(&life) {
                break;
            }
            if !life.has_waiting() && self.rng.once_in(4) {
                let wanted =
                    self.past.wanted(self.past.ran.len(), self.past.ran.len(), State::Acknowledged, false);
                let found = difference(
                    &keys(),
                    &life.store,
                    &wanted,
                    &self.past.refused_members(),
                    self.knows_denials,
                    self.now(),
                );
                assert_eq!(found, None, "{}", self.about("while it lives"));
            }
        }
        drop(checkpoint);
        self.end(&life, end)
    }

    fn end(&mut self, life: &Life, end: End) -> End {
        if end == End::Close && !self.disk.is_dead() && life.journal.close().is_ok() {
            self.past.synced();
            self.disk.restart();
            return End::Close;
        }
        self.disk.restart();
        if end == End::PowerLoss {
            self.disk.lose_power();
            return End::PowerLoss;
        }
        End::Kill
    }

    fn run(&mut self, life: &mut Life, checkpoint: &mut Option<Checkpoint<'_, SimDisk>>) {
        if self.rng.once_in(30) {
            let left_bytes = self.rng.index(KEYS_BYTES);
            if let Some((batch, fate)) = life.squeeze(self.past.ran.len(), left_bytes, self.now()) {
                self.take(vec![batch], fate);
            }
        }
        let mut batches = vec![self.batch()];
        // A flush is a batch of its own.
        while !is_flush(&batches[0]) && self.rng.once_in(3) {
            batches.extend(Some(self.batch()).filter(|batch| !is_flush(batch)));
        }
        if !is_flush(&batches[0]) {
            self.add_positions(life, &mut batches);
        }
        // All have the same time.
        batches.iter_mut().for_each(|batch| batch.now = time(self.now_ms));
        if !is_flush(&batches[0]) && self.rng.once_in(4) && life.journal.check().is_ok() {
            self.run_two(life, batches);
            return life.release();
        }
        let rng = &mut self.rng;
        let checkpoint_goes_on = || {
            // Its deletion waits for this batch.
            let part = checkpoint.as_mut().filter(|checkpoint| checkpoint.has_parts_left());
            if part.filter(|_| rng.once_in(3)).is_some_and(|part| part.step().is_err()) {
                *checkpoint = None;
            }
        };
        let fate = if is_flush(&batches[0]) {
            life.run(self.past.ran.len(), &batches[0])
        } else {
            life.run_group(self.past.ran.len(), &mut batches, checkpoint_goes_on)
        };
        // Reading would evict, too.
        life.release();
        self.take(batches, fate);
    }

    /// Adds positions of sources to batches, one at a time for each source.
    fn add_positions(&mut self, life: &Life, batches: &mut [Batch]) {
        for index in 0..batches.len() {
            let source = self.rng.index(SOURCES);
            let is_free =
                !life.is_busy(source) && batches.iter().all(|batch| source_in(batch) != Some(source));
            if is_free && self.rng.once_in(2) {
                self.position += 1;
                batches[index].actions.push(Action::Read { source, position: self.position });
            }
        }
    }

    /// One thread applies a batch, then another applies and writes some, and then the first one writes.
    fn run_two(&mut self, life: &mut Life, mut batches: Vec<Batch>) {
        let journal = Arc::clone(&life.journal);
        let _entered = journal.enter();
        let mut first = Batch { now: time(self.now_ms), actions: batches[0].actions.clone() };
        first.actions.retain(|action| !matches!(action, Action::Read { .. }));
        self.rng.shuffle(&mut first.actions);
        if self.rng.once_in(3) {
            // A key that expires within seconds except for its last hit, and many new keys after that.
            let names = keys();
            let (key, weight) = (names[self.rng.index(names.len())].clone(), 1_000);
            let late_ms = RETENTION_MS - i64::try_from(self.rng.index(3_000)).expect("small");
            let late = Action::Hit { key: key.clone(), weight, late_ms };
            first.actions.extend([
                Action::Delete { key: key.clone() },
                late,
                Action::Hit { key, weight: 1, late_ms: 0 },
            ]);
            let crowd = (0..CROWD).map(|n| Action::Hit {
                key: format!("crowd:{n}").into_bytes(),
                weight: 1,
                late_ms: 0,
            });
            batches[0].actions.extend(crowd);
        }
        let mut changed = life.apply(0, std::slice::from_mut(&mut first));
        let position = self.past.position();
        // Batches of seconds later are written before it.
        self.now_ms += i64::try_from(self.rng.index(5_000)).expect("small");
        batches.iter_mut().for_each(|batch| batch.now = time(self.now_ms));
        let others = life.apply(self.past.ran.len(), &mut batches);
        let hit: Vec<_> = others.iter().map(|(number, deltas)| (*number, hit_keys(deltas))).collect();
        let fate = life.write(others);
        self.take(batches, fate);
        hit.into_iter().for_each(|(number, hit)| self.past.ran[number].hit = hit);
        changed.iter_mut().for_each(|(number, _)| *number = self.past.ran.len());
        let fate = life.write(changed);
        self.take(vec![first], fate);
        let first = self.past.ran.last_mut().expect("it was recorded");
        (first.position, first.is_late) = (position, true);
    }

    /// Records batches that were committed by one write.
    fn take(&mut self, batches: Vec<Batch>, fate: Fate) {
        let state = match fate {
            Fate::Acknowledged => State::Acknowledged,
            Fate::Refused if !self.disk.is_dead() && !self.stays_in_log(&batches[0]) => State::Refused,
            Fate::Waits | Fate::Refused => State::InDoubt,
        };
        trace(|| {
            format!("{} batches, the first {}, are {fate:?}: {batches:?}", batches.len(), self.past.ran.len())
        });
        for batch in batches {
            // A batch without changes does not wait, so its acknowledgement says nothing about earlier ones.
            let state = if batch.actions.is_empty() { State::Gone } else { state };
            self.past.push(batch, state);
        }
    }

    /// Whether a refused batch may stay in the log, because others there were acknowledged.
    fn stays_in_log(&self, batch: &Batch) -> bool {
        self.durability == Durability::Interval && is_flush(batch)
    }

    fn verdicts(&mut self, life: &mut Life) {
        for (number, is_kept) in life.verdicts() {
            trace(|| format!("batch {number} is kept: {is_kept}"));
            if is_kept {
                self.past.ran[number].state = State::Synced;
            } else if self.durability == Durability::Always && !self.disk.is_dead() {
                self.past.ran[number].state = State::Refused;
            }
        }
    }
}

fn simulate(seed: u64) -> usize {
    let _report = ReportOnPanic(seed);
    let mut simulation = Simulation::new(seed);
    let mut end = End::Close;
    for _ in 0..LIVES {
        let life = simulation.start(end);
        end = simulation.live(life);
        simulation.lives += 1;
    }
    simulation.start(end);
    simulation.lives
}

#[test]
fn every_kill_and_loss_of_power_is_survived() {
    let (mut played, mut lives) = (0, 0);
    for seed in seeds(SEEDS) {
        lives += simulate(seed);
        played += 1;
    }
    print_uncaptured(&format!("{played} seeds, {lives} ends"));
}
