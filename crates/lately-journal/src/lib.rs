//! Keeps the counts of a store on disk.
//!
//! A [`Journal`] writes down what happens, a record for each batch of commands, in a log; and from time to
//! time all keys, in a checkpoint, so that the log can be cut. [`recover`] puts both back. Everything is
//! written through a [`Disk`], of which a [`Folder`] is the real one.

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
