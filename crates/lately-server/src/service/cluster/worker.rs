//! The worker: sends what this node counted, and reads what others counted of the keys that are read here.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::iter;
use std::mem;
use std::pin::pin;
use std::sync::Arc;

use lately::limits::SENT_WITHIN_MS;
use lately::{
    Cell, DeltaBatch, LevelSets, Levels, LevelsId, Origin, Span, Store, Taken, Tally, Tier, Timestamp,
};
use lately_engines::{
    Block, Engine, EngineError, KeepChildren, Known, Peers, PeersConfig, Remote, Told, Write,
};

use thiserror::Error;

use crate::clock::thread_cpu_time;
use crate::limits::{
    CLAIM_LASTS, CLUSTER_DELETE_KEYS, CLUSTER_READ_KEYS, CLUSTER_SEND_KEYS, CLUSTER_SEND_MOST_KEYS,
    DELETIONS_SHARE, DRAIN_SENDS_MS, EXCHANGE_REST, MAX_EXCHANGE_REST, MESH_SHARE, READ_AHEAD_MS,
    RECONCILE_SETTLE_MS, RESEND_MS, WARNING_EVERY_MS,
};
use crate::service::Service;
use crate::stopper::Stopper;

use super::group::reach_of;
use super::interest::Due;
use super::late_hits;
use super::losses::with_lost;
use super::members::Members;
use super::name_claim::{Claim, NameClaim};
use super::nodes;
use super::outgoing::{Outgoing, Pending, Unsent, writes};
use super::reconcile::{Reconcile, after, before};
use super::tables;
use super::upstream::{Deletion, upstream_of};
use super::{Cluster, State, busy_lists, children};

/// Signals to the worker and from it.
pub(crate) struct Signals {
    /// Stops the server.
    pub(crate) stopper: Stopper,
    /// Stopped when all clients were answered: there will be no more changes.
    pub(crate) drained: Stopper,
    /// Gets log lines.
    pub(crate) tell: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Warnings are logged now and then.
#[derive(Default)]
pub(super) struct Warned(Option<Timestamp>);

impl Warned {
    pub(super) fn tell(
        &mut self,
        warning: Option<String>,
        now: Timestamp,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) {
        let Some(warning) = warning else { return };
        if self.0.is_none_or(|last| now >= after(last, WARNING_EVERY_MS)) {
            tell(&warning);
            self.0 = Some(now);
        }
    }
}

/// Why a server does not count together with others.
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum ClusterError {
    /// Another server has the name of this node.
    #[error("another server is node '{node}' of the cluster")]
    NodeTaken {
        /// The name.
        node: String,
    },
    /// The lists of origins and deletions in the data folder cannot be read or written.
    #[error("the origins and deletions of this node: {0}")]
    Folder(std::io::Error),
}

/// What the worker has.
pub(super) struct Worker<E> {
    pub(super) service: Arc<Service>,
    pub(super) reconcile: Reconcile,
    pub(super) members: Members,
    /// The part of the keys that is sent next, and since when, if its first keys were sent.
    next_part: usize,
    next_part_begun: Option<Timestamp>,
    /// For each part of the keys: hits from before then are sent.
    sent_until: Vec<Timestamp>,
    /// What was read and left out, and why; and when that was last logged.
    pub(super) warning: Option<String>,
    warned: Warned,
    /// When counts may last have been lost or late on their way.
    pub(super) unsettled: Option<Timestamp>,
    /// Whether the last exchange failed.
    is_away: bool,
    /// Whether the engine has what earlier starts have sent, and the levels of that are known.
    is_complete: bool,
    /// Why the engine did not take the marks of a deletion. They are sent again.
    refused_deletion: Option<String>,
    pub(super) engine: E,
    /// The life of the engine to which everything was sent that is confirmed; 0 before the first exchange.
    life: u64,
    claim: NameClaim,
}

/// The cluster of a service that has one, and what it has to send.
pub(super) fn parts(service: &Service) -> (&Cluster, &Outgoing) {
    let cluster = service.cluster.as_ref().expect("it counts together with others");
    (cluster, cluster.outgoing.get().expect("it was started"))
}

/// Starts to note what is to be sent. Called before the first client is served.
///
/// # Errors
/// The data folder does not work.
pub(crate) fn start(service: &Service) -> Result<(), ClusterError> {
    let Some(cluster) = &service.cluster else { return Ok(()) };
    let folder = service.config.storage.as_ref().map(|storage| storage.path.as_path());
    let most_bytes = usize::try_from(service.config.ceiling_bytes / DELETIONS_SHARE).unwrap_or(usize::MAX);
    let outgoing = Outgoing::new(&cluster.config.node, folder, most_bytes, service.now())
        .map_err(ClusterError::Folder)?;
    let _ = cluster.outgoing.set(outgoing);
    if let Some(folder) = folder.filter(|_| cluster.config.is_mesh()) {
        let _ = cluster.children.set(children::load(folder).map_err(ClusterError::Folder)?);
    }
    service.store.track_unsent(service.now());
    Ok(())
}

/// The engine of a cluster, which is not connected yet.
///
/// # Errors
/// A file of TLS between nodes cannot be used.
pub(crate) fn engine(service: &Arc<Service>, cluster: &Cluster) -> Result<Remote, EngineError> {
    #[cfg(feature = "kafka")]
    if let Some(topic) = &cluster.config.kafka {
        return super::kafka::engine(service, cluster, topic.clone());
    }
    let peer = cluster.config.peer.as_ref().filter(|_| cluster.config.is_mesh());
    let Some(peer) = peer else { return Remote::new(&cluster.config.urls) };
    let most_bytes = usize::try_from(service.config.ceiling_bytes / MESH_SHARE).unwrap_or(usize::MAX);
    let (node, urls) = (&cluster.config.node, cluster.config.urls.clone());
    let folder = service.config.storage.as_ref().map(|storage| storage.path.clone());
    let keep_children = folder
        .map(|folder| -> KeepChildren { Arc::new(move |names: &[&str]| children::keep(&folder, names)) });
    let interest = Arc::clone(&cluster.interest);
    let peers = Peers::new(PeersConfig {
        on_change: Some(Arc::new(move |key: &[u8]| interest.note_change(Tier::Local, key))),
        parents: peer.parents.clone(),
        tls: peer.tls.clone(),
        children: cluster.children.get().cloned().unwrap_or_default(),
        keep_children,
        most_bytes,
        held_bytes: Arc::clone(&cluster.mesh_bytes),
        room: Arc::clone(&cluster.node_room),
        stats: Arc::clone(&cluster.peer_stats),
        ..PeersConfig::new(node, urls, Arc::clone(&service.clock))
    });
    peers.map(Remote::Peers)
}

/// Exchanges counts until the server has stopped; then sends what is left, if the engine answers.
///
/// # Errors
/// [`ClusterError`]: another server has the name of this node. The server is stopped.
pub(crate) async fn run(service: Arc<Service>, engine: Remote, signals: Signals) -> Result<(), ClusterError> {
    let Some(cluster) = &service.cluster else { return Ok(()) };
    let mut worker = Worker::new(Arc::clone(&service), engine);
    let flush = cluster.config.flush;
    let mut pause = flush;
    loop {
        let is_stopping = {
            let mut flush = pin!(crate::pause::pause(pause));
            loop {
                tokio::select! {
                    () = signals.drained.stopped() => break true,
                    () = &mut flush => break false,
                    () = cluster.interest.wanted(Tier::Local) => worker.read_wanted().await,
                }
            }
        };
        if is_stopping {
            worker.catch_up().await;
        }
        let begun = thread_cpu_time();
        let before = cluster.state();
        let done = worker.exchange(is_stopping).await;
        let line = line_of_name(&before, &cluster.state(), &cluster.config.node);
        line.iter().for_each(|line| (signals.tell)(line));
        let rest = thread_cpu_time().saturating_sub(begun) * EXCHANGE_REST;
        pause = flush.max(rest.min(MAX_EXCHANGE_REST));
        worker.note(&done, &*signals.tell);
        let warning = worker.engine.warning().or_else(|| worker.warning.take());
        worker.warned.tell(warning, service.now(), &*signals.tell);
        if let Ok(Some(taken)) = done {
            signals.stopper.stop();
            return Err(taken);
        }
        // A node has no status while another may have its name.
        if worker.claim.was_ours() && !is_stopping && !matches!(done, Err(EngineError::Away(_))) {
            nodes::renew(&mut worker.engine, &service, cluster, &*signals.tell).await;
            busy_lists::renew(&mut worker.engine, &service, cluster, &*signals.tell).await;
        }
        if is_stopping {
            // The next server of this name need not wait.
            if worker.claim.was_ours() {
                nodes::leave(&mut worker.engine, cluster).await;
            }
            worker.claim.release(&mut worker.engine, &service).await;
            worker.engine.close().await;
            return Ok(());
        }
    }
}

/// What is logged when the name of this node begins to be that of another server, or is its own again.
fn line_of_name(before: &State, now: &State, node: &str) -> Option<String> {
    if now.waits_for_name && !before.waits_for_name {
        let seconds = 2 * CLAIM_LASTS.as_secs();
        return Some(format!(
            "another server has the name of this node, '{node}': waiting up to {seconds} s for it to end"
        ));
    }
    match (before.shares_name, now.shares_name) {
        (false, true) => Some(format!(
            "another server took the name of this node, '{node}', while this one stood still or was cut off: both count, and lists of nodes show \
             one of them; stop one"
        )),
        (true, false) => Some(format!("this server alone is node '{node}' again")),
        _ => None,
    }
}

impl<E: Engine> Worker<E> {
    /// A worker of a service that was started.
    pub(super) fn new(service: Arc<Service>, engine: E) -> Worker<E> {
        let sent_until = vec![service.now(); service.store.unsent_parts()];
        Worker {
            service,
            reconcile: Reconcile::new(),
            members: Members::default(),
            next_part: 0,
            next_part_begun: None,
            sent_until,
            warning: None,
            warned: Warned::default(),
            unsettled: None,
            is_away: false,
            is_complete: engine.is_complete(),
            refused_deletion: None,
            engine,
            life: 0,
            claim: NameClaim::default(),
        }
    }

    /// Before the stop: waits until what an earlier start has sent has arrived, and, with an upstream engine, until all keys are
    /// compared. What depends on that is sent by then.
    async fn catch_up(&mut self) {
        let service = Arc::clone(&self.service);
        let (cluster, outgoing) = parts(&service);
        if service.store.is_empty() && outgoing.deleted_keys() == 0 {
            return;
        }
        let begun = service.now();
        while service.now() < after(begun, DRAIN_SENDS_MS) {
            if !matches!(self.exchange(false).await, Ok(None)) || cluster.state().waits_for_name {
                return;
            }
            let upstream = cluster.upstream.as_ref().filter(|upstream| upstream.state().contact.is_ok());
            if self.is_settled() && (upstream.is_none() || cluster.state().is_reconciled) {
                return;
            }
            crate::pause::pause(cluster.config.flush).await;
        }
    }

    /// Notes how an exchange went, and logs a change.
    fn note(
        &mut self,
        done: &Result<Option<ClusterError>, EngineError>,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) {
        let (cluster, outgoing) = parts(&self.service);
        let (now, sent_until) = (self.service.now(), self.sent_until());
        self.is_away = done.is_err();
        cluster.interest.set_away(Tier::Local, self.is_away);
        // A deletion that was refused is sent again after a pause. All is well only when the engine has it.
        let failure = done
            .as_ref()
            .err()
            .map(ToString::to_string)
            .or_else(|| self.refused_deletion.clone().filter(|_| outgoing.deleted_keys() > 0))
            .or_else(|| self.engine.problem());
        let mut line = None;
        cluster.set_state(|state| {
            if done.is_ok() {
                (state.contact.reached, state.sent_until) = (Some(now), sent_until);
            }
            line = state.contact.note(failure, Tier::Local, now);
        });
        line.iter().for_each(|line| tell(line));
    }

    /// Sends what was counted, then reads what is due.
    pub(super) async fn exchange(&mut self, is_stopping: bool) -> Result<Option<ClusterError>, EngineError> {
        let claim = self.claim.renew(&mut self.engine, &self.service).await?;
        let (waits, shares) = (matches!(claim, Claim::Wait), matches!(claim, Claim::Shared));
        parts(&self.service).0.set_state(|state| (state.waits_for_name, state.shares_name) = (waits, shares));
        let owners = self.service.owners.iter();
        owners.for_each(|owners| owners.set_name(matches!(claim, Claim::Ours)));
        // What earlier starts have sent may be in levels that are not known before the tables are read.
        let is_complete = self.engine.is_complete();
        let is_due = is_complete && !self.is_complete;
        let line = tables::renew(&mut self.engine, Tier::Local, &self.service, is_due).await?;
        if is_due {
            // What an earlier start sent last may be on its way to other nodes.
            self.unsettled = Some(self.service.now());
        }
        self.is_complete = is_complete;
        self.warning = line.or(self.warning.take());
        match claim {
            Claim::Ours | Claim::Shared => {}
            Claim::Wait => {
                // What others counted is read meanwhile.
                self.read(true).await?;
                return Ok(None);
            }
            Claim::Taken(taken) => return Ok(Some(taken)),
        }
        self.send(is_stopping).await?;
        if is_stopping {
            return self.reconcile_all().await.map(|()| None);
        }
        self.reconcile().await?;
        self.read(true).await?;
        Ok(None)
    }

    /// Sends counts of keys with new hits, of as many keys as an exchange may send. With `to_the_end`, of all of them, and those of
    /// the wider cells, too.
    pub(super) async fn send(&mut self, to_the_end: bool) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        if service.is_loading() {
            return Ok(());
        }
        let (cluster, outgoing) = parts(&service);
        outgoing.loaded(|| latest_loaded(&service));
        let begun = service.now();
        self.mark_late_hits().await?;
        let (mut parts_left, mut keys) = (service.store.unsent_parts(), 0);
        while parts_left > 0 && (to_the_end || keys < CLUSTER_SEND_MOST_KEYS) {
            self.delete().await?;
            let visit = self.visit(&mut parts_left, to_the_end, &service.store);
            keys += visit.keys.len();
            self.send_visited(visit, outgoing, cluster).await?;
            if self.members.is_almost_full() {
                self.send_members(to_the_end).await?;
            }
            if service.now().as_millis() - begun.as_millis() > DRAIN_SENDS_MS {
                break;
            }
        }
        if self.life != self.engine.life() {
            // What was sent before may be lost by now. What was sent last is sent again at once, the rest is compared.
            let (life, now) = (self.engine.life(), service.now());
            for (key, counts) in outgoing.sent(now) {
                let sets = service.store.level_sets(&key);
                self.write(&[Pending { key: &key, sets, counts }]).await?;
            }
            if mem::replace(&mut self.life, life) != 0 {
                cluster.note_lost(now, RESEND_MS);
            }
            self.unsettled = Some(now);
            service.alert_totals().iter().for_each(|total| self.reconcile.note_older(total));
            service.store.mark_unsent_since(before(now, SENT_WITHIN_MS / 2));
            self.reconcile.restart(now, cluster.upstream.is_some());
            cluster.set_state(|state| state.is_reconciled = false);
        }
        self.warn_of(outgoing.tidy(cluster.upstream.as_ref(), service.now()));
        self.send_members(to_the_end).await
    }

    /// Warns that deletions could not be written to the data folder.
    fn warn_of(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.warning = Some(format!("deletions cannot be kept in the data folder: {error}"));
        }
    }

    /// Takes the counts of some keys with new hits out of the store.
    fn visit(&mut self, parts_left: &mut usize, with_wider: bool, store: &Store) -> Visit {
        let mut visit = Visit { decreases: store.decreases(), keys: Vec::new(), parts: Vec::new() };
        while *parts_left > 0 && visit.keys.len() < CLUSTER_SEND_KEYS {
            let first = visit.keys.len();
            let mut keys = Vec::new();
            let most = CLUSTER_SEND_KEYS - first;
            let now = self.service.now();
            let begun = *self.next_part_begun.get_or_insert(now);
            let taken = store.take_unsent(self.next_part, most, with_wider, now, |unsent| {
                keys.push((Box::from(unsent.key), unsent.levels, unsent.cells, unsent.has_older));
            });
            let visited = keys.into_iter();
            visit.keys.extend(visited.map(|(key, levels, cells, has_older)| Visited {
                key,
                levels,
                cells,
                has_older,
                taken,
            }));
            if taken.is_done {
                visit.parts.push((self.next_part, begun));
                self.next_part_begun = None;
                self.next_part = (self.next_part + 1) % store.unsent_parts();
                *parts_left -= 1;
            }
        }
        visit
    }

    /// Sends the counts of a visit, once all of them are committed.
    async fn send_visited(
        &mut self,
        visit: Visit,
        outgoing: &Outgoing,
        cluster: &Cluster,
    ) -> Result<(), EngineError> {
        if visit.keys.is_empty() {
            self.note_sent(&visit);
            return Ok(());
        }
        let service = Arc::clone(&self.service);
        let store = &service.store;
        let put_back =
            |visited: &Visited| store.put_back_unsent(&visited.key, visited.has_older, &visited.taken);
        let counts =
            visit.keys.iter().map(|visited| outgoing.counts(&visited.key, visited.levels, &visited.cells));
        let counts: Vec<_> = counts.collect();
        cluster.committed(&service).await;
        if store.decreases() != visit.decreases {
            visit.keys.iter().for_each(put_back);
            return Ok(());
        }
        let mut pending = Vec::with_capacity(visit.keys.len());
        for (visited, (mut counts, has_shared)) in visit.keys.iter().zip(counts) {
            // The marks of the deletion come first.
            if outgoing.is_deleted(&visited.key) {
                put_back(visited);
                continue;
            }
            if has_shared || visited.has_older {
                self.reconcile.note_older(&visited.key);
            }
            let sets = store.level_sets(&visited.key);
            if visited.has_older || self.reconcile.waits(&visited.key) {
                // Narrower cells lack hits until the key is compared, and go first.
                let finest_ms = sets.own().as_slice().first().map(|level| level.width_ms);
                counts.retain(|known| Some(known.cell.width_ms) == finest_ms);
            }
            if !counts.is_empty() {
                pending.push(Pending { key: &visited.key, sets, counts });
            }
        }
        let sent = self.send_writes(writes(&pending)).await;
        if sent.is_err() {
            self.unsettled = Some(service.now());
            visit.keys.iter().for_each(put_back);
        } else {
            self.note_sent(&visit);
            if self.engine.carries_key_texts() {
                visit.keys.iter().for_each(|visited| self.members.note(&visited.key, &service));
            }
        }
        sent
    }

    fn note_sent(&mut self, visit: &Visit) {
        visit.parts.iter().for_each(|&(part, begun)| self.sent_until[part] = begun);
    }

    /// All hits from before then are sent.
    fn sent_until(&self) -> Option<Timestamp> {
        self.sent_until.iter().copied().min()
    }

    /// Whether writes that were said to have failed have arrived by now, if they arrive at all, and the engine has what earlier starts have
    /// sent.
    pub(super) fn is_settled(&self) -> bool {
        let now = self.service.now();
        self.unsettled.is_none_or(|since| now >= after(since, RECONCILE_SETTLE_MS)) && self.knows_former()
    }

    /// Whether the engine has what earlier starts of this node have sent, if there were any.
    pub(super) fn knows_former(&self) -> bool {
        self.is_complete || !parts(&self.service).1.has_former()
    }

    /// Marks everything that the engine has of deleted keys. Own counts may be on their way: their marks wait until those have arrived.
    async fn delete(&mut self) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let (cluster, outgoing) = parts(&service);
        if !self.knows_former() {
            // What is to be marked is not known yet.
            return Ok(());
        }
        loop {
            let is_settled = self.is_settled();
            let mut unsent = outgoing.deleted(CLUSTER_DELETE_KEYS, is_settled);
            if unsent.is_empty() {
                return Ok(());
            }
            // They may be rolled back.
            cluster.committed(&service).await;
            unsent.retain(|unsent| outgoing.is_deleted_at(&unsent.key, unsent.at));
            let mut rest = &unsent[..];
            while !rest.is_empty() {
                let now = service.now();
                let keys = rest.iter().map(|unsent| &*unsent.key);
                // Before the counts are read: those that come meanwhile are late.
                let away = self.engine.away();
                let told = all_told_of(&mut self.engine, &service, keys, now).await?;
                let (read, next) = rest.split_at(told.len());
                rest = next;
                let (mut pending, mut is_full) = (Vec::with_capacity(read.len()), false);
                for (Unsent { key, at, is_own_only }, mut told) in read.iter().zip(told) {
                    if cluster.upstream.is_none() {
                        // The engine may have lost counts that were read from it, or sent to it.
                        told =
                            with_known(told, known_of_others(&service.store, key).chain(outgoing.known(key)));
                    }
                    let local: HashSet<Origin> = told.iter().map(|known| known.origin.clone()).collect();
                    told.retain(
                        |known| {
                            if outgoing.is_own(&known.origin) { is_settled } else { !*is_own_only }
                        },
                    );
                    let counts = outgoing.marks((*at, now), told);
                    outgoing.note_deleted(key, &counts);
                    if let Some(upstream) = cluster.upstream.as_ref().filter(|_| is_settled) {
                        let known = known_from(&service.store, key, Tier::Upstream).collect();
                        let deletion = Deletion { at: *at, local, known };
                        if !upstream.delete(key, deletion, service.config.ceiling_bytes) {
                            is_full = true;
                            break;
                        }
                    }
                    pending.push(Pending { key, sets: service.store.level_sets(key), counts });
                }
                // The members come first, so that a node that reads the marks reads of their deletion, too.
                let deleted = read[..pending.len()].iter().map(|unsent| (&*unsent.key, unsent.at));
                self.delete_members(&deleted.collect::<Vec<_>>(), now).await?;
                let marked = self.write(&pending).await;
                self.refused_deletion = marked.as_ref().err().map(ToString::to_string);
                marked?;
                self.warn_of(outgoing.note_sent(&pending, now));
                for Unsent { key, at, is_own_only } in &read[..pending.len()] {
                    service.store.unlearn(key);
                    if !is_own_only {
                        outgoing.late.add(key, *at, away.clone(), outgoing.most_late_bytes());
                    }
                    if !is_settled {
                        self.warn_of(outgoing.others_marked(key, *at));
                        continue;
                    }
                    outgoing.marked(key, *at);
                    if cluster.upstream.is_none() {
                        outgoing.marked_everywhere(key, *at);
                    }
                }
                if is_full {
                    // It is tried again in the next exchange.
                    self.warning = Some(
                        "too many deletions wait for the upstream engine: further ones wait until it has taken some"
                            .to_owned(),
                    );
                    return Ok(());
                }
            }
        }
    }

    /// Marks hits of deleted keys that were away when these were deleted, and have come since.
    async fn mark_late_hits(&mut self) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let (now, outgoing) = (service.now(), parts(&service).1);
        let are_all_here = outgoing.late.note_away(self.engine.away(), now);
        let due = outgoing.late.due(now);
        if due.is_empty() {
            return Ok(());
        }
        let pending = late_hits::marks_of(&due, &mut self.engine, &service, now).await?;
        self.write(&pending).await?;
        self.warn_of(outgoing.note_sent(&pending, now));
        pending.iter().for_each(|pending| service.store.unlearn(pending.key));
        for (key, deleted) in &due {
            if are_all_here || deleted.is_over(key, &service, now) {
                outgoing.late.marked(key, deleted.at);
            }
        }
        Ok(())
    }

    /// Sends counts, and notes their blocks for the node that copies them upstream. Narrower cells go first. A node that is killed
    /// before the wider ones are sent may start with other classes. Then [`Worker::complete`] sends what the wider ones lack.
    async fn send_writes(&mut self, mut writes: Vec<Write<'_>>) -> Result<(), EngineError> {
        writes.sort_by_key(|write| write.block.width_ms);
        for of_width in writes.chunk_by(|one, next| one.block.width_ms == next.block.width_ms) {
            self.engine.send(of_width).await?;
        }
        if parts(&self.service).0.upstream.is_some() {
            // After the counts: who finds the note finds the counts.
            let blocks: Vec<_> = writes.iter().map(|write| write.block).collect();
            self.engine.note_changed(&blocks).await?;
        }
        Ok(())
    }

    /// Sends counts that are not made from keys with new hits.
    pub(super) async fn write(&mut self, pending: &[Pending<'_>]) -> Result<(), EngineError> {
        let sent = self.send_writes(writes(pending)).await;
        if sent.is_err() {
            self.unsettled = Some(self.service.now());
        }
        sent
    }

    /// Removes own hits that another node has deleted, and notes in the engine that they are. `told` is of some cells of the key.
    pub(super) async fn remove(
        &mut self,
        key: &[u8],
        told: impl Iterator<Item = &Known>,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let outgoing = parts(&service).1;
        let is_marked = |known: &Known| {
            outgoing.is_own(&known.origin) && known.tally.deleted.min(known.tally.counted) > known.removed
        };
        if !self.knows_former() || !told.into_iter().any(is_marked) {
            return Ok(());
        }
        let mut own = all_told(&mut self.engine, &service, key, now).await?;
        own.retain(|known| outgoing.is_own(&known.origin));
        let lacking = outgoing.merge_sent(key, &mut own);
        let sets = service.store.level_sets(key);
        if !lacking.is_empty() {
            // The engine has lost that these hits were removed. Tell it, and compare the key again.
            self.reconcile.note_older(key);
            self.write(&[Pending { key, sets: service.store.level_sets(key), counts: lacking }]).await?;
        }
        let (hits, removed) = removals(own, &sets, now);
        if removed.is_empty() {
            return Ok(());
        }
        let mut deltas = DeltaBatch::default();
        {
            let _entered = service.enter();
            let lacking = service.store.take_back(key, &hits, now, &mut deltas);
            // Of hits that were sent in cells of several classes it is not known which are in which.
            let lacking = hits.iter().zip(lacking).filter(|(_, lacking)| *lacking > 0);
            let lacking = lacking.map(|((cell, _), lacking)| (reach_of(*cell, &sets, now), lacking));
            let lacking: Vec<_> = lacking.filter(|_| sets.others().next().is_some()).collect();
            if !lacking.is_empty() {
                service.store.take_back(key, &lacking, now, &mut deltas);
            }
        }
        if let Err(refused) = service.commit_through(&deltas) {
            service.store.roll_back(&mut deltas);
            return Err(EngineError::Away(refused.to_string()));
        }
        if removed.iter().any(|known| known.tally.deleted > 0) {
            // Some of the hits that a wider cell had may be left, and it seems to have none of them.
            self.reconcile.note_older(key);
        }
        self.warn_of(outgoing.note_removed(key, &removed, now));
        outgoing.note_deleted(key, &removed);
        self.write(&[Pending { key, sets, counts: removed }]).await?;
        outgoing.removed_sent(key, now);
        // The other node has deleted the members, too.
        self.read_members(iter::once(key), false, now).await
    }

    /// Reads what other nodes counted of keys that somebody asked for, unless the engine is away.
    async fn read_wanted(&mut self) {
        if !self.is_away {
            // The next exchange reports a failure.
            let _ = self.read(false).await;
        }
    }

    /// Reads what other nodes counted of keys that are due: those that are not known first, and only these unless there are none,
    /// or `all` is set.
    async fn read(&mut self, all: bool) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let interest = &parts(&service).0.interest;
        let now = service.now();
        let due = interest.due(Tier::Local, CLUSTER_READ_KEYS, all, now);
        let mut is_over = false;
        let done = self.read_keys(&due, now, &mut is_over).await;
        end_reading(&service, (Tier::Local, &due), done.is_ok(), is_over);
        interest.tidy(now, |key| service.store.unlearn(key));
        done
    }

    /// Reads these keys. `is_over` becomes true if a question can be answered now.
    async fn read_keys(
        &mut self,
        mut due: &[Due],
        now: Timestamp,
        is_over: &mut bool,
    ) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let cluster = parts(&service).0;
        while let Some(told) = told_of(&mut self.engine, Tier::Local, &service, due, now).await? {
            if self.life != 0 && self.life != self.engine.life() {
                cluster.note_lost(now, RESEND_MS);
            }
            let (read, rest) = due.split_at(told.len());
            self.read_members(read.iter().map(|due| &*due.key), true, now).await?;
            for (due, told) in read.iter().zip(told) {
                self.remove(&due.key, told.iter(), now).await?;
                let left_out = learn(&service, Tier::Local, (due, told), now, is_over);
                self.warning = left_out.or(self.warning.take());
            }
            due = rest;
            if mem::take(is_over) {
                service.wake();
            }
        }
        Ok(())
    }
}

/// Forgets keys that are read, if memory is full. Whether there is room for more then.
fn has_room(service: &Service) -> bool {
    let interest = &parts(service).0.interest;
    interest.make_room(|key| service.store.unlearn(key));
    !interest.is_full()
}

/// Notes that keys were read from an engine as far as there is room, or that they could not be read.
pub(super) fn end_reading(service: &Service, (tier, due): (Tier, &[Due]), is_done: bool, mut is_over: bool) {
    let interest = &parts(service).0.interest;
    if !is_done {
        is_over |= interest.note_failure(tier, due);
    } else if !due.is_empty() && has_room(service) {
        // There may be more. They are read after a flush that is due.
        interest.want(tier);
    }
    if is_over {
        service.wake();
    }
}

/// What an engine has of the first keys, at least one, that windows which end now may need, in the order of the keys. `None` if there
/// are no keys, or no room for what would be read: then the keys are read later.
pub(super) async fn told_of(
    engine: &mut impl Engine,
    tier: Tier,
    service: &Service,
    due: &[Due],
    now: Timestamp,
) -> Result<Option<Vec<Told>>, EngineError> {
    let cluster = parts(service).0;
    if due.is_empty() || !has_room(service) {
        cluster.interest.put_back(tier, due);
        return Ok(None);
    }
    let mut blocks = Blocks::new(service);
    for Due { key, window, .. } in due {
        let (oldest_ms, newest_ms) = reach(*window, service, key, now);
        let mut of_key = Vec::new();
        for levels in service.store.level_sets(key).all() {
            // Wider cells are read a little before answers are made of them, for an answer is made of what was read last.
            let soon = levels.ranges_ms(after(now, READ_AHEAD_MS));
            for ((level, from_ms, _), (_, _, to_ms)) in levels.ranges_ms(now).zip(soon) {
                let (from_ms, to_ms) = (from_ms.max(oldest_ms - level.width_ms), to_ms.min(newest_ms));
                if from_ms < to_ms {
                    of_key.extend(Block::between(key, (levels.id(), level.width_ms), from_ms, to_ms));
                }
            }
        }
        if !blocks.add(of_key) {
            break;
        }
    }
    blocks.told(engine).await.map(Some)
}

/// Blocks of several keys that are read at once.
struct Blocks<'k> {
    blocks: Vec<Block<'k>>,
    /// Their number with those of each key.
    ends: Vec<usize>,
    most: usize,
}

impl<'k> Blocks<'k> {
    fn new(service: &Service) -> Blocks<'k> {
        Blocks { blocks: Vec::new(), ends: Vec::new(), most: parts(service).0.read_blocks }
    }

    /// Adds those of a key. False if there are too many: the first key always fits.
    fn add(&mut self, of_key: Vec<Block<'k>>) -> bool {
        let fits = self.ends.is_empty() || self.blocks.len() + of_key.len() <= self.most;
        if fits {
            self.blocks.extend(of_key);
            self.ends.push(self.blocks.len());
        }
        fits
    }

    /// What an engine has of each key.
    async fn told(self, engine: &mut impl Engine) -> Result<Vec<Told>, EngineError> {
        let mut told = engine.read(&self.blocks).await?.into_iter();
        let mut start = 0;
        let of_key = |end| {
            let of_key = told.by_ref().take(end - start).flatten().collect();
            start = end;
            of_key
        };
        Ok(self.ends.into_iter().map(of_key).collect())
    }
}

/// What an engine has of the first of these keys, at least one, in cells of all levels: also in those that are read later.
pub(super) async fn all_told_of<'k>(
    engine: &mut impl Engine,
    service: &Service,
    mut keys: impl Iterator<Item = &'k [u8]>,
    now: Timestamp,
) -> Result<Vec<Told>, EngineError> {
    let mut blocks = Blocks::new(service);
    while keys.next().is_some_and(|key| blocks.add(all_blocks(service, key, now))) {}
    blocks.told(engine).await
}

/// The same of one key.
pub(super) async fn all_told(
    engine: &mut impl Engine,
    service: &Service,
    key: &[u8],
    now: Timestamp,
) -> Result<Told, EngineError> {
    Ok(all_told_of(engine, service, std::iter::once(key), now).await?.into_iter().flatten().collect())
}

/// The blocks of a key that are read now or later.
fn all_blocks<'k>(service: &Service, key: &'k [u8], now: Timestamp) -> Vec<Block<'k>> {
    let mut blocks = Vec::new();
    for levels in service.store.level_sets(key).all() {
        // Hits of another class may be kept longer.
        let (_, newest_ms) = reach(Span::MIN, service, key, now);
        let oldest_ms =
            now.as_millis() - levels.retain_ms() - service.store.settings_of(key).exact().as_millis();
        for (level, from_ms, _) in levels.ranges_ms(now) {
            let (id, from_ms) = ((levels.id(), level.width_ms), from_ms.max(oldest_ms - level.width_ms));
            blocks.extend(Block::between(key, id, from_ms, newest_ms));
        }
    }
    blocks
}

/// Learns what an engine has of a key that was read. `is_over` becomes true if a question can be answered now. Returns why
/// some of it is left out.
pub(super) fn learn(
    service: &Service,
    tier: Tier,
    (due, told): (&Due, Told),
    now: Timestamp,
    is_over: &mut bool,
) -> Option<String> {
    let (cluster, outgoing) = parts(service);
    let told: Told = told.into_iter().filter(|known| !outgoing.is_own(&known.origin)).collect();
    // Hits whose marks are on their way are not missing.
    let is_deleted = match tier {
        Tier::Local => outgoing.is_deleted(&due.key),
        Tier::Upstream => upstream_of(service).is_deleted(&due.key),
    };
    let told = if is_deleted { told } else { with_lost(service, tier, (&due.key, due.window), told, now) };
    let of_others = told.into_iter().map(|known| (known.origin, known.levels, known.cell, known.tally));
    let store = &service.store;
    let learned = store.learn(&due.key, tier, of_others, now);
    let known_bytes = *learned.as_ref().unwrap_or(&0);
    *is_over |= cluster.interest.note_read(tier, due, known_bytes, now, |key| store.unlearn(key));
    learned.err().map(|error| {
        let key = String::from_utf8_lossy(&due.key).escape_debug().to_string();
        format!("the hits of other nodes on '{key}' are left out: {error}")
    })
}

/// Of own counts in all levels, the hits that are deleted and still in the store, and the counts with the hits that are removed by
/// then. A hit is in a cell of each level, and its marks may come one by one. So it is taken out of the cells that are read now, and
/// wider cells only follow. They may have no mark: the node that deleted the key did not know of them, because they were sent at that time.
/// Then they get it here.
fn removals(mut own: Told, sets: &LevelSets<'_>, now: Timestamp) -> (Vec<(Cell, u64)>, Vec<Known>) {
    let (mut hits, mut removed) = (Vec::new(), Vec::new());
    for levels in sets.all() {
        let own = own.extract_if(.., |known| known.levels == levels.id()).collect();
        removals_of(own, levels, now, &mut hits, &mut removed);
    }
    // Those of a wider cell may be any in it that are left.
    hits.sort_by_key(|(cell, _)| cell.width_ms);
    (hits, removed)
}

/// The same of counts in cells of these levels.
fn removals_of(
    own: Told,
    levels: &Levels,
    now: Timestamp,
    hits: &mut Vec<(Cell, u64)>,
    removed: &mut Vec<Known>,
) {
    let (mut read, others): (Vec<Known>, Vec<Known>) =
        own.into_iter().partition(|known| levels.is_read(known.cell, now));
    let deleted = |known: &Known| known.tally.deleted.min(known.tally.counted);
    let mut note = |known: &Known, tally: Tally, removed_hits: u64| {
        removed.push(Known { tally, removed: removed_hits, ..known.clone() });
    };
    for known in &mut read {
        let more = deleted(known).saturating_sub(known.removed);
        if more > 0 {
            hits.push((known.cell, more));
            known.removed += more;
            note(known, Tally::default(), known.removed);
        }
    }
    // The hits of a wider cell that leave with those of the cells inside. A wider cell may have hits of earlier starts under the origin of a
    // later one. So each origin first takes the hits that left under its name, and then what is left of the others.
    let mut left: HashMap<Cell, u64> = HashMap::new();
    // Each with what it takes of its own, and how many hits of other origins it has at most.
    let mut wider: Vec<(&Known, u64, u64)> = Vec::with_capacity(others.len());
    for known in &others {
        let Cell { start_ms, width_ms } = known.cell;
        let mut ranges = levels.ranges_ms(now);
        if ranges.any(|(level, from_ms, _)| level.width_ms == width_ms && start_ms < from_ms) {
            wider.push((known, deleted(known), 0));
            continue;
        }
        let inside = || read.iter().filter(|of| (start_ms..known.cell.end_ms()).contains(&of.cell.start_ms));
        let of_origin = || inside().filter(|of| of.origin == known.origin);
        let taken = known.tally.counted.min(of_origin().map(|of| of.removed).sum());
        let counted_inside: u64 = of_origin().map(|of| of.tally.counted).sum();
        *left.entry(known.cell).or_insert_with(|| inside().map(|of| of.removed).sum()) -= taken;
        wider.push((known, taken, known.tally.counted.saturating_sub(counted_inside)));
    }
    for (known, taken, of_others) in wider {
        let left = left.entry(known.cell).or_default();
        let more = of_others.min(deleted(known).saturating_sub(taken)).min(*left);
        *left -= more;
        let is_marked = taken + more <= deleted(known);
        if !is_marked || taken + more > known.removed {
            let mark = Tally { counted: known.tally.counted, deleted: taken + more };
            note(known, if is_marked { Tally::default() } else { mark }, taken + more);
        }
    }
}

/// What an engine has of a key, and what is known from it beside that.
pub(super) fn with_known(mut told: Told, known: impl Iterator<Item = Known>) -> Told {
    let place = |held: &Known| (held.origin.clone(), held.levels, held.cell);
    let mut places: HashMap<_, _> = told.iter().map(place).zip(0..).collect();
    for known in known {
        match places.entry(place(&known)) {
            Entry::Occupied(held) => told[*held.get()].merge(&known),
            Entry::Vacant(free) => {
                free.insert(told.len());
                told.push(known);
            }
        }
    }
    told
}

/// What is known of the hits of other nodes on a key.
pub(super) fn known_of_others(store: &Store, key: &[u8]) -> impl Iterator<Item = Known> {
    store.known(key).into_iter().map(known)
}

/// The same of those that were read from one engine.
pub(super) fn known_from(store: &Store, key: &[u8], tier: Tier) -> impl Iterator<Item = Known> {
    store.known_from(key, tier).into_iter().map(known)
}

fn known((origin, levels, cell, tally): (Origin, LevelsId, Cell, Tally)) -> Known {
    Known { origin, levels, cell, tally, removed: 0 }
}

/// Keys with new hits.
struct Visit {
    /// See [`Store::decreases`].
    decreases: u64,
    keys: Vec<Visited>,
    /// The parts of which this visit has the last keys, and when their first keys were visited.
    parts: Vec<(usize, Timestamp)>,
}

struct Visited {
    key: Box<[u8]>,
    levels: LevelsId,
    cells: Vec<(Cell, u64)>,
    has_older: bool,
    taken: Taken,
}

/// The latest time that a hit of the store may have.
pub(super) fn latest_loaded(service: &Service) -> Timestamp {
    let now = service.now().max(service.store.now());
    after(now, service.config.largest_max_skew().as_millis())
}

/// The first and one past the last millisecond that a window of a key may need, read now or a little earlier.
pub(super) fn reach(window: Span, service: &Service, key: &[u8], now: Timestamp) -> (i64, i64) {
    let settings = service.store.settings_of(key);
    let window_ms = window.min(settings.retain()).as_millis() + settings.exact().as_millis();
    // Cells that have not begun by then have no hits.
    let newest_ms = now.as_millis() + settings.max_skew().as_millis();
    (now.as_millis() - window_ms, newest_ms + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: hits that another node had deleted counted twice in windows of a day. Cause: their marks came for wide cells first, the hits
    /// were still in the store, and were taken for hits that the engine lacked. Fix: hits leave the store with the marks of the cells that are read.
    #[test]
    fn marks_that_come_one_by_one_take_each_hit_once() {
        let store = Store::builder().build().expect("the defaults are valid");
        let (sets, now) =
            (store.level_sets(b"k"), Timestamp::from_millis(1_700_000_000_000).expect("a time"));
        let widths = [1_000, 10_000, 60_000, 600_000, 3_600_000];
        // Each noted cell with its removed hits, and the mark that it gets here.
        let check = |deleted: [u64; 5], removed: [u64; 5], hits: &[u64], expected: &[(i64, u64, u64)]| {
            let own = (0..5).map(|index| Known {
                origin: Origin::new("a", 1).expect("a name"),
                levels: sets.own().id(),
                cell: Cell::of(now.as_millis() - 50_000, widths[index]),
                tally: Tally { counted: 3, deleted: deleted[index] },
                removed: removed[index],
            });
            let (taken, noted) = removals(own.collect(), &sets, now);
            assert_eq!(taken.iter().map(|(_, hits)| *hits).collect::<Vec<_>>(), hits, "{deleted:?}");
            let noted = noted.iter().map(|known| (known.cell.width_ms, known.removed, known.tally.deleted));
            assert_eq!(noted.collect::<Vec<_>>(), expected, "{deleted:?}");
        };
        check([0, 0, 3, 0, 3], [0; 5], &[], &[]);
        check(
            [2, 0, 3, 0, 3],
            [0; 5],
            &[2],
            &[(1_000, 2, 0), (10_000, 2, 2), (60_000, 2, 0), (600_000, 2, 2), (3_600_000, 2, 0)],
        );
        check(
            [3, 3, 3, 2, 3],
            [2; 5],
            &[1],
            &[(1_000, 3, 0), (10_000, 3, 0), (60_000, 3, 0), (600_000, 3, 3), (3_600_000, 3, 0)],
        );
        check([3; 5], [3, 3, 3, 0, 3], &[], &[(600_000, 3, 0)]);
        check([3; 5], [3; 5], &[], &[]);
    }

    /// Hits that one origin has removed say nothing of the wider cells of another.
    #[test]
    fn marks_of_one_origin_remove_no_hits_of_another() {
        let store = Store::builder().build().expect("the defaults are valid");
        let now = Timestamp::from_millis(1_700_000_000_000).expect("a time");
        let sets = store.level_sets(b"k");
        let known = |incarnation: u64, width_ms: i64, deleted: u64, removed: u64| Known {
            origin: Origin::new("a", incarnation).expect("a name"),
            levels: sets.own().id(),
            cell: Cell::of(now.as_millis() - 50_000, width_ms),
            tally: Tally { counted: 3, deleted },
            removed,
        };
        let own = vec![known(1, 1_000, 3, 3), known(2, 1_000, 0, 0), known(2, 10_000, 3, 0)];
        assert_eq!(removals(own, &sets, now), (Vec::new(), Vec::new()));
    }

    /// Symptom: a hit that came after a deletion was lost. Cause: a wider cell had hits of an earlier start under the origin of a later one. When
    /// they left the store, the wider cell had fewer removed hits than deleted ones, and a hit too many left once it was read. Fix: what left under
    /// the name of the earlier origin counts for the wider cell of the later one, if that has more than its own.
    #[test]
    fn hits_of_an_earlier_start_leave_the_wider_cell_of_a_later_one() {
        let store = Store::builder().build().expect("the defaults are valid");
        let now = Timestamp::from_millis(1_700_000_000_000).expect("a time");
        let sets = store.level_sets(b"k");
        let known = |incarnation: u64, (ago_ms, width_ms): (i64, i64), hits: u64, removed: u64| Known {
            origin: Origin::new("a", incarnation).expect("a name"),
            levels: sets.own().id(),
            cell: Cell::of(now.as_millis() - ago_ms, width_ms),
            tally: Tally { counted: hits, deleted: hits },
            removed,
        };
        let wide = known(2, (50_000, 10_000), 5, 0);
        let (one, other) = (known(1, (50_000, 1_000), 1, 0), known(2, (49_000, 1_000), 4, 0));
        let (hits, removed) = removals(vec![wide.clone(), one.clone(), other.clone()], &sets, now);
        assert_eq!(hits, [(one.cell, 1), (other.cell, 4)]);
        let removed: Vec<_> = removed.iter().map(|known| (known.cell, known.removed)).collect();
        assert_eq!(removed, [(one.cell, 1), (other.cell, 4), (wide.cell, 5)]);
    }
}
