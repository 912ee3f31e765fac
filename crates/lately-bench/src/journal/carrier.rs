//! What a journal could stand on, each behind the same few verbs.

use std::io::Result;
use std::path::Path;

use super::file::Files;
use super::fjall::Fjall;
use super::redb::Redb;

/// Batches in the order of their numbers, in a folder.
pub(super) trait Carrier {
    /// Appends a batch, and hands it to the operating system if the carrier can do that without a sync.
    fn append(&mut self, number: u64, batch: &[u8]) -> Result<()>;

    /// Brings all that was appended to where a power loss does not reach it.
    fn sync(&mut self) -> Result<()>;

    /// Appends a batch and brings it there, in the way that is quickest.
    fn append_and_sync(&mut self, number: u64, batch: &[u8]) -> Result<()> {
        self.append(number, batch)?;
        self.sync()
    }

    /// Gives all batches, the first first.
    fn replay(&mut self, take: &mut dyn FnMut(u64, &[u8])) -> Result<()>;

    /// Removes the batches before this one, and gives back what they took as far as that can be had.
    fn cut(&mut self, before: u64) -> Result<()>;
}

/// The carriers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    File,
    Fjall,
    Redb,
    /// Redb over a file that passes syncs on only when it is told to.
    RedbHeldBack,
}

impl Kind {
    pub(super) const ALL: [Kind; 4] = [Kind::File, Kind::Fjall, Kind::Redb, Kind::RedbHeldBack];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Fjall => "fjall",
            Kind::Redb => "redb",
            Kind::RedbHeldBack => "redb, syncs held back",
        }
    }

    /// Opens what the folder holds, or begins. `half` is the batch before which it will be cut: the plain
    /// files part there.
    pub(super) fn open(self, folder: &Path, half: u64) -> Result<Box<dyn Carrier>> {
        Ok(match self {
            Kind::File => Box::new(Files::new(folder, half)),
            Kind::Fjall => Box::new(Fjall::open(folder)?),
            Kind::Redb => Box::new(Redb::open(folder)?),
            Kind::RedbHeldBack => Box::new(Redb::open_held_back(folder)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::batches::Batches;

    #[test]
    fn every_carrier_gives_back_what_it_got() {
        for kind in Kind::ALL {
            let folder = tempfile::tempdir().expect("a folder for a test");
            let mut batches = Batches::new();
            let mut carrier = kind.open(folder.path(), 5).expect("a new one");
            (0..8).for_each(|number| carrier.append(number, batches.batch(number)).expect("disk space"));
            carrier.sync().expect("a sync");
            (8..10).for_each(|number| {
                carrier.append_and_sync(number, batches.batch(number)).expect("disk space");
            });
            drop(carrier);
            let mut carrier = kind.open(folder.path(), 5).expect("the same again");
            let check = |carrier: &mut Box<dyn Carrier>, expected: std::ops::Range<u64>| {
                let mut numbers = Vec::new();
                let mut take = |number: u64, bytes: &[u8]| {
                    assert!(batches.is(number, bytes), "{}: batch {number}", kind.name());
                    numbers.push(number);
                };
                carrier.replay(&mut take).expect("nothing is damaged");
                assert_eq!(numbers, expected.collect::<Vec<u64>>(), "{}", kind.name());
            };
            check(&mut carrier, 0..10);
            carrier.cut(5).expect("a cut");
            check(&mut carrier, 5..10);
        }
    }
}
