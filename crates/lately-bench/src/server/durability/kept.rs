//! Our server with a folder of its own that it keeps its counts in.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::persistence::Persistence;
use crate::clock::pause;
use crate::folder;
use crate::options::Options;
use crate::server::failure::Failure;
use crate::server::process::Process;

/// How often a checkpoint is asked for while there are to be checkpoints all the time.
const ASK_EVERY: Duration = Duration::from_millis(10);

/// How often it is looked whether a checkpoint is made, how often before it is asked for once more, and how
/// often that.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOKS: u32 = 200;
const PATIENCE: u32 = 30;

/// The server, which is killed before its folder goes.
pub(super) struct Kept {
    pub(super) process: Process,
    folder: TempDir,
}

impl Kept {
    /// Starts it in an empty folder.
    pub(super) fn start(options: &Options, durability: &str) -> Result<Kept, Failure> {
        let folder = folder::on_disk()?;
        Ok(Kept { process: Process::lately_in(folder.path(), durability, options)?, folder })
    }

    /// Kills it; gives what is left.
    pub(super) fn kill(self) -> TempDir {
        self.folder
    }

    /// What it says of its journal.
    pub(super) fn persistence(&self) -> Result<Persistence, Failure> {
        Persistence::of(&self.process)
    }

    /// Has it make a checkpoint, or end the one it makes, and waits for that.
    pub(super) fn checkpoint(&self) -> Result<(), Failure> {
        let mut connection = self.process.connect()?;
        let before = Persistence::ask(&mut connection)?.checkpoints;
        for _ in 0..PATIENCE {
            // It may be forgotten when the one before it is just made.
            ask(&mut connection)?;
            for _ in 0..LOOKS {
                pause(LOOK_EVERY);
                if Persistence::ask(&mut connection)?.checkpoints > before {
                    return Ok(());
                }
            }
        }
        Err(Failure::new("a checkpoint does not come to its end"))
    }

    /// Does the work of a round while one checkpoint after the other is made; none is under way afterwards.
    /// Gives how many were made.
    pub(super) fn while_checkpointing(&self, work: impl FnOnce()) -> Result<u64, Failure> {
        let mut connection = self.process.connect()?;
        let before = self.persistence()?.checkpoints;
        let (end, ended) = channel::<()>();
        let (asked, after) = thread::scope(|scope| {
            let asking = scope.spawn(move || {
                while ended.recv_timeout(ASK_EVERY) == Err(RecvTimeoutError::Timeout) {
                    ask(&mut connection)?;
                }
                Ok::<(), Failure>(())
            });
            work();
            let after = self.persistence();
            drop(end);
            (asking.join().expect("asking does not panic"), after)
        });
        asked?;
        self.checkpoint()?;
        Ok(after?.checkpoints - before)
    }
}

fn ask(connection: &mut redis::Connection) -> Result<(), Failure> {
    Ok(redis::cmd("BGSAVE").query(connection)?)
}
