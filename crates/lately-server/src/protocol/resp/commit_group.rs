//! A commit group: batches that share one reading of the clock and one write to the journal.
//!
//! A client that sleeps until its reply is woken once for all replies of a group.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use lately::Timestamp;

use super::connection::Connection;
use super::connections::Connections;
use super::socket_batch::SocketBatch;
use crate::limits::{GROUP_BATCHES, GROUP_BYTES, GROUP_OUTPUT_BYTES, KEPT_BYTES, KEPT_OF_FURTHER_BATCHES};
use crate::service::commit::Commit;

/// The batches of a group, reused for the next one.
pub(super) struct CommitGroup {
    batches: Vec<SocketBatch>,
    /// The index of the batch that is being filled.
    current: usize,
}

impl CommitGroup {
    pub(super) fn new() -> CommitGroup {
        let mut group = CommitGroup { batches: Vec::new(), current: 0 };
        group.begin_batch();
        group
    }

    /// Adds a batch.
    pub(super) fn begin_batch(&mut self) -> &mut SocketBatch {
        let is_among_first = self.batches.len() < GROUP_BATCHES;
        let kept_bytes = if is_among_first { KEPT_BYTES } else { KEPT_OF_FURTHER_BATCHES };
        self.batches.push(SocketBatch::new(kept_bytes));
        let last = self.batches.len() - 1;
        &mut self.batches[last]
    }

    /// Makes room for the requests of a connection. Runs the group if it is full.
    pub(super) fn make_room(&mut self, token: usize, connections: &mut Connections) {
        if !self.batches[self.current].is_full_for(&connections.by_token[token]) {
            return;
        }
        let most = if connections.service.has_journal() { usize::MAX } else { GROUP_BATCHES };
        let begun = &self.batches[..=self.current];
        if begun.len() >= most || begun.iter().map(SocketBatch::filled).sum::<usize>() >= GROUP_BYTES {
            return self.run(connections);
        }
        self.current += 1;
        if self.current == self.batches.len() {
            self.begin_batch();
        }
    }

    /// Reads the requests of a connection. False when there are none. The caller made room.
    pub(super) fn take_in(&mut self, token: usize, connection: &mut Connection) -> io::Result<bool> {
        self.batches[self.current].take_in(token, connection)
    }

    /// Reads and discards the input of a connection that is closing. The caller made room.
    pub(super) fn discard(&mut self, connection: &mut Connection, moment: Instant) -> io::Result<()> {
        self.batches[self.current].discard(connection, moment)
    }

    /// Executes all batches, commits their changes and sends the replies.
    pub(super) fn run(&mut self, connections: &mut Connections) {
        let batches = &mut self.batches[..=std::mem::take(&mut self.current)];
        if batches[0].is_empty() {
            return;
        }
        let now = connections.service.now();
        let mut left = batches;
        while !left.is_empty() {
            let count = CommitGroup::run_some(left, connections, now);
            left = &mut left[count..];
        }
    }

    /// Executes batches until their replies reach the bound, and sends the replies. Returns the number of batches
    /// that are completely answered. At least one part of the next batch is answered, too.
    fn run_some(batches: &mut [SocketBatch], connections: &mut Connections, now: Timestamp) -> usize {
        let service = Arc::clone(&connections.service);
        // Held until the changes were committed or rolled back.
        let entered = service.enter();
        let (mut count, mut bytes) = (0, 0);
        while count < batches.len() && bytes < GROUP_OUTPUT_BYTES {
            batches[count].answer(connections, now);
            bytes += batches[count].output_bytes();
            count += 1;
            if batches[count - 1].has_waiting() {
                break;
            }
        }
        let batches = &mut batches[..count];
        let commit = service.commit(&mut batches.iter_mut().map(SocketBatch::changes).collect::<Vec<_>>());
        if let Commit::Refused(refused) = &commit {
            batches.iter_mut().for_each(|batch| batch.replace(refused));
        }
        drop(entered);
        for batch in batches.iter_mut() {
            batch.send(connections, now, &commit);
            batch.clear();
        }
        batches.iter().filter(|batch| batch.is_empty()).count()
    }
}
