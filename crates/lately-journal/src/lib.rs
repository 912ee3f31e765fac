//! Keeps the counts of a store on disk.
//!
//! A [`Journal`] writes a record for each batch of commands to a log, and from time to time all keys to a
//! checkpoint, so that the log can be cut. [`recover`] loads both. All files are accessed through a [`Disk`];
//! the real one is a [`Folder`].

mod checkpoint;
mod disk;
mod dump;
mod error;
mod folder;
mod frame;
mod journal;
pub mod limits;
mod log;
mod loss;
mod names;
mod part;
mod recover;
mod replayer;
mod scan;
mod shares;
mod sorted;
mod spool;

pub use checkpoint::Checkpoint;
pub use disk::{Disk, DiskFile};
pub use dump::{Dump, DumpError};
pub use error::{JournalError, Refused};
pub use folder::Folder;
pub use journal::{Durability, Hold, Journal, JournalStats, Receipt, Verdict};
pub use loss::{Loss, LossKind};
pub use recover::{Intent, Progress, Recovery, recover};
pub use sorted::Sorted;
pub use spool::Spool;
