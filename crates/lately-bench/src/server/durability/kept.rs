//! Our server with its own data folder.

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

/// The interval of requests for a checkpoint, for continuous checkpoints.
const ASK_EVERY: Duration = Duration::from_millis(10);

/// The interval of checks whether a checkpoint was made; the number of checks before it is requested again;
/// and the number of requests.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOKS: u32 = 200;
const PATIENCE: u32 = 30;

/// The server. It is killed before its folder is removed.
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

    /// Kills the server and returns its folder.
    pub(super) fn kill(self) -> TempDir {
        self.folder
    }

    /// The journal's statistics.
    pub(super) fn persistence(&self) -> Result<Persistence, Failure> {
        Persistence::of(&self.process)
    }

    /// Requests a checkpoint, and waits until one is made.
    pub(super) fn checkpoint(&self) -> Result<(), Failure> {
        let mut connection = self.process.connect()?;
        let before = Persistence::ask(&mut connection)?.checkpoints;
        for _ in 0..PATIENCE {
            // The request may be lost if the checkpoint before has just been made.
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

    /// Runs a round during continuous checkpoints. None is under way afterwards. Returns the number of
    /// checkpoints.
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
