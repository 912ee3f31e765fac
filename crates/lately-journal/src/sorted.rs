//! The keys of a dump, sorted by where they will be stored. So the memory that they need is known before the
//! first of them is added.

use std::io::{self, Read, Seek, Write};

use lately::{DeltaBatch, Malformed, Store, Timestamp};

use crate::dump::DumpError;
use crate::limits::{PIECE_BYTES, SHARES};
use crate::shares::Shares;

/// Keys in a file.
pub struct Sorted<F>(Shares<F>);

impl<F: Read + Write + Seek> Sorted<F> {
    /// No keys, in an empty file.
    pub fn new(file: F) -> Sorted<F> {
        Sorted(Shares::new(file))
    }

    /// Adds the keys of a store that [`Store::empty_like`] made of the target store.
    ///
    /// # Errors
    /// [`DumpError::Spool`] if they cannot be written.
    pub fn add(&mut self, store: &Store, now: Timestamp) -> Result<(), DumpError> {
        for part in 0..Store::PARTS {
            let append = |bytes: &mut Vec<u8>| _ = store.write_part(part, now, bytes);
            self.0.append(usize::from(part) % SHARES, append).map_err(DumpError::Spool)?;
        }
        Ok(())
    }

    /// The numbers of the shares that have keys.
    #[must_use]
    pub fn shares(&self) -> Vec<usize> {
        self.0.filled()
    }

    /// Memory that grows with the keys, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }

    /// Adds the keys of a share to an empty store like the target, with the same time and generation. They
    /// take the same memory there.
    ///
    /// # Errors
    /// [`DumpError::Spool`] if they cannot be read.
    pub fn try_in(&mut self, share: usize, store: &Store) -> Result<(), DumpError> {
        self.0.read(share, 0, DumpError::Spool, |keys| {
            let brought = store.bring_part(keys, store.now(), &mut DeltaBatch::default());
            brought.map(|_| ()).map_err(changed)
        })
    }

    /// Calls `take` with the keys of a share, some at a time, for [`Store::bring_part`].
    ///
    /// # Errors
    /// Those of `take`. If the keys cannot be read, the result of `failed`.
    pub fn pieces<E>(
        &mut self,
        share: usize,
        failed: impl Fn(DumpError) -> E,
        take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.0.read(share, PIECE_BYTES, |error| failed(DumpError::Spool(error)), take)
    }
}

/// The file has other keys than were written.
fn changed(what: Malformed) -> DumpError {
    DumpError::Spool(io::Error::other(format!("the file has not what was written: {what}")))
}
