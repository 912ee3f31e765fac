//! The statistics of our server's journal.

use super::to_f64;
use crate::server::failure::Failure;
use crate::server::process::Process;

/// The statistics at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Persistence {
    /// Hits that were counted since the start.
    pub(super) hits: u64,
    /// Checkpoints that were made since the start.
    pub(super) checkpoints: u64,
    /// The number of syncs.
    pub(super) syncs: u64,
    /// Bytes of the log behind the newest checkpoint.
    pub(super) log_bytes: u64,
    /// Bytes of that checkpoint.
    pub(super) checkpoint_bytes: u64,
}

impl Persistence {
    pub(super) fn of(server: &Process) -> Result<Persistence, Failure> {
        Persistence::ask(&mut server.connect()?)
    }

    pub(super) fn ask(connection: &mut redis::Connection) -> Result<Persistence, Failure> {
        let text: String = redis::cmd("INFO").query(connection)?;
        Persistence::parse(&text).ok_or_else(|| Failure::new("INFO says nothing of a journal"))
    }

    fn parse(text: &str) -> Option<Persistence> {
        let field = |name: &str| {
            let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            values.next()?.trim_end().parse().ok()
        };
        Some(Persistence {
            hits: field("total_hits")?,
            checkpoints: field("rdb_saves")?,
            syncs: field("journal_syncs")?,
            log_bytes: field("aof_current_size")?,
            checkpoint_bytes: field("journal_checkpoint_bytes")?,
        })
    }

    /// The bytes of the log per hit since `before`. `None` if a checkpoint has cut the log.
    pub(super) fn log_bytes_a_hit(&self, before: &Persistence) -> Option<f64> {
        let is_whole = self.checkpoints == before.checkpoints && self.hits > before.hits;
        is_whole.then(|| to_f64(self.log_bytes - before.log_bytes) / to_f64(self.hits - before.hits))
    }

    /// The hits per sync since `before`. `None` if there was no sync.
    pub(super) fn hits_a_sync(&self, before: &Persistence) -> Option<f64> {
        let syncs = self.syncs - before.syncs;
        (syncs > 0).then(|| to_f64(self.hits - before.hits) / to_f64(syncs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_parsed_for_bytes_and_syncs_per_hit() {
        let text = "# Persistence\r\nloading:0\r\naof_current_size:400\r\nrdb_saves:3\r\n\
            journal_checkpoint_bytes:70\r\njournal_records:9\r\njournal_syncs:5\r\n\r\n# Stats\r\ntotal_hits:10\r\n";
        let before = Persistence { hits: 10, checkpoints: 3, syncs: 5, log_bytes: 400, checkpoint_bytes: 70 };
        assert_eq!(Persistence::parse(text), Some(before));
        assert_eq!(Persistence::parse("# Persistence\r\naof_enabled:0\r\n"), None);
        let after = Persistence { hits: 210, syncs: 9, log_bytes: 4_400, ..before };
        assert_eq!((after.log_bytes_a_hit(&before), after.hits_a_sync(&before)), (Some(20.0), Some(50.0)));
        let cut = Persistence { checkpoints: 4, log_bytes: 100, ..after };
        assert_eq!(cut.log_bytes_a_hit(&before), None);
        assert_eq!((before.log_bytes_a_hit(&before), before.hits_a_sync(&before)), (None, None));
    }
}
