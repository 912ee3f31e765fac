//! The upstream engine, which all data centres share: what they counted is read from it, on a thread of its own. So an engine that
//! is far, slow or away does not hold up the exchange inside of the data centre.

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lately::limits::MAX_NODE_BYTES;
use lately::{Origin, Tier, Timestamp};
use lately_engines::{Engine, EngineError, Known, OwnedBlock, Remote, Told};
use tokio::sync::Notify;

use super::aggregator;
use super::busy_lists;
use super::contact::Contact;
use super::interest::Due;
use super::members;
use super::name_claim::{Claim, NameClaim};
use super::outgoing::{Pending, writes};
use super::reconcile::after;
use super::tables;
use super::worker::{
    ClusterError, Signals, Warned, all_told_of, end_reading, learn, parts, told_of, with_known,
};
use crate::clock::thread_cpu_time;
use crate::limits::{
    CLUSTER_READ_KEYS, DELETIONS_SHARE, EXCHANGE_REST, MAX_EXCHANGE_REST, RECONCILE_MOST_OLDER_KEYS,
    UPSTREAM_DELETE_KEYS, UPSTREAM_DELETE_ROUNDS, UPSTREAM_MARKS_MS, UPSTREAM_RESEND_MS, UPSTREAM_RETRY,
};
use crate::service::Service;

/// What the service knows of the upstream engine.
#[derive(Default)]
pub(crate) struct Upstream {
    state: Mutex<UpstreamState>,
    /// Keys that were deleted here. Their hits of other data centres are to be marked.
    deletions: Mutex<Deletions>,
    /// Keys with hits of this node that another data centre has deleted.
    older: Mutex<HashSet<Box<[u8]>>>,
    /// Keys whose members were deleted in any data centre, and until when.
    deleted_members: Mutex<HashMap<Box<[u8]>, Timestamp>>,
    question: Mutex<Question>,
    /// The marks that were sent last.
    marks: Mutex<SentMarks>,
    /// Wakes the reader: there is a question.
    asked: Notify,
}

/// Marks of keys and when they were sent, oldest first.
#[derive(Default)]
struct SentMarks {
    marks: VecDeque<(Timestamp, Box<[u8]>, Vec<Known>)>,
    bytes: usize,
}

fn bytes_of_marks(key: &[u8], marks: &[Known]) -> usize {
    // Each has a name of its node.
    size_of::<(Timestamp, Box<[u8]>, Vec<Known>)>()
        + key.len()
        + marks.len() * (size_of::<Known>() + MAX_NODE_BYTES)
}

/// How it goes with the upstream engine.
#[derive(Clone, Default, Debug)]
pub(crate) struct UpstreamState {
    pub(crate) contact: Contact,
    /// The node that copies the counts of this data centre to it.
    pub(crate) aggregator: Option<String>,
    /// Why this node, as that one, cannot copy them.
    pub(crate) copy_failure: Option<String>,
    /// Blocks of this data centre with counts that were not copied.
    pub(crate) waiting_blocks: usize,
}

impl UpstreamState {
    /// Whether counts are exchanged with it, as far as this node knows.
    pub(crate) fn is_ok(&self) -> bool {
        self.problem().is_none() && self.contact.is_ok()
    }

    /// Why counts may not be exchanged with it.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.contact.failure.as_deref().or(self.copy_failure.as_deref())
    }
}

/// A key that was deleted here.
#[derive(Clone)]
pub(super) struct Deletion {
    pub(super) at: Timestamp,
    /// The origins whose hits are marked in the local engine. These marks are copied.
    pub(super) local: HashSet<Origin>,
    /// What was known of the hits of other data centres. The engine may lose some of it before they are marked.
    pub(super) known: Vec<Known>,
}

/// Keys that were deleted here, and bytes of all of them.
#[derive(Default)]
struct Deletions {
    keys: HashMap<Box<[u8]>, Deletion>,
    bytes: usize,
}

impl Deletion {
    fn bytes(&self, key: &[u8]) -> usize {
        const OF_ORIGIN: usize = 2 * (size_of::<Origin>() + MAX_NODE_BYTES);
        2 * size_of::<(Box<[u8]>, Deletion)>()
            + self.local.len() * OF_ORIGIN
            + bytes_of_marks(key, &self.known)
    }
}

/// What the exchange with the local engine asks the reader of the upstream one.
#[derive(Default)]
enum Question {
    #[default]
    None,
    Asked(Vec<OwnedBlock>),
    BeingRead,
    Answered(Option<HashMap<OwnedBlock, Told>>),
}

/// The answer to a question.
pub(super) enum Answer {
    Waits,
    /// The engine could not be read.
    Away,
    Told(HashMap<OwnedBlock, Told>),
}

/// Whether the engine can be asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It was never tried.
    Unknown,
    Reached,
    Away,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Upstream {
    /// How it goes.
    pub(crate) fn state(&self) -> UpstreamState {
        lock(&self.state).clone()
    }

    pub(super) fn set_state(&self, change: impl FnOnce(&mut UpstreamState)) {
        change(&mut lock(&self.state));
    }

    /// Asks what the engine has of blocks, if it can be asked. The last question was answered.
    pub(super) fn ask(&self, blocks: Vec<OwnedBlock>) -> Standing {
        let standing = {
            let contact = &lock(&self.state).contact;
            match (&contact.failure, contact.reached) {
                (Some(_), _) => Standing::Away,
                (None, Some(_)) => Standing::Reached,
                (None, None) => Standing::Unknown,
            }
        };
        if standing == Standing::Reached {
            *lock(&self.question) = Question::Asked(blocks);
            self.asked.notify_one();
        }
        standing
    }

    /// Takes the answer to the question, if there is one by now.
    pub(super) fn take_answer(&self) -> Answer {
        let mut question = lock(&self.question);
        match std::mem::take(&mut *question) {
            Question::Answered(Some(told)) => Answer::Told(told),
            Question::Answered(None) => Answer::Away,
            unanswered => {
                *question = unanswered;
                Answer::Waits
            }
        }
    }

    /// The engine cannot be reached: there is no answer.
    fn fail_question(&self) {
        let mut question = lock(&self.question);
        if matches!(*question, Question::Asked(_) | Question::BeingRead) {
            *question = Question::Answered(None);
        }
    }

    /// Notes that a key was deleted here. False if those that wait take too much of the memory ceiling.
    pub(super) fn delete(&self, key: &[u8], deletion: Deletion, ceiling_bytes: u64) -> bool {
        let deletions = &mut *lock(&self.deletions);
        let bytes = deletions.bytes + deletion.bytes(key);
        if bytes as u64 > ceiling_bytes / DELETIONS_SHARE {
            return false;
        }
        deletions.bytes = bytes;
        if let Some(before) = deletions.keys.insert(key.into(), deletion) {
            deletions.bytes -= before.bytes(key);
        }
        true
    }

    /// Some keys whose hits of other data centres are to be marked.
    fn deleted(&self) -> Vec<(Box<[u8]>, Deletion)> {
        let deletions = lock(&self.deletions);
        let keys = deletions.keys.iter().take(UPSTREAM_DELETE_KEYS);
        keys.map(|(key, deletion)| (key.clone(), deletion.clone())).collect()
    }

    pub(super) fn is_deleted(&self, key: &[u8]) -> bool {
        lock(&self.deletions).keys.contains_key(key)
    }

    /// The hits of other data centres on a key are marked.
    fn marked(&self, key: &[u8], at: Timestamp) {
        let Deletions { keys, bytes } = &mut *lock(&self.deletions);
        if let Some(deletion) = keys.get(key).filter(|deletion| deletion.at == at) {
            *bytes -= deletion.bytes(key);
            keys.remove(key);
        }
    }

    /// All of these keys, and when they were deleted.
    pub(super) fn deletions(&self) -> Vec<(Box<[u8]>, Timestamp)> {
        lock(&self.deletions).keys.iter().map(|(key, Deletion { at, .. })| (key.clone(), *at)).collect()
    }

    /// Keys that were deleted here, and whose hits of other data centres are not marked.
    pub(crate) fn unsent_deletions(&self) -> usize {
        lock(&self.deletions).keys.len()
    }

    /// Notes marks that were sent. Without room the oldest are dropped.
    fn note_marks(&self, sent: Vec<Pending<'_>>, now: Timestamp, ceiling_bytes: u64) {
        let SentMarks { marks, bytes } = &mut *lock(&self.marks);
        for Pending { key, counts, .. } in sent {
            *bytes += bytes_of_marks(key, &counts);
            marks.push_back((now, key.into(), counts));
        }
        let is_over = |sent: Timestamp| now >= after(sent, UPSTREAM_MARKS_MS);
        while let Some((_, key, counts)) =
            marks.pop_front_if(|(sent, ..)| is_over(*sent) || *bytes as u64 > ceiling_bytes / DELETIONS_SHARE)
        {
            *bytes -= bytes_of_marks(&key, &counts);
        }
    }

    /// The marks that were sent last.
    fn last_marks(&self, now: Timestamp) -> Vec<(Box<[u8]>, Vec<Known>)> {
        let SentMarks { marks, .. } = &*lock(&self.marks);
        let last = marks.iter().filter(|(sent, ..)| now < after(*sent, UPSTREAM_MARKS_MS));
        last.map(|(_, key, counts)| (key.clone(), counts.clone())).collect()
    }

    /// Memory of the deletions, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        lock(&self.deletions).bytes + lock(&self.marks).bytes
    }

    /// Notes a key with hits of this node that another data centre has deleted. A round finds those for which there is no room.
    fn note_older(&self, key: &[u8]) {
        let mut older = lock(&self.older);
        if older.len() < RECONCILE_MOST_OLDER_KEYS {
            older.insert(key.into());
        }
    }

    /// Notes that the members of a key are deleted until a time. Without room, it is noted when the key is read again.
    pub(super) fn note_deleted_members(&self, key: &[u8], until: Timestamp) {
        let mut deleted = lock(&self.deleted_members);
        if deleted.len() < RECONCILE_MOST_OLDER_KEYS {
            deleted.insert(key.into(), until);
        }
    }

    /// Takes these keys.
    pub(super) fn take_deleted_members(&self) -> HashMap<Box<[u8]>, Timestamp> {
        std::mem::take(&mut lock(&self.deleted_members))
    }

    /// Takes these keys.
    pub(super) fn take_older(&self) -> HashSet<Box<[u8]>> {
        std::mem::take(&mut lock(&self.older))
    }
}

/// Reads what other data centres counted.
pub(super) struct UpstreamReader<E> {
    pub(super) service: Arc<Service>,
    pub(super) engine: E,
    claim: NameClaim,
    /// The life of the engine that was read last.
    life: Option<u64>,
    /// Whether the engine may have lost the marks that were sent last.
    lacks_marks: bool,
    /// What was read and left out, and why.
    warning: Option<String>,
}

/// The upstream engine of a service that has one.
pub(super) fn upstream_of(service: &Service) -> &Upstream {
    parts(service).0.upstream.as_ref().expect("it has an upstream engine")
}

/// Exchanges counts with the upstream engine, if there is one, until `drained`: the exchange with the local engine has ended.
///
/// # Errors
/// [`ClusterError`]: another server has the name of this node. The server is stopped.
pub(crate) async fn run(service: Arc<Service>, signals: Signals) -> Result<(), ClusterError> {
    let Some(cluster) = service.cluster.as_ref().filter(|cluster| cluster.upstream.is_some()) else {
        return Ok(());
    };
    let engine = |urls: &[String]| Remote::new(urls).expect("the config was checked");
    let reader = UpstreamReader::new(Arc::clone(&service), engine(&cluster.config.upstream));
    let aggregator = aggregator::Aggregator::new(
        Arc::clone(&service),
        engine(&cluster.config.urls),
        engine(&cluster.config.upstream),
    );
    let (read, ()) = tokio::join!(reader.run(&signals), aggregator.run(&signals));
    read
}

impl<E: Engine> UpstreamReader<E> {
    pub(super) fn new(service: Arc<Service>, engine: E) -> UpstreamReader<E> {
        UpstreamReader {
            service,
            engine,
            claim: NameClaim::default(),
            life: None,
            lacks_marks: false,
            warning: None,
        }
    }

    async fn run(mut self, signals: &Signals) -> Result<(), ClusterError> {
        let service = Arc::clone(&self.service);
        let (cluster, upstream) = (parts(&service).0, upstream_of(&service));
        let flush = cluster.config.flush;
        let (mut pause, mut warned) = (flush, Warned::default());
        loop {
            let is_stopping = {
                let mut flush = pin!(crate::pause::pause(pause));
                loop {
                    tokio::select! {
                        () = signals.drained.stopped() => break true,
                        () = &mut flush => break false,
                        () = upstream.asked.notified() => self.work(Work::Answer).await,
                        () = cluster.interest.wanted(Tier::Upstream) => self.work(Work::Read).await,
                    }
                }
            };
            if is_stopping {
                self.claim.release(&mut self.engine, &service).await;
                return Ok(());
            }
            let begun = thread_cpu_time();
            let done = self.exchange(&*signals.tell).await;
            if matches!(done, Ok(None)) {
                busy_lists::read(&mut self.engine, Tier::Upstream, &service, cluster, &*signals.tell).await;
            }
            let rest = thread_cpu_time().saturating_sub(begun) * EXCHANGE_REST;
            pause = flush.max(if done.is_err() { UPSTREAM_RETRY } else { rest.min(MAX_EXCHANGE_REST) });
            let warning = self.engine.warning().or_else(|| self.warning.take());
            warned.tell(warning, service.now(), &*signals.tell);
            if let Ok(Some(taken)) = done {
                signals.stopper.stop();
                return Err(taken);
            }
        }
    }

    /// Does one thing between two exchanges, unless the engine is away. The next exchange reports a failure.
    async fn work(&mut self, work: Work) {
        let service = Arc::clone(&self.service);
        if upstream_of(&service).state().contact.failure.is_none() {
            let _ = match work {
                Work::Answer => self.answer().await,
                Work::Read => self.read(false).await,
            };
        }
    }

    /// Answers the question, sends marks, and reads what is due.
    pub(super) async fn exchange(
        &mut self,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Option<ClusterError>, EngineError> {
        let done = self.exchange_once().await;
        let upstream = upstream_of(&self.service);
        let (failure, now) = (done.as_ref().err().map(ToString::to_string), self.service.now());
        parts(&self.service).0.interest.set_away(Tier::Upstream, failure.is_some());
        if failure.is_some() {
            upstream.fail_question();
        }
        let line = lock(&upstream.state).contact.note(failure, Tier::Upstream, now);
        line.iter().for_each(|line| tell(line));
        done
    }

    async fn exchange_once(&mut self) -> Result<Option<ClusterError>, EngineError> {
        if let Claim::Taken(taken) = self.claim.renew(&mut self.engine, &self.service).await? {
            return Ok(Some(taken));
        }
        let line = tables::renew(&mut self.engine, Tier::Upstream, &self.service, false).await?;
        self.warning = line.or(self.warning.take());
        self.answer().await?;
        self.note_life();
        self.send_marks_again().await?;
        self.delete().await?;
        self.read(true).await?;
        Ok(None)
    }

    /// Answers the question of the exchange with the local engine.
    async fn answer(&mut self) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let upstream = upstream_of(&service);
        let blocks = {
            let mut question = lock(&upstream.question);
            let Question::Asked(blocks) = &mut *question else { return Ok(()) };
            let blocks = std::mem::take(blocks);
            *question = Question::BeingRead;
            blocks
        };
        let read: Vec<_> = blocks.iter().map(OwnedBlock::as_block).collect();
        let told = self.engine.read(&read).await;
        *lock(&upstream.question) =
            Question::Answered(told.as_ref().ok().map(|told| blocks.into_iter().zip(told.clone()).collect()));
        told.map(drop)
    }

    /// Marks what other data centres have counted of some keys that were deleted here.
    async fn delete(&mut self) -> Result<(), EngineError> {
        let mut rounds = 0;
        while rounds < UPSTREAM_DELETE_ROUNDS && self.delete_some().await? {
            rounds += 1;
        }
        Ok(())
    }

    /// The same of as many keys as are read at once. False if there are none.
    async fn delete_some(&mut self) -> Result<bool, EngineError> {
        let service = Arc::clone(&self.service);
        let (upstream, outgoing) = (upstream_of(&service), parts(&service).1);
        let mut deleted = upstream.deleted();
        if deleted.is_empty() {
            return Ok(false);
        }
        let now = service.now();
        let keys = deleted.iter().map(|(key, _)| &**key);
        let told = all_told_of(&mut self.engine, &service, keys, now).await?;
        deleted.truncate(told.len());
        let mut pending = Vec::with_capacity(told.len());
        for ((key, Deletion { at, local, known }), told) in deleted.iter().zip(told) {
            let mut told = with_known(told, known.iter().cloned());
            told.retain(|known| !local.contains(&known.origin) && !outgoing.is_own(&known.origin));
            let counts = outgoing.marks((*at, now), told);
            pending.push(Pending { key, sets: service.store.level_sets(key), counts });
        }
        self.engine.send(&writes(&pending)).await?;
        upstream.note_marks(pending, now, service.config.ceiling_bytes);
        for (key, Deletion { at, .. }) in &deleted {
            service.store.unlearn(key);
            upstream.marked(key, *at);
            outgoing.marked_everywhere(key, *at);
        }
        Ok(true)
    }

    /// Notes that the engine may have lost counts.
    fn note_life(&mut self) {
        let (life, now) = (self.engine.life(), self.service.now());
        if self.life.replace(life).is_some_and(|before| before != life) {
            parts(&self.service).0.note_lost(now, UPSTREAM_RESEND_MS);
            self.lacks_marks = true;
        }
    }

    /// Sends the marks of the last deletions again, if the engine may have lost them: the other data centres still have those hits.
    async fn send_marks_again(&mut self) -> Result<(), EngineError> {
        if self.lacks_marks {
            let service = Arc::clone(&self.service);
            let mut marks = upstream_of(&service).last_marks(service.now());
            for marks in marks.chunks_mut(UPSTREAM_DELETE_KEYS) {
                let pending = marks.iter_mut().map(|(key, counts)| Pending {
                    key,
                    sets: service.store.level_sets(key),
                    counts: std::mem::take(counts),
                });
                self.engine.send(&writes(&pending.collect::<Vec<_>>())).await?;
            }
            self.lacks_marks = false;
        }
        Ok(())
    }

    /// Reads what the engine has of keys that are due: those that are not known first, and only these unless there are none, or
    /// `all` is set.
    async fn read(&mut self, all: bool) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let now = service.now();
        let due = parts(&service).0.interest.due(Tier::Upstream, CLUSTER_READ_KEYS, all, now);
        let mut is_over = false;
        let done = self.read_keys(&due, now, &mut is_over).await;
        end_reading(&service, (Tier::Upstream, &due), done.is_ok(), is_over);
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
        let (upstream, outgoing) = (upstream_of(&service), parts(&service).1);
        while let Some(told) = told_of(&mut self.engine, Tier::Upstream, &service, due, now).await? {
            self.note_life();
            let (read, rest) = due.split_at(told.len());
            let left_out =
                members::read_above(&mut self.engine, &service, read.iter().map(|due| &*due.key), now)
                    .await?;
            self.warning = left_out.or(self.warning.take());
            for (due, mut told) in read.iter().zip(told) {
                let is_deleted_elsewhere = told.iter().any(|known| {
                    outgoing.is_own(&known.origin)
                        && known.tally.deleted.min(known.tally.counted) > known.removed
                });
                if is_deleted_elsewhere {
                    upstream.note_older(&due.key);
                }
                if upstream.is_deleted(&due.key) {
                    // Its marks are on their way.
                    told.clear();
                }
                let left_out = learn(&service, Tier::Upstream, (due, told), now, is_over);
                self.warning = left_out.or(self.warning.take());
            }
            due = rest;
            if std::mem::take(is_over) {
                service.wake();
            }
        }
        Ok(())
    }
}

/// What the reader does between two exchanges.
enum Work {
    Answer,
    Read,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_that_wait_take_bounded_memory() {
        let upstream = Upstream::default();
        let ceiling_bytes = 1 << 20;
        let delete = |key: &str, at_ms: i64| {
            let at = Timestamp::from_millis(at_ms).expect("a time");
            let local = HashSet::from([Origin::new("a", 1).expect("a name")]);
            upstream.delete(key.as_bytes(), Deletion { at, local, known: Vec::new() }, ceiling_bytes)
        };
        let count = (0..).take_while(|number| delete(&format!("key{number:05}"), 1)).count();
        let held_bytes = upstream.held_bytes();
        let bytes_of_one = held_bytes / count;
        assert!(held_bytes as u64 <= ceiling_bytes / DELETIONS_SHARE && count > 50, "{count}");
        assert!((held_bytes + bytes_of_one) as u64 > ceiling_bytes / DELETIONS_SHARE);
        assert!(!delete("one more", 1));
        let deleted = upstream.deleted();
        assert_eq!(deleted.len(), UPSTREAM_DELETE_KEYS);
        let (key, deletion) = &deleted[0];
        // It was deleted again meanwhile.
        upstream.marked(key, Timestamp::MIN);
        assert!(upstream.is_deleted(key));
        upstream.marked(key, deletion.at);
        assert!(!upstream.is_deleted(key) && upstream.held_bytes() == held_bytes - bytes_of_one);
        assert!(delete("one more", 1) && !delete("and another one", 1));
        for (key, deletion) in std::iter::repeat_with(|| upstream.deleted()).take(count).flatten() {
            upstream.marked(&key, deletion.at);
        }
        assert_eq!(upstream.held_bytes(), 0);
    }
}
