//! The service: everything that clients can request, independent of protocols. Protocols translate; the [`Service`]
//! counts and decides. It is synchronous, and the only caller of the store and the journal while the server runs.
//!
//! A [`Batch`] has requests that are executed together. Requests about keys as such are functions in `keys.rs`. Slow
//! requests run in slices (`walk.rs`). `commit.rs` commits changes. `loading.rs` loads the data folder, and `dumps.rs` dumps
//! and restores all keys.

pub(crate) mod access;
mod alerts;
mod batch;
pub(crate) mod caller;
mod change_feed;
pub(crate) mod clients;
pub(crate) mod cluster;
pub(crate) mod commit;
mod decisions;
pub(crate) mod descriptors;
pub(crate) mod dumps;
pub(crate) mod edge;
mod effect;
mod fragmentation;
pub(crate) mod history;
mod ingest;
mod key_state;
mod keys;
pub(crate) mod lines;
mod loading;
pub(crate) mod login;
pub(crate) mod metrics;
pub(crate) mod named_limits;
pub(crate) mod notice;
pub(crate) mod owners;
pub(crate) mod password;
pub(crate) mod process;
pub(crate) mod ratelimit;
mod reads;
mod recent_rate;
mod refused;
pub(crate) mod response;
pub(crate) mod rule_tally;
pub(crate) mod sessions;
pub(crate) mod spool_file;
mod statistics;
mod throughput;
mod top;
pub(crate) mod tracer;
pub(crate) mod users;
mod walk;

use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use lately::{Clock, Cursor, DeltaBatch, MemoryStats, SettingsError, Store, Timestamp};
use lately_engines::KafkaRole;
use lately_journal::{Folder, Journal, Progress};
use lately_resp::command::Verb;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use crate::config::Config;
use crate::limits::{
    CHARGE_STEP_BYTES, CLIENTS_SHARE, CONNECTION_BYTES, CONNECTIONS_SHARE, LEAST_CLIENTS, MAX_WALKS,
    SHORT_BYTES, SWEEP_SLOTS,
};
pub(crate) use alerts::AlertFigures;
use alerts::Alerts;
pub(crate) use batch::{Batch, NamedRequest};
use change_feed::ChangeFeed;
use clients::Clients;
use cluster::{Cluster, Wait};
pub(crate) use decisions::{DecideError, Decided, LimitRequest, Limiting};
use edge::Edge;
pub(crate) use fragmentation::Fragmentation;
use fragmentation::Process;
use history::HistoryState;
use ingest::BusySources;
pub(crate) use ingest::{IngestError, Ingested, Stretch};
pub(crate) use keys::DeleteError;
use login::Logins;
use named_limits::CurrentRules;
use owners::Owners;
use process::Resident;
use ratelimit::CurrentRateLimits;
pub(crate) use reads::Asked;
pub(crate) use recent_rate::PerSecond;
use recent_rate::{RecentRate, Totals};
pub(crate) use refused::Refused;
pub(crate) use response::{Response, code_of, rate};
use sessions::Sessions;
pub(crate) use statistics::Stats;
use throughput::Throughput;
pub(crate) use top::{Candidates, Held, NoRoom, Ranking, TopKeys, TopQuestion, TopRow, TopWalk};
use tracer::Tracer;
use users::CurrentUsers;
pub(crate) use walk::{CoolestWalk, NamedWalk, ScanWalk, SeriesWalk};

/// The store, the journal and the statistics of a server, shared by all connections.
pub struct Service {
    store: Arc<Store>,
    pub(crate) config: Config,
    /// Limits with names.
    pub(crate) rules: CurrentRules,
    /// The rules of envoyproxy/ratelimit.
    pub(crate) rate_limits: CurrentRateLimits,
    pub(crate) alerts: Alerts,
    /// Who may log in.
    pub(crate) users: CurrentUsers,
    logins: Logins,
    /// Browsers that have logged in.
    sessions: Sessions,
    pub(crate) clients: Clients,
    pub(crate) stats: Stats,
    /// Samples for the number of commands per second.
    throughput: Mutex<Throughput>,
    /// The total rate of the last minutes.
    recent_rate: Mutex<RecentRate>,
    pub(crate) started: Timestamp,
    /// A random identifier of this start: 40 hexadecimal digits.
    pub(crate) run_id: String,
    /// Spans of requests, if they are sent somewhere.
    pub(crate) tracer: Option<Tracer>,
    clock: Arc<dyn Clock>,
    /// The clock that measures how long requests take.
    pub(crate) moment: fn() -> Instant,
    /// The journal, if counts are kept on a disk. Empty while the store is loaded.
    journal: OnceLock<Journal<Folder>>,
    loading: AtomicBool,
    wakers: Wakers,
    /// Notified together with the wakers, for async callers.
    pub(crate) verdicts: Arc<Notify>,
    /// Turns of async callers that walk over all keys.
    walks: Semaphore,
    /// Changes for dumps.
    feed: ChangeFeed,
    /// Other nodes, if this one counts together with others.
    pub(crate) cluster: Option<Cluster>,
    /// Writes the hits of clients to Kafka, if this node does not count them itself.
    pub(crate) edge: Option<Edge>,
    /// What this node does with Kafka, if that is its engine.
    role: Option<KafkaRole>,
    /// The nodes that decide exact limits, if there are several.
    pub(crate) owners: Option<Owners>,
    /// The gate that [`Service::enter`] uses without a journal.
    gate: RwLock<()>,
    busy_sources: BusySources,
    /// What became of `[[history]]`.
    pub(crate) histories: Vec<Arc<HistoryState>>,
    pub(crate) progress: Progress,
    /// The number of transfers that were cut because their client was too slow, and a description of the last.
    slow: Mutex<(u64, String)>,
}

/// Called when the disk may have answered, or the brokers of Kafka.
type Wakers = Arc<Mutex<Vec<Box<dyn Fn() + Send + Sync>>>>;

/// Wakes everything that waits for the disk or for brokers.
fn waker(wakers: &Wakers, verdicts: &Arc<Notify>) -> Arc<dyn Fn() + Send + Sync> {
    let (wakers, verdicts) = (Arc::clone(wakers), Arc::clone(verdicts));
    Arc::new(move || {
        verdicts.notify_waiters();
        wakers.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|waker| waker());
    })
}

impl Service {
    /// A service without keys.
    ///
    /// # Errors
    /// [`SettingsError`] when the config has more classes than a store takes.
    pub fn new(config: Config, clock: Arc<dyn Clock>) -> Result<Service, SettingsError> {
        let (wakers, verdicts) = (Wakers::default(), Arc::<Notify>::default());
        let cluster = config.cluster.clone().map(|cluster| Cluster::new(cluster, config.ceiling_bytes));
        let wake = waker(&wakers, &verdicts);
        Ok(Service {
            store: Arc::new(build(&config)?),
            feed: ChangeFeed::new(config.ceiling_bytes),
            edge: cluster.as_ref().and_then(Cluster::hit_writer).map(|writer| Edge::new(writer, wake)),
            cluster,
            role: edge::role_of(&config),
            owners: config.cluster.as_ref().and_then(Owners::new),
            gate: RwLock::default(),
            busy_sources: BusySources::default(),
            alerts: Alerts::new(&config.alerts, clock.now()),
            users: CurrentUsers::new(&config.users),
            logins: Logins::default(),
            sessions: Sessions::default(),
            clients: Clients::default(),
            stats: Stats::default(),
            throughput: Mutex::default(),
            recent_rate: Mutex::default(),
            started: clock.now(),
            run_id: run_id(),
            tracer: config
                .otlp
                .as_ref()
                .filter(|otlp| otlp.traces.is_some())
                .map(|otlp| Tracer::new(otlp.sample)),
            wakers,
            verdicts,
            walks: Semaphore::new(MAX_WALKS),
            loading: AtomicBool::new(config.storage.is_some()),
            histories: history::states(&config.histories),
            rules: CurrentRules::new(&config.limits),
            rate_limits: config.rule_folder.as_ref().map(CurrentRateLimits::of).unwrap_or_default(),
            config,
            clock,
            moment: crate::clock::moment,
            journal: OnceLock::new(),
            progress: Progress::default(),
            slow: Mutex::default(),
        })
    }

    /// Counts a transfer that was cut because its client was too slow.
    pub(crate) fn note_slow(&self, what: String) {
        let mut slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        *slow = (slow.0 + 1, what);
    }

    /// The number of such transfers, and a description of the last.
    pub(crate) fn slow(&self) -> (u64, String) {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The current time. Read once per batch.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The journal, if counts are kept on a disk and loading has ended.
    #[inline]
    pub(crate) fn journal(&self) -> Option<&Journal<Folder>> {
        self.journal.get()
    }

    #[inline]
    pub(crate) fn has_journal(&self) -> bool {
        self.journal.get().is_some()
    }

    /// Whether changes must be recorded, for the journal or a dump.
    #[inline]
    pub(crate) fn is_recorded(&self) -> bool {
        self.has_journal() || self.feed.is_open()
    }

    /// A guard that callers hold from before they change the store until the change was committed or rolled back.
    pub(crate) fn enter(&self) -> RwLockReadGuard<'_, ()> {
        match self.journal() {
            Some(journal) => journal.enter(),
            None => self.gate.read().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Waits until all changes in progress are committed or rolled back.
    pub(crate) fn quiesce(&self) {
        self.alone(|| ());
    }

    /// Calls a function while no change is in progress: all earlier changes are committed, wait for the disk, or are
    /// rolled back. The function must be short, because all clients wait for it.
    pub(crate) fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        match self.journal() {
            Some(journal) => journal.alone(work),
            None => work(),
        }
    }

    /// In a cluster, the number of keys with hits that were not sent to other nodes.
    pub(crate) fn unsent_keys(&self) -> usize {
        self.store.unsent_keys()
    }

    /// Whether the store is still being loaded.
    #[inline]
    pub(crate) fn is_loading(&self) -> bool {
        // Pairs with the store in `loaded`: a thread that sees the end of loading sees the journal.
        self.loading.load(Acquire)
    }

    /// Ends loading without a journal: nothing is kept.
    #[cfg(test)]
    pub(crate) fn loaded_nothing(&self) {
        self.loading.store(false, Release);
    }

    /// Ends loading. Changes from here on go to the journal.
    pub(crate) fn loaded(&self, journal: Journal<Folder>) {
        let wake = waker(&self.wakers, &self.verdicts);
        journal.on_verdict(move || wake());
        let _ = self.journal.set(journal);
        self.loading.store(false, Release);
    }

    /// Samples the number of commands, and of hits.
    pub(crate) fn note_throughput(&self) {
        let (now, commands) = (self.now(), self.stats.commands.load(Relaxed));
        self.throughput.lock().unwrap_or_else(PoisonError::into_inner).note(now, commands);
        let [hits, denied] = [&self.stats.hits, &self.stats.denied_hits].map(|count| count.load(Relaxed));
        self.recent_rate.lock().unwrap_or_else(PoisonError::into_inner).note(now, Totals { hits, denied });
    }

    /// The hits of each of the newest seconds.
    pub(crate) fn per_second(&self, seconds: usize) -> PerSecond {
        self.recent_rate.lock().unwrap_or_else(PoisonError::into_inner).newest(seconds)
    }

    /// Commands answered per second, over the last samples.
    pub(crate) fn commands_per_second(&self, now: Timestamp) -> u64 {
        let commands = self.stats.commands.load(Relaxed);
        self.throughput.lock().unwrap_or_else(PoisonError::into_inner).per_second(now, commands)
    }

    /// Wakes everything that waits for the disk or for the counts of other nodes, to check whether the wait is over.
    pub(crate) fn wake(&self) {
        waker(&self.wakers, &self.verdicts)();
    }

    /// Why this node refuses requests with a verb, if it does: it has another role.
    #[inline]
    pub(crate) fn refusal(&self, verb: Option<Verb>) -> Option<&'static str> {
        edge::refusal(self.role, verb)
    }

    /// Waits until a wait is over, for this long at most.
    pub(crate) async fn over(&self, wait: &Wait, within: Duration) {
        let over = async {
            loop {
                let mut woken = pin!(self.verdicts.notified());
                // Registered before the check, so that no notification is missed.
                woken.as_mut().enable();
                if wait.is_over() {
                    return;
                }
                woken.await;
            }
        };
        // The caller looks whether it is over.
        let _ = timeout(within, over).await;
    }

    /// Registers a function that is called when the disk may have answered, or the counts of other nodes were read.
    pub(crate) fn on_verdict(&self, waker: impl Fn() + Send + Sync + 'static) {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(waker));
    }

    /// The time at which a request of `now` is executed. It is later than `now` for the later parts of a transaction.
    pub(crate) fn time_of(&self, now: Timestamp) -> Timestamp {
        now.max(self.store.now())
    }

    /// The number of keys.
    pub(crate) fn key_count(&self) -> usize {
        self.store.len().saturating_sub(self.total_count(self.now()))
    }

    /// Panics if the store is inconsistent.
    #[cfg(test)]
    pub(crate) fn check_consistency(&self) {
        self.store.check_consistency();
    }

    /// Memory of dumps and of other pieces that clients have not taken yet.
    #[cfg(test)]
    pub(crate) fn held_by_dumps(&self) -> usize {
        self.feed.held_bytes()
    }

    /// The memory of keys, and of everything that is charged to the ceiling.
    pub(crate) fn memory(&self) -> MemoryStats {
        self.store.memory()
    }

    /// How far the system clock is ahead of the server's.
    pub(crate) fn clock_step_ms(&self) -> i64 {
        self.clock.step_ms()
    }

    /// The sum of the jumps of the server's clock since the start.
    pub(crate) fn clock_jumped_ms(&self) -> i64 {
        self.clock.jumped_ms()
    }

    /// Charges a connection that held `before_bytes` and now holds `after_bytes`.
    pub(crate) fn charge(&self, before_bytes: usize, after_bytes: usize) {
        // Wrapping: only the sum over all changes matters, and that is never negative.
        let change = (after_bytes as u64).wrapping_sub(before_bytes as u64);
        self.stats.connection_bytes.fetch_add(change, Relaxed);
        self.charge_store(before_bytes, after_bytes);
    }

    /// Charges a connection over HTTP or gRPC, until the result is dropped.
    pub(crate) fn charge_http(self: &Arc<Service>, bytes: usize) -> ChargedHttp {
        self.stats.http_bytes.fetch_add(bytes as u64, Relaxed);
        self.charge_store(0, bytes);
        ChargedHttp { service: Arc::clone(self), bytes }
    }

    /// The memory of all connections, with that of their requests.
    pub(crate) fn connection_bytes(&self) -> u64 {
        self.stats.connection_bytes.load(Relaxed) + self.stats.http_bytes.load(Relaxed)
    }

    /// Charges the memory of the journal and of dumps. Called by one thread.
    pub(crate) fn charge_journal_and_dumps(&self) {
        let journal_bytes = self.journal().map_or(0, Journal::held_bytes);
        self.charge_as(&self.stats.journal_bytes, journal_bytes as u64);
        self.charge_as(&self.stats.dump_bytes, self.feed.held_bytes() as u64);
        let history_bytes: usize = self.histories.iter().map(|it| it.held_bytes.load(Relaxed)).sum();
        self.charge_as(&self.stats.history_bytes, history_bytes as u64);
        if let Some(cluster) = &self.cluster {
            self.charge_as(&self.stats.cluster_bytes, cluster.held_bytes() as u64);
        }
    }

    /// Charges fragmented memory. Called by one thread.
    pub(crate) fn charge_fragmentation(&self, fragmentation: &mut Fragmentation) {
        let process = Process {
            resident: &Resident::read,
            return_memory: &|| _ = lately::give_memory_back(),
            return_program: &|| _ = lately::give_program_back(),
        };
        if self.is_loading() {
            fragmentation.give_back(self.config.ceiling_bytes, self.now(), &process);
            return;
        }
        let bytes = fragmentation.update(self.config.ceiling_bytes, self.now(), &process);
        self.charge_as(&self.stats.fragmented_bytes, bytes);
    }

    /// Charges the memory of a restore, as far as there is room: no key is evicted for a dump that may still be
    /// refused. The rest is a small part of the ceiling. Called by one thread.
    pub(crate) fn charge_restore(&self, bytes: u64) {
        let MemoryStats { used_bytes, ceiling_bytes, .. } = self.store.memory();
        let others_bytes = used_bytes.saturating_sub(self.stats.restore_bytes.load(Relaxed));
        let room_bytes = ceiling_bytes.unwrap_or(u64::MAX).saturating_sub(others_bytes.saturating_add(1));
        self.charge_as(&self.stats.restore_bytes, bytes.min(room_bytes));
    }

    /// Sets one charge, and its counter, to `bytes`.
    fn charge_as(&self, counter: &AtomicU64, bytes: u64) {
        let before_bytes = counter.swap(bytes, Relaxed);
        let [before_bytes, bytes] = [before_bytes, bytes].map(|bytes| usize::try_from(bytes).unwrap_or(0));
        self.charge_store(before_bytes, bytes);
    }

    fn charge_store(&self, before_bytes: usize, after_bytes: usize) {
        if self.is_loading() {
            return self.store.charge_while_loading(before_bytes, after_bytes);
        }
        if after_bytes <= before_bytes || !self.is_recorded() {
            return self.store.charge(before_bytes, after_bytes);
        }
        let mut deltas = DeltaBatch::default();
        let mut charged_bytes = before_bytes;
        while charged_bytes < after_bytes {
            let next_bytes = after_bytes.min(charged_bytes + CHARGE_STEP_BYTES);
            let _entered = self.enter();
            self.store.charge_into(charged_bytes, next_bytes, self.store.now(), Some(&mut deltas));
            self.commit_evictions(&deltas);
            deltas.clear();
            charged_bytes = next_bytes;
        }
    }

    /// The number of RESP clients that are served at once: `max_clients`, as far as the ceiling has room for them.
    pub(crate) fn most_clients(&self) -> usize {
        let room = self.config.ceiling_bytes / CLIENTS_SHARE / CONNECTION_BYTES as u64;
        self.config.max_clients.min(usize::try_from(room).unwrap_or(usize::MAX).max(LEAST_CLIENTS))
    }

    /// Whether the connections may hold this much more together, within their share of the ceiling.
    pub(crate) fn has_connection_room(&self, bytes: usize) -> bool {
        self.stats.connection_bytes.load(Relaxed) + bytes as u64 <= self.connections_share_bytes()
    }

    /// Whether a connection that held `before_bytes` may hold `after_bytes`. All connections together have a share of
    /// the ceiling. When the share is used up, a connection with at most an equal part of it may still grow, until
    /// all together hold half as much again. Connections with more are disconnected at the next check
    /// ([`Service::holds_too_much`]). A connection may always hold a part of one short request.
    pub(crate) fn may_hold(&self, before_bytes: usize, after_bytes: usize) -> bool {
        let share_bytes = self.connections_share_bytes();
        let more_bytes = after_bytes.saturating_sub(before_bytes) as u64;
        let all_bytes = self.stats.connection_bytes.load(Relaxed) + more_bytes;
        let may = all_bytes <= share_bytes
            || !self.exceeds_equal_part(after_bytes)
                && (after_bytes <= CONNECTION_BYTES + SHORT_BYTES
                    || all_bytes <= share_bytes + share_bytes / 2);
        Stats::add(&self.stats.evicted_connections, u64::from(!may));
        may
    }

    /// Whether a connection holds more than an equal part while all together hold more than their share. If so, it is
    /// counted as evicted.
    pub(crate) fn holds_too_much(&self, bytes: usize) -> bool {
        let is_over = self.stats.connection_bytes.load(Relaxed) > self.connections_share_bytes();
        let must_close = is_over && self.exceeds_equal_part(bytes);
        Stats::add(&self.stats.evicted_connections, u64::from(must_close));
        must_close
    }

    /// Whether a connection with this much memory holds more than an equal part of the share, and more than a short
    /// request.
    fn exceeds_equal_part(&self, bytes: usize) -> bool {
        let part_bytes = self.connections_share_bytes() / (self.clients.len() as u64).max(1);
        bytes > CONNECTION_BYTES + SHORT_BYTES && bytes as u64 > part_bytes
    }

    fn connections_share_bytes(&self) -> u64 {
        self.config.ceiling_bytes / CONNECTIONS_SHARE
    }

    /// Sweeps expired keys from the next part of the store. Does nothing while the store is loaded: keys are loaded as of
    /// the time of their hits, and a key that looks expired may get newer ones.
    pub(crate) fn sweep(&self, from: Cursor) -> Cursor {
        if self.is_loading() {
            return from;
        }
        self.store.sweep(from, SWEEP_SLOTS, self.now())
    }
}

fn run_id() -> String {
    let word = |number| RandomState::new().hash_one((std::process::id(), number));
    (0..5).map(|number: u32| format!("{:08x}", word(number) >> 32)).collect()
}

fn build(config: &Config) -> Result<Store, SettingsError> {
    let mut builder = Store::builder().memory_ceiling(config.ceiling_bytes);
    let (pattern, settings) = alerts::class(config.largest_max_skew())?;
    builder = builder.class(pattern, settings);
    // Before those of the config, so that none of them can make hits go before the end of a window.
    for (pattern, settings) in config.rule_folder.iter().flat_map(|_| ratelimit::classes()) {
        builder = builder.class(pattern, settings);
    }
    for (pattern, settings) in &config.classes {
        builder = builder.class(pattern.clone(), settings.clone());
    }
    // The bytes charged for keys depend on where they are in the store. In unit tests that is the same in every
    // store.
    if cfg!(test) {
        builder = builder.seed(1);
    }
    builder.build()
}

/// The charge for a connection over HTTP or gRPC.
pub(crate) struct ChargedHttp {
    service: Arc<Service>,
    bytes: usize,
}

impl Drop for ChargedHttp {
    fn drop(&mut self) {
        self.service.stats.http_bytes.fetch_sub(self.bytes as u64, Relaxed);
        self.service.charge_store(self.bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use lately::ManualClock;

    use super::*;

    #[test]
    fn memory_of_connections_is_bounded() {
        let config = Config { ceiling_bytes: 1 << 20, ..Config::default() };
        let share: usize = (1 << 20) / 8;
        let service = Service::new(config, Arc::new(ManualClock::new(Timestamp::MIN))).expect("valid");
        // Without other clients, the equal part of a client is the whole share.
        assert!(service.may_hold(0, share) && !service.may_hold(0, share + 1));
        service.charge(0, share);
        assert!(service.may_hold(share, share) && service.may_hold(2 * share, 2 * share));
        assert!(service.may_hold(share - 1, share) && !service.may_hold(share, share + 1));
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let clients = [0; 256].map(|_| service.clients.connect(address, address, service.now()));
        let small = CONNECTION_BYTES + SHORT_BYTES;
        assert!(small > share / clients.len());
        assert!(service.may_hold(small - 1, small) && !service.may_hold(small, small + 1));
        assert_eq!(service.stats.evicted_connections.load(Relaxed), 3);
        // While all together hold more than their share, connections with more than an equal part are disconnected.
        assert!(!service.holds_too_much(share));
        service.charge(0, 1);
        assert!(service.holds_too_much(small + 1) && !service.holds_too_much(small));
        service.charge(share + 1, 0);
        assert_eq!(service.store.memory().used_bytes, 0);
        assert!(service.may_hold(share, share + 1));
    }

    #[test]
    fn the_number_of_clients_follows_the_ceiling() {
        let check = |ceiling_bytes, max_clients, expected| {
            let config = Config { ceiling_bytes, max_clients, ..Config::default() };
            let service = Service::new(config, Arc::new(ManualClock::new(Timestamp::MIN))).expect("valid");
            assert_eq!(service.most_clients(), expected, "{ceiling_bytes} {max_clients}");
        };
        check(1 << 30, 10_000, 10_000);
        check(1 << 30, usize::MAX, 32_768);
        check(16 << 20, 10_000, 512);
        check(16 << 20, 100, 100);
        check((16 << 20) - 1, 10_000, 511);
        check(1 << 20, 10_000, LEAST_CLIENTS);
        check(1 << 20, 63, 63);
        check(crate::limits::MIN_CEILING_BYTES, 10_000, LEAST_CLIENTS);
    }

    /// Symptom: hits at the edge of the retention were gone after a start. Cause: the sweep ran while the store was loaded,
    /// and removed a key as expired before the hit that keeps it was loaded. Fix: nothing is swept while the store is
    /// loaded.
    #[test]
    fn nothing_is_swept_while_the_store_is_loaded() {
        let config = Config { storage: Some(crate::Storage::default()), ..Config::default() };
        let clock = Arc::new(ManualClock::new(Timestamp::MIN));
        let service = Service::new(config, Arc::<ManualClock>::clone(&clock)).expect("valid");
        service.store.hit(b"k", Timestamp::MIN).expect("room");
        clock.set(Timestamp::from_seconds(864_000).expect("a time"));
        let sweep = || {
            std::iter::successors(Some(service.sweep(Cursor::START)), |&cursor| {
                Some(service.sweep(cursor)).filter(|&cursor| cursor != Cursor::START)
            })
        };
        assert_eq!((sweep().count(), service.store.len()), (1, 1));
        assert_eq!(
            service.store.now(),
            Timestamp::MIN,
            "the time of the store does not advance while it is loaded"
        );
        service.loading.store(false, Release);
        assert!(sweep().count() > 1);
        assert_eq!(service.store.len(), 0);
    }

    /// What protects a key may be loaded after its hits. A client that connects meanwhile takes memory, and has no key evicted for that.
    #[test]
    fn nothing_is_evicted_while_the_store_is_loaded() {
        let config =
            Config { storage: Some(crate::Storage::default()), ceiling_bytes: 1 << 20, ..Config::default() };
        let service = Service::new(config, Arc::new(ManualClock::new(Timestamp::MIN))).expect("valid");
        service.store.hit(b"k", Timestamp::MIN).expect("room");
        service.charge(0, 2 << 20);
        assert_eq!((service.store.len(), service.store.memory().evicted_keys), (1, 0));
        assert!(service.store.memory().used_bytes > 2 << 20);
        service.loading.store(false, Release);
        service.charge(0, 1);
        assert_eq!((service.store.len(), service.store.memory().evicted_keys), (0, 1));
    }

    #[test]
    fn equal_parts_are_bounded_in_sum() {
        let config = Config { ceiling_bytes: 16 << 20, ..Config::default() };
        let share: usize = 2 << 20;
        let service = Service::new(config, Arc::new(ManualClock::new(Timestamp::MIN))).expect("valid");
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let _clients = [0; 4].map(|_| service.clients.connect(address, address, service.now()));
        service.charge(0, share);
        assert!(service.may_hold(0, share / 4) && !service.may_hold(0, share / 4 + 1));
        service.charge(0, share / 4 + 1);
        assert!(!service.may_hold(0, share / 4) && service.may_hold(0, share / 4 - 1));
    }

    #[test]
    fn connections_over_http_are_charged_and_take_no_share_of_others() {
        let config = Config { ceiling_bytes: 1 << 20, ..Config::default() };
        let share: usize = (1 << 20) / 8;
        let service = Service::new(config, Arc::new(ManualClock::new(Timestamp::MIN))).expect("valid");
        let service = Arc::new(service);
        let charged = [(); 2].map(|()| service.charge_http(share));
        assert_eq!((service.store.memory().used_bytes, service.connection_bytes()), (1 << 18, 1 << 18));
        assert!(service.may_hold(0, share) && !service.holds_too_much(share));
        drop(charged);
        assert_eq!((service.store.memory().used_bytes, service.connection_bytes()), (0, 0));
    }

    #[test]
    fn memory_of_connections_evicts_keys() {
        let config = Config { ceiling_bytes: 1 << 20, ..Config::default() };
        let service = Service::new(config, Arc::new(ManualClock::new(Timestamp::MIN))).expect("valid");
        for key in 0..1_000_u32 {
            service.store.hit(&key.to_le_bytes(), service.now()).expect("room");
        }
        assert_eq!(service.store.memory().evicted_keys, 0);
        service.charge(0, (1 << 20) - 10_000);
        let memory = service.store.memory();
        assert!(memory.evicted_keys > 0 && memory.used_bytes < 1 << 20);
    }
}
