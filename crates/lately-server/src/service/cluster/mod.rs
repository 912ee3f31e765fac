//! Counting together with other nodes: each counts its own hits, and an engine carries the counts from node to node.
//!
//! The store marks keys that were hit. `worker.rs` sends their counts to the engine (`outgoing.rs`), and reads what other nodes
//! counted of the keys in `interest.rs`. The store merges that, so all answers have it.
//! `reconcile.rs` finds what the engine lacks of this node's hits.
//! `members.rs` sends and reads the distinct members of keys.
//! `children.rs` keeps the names of the nodes below this one. `nodes.rs` lists the nodes, `busy_lists.rs` their busy keys, and `tables.rs` knows in which levels others count.
//!
//! With an upstream engine, `aggregator.rs` copies what the engine of this data centre has to that of all, and `upstream.rs`
//! reads what other data centres counted.

mod aggregator;
mod busy_lists;
mod children;
mod contact;
mod deletion_log;
mod group;
mod interest;
#[cfg(feature = "kafka")]
mod kafka;
mod late_hits;
mod losses;
mod members;
mod name_claim;
mod nodes;
mod origins;
mod outgoing;
mod reconcile;
#[cfg(test)]
mod simulation;
mod tables;
mod upstream;
mod wait;
mod worker;

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

#[cfg(test)]
use lately::Tier;
use lately::{Delta, DeltaBatch, Forgotten, Span, Store, Timestamp};
#[cfg(feature = "kafka")]
use lately_engines::HitGate;
use lately_engines::{KafkaRole, KafkaStats, NodeRoom, PeerStats, WriteHits};
use tokio::sync::Notify;

use crate::config::ClusterConfig;
use crate::limits::{INTEREST_SHARE, READ_BLOCK_CEILING, READ_BLOCKS_WITHIN};
use crate::service::Service;

use busy_lists::BusyLists;
use contact::Contact;
use interest::{Answer, Interest, Question};
pub(crate) use nodes::Node;
use nodes::Nodes;
pub(crate) use origins::former_node;
use outgoing::Outgoing;
use reconcile::after;
use tables::Tables;
use upstream::Upstream;
pub(crate) use upstream::run as run_upstream;
pub(crate) use wait::Wait;
pub use worker::ClusterError;
use worker::known_of_others;
pub(crate) use worker::{Signals, engine, run, start};

/// What the service knows of the cluster.
pub(crate) struct Cluster {
    pub(crate) config: ClusterConfig,
    /// What this node counted. `None` until the exchange starts, before the first client.
    outgoing: OnceLock<Outgoing>,
    interest: Arc<Interest>,
    /// The most blocks that are read from an engine at once, and those of one key.
    read_blocks: usize,
    state: Mutex<State>,
    /// Changes that wait for the disk: they are in the store, and not yet in what is to be sent.
    waiting: Mutex<WaitingChanges>,
    /// Notified when some of them wait no more.
    settled: Notify,
    nodes: Nodes,
    busy: BusyLists,
    tables: Tables,
    pub(crate) upstream: Option<Upstream>,
    /// What this node has done with records of Kafka.
    pub(crate) kafka_stats: Arc<KafkaStats>,
    /// What this node has exchanged with others directly.
    pub(crate) peer_stats: Arc<PeerStats>,
    /// Keeps hits of clients back until their topic is found.
    #[cfg(feature = "kafka")]
    hit_gate: Arc<HitGate>,
    /// The names of the nodes below it, as its last start has kept them.
    children: OnceLock<Vec<String>>,
    /// What the counts of all nodes take, with an engine that has them in memory.
    mesh_bytes: Arc<AtomicUsize>,
    /// The memory that clients of the listener for other nodes may hold.
    pub(crate) node_room: Arc<NodeRoom>,
}

/// The batches of changes that wait for the disk.
#[derive(Default)]
struct WaitingChanges {
    last: u64,
    waiting: BTreeSet<u64>,
}

/// A batch of changes that waits for the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingId(u64);

/// How the exchange with the engine goes.
#[derive(Clone, Default, Debug)]
pub(crate) struct State {
    pub(crate) contact: Contact,
    /// All hits from before then were sent. `None` before the engine was reached.
    pub(crate) sent_until: Option<Timestamp>,
    /// Hits that were missing in the engine, and were sent again. A hit is in a cell of each width, and counts for each.
    pub(crate) resent_hits: u64,
    /// Whether all keys were compared with what the engine has, since the start or since it may have lost some.
    pub(crate) is_reconciled: bool,
    /// An engine may have lost counts of other nodes: until then they are sent again, those of alerts first. Or longer, while not all
    /// keys of this node were compared.
    pub(crate) lacks_until: Option<Timestamp>,
    /// Since when an engine seems to have fewer hits of a key than before.
    pub(crate) fewer_since: Option<Timestamp>,
    /// Another server has the name of this node, or had it until it was killed.
    pub(crate) waits_for_name: bool,
    /// Another server has taken the name of this node, which goes on.
    pub(crate) shares_name: bool,
}

/// The keys that are deleted by these changes.
fn deleted_keys(deltas: &DeltaBatch) -> impl Iterator<Item = &[u8]> + Clone {
    deltas.deltas().flatten().filter_map(|(_, delta)| match delta {
        Delta::Forget { key, why: Forgotten::Deleted, .. } => Some(key),
        _ => None,
    })
}

impl Cluster {
    /// A cluster of which nothing is known yet, on a server with this memory ceiling.
    pub(crate) fn new(config: ClusterConfig, ceiling_bytes: u64) -> Cluster {
        let most_bytes = usize::try_from(ceiling_bytes / INTEREST_SHARE).unwrap_or(usize::MAX);
        let has_upstream = config.has_upstream();
        let (least, most) = READ_BLOCKS_WITHIN;
        let read_blocks =
            usize::try_from(ceiling_bytes / READ_BLOCK_CEILING).unwrap_or(most).clamp(least, most);
        Cluster {
            interest: Arc::new(Interest::new(most_bytes, config.flush, has_upstream)),
            upstream: has_upstream.then(Upstream::default),
            read_blocks,
            config,
            outgoing: OnceLock::new(),
            state: Mutex::default(),
            waiting: Mutex::default(),
            settled: Notify::new(),
            nodes: Nodes::default(),
            busy: BusyLists::default(),
            tables: Tables::default(),
            mesh_bytes: Arc::default(),
            node_room: NodeRoom::new(ceiling_bytes),
            kafka_stats: Arc::default(),
            #[cfg(feature = "kafka")]
            hit_gate: Arc::default(),
            peer_stats: Arc::default(),
            children: OnceLock::new(),
        }
    }

    /// What writes the hits of clients to Kafka, if this node does not count them itself.
    pub(crate) fn hit_writer(&self) -> Option<Box<dyn WriteHits>> {
        let kafka = self.config.kafka.as_ref().filter(|kafka| kafka.role == KafkaRole::Produce)?;
        #[cfg(feature = "kafka")]
        return Some(kafka::hit_writer(self, kafka));
        #[cfg(not(feature = "kafka"))]
        unreachable!("{} was refused: this build is without Kafka", kafka.topic);
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingChanges> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a batch of changes waits for the disk.
    pub(crate) fn note_waiting(&self) -> WaitingId {
        let mut waiting = self.waiting();
        waiting.last += 1;
        let id = waiting.last;
        waiting.waiting.insert(id);
        WaitingId(id)
    }

    /// A batch waits no more.
    pub(crate) fn settled(&self, WaitingId(id): WaitingId) {
        self.waiting().waiting.remove(&id);
        self.settled.notify_waiters();
    }

    /// Waits until all that was counted before is committed or rolled back.
    async fn committed(&self, service: &Service) {
        service.quiesce();
        let last = self.waiting().last;
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            // Registered before the check, so that no notification is missed.
            settled.as_mut().enable();
            if self.waiting().waiting.first().is_none_or(|first| *first > last) {
                return;
            }
            settled.await;
        }
    }

    /// Notes that an engine may have lost counts, and for how long the nodes send them again at least.
    fn note_lost(&self, now: Timestamp, for_ms: i64) {
        self.set_state(|state| state.lacks_until = state.lacks_until.max(Some(after(now, for_ms))));
    }

    /// Whether hits of other nodes may be missing, because an engine has lost them.
    pub(crate) fn may_lack_hits(&self, now: Timestamp) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.lacks_until.is_some_and(|until| now < until || !state.is_reconciled)
    }

    /// Whether there is room to note that these keys are deleted.
    pub(crate) fn may_delete<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> bool {
        self.outgoing.get().is_none_or(|outgoing| outgoing.may_delete(keys))
    }

    /// Notes what is known of a key that is about to be deleted.
    pub(crate) fn note_known(&self, key: &[u8], store: &Store, now: Timestamp) {
        let Some(outgoing) = self.outgoing.get().filter(|_| self.upstream.is_none()) else { return };
        let (spans, levels) = (store.own_spans(key, now), store.level_sets(key).own().id());
        outgoing.note_known(key, &spans, levels, known_of_others(store, key).collect());
    }

    /// Notes the deletions among changes that are about to be committed: others are to be told.
    ///
    /// # Errors
    /// They cannot be written to the data folder.
    pub(crate) fn note_deletions(&self, deltas: &DeltaBatch) -> io::Result<()> {
        let Some(outgoing) = self.outgoing.get().filter(|_| deltas.has_deletions()) else { return Ok(()) };
        outgoing.delete(deleted_keys(deltas), deltas.now())
    }

    /// Changes that may have deletions were rolled back.
    pub(crate) fn undo_deletions(&self, deltas: &DeltaBatch) {
        if let Some(outgoing) = self.outgoing.get().filter(|_| deltas.has_deletions()) {
            outgoing.undelete(deleted_keys(deltas), deltas.now());
        }
    }

    /// Notes that the store was emptied. What this node had sent stays in the engine.
    ///
    /// # Errors
    /// The data folder does not work.
    pub(crate) fn emptied(&self, now: Timestamp) -> io::Result<()> {
        self.outgoing.get().map_or(Ok(()), |outgoing| outgoing.emptied(&self.config.node, now))
    }

    /// Memory of what is known of deletions, of the keys that are read, and of what other nodes send, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        let deletions = self.upstream.as_ref().map_or(0, Upstream::held_bytes);
        self.outgoing.get().map_or(0, Outgoing::held_bytes)
            + self.interest.held_bytes()
            + deletions
            + self.mesh_bytes.load(Relaxed)
            + self.node_room.held_bytes()
            + self.busy.held_bytes()
    }

    /// Notes that somebody reads a key. What others counted of it is read again.
    pub(crate) fn note_read(&self, key: &[u8], window: Span, store: &Store, now: Timestamp) {
        let question = Question { key, window, is_limit: false };
        let _ = self.interest.note(question, None, now, |key| store.unlearn(key));
    }

    /// Notes that somebody asks for a limit on a key. What others counted of it is kept fresh while the limit may last.
    pub(crate) fn note_limit(&self, key: &[u8], window: Span, store: &Store, now: Timestamp) {
        let question = Question { key, window, is_limit: true };
        let _ = self.interest.note(question, None, now, |key| store.unlearn(key));
    }

    /// Notes that somebody reads keys. Returns what to wait for before the answer, and how long at most. `None` if all are known,
    /// or waiting would not help.
    pub(crate) fn wait_for_keys<'k>(
        &self,
        mut keys: impl Iterator<Item = (&'k [u8], Span)> + Clone,
        store: &Store,
        now: Timestamp,
    ) -> Option<(Arc<Wait>, Duration)> {
        let timeout = self.config.read_timeout?;
        let note = |(key, window), wait| {
            let question = Question { key, window, is_limit: false };
            self.interest.note(question, wait, now, |key| store.unlearn(key))
        };
        let all = keys.clone();
        if keys.all(|key| note(key, None) == Answer::Known) {
            return None;
        }
        // One key always has room.
        let has_several = all.clone().nth(1).is_some();
        let wait = Wait::with_room(if has_several { self.interest.question_bytes() } else { usize::MAX });
        for key in all.take_while(|_| !wait.is_refused()) {
            note(key, Some((&wait, timeout)));
        }
        (!wait.done() || wait.is_refused()).then_some((wait, timeout))
    }

    /// Reads all keys that somebody asked for: other nodes have none of them.
    #[cfg(test)]
    pub(crate) fn read_all(&self, now: Timestamp) {
        let due = self.interest.due(Tier::Local, usize::MAX, true, now);
        due.iter().for_each(|due| _ = self.interest.note_read(Tier::Local, due, 0, now, |_| {}));
    }

    /// When the hits of other nodes on a key were last read, for a window of this length.
    pub(crate) fn read_at(&self, key: &[u8], window: Span) -> Option<Timestamp> {
        self.interest.read_at(key, window)
    }

    /// How the exchange goes.
    pub(crate) fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The engines that counts cannot be exchanged with. Hits are counted nevertheless.
    pub(crate) fn failing(&self) -> impl Iterator<Item = &'static str> + use<> {
        let is_upstream = |upstream: &Upstream| upstream.state().problem().is_some();
        let upstream = self.upstream.as_ref().is_some_and(is_upstream).then_some("upstream engine");
        self.state().contact.failure.map(|_| "engine").into_iter().chain(upstream)
    }

    /// Whether a key was deleted here, and the engine does not have that yet.
    pub(crate) fn is_deleted(&self, key: &[u8]) -> bool {
        self.outgoing.get().is_some_and(|outgoing| outgoing.is_deleted(key))
    }

    /// Keys that were deleted here, and whose deletion the engine does not have yet.
    pub(crate) fn unsent_deletions(&self) -> usize {
        self.outgoing.get().map_or(0, Outgoing::deleted_keys)
    }

    /// The age of the oldest hits that may not be sent; `None` when the engine was never reached.
    pub(crate) fn lag_ms(&self, now: Timestamp) -> Option<i64> {
        let sent_until = self.state.lock().unwrap_or_else(PoisonError::into_inner).sent_until;
        Some((now.as_millis() - sent_until?.as_millis()).max(0))
    }

    fn set_state(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
