//! Dumps and restores with the steps of the server: on a running server, and on a folder without one.

use std::io::Cursor;
use std::sync::Arc;

use lately::{DeltaBatch, Store, Timestamp};
use lately_journal::{Dump, Durability, Intent, Journal, Progress, Sorted, Spool, recover};

use super::class::{Classes, carrier};
use super::play::{Fault, Kind, fault, guarded};
use super::script::End;
use super::world::{Kept, World, bounds};
use crate::sim_disk::SimDisk;

/// The changes during the dump: the times of batches, and their changes.
type Happened = Vec<(Timestamp, Vec<u8>)>;

/// Dumps a store that is hit meanwhile.
pub(crate) fn dump(
    store: &Store,
    hits: usize,
    mut hit: impl FnMut() -> Result<Happened, Fault>,
) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    let mut dump = Dump::begin(store, &mut out);
    while dump.parts(&mut out) {}
    for _ in 0..hits {
        for (now, deltas) in hit()? {
            dump.record(now, &deltas, &mut out);
        }
    }
    dump.end(&mut out);
    Ok(out)
}

fn unreadable(what: &str, why: impl std::fmt::Display) -> Fault {
    fault(Kind::Unreadable, format!("{what}: {why}"))
}

fn dump_folder(disk: &SimDisk, seed: u64) -> Result<Vec<u8>, Fault> {
    let store = carrier(seed);
    let recovered = recover(disk, &store, Intent::ReadOnly, Timestamp::MAX, 1, &Progress::default());
    recovered.map_err(|error| unreadable("a dump of a folder", error))?;
    guarded(Kind::Inconsistent, || store.check_consistency())?;
    dump(&store, 0, || Ok(Happened::new()))
}

fn restore_folder(disk: &SimDisk, bytes: &[u8], seed: u64, now: Timestamp) -> Result<(), Fault> {
    let store = Arc::new(carrier(seed));
    let keys = read(bytes, &store, now)?;
    let recovered = recover(disk, &store, Intent::Continue, Timestamp::MAX, 1, &Progress::default());
    let recovery = recovered.map_err(|error| unreadable("a restore to a folder", error))?;
    take_in(keys, &store, None, now)?;
    guarded(Kind::Inconsistent, || store.check_consistency())?;
    let written = || {
        let (disk, store) = (disk.clone(), Arc::clone(&store));
        let journal = Journal::begin_within(bounds(), disk, store, Durability::Interval, &recovery)?;
        journal.make_checkpoint(|| ())?;
        journal.close()
    };
    written().map_err(|error| fault(Kind::Unwritten, format!("a restore to a folder: {error}")))
}

type Keys = Sorted<Cursor<Vec<u8>>>;

/// Reads a dump for a store, without changing it.
fn read(bytes: &[u8], into: &Store, now: Timestamp) -> Result<Keys, Fault> {
    let file = || Cursor::new(Vec::new());
    let mut spool = Spool::receive(&mut { bytes }, file()).map_err(|error| unreadable("a dump", error))?;
    let mut keys = Sorted::new(file());
    for share in spool.shares() {
        let scratch = into.empty_like();
        spool.read(share, &scratch).map_err(|error| unreadable("a dump", error))?;
        if !scratch.is_empty() {
            guarded(Kind::Inconsistent, || scratch.check_consistency())?;
        }
        keys.add(&scratch, now).map_err(|error| unreadable("keys of a dump", error))?;
    }
    for share in keys.shares() {
        let read = keys.try_in(share, &into.empty_like());
        read.map_err(|error| unreadable("sorted keys of a dump", error))?;
    }
    Ok(keys)
}

/// Adds the keys of a dump to a store, and writes the changes.
fn take_in(
    mut keys: Keys,
    into: &Store,
    journal: Option<&Journal<SimDisk>>,
    now: Timestamp,
) -> Result<(), Fault> {
    let mut deltas = DeltaBatch::default();
    let mut bring = |bytes: &[u8]| {
        let _gate = journal.map(Journal::enter);
        into.bring_part(bytes, now, &mut deltas).map_err(|error| unreadable("a restore", error))?;
        if let Some(journal) = journal.filter(|_| !deltas.is_empty()) {
            let written = journal.write_through(&deltas);
            written.map_err(|refused| fault(Kind::Unwritten, format!("a restore: {refused}")))?;
        }
        deltas.clear();
        Ok(())
    };
    let failed = |error| unreadable("sorted keys of a dump", error);
    keys.shares().into_iter().try_for_each(|share| keys.pieces(share, failed, &mut bring))
}

/// Restores a dump into the running server.
fn restore(world: &World, bytes: &[u8]) -> Result<(), Fault> {
    let (into, now) = (&world.server.store, world.now());
    take_in(read(bytes, into, now)?, into, Some(&world.server.journal), now)
}

/// Restores the dump that was kept.
pub(crate) fn bring(world: &mut World, offline: bool) -> Result<(), Fault> {
    let Some(Kept { bytes, truths }) = world.kept.take() else { return Ok(()) };
    if offline {
        world.end(End::Stop)?;
        restore_folder(&world.disk, &bytes, world.seed, world.now())?;
        world.start(world.classes)?;
    } else {
        restore(world, &bytes)?;
    }
    for ((present, kept), model) in world.truths.iter_mut().zip(&truths).zip(&world.models) {
        // The key of the dump replaces the key of the store, unless it has expired.
        if kept.is_surely_kept(model, world.now_ms) {
            *present = kept.clone();
        } else {
            present.blur(kept);
        }
    }
    world.kept = Some(Kept { bytes, truths });
    Ok(())
}

/// Moves everything to another server.
pub(crate) fn move_to(
    world: &mut World,
    dumped_offline: bool,
    restored_offline: bool,
    classes: Classes,
) -> Result<(), Fault> {
    let bytes = if dumped_offline {
        world.end(End::Stop)?;
        dump_folder(&world.disk, world.seed)?
    } else {
        world.dump(0, 2)?
    };
    world.go_over();
    if restored_offline {
        restore_folder(&world.disk, &bytes, world.seed, world.now())?;
        return world.start(classes);
    }
    world.start(classes)?;
    restore(world, &bytes)
}
