//! One round of one carrier, from the first batch to the cut; and one of batches that are each synced.

use std::io::{Error, Result};

use super::batches::{BATCH_BYTES, Batches};
use super::carrier::{Carrier, Kind};
use super::disk;
use super::writer::{TAIL, half_of, write_and_kill};
use crate::clock::{nanos_between, now};
use crate::folder;
use crate::rounds::median;
use crate::say;

/// What a round found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) batches_a_second: f64,
    /// The same without the time that syncs took.
    pub(super) appends_a_second: f64,
    pub(super) cpu_us: f64,
    /// Bytes that were written for each byte of a batch.
    pub(super) written: f64,
    pub(super) resident_bytes: f64,
    /// Batches after the last sync that outlived the writer.
    pub(super) tail: f64,
    /// Bytes of batches that were opened and read in a second.
    pub(super) recovered: f64,
    /// Bytes on the disk for each byte of the batches that are there.
    pub(super) disk: f64,
    /// The same after the cut.
    pub(super) cut: f64,
    pub(super) cut_ms: f64,
}

/// No figures at all.
const NONE: Round = Round {
    batches_a_second: f64::NAN,
    appends_a_second: f64::NAN,
    cpu_us: f64::NAN,
    written: f64::NAN,
    resident_bytes: f64::NAN,
    tail: f64::NAN,
    recovered: f64::NAN,
    disk: f64::NAN,
    cut: f64::NAN,
    cut_ms: f64::NAN,
};

impl Round {
    /// A round with so many batches that are synced now and then.
    pub(super) fn of(kind: Kind, batches: u64) -> Round {
        told(kind, round(kind, batches)).unwrap_or(NONE)
    }

    /// The median of each figure.
    pub(super) fn median(rounds: &[Round]) -> Round {
        let of = |figure: fn(&Round) -> f64| median(&rounds.iter().map(figure).collect::<Vec<f64>>());
        Round {
            batches_a_second: of(|round| round.batches_a_second),
            appends_a_second: of(|round| round.appends_a_second),
            cpu_us: of(|round| round.cpu_us),
            written: of(|round| round.written),
            resident_bytes: of(|round| round.resident_bytes),
            tail: of(|round| round.tail),
            recovered: of(|round| round.recovered),
            disk: of(|round| round.disk),
            cut: of(|round| round.cut),
            cut_ms: of(|round| round.cut_ms),
        }
    }
}

/// Syncs in a second, one after each of so many batches.
pub(super) fn syncs_a_second(kind: Kind, batches: u64) -> f64 {
    told(kind, synced(kind, batches)).unwrap_or(f64::NAN)
}

fn told<T>(kind: Kind, found: Result<T>) -> Option<T> {
    let tell = |error: &Error| say::message(format_args!("lately-bench: {}: {error}", kind.name()));
    found.inspect_err(tell).ok()
}

fn round(kind: Kind, batches: u64) -> Result<Round> {
    let folder = folder::on_disk()?;
    let written = write_and_kill(kind, folder.path(), batches)?;
    let on_disk = disk::bytes(folder.path())?;
    let start = now();
    let mut carrier = kind.open(folder.path(), half_of(batches))?;
    let found = recover(carrier.as_mut())?;
    let recovery_nanos = nanos_between(start, now());
    if !(batches..=batches + TAIL).contains(&found) {
        return Err(Error::other(format!("{batches} batches were synced, {found} were found")));
    }
    let start = now();
    carrier.cut(half_of(batches))?;
    let cut_nanos = nanos_between(start, now());
    drop(carrier);
    let after_cut = disk::bytes(folder.path())?;
    let bytes = |batches: u64| batches as f64 * BATCH_BYTES as f64;
    Ok(Round {
        batches_a_second: batches as f64 / written.nanos * 1e9,
        appends_a_second: batches as f64 / (written.nanos - written.sync_nanos) * 1e9,
        cpu_us: written.cpu_nanos / batches as f64 / 1e3,
        written: written.bytes_a_byte,
        resident_bytes: written.resident_bytes,
        tail: (found - batches) as f64,
        recovered: bytes(found) / recovery_nanos * 1e9,
        disk: on_disk as f64 / bytes(found),
        cut: after_cut as f64 / bytes(found - half_of(batches)),
        cut_ms: cut_nanos / 1e6,
    })
}

/// Reads all batches. They must be those that were written, from the first on, with none left out.
fn recover(carrier: &mut dyn Carrier) -> Result<u64> {
    let batches = Batches::new();
    let (mut found, mut wrong) = (0, None);
    carrier.replay(&mut |number, bytes| {
        if number != found || !batches.is(number, bytes) {
            wrong = wrong.or(Some(found));
        }
        found += 1;
    })?;
    match wrong {
        Some(number) => Err(Error::other(format!("batch {number} is not what was written"))),
        None => Ok(found),
    }
}

fn synced(kind: Kind, count: u64) -> Result<f64> {
    let folder = folder::on_disk()?;
    let mut batches = Batches::new();
    let mut carrier = kind.open(folder.path(), half_of(count))?;
    // The first makes what any needs.
    carrier.append_and_sync(0, batches.batch(0))?;
    let start = now();
    for number in 1..=count {
        carrier.append_and_sync(number, batches.batch(number))?;
    }
    Ok(count as f64 / nanos_between(start, now()) * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_is_missing_or_changed_is_found() {
        struct Given(Vec<(u64, Vec<u8>)>);
        impl Carrier for Given {
            fn append(&mut self, number: u64, batch: &[u8]) -> Result<()> {
                self.0.push((number, batch.to_vec()));
                Ok(())
            }
            fn sync(&mut self) -> Result<()> {
                Ok(())
            }
            fn replay(&mut self, take: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
                self.0.iter().for_each(|(number, batch)| take(*number, batch));
                Ok(())
            }
            fn cut(&mut self, _before: u64) -> Result<()> {
                Ok(())
            }
        }
        let recovered = |change: fn(&mut Given)| {
            let mut batches = Batches::new();
            let mut given = Given(Vec::new());
            (0..4).for_each(|number| given.append(number, batches.batch(number)).expect("it is kept"));
            change(&mut given);
            recover(&mut given).map_err(|error| error.to_string())
        };
        assert_eq!(recovered(|_| ()), Ok(4));
        assert_eq!(recovered(|given| _ = given.0.pop()), Ok(3));
        let wrong = |number: u64| Err(format!("batch {number} is not what was written"));
        assert_eq!(recovered(|given| _ = given.0.remove(1)), wrong(1));
        assert_eq!(recovered(|given| given.0[2].1[500] ^= 1), wrong(2));
    }

    #[test]
    fn a_round_that_could_not_be_had_is_none() {
        assert!(Round::median(&[NONE, NONE]).cpu_us.is_nan());
        assert!(told::<Round>(Kind::File, Err(Error::other("no such disk"))).is_none());
    }
}
