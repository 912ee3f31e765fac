//! A mesh of nodes: each has the counts of all in memory, and asks the others for what has changed there.
//!
//! `replica.rs` has the counts and knows what another node lacks of them, `following.rs` how far another node was followed. `page.rs` and
//! `wire.rs` are what travels, `listener.rs` answers, and `follower.rs` asks.

mod address;
mod follower;
mod following;
mod link;
mod listener;
mod page;
mod replica;
#[cfg(test)]
mod simulation;
mod stream;
mod tls;
mod wire;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use lately::{Clock, Timestamp};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::limits::{
    ENGINE_TIMEOUT, MAX_PEER_FOLLOWERS, MAX_PEER_LIVES, PEER_RELAY_EVERY_MS, PEER_SILENT_MS, PEER_TIDY_EVERY,
    PEER_TIDY_ROUND, PEER_TLS_EVERY, PEER_WAIT,
};
use crate::url::Parts;
use crate::{Block, Engine, EngineError, List, OwnedBlock, Place, Told, Write};

use address::Address;
use following::{Following, Question};
pub use link::{PeerAnswer, PeerLink};
use page::Page;
use replica::{Part, Replica, Seen};
use tls::Configs;
pub use tls::{PeerTls, PeerTlsError};
use wire::{FollowRequest, FollowResponse, Followed, PROTOCOL};

/// What a node needs to be one of a mesh.
pub struct PeersConfig {
    /// Its name.
    pub node: String,
    /// The addresses of the other nodes, such as `peer://eu-2:7382`.
    pub urls: Vec<String>,
    /// With TLS, each node needs a certificate.
    pub tls: Option<PeerTls>,
    /// The memory that the counts of all nodes may take.
    pub most_bytes: usize,
    /// Gets what they take.
    pub held_bytes: Arc<AtomicUsize>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// The counts of a mesh, as one of its nodes knows them.
pub struct Peers {
    shared: Arc<Shared>,
    addresses: Vec<Address>,
}

/// The connections of a node to the others.
pub struct PeerNetwork {
    shared: Arc<Shared>,
    addresses: Vec<Address>,
}

/// What the engine and its connections share.
struct Shared {
    node: String,
    replica: Mutex<Replica>,
    clock: Arc<dyn Clock>,
    held_bytes: Arc<AtomicUsize>,
    tls_files: Option<PeerTls>,
    tls: Mutex<Option<Configs>>,
    /// The number of the last own change.
    changed: watch::Sender<u64>,
    followers: Mutex<HashMap<u64, Follower>>,
    /// Notified when a follower has merged more.
    acknowledged: Notify,
    contacts: Mutex<Vec<Contact>>,
    /// Notified after each attempt to reach another node.
    contacted: Notify,
    warning: Mutex<Option<String>>,
}

/// A node that asks this one for changes.
struct Follower {
    /// It has merged all own changes up to this number.
    until: u64,
    asked_ms: i64,
}

/// How it goes with a node that this one follows.
#[derive(Clone, Default)]
struct Contact {
    /// Whether it was reached, or could not be.
    is_tried: bool,
    failure: Option<String>,
    /// Everything that it had at some time since the start is merged.
    is_complete: bool,
}

/// The list of texts with the claims of names.
const CLAIMS: u8 = 2;

const fn number_of(list: List) -> u8 {
    match list {
        List::Nodes => 0,
        List::Levels => 1,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits.
async fn pause(span: Duration) {
    let _ = timeout(span, std::future::pending::<()>()).await;
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Shared {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn replica(&self) -> MutexGuard<'_, Replica> {
        lock(&self.replica)
    }

    fn life(&self) -> u64 {
        self.replica().life()
    }

    fn tls(&self) -> Option<Configs> {
        lock(&self.tls).clone()
    }

    fn warn(&self, warning: String) {
        lock(&self.warning).get_or_insert(warning);
    }

    /// Notes that the replica may have changed. Returns the number of its last own change.
    fn note_changes(&self, replica: &Replica) -> u64 {
        self.held_bytes.store(replica.held_bytes(), Relaxed);
        let last = replica.last_own();
        self.changed.send_if_modified(|held| {
            let has_changed = *held != last;
            *held = last;
            has_changed
        });
        last
    }

    /// Waits until there are own changes after a number, for a while at most.
    async fn changed_after(&self, after: u64, wait: Duration) {
        let mut changed = self.changed.subscribe();
        let _ = timeout(wait, changed.wait_for(|last| *last > after)).await;
    }

    fn note_follower(&self, life: u64, until: u64) {
        let asked_ms = self.now().as_millis();
        let mut followers = lock(&self.followers);
        if followers.len() >= MAX_PEER_FOLLOWERS {
            followers.retain(|_, follower| asked_ms - follower.asked_ms < PEER_SILENT_MS);
        }
        if followers.len() < MAX_PEER_FOLLOWERS || followers.contains_key(&life) {
            followers.insert(life, Follower { until, asked_ms });
        }
        self.acknowledged.notify_waiters();
    }

    fn note_contact(&self, number: usize, failure: Option<String>, following: &Following) {
        let contact = &mut lock(&self.contacts)[number];
        contact.is_tried |= failure.is_some() || following.is_complete();
        contact.is_complete |= following.is_complete();
        contact.failure = failure;
        self.contacted.notify_waiters();
    }

    fn has_met(&self) -> bool {
        lock(&self.contacts).iter().all(|contact| contact.is_tried)
    }

    /// Waits until each other node was read, or could not be reached.
    async fn met(&self) -> Result<(), EngineError> {
        if self.has_met() {
            return Ok(());
        }
        let met = async {
            loop {
                let mut contacted = std::pin::pin!(self.contacted.notified());
                // Registered before the check, so that no notification is missed.
                contacted.as_mut().enable();
                if self.has_met() {
                    return;
                }
                contacted.await;
            }
        };
        let waited = timeout(2 * ENGINE_TIMEOUT, met).await;
        waited.map_err(|_| EngineError::Away("the other nodes do not answer".to_owned()))
    }

    /// The next question to a node that is followed.
    fn question(&self, following: &Following) -> (Question, FollowRequest) {
        let question = following.next(self.now().as_millis(), PEER_RELAY_EVERY_MS);
        let is_learned = question == Question::Learned;
        let seen = if is_learned { self.replica().seen() } else { Seen::new() };
        // The first answers do not wait: what is there is read first.
        let wait = if following.is_complete() { PEER_WAIT } else { Duration::ZERO };
        let request = FollowRequest {
            protocol: PROTOCOL,
            node: self.node.clone(),
            follower: self.life(),
            life: following.life(),
            after: following.after(question),
            is_learned,
            seen: seen.into_iter().map(|(life, until)| Followed { life, until }).collect(),
            wait_ms: u32::try_from(wait.as_millis()).unwrap_or(u32::MAX),
        };
        (question, request)
    }

    /// Why a question gets no answer.
    fn check(&self, request: &FollowRequest) -> Result<(), String> {
        if request.protocol != PROTOCOL {
            let theirs = request.protocol;
            return Err(format!(
                "this node speaks version {PROTOCOL} of the protocol of peers, and the other one version {theirs}"
            ));
        }
        if request.seen.len() > MAX_PEER_LIVES {
            return Err("it follows too many nodes".to_owned());
        }
        if request.follower == self.life() {
            return Err("it is this server itself: give the addresses of the other nodes only".to_owned());
        }
        Ok(())
    }

    /// The number after which a question asks.
    fn asked_after(&self, request: &FollowRequest) -> u64 {
        if request.life == self.life() { request.after } else { 0 }
    }

    /// The answer to a question, as it is now.
    fn answer(&self, request: &FollowRequest) -> FollowResponse {
        let (after, now) = (self.asked_after(request), self.now());
        let replica = self.replica();
        let part = if request.is_learned {
            let seen = request.seen.iter().map(|&Followed { life, until }| (life, until)).collect();
            replica.learned_after(after, request.follower, &seen, now)
        } else {
            replica.own_after(after, now)
        };
        let Part { page, until, is_all } = part;
        let (life, node) = (replica.life(), self.node.clone());
        drop(replica);
        FollowResponse { life, after, until, is_all, page: page.write(), node }
    }

    /// Merges an answer of the followed node with this number.
    ///
    /// # Errors
    /// Why it was not merged, or not as a whole.
    fn take(
        &self,
        number: usize,
        (question, answer): (Question, &FollowResponse),
        following: &mut Following,
    ) -> Result<(), String> {
        let page = Page::read(&answer.page)
            .map_err(|error| format!("it sent what is no page of counts: {error}: nothing was changed"))?;
        let &FollowResponse { life, after, until, is_all, .. } = answer;
        let now = self.now();
        let mut replica = self.replica();
        let merged = replica.merge(&page, (life, until), now);
        if merged.is_ok() && following.note(question, (life, after, until, is_all), now.as_millis()) {
            replica.note_followed(life, until);
        }
        self.note_changes(&replica);
        drop(replica);
        merged.map_err(|full| EngineError::from(full).to_string())?;
        self.note_contact(number, None, following);
        Ok(())
    }

    /// Waits until a follower has all own changes up to a number, or with `all`, until those have it that ask.
    async fn arrived(&self, until: u64, all: bool) -> Result<(), EngineError> {
        let arrived = async {
            loop {
                let mut acknowledged = std::pin::pin!(self.acknowledged.notified());
                // Registered before the check, so that no notification is missed.
                acknowledged.as_mut().enable();
                let now_ms = self.now().as_millis();
                let (mut asking, mut having) = (0, 0);
                for follower in lock(&self.followers).values() {
                    let is_asking = now_ms - follower.asked_ms < PEER_SILENT_MS;
                    asking += usize::from(is_asking);
                    having += usize::from(is_asking && follower.until >= until);
                }
                match (asking, having) {
                    (0, _) => return Err(EngineError::Away(self.solitude())),
                    _ if having == asking || (having > 0 && !all) => return Ok(()),
                    _ => acknowledged.await,
                }
            }
        };
        timeout(ENGINE_TIMEOUT, arrived).await.unwrap_or_else(|_| {
            let seconds = ENGINE_TIMEOUT.as_secs();
            Err(EngineError::Away(format!("no other node has taken the counts within {seconds} s")))
        })
    }

    /// Why no other node asks for changes.
    fn solitude(&self) -> String {
        self.failure().unwrap_or_else(|| {
            "no other node follows this one: give its address in `urls` of the others".to_owned()
        })
    }

    /// The nodes that cannot be followed.
    fn failure(&self) -> Option<String> {
        let contacts = lock(&self.contacts);
        let mut failures = contacts.iter().filter_map(|contact| contact.failure.as_deref());
        let first = failures.next()?;
        Some(match failures.count() {
            0 => first.to_owned(),
            more => format!("{first}; and {more} more"),
        })
    }
}

impl Peers {
    /// A node of a mesh that knows no counts yet. It reaches the others when its [`network`](Peers::network) runs.
    ///
    /// # Errors
    /// [`EngineError::Url`]: an address is invalid. [`EngineError::Tls`]: a file of TLS cannot be used.
    pub fn new(config: PeersConfig) -> Result<Peers, EngineError> {
        let PeersConfig { node, urls, tls: tls_files, most_bytes, held_bytes, clock } = config;
        let addresses = Address::all(&urls)?;
        let tls = tls_files.as_ref().map(PeerTls::load).transpose()?;
        // Never 0, which stands for no replica.
        let life = RandomState::new().hash_one(clock.now().as_millis()) | 1;
        let contacts = vec![Contact::default(); addresses.len()];
        let shared = Shared {
            node,
            replica: Mutex::new(Replica::new(life, most_bytes)),
            clock,
            held_bytes,
            tls_files,
            tls: Mutex::new(tls),
            changed: watch::Sender::new(0),
            followers: Mutex::default(),
            acknowledged: Notify::new(),
            contacts: Mutex::new(contacts),
            contacted: Notify::new(),
            warning: Mutex::default(),
        };
        Ok(Peers { shared: Arc::new(shared), addresses })
    }

    /// Checks the addresses of other nodes.
    ///
    /// # Errors
    /// [`EngineError::Url`]: one is invalid.
    pub fn check<U: AsRef<str>>(urls: &[U]) -> Result<(), EngineError> {
        Address::all(urls).map(drop)
    }

    /// The host and port of each of these addresses.
    ///
    /// # Errors
    /// [`EngineError::Url`]: one is invalid.
    pub fn hosts<U: AsRef<str>>(urls: &[U]) -> Result<Vec<String>, EngineError> {
        Ok(Address::all(urls)?.iter().map(Address::to_string).collect())
    }

    /// Whether an address is one of a node, by its scheme.
    #[must_use]
    pub fn is_meant(url: &str) -> bool {
        address::is_peer(Parts::of(url).scheme)
    }

    /// Merges counts, and does not wait until others have them. Returns the number of the last own change.
    fn write(&self, writes: &[Write<'_>]) -> Result<u64, EngineError> {
        let mut replica = self.shared.replica();
        let written = replica.write(writes, self.shared.now());
        let last = self.shared.note_changes(&replica);
        written?;
        Ok(last)
    }

    /// Its connections.
    #[must_use]
    pub fn network(&self) -> PeerNetwork {
        PeerNetwork { shared: Arc::clone(&self.shared), addresses: self.addresses.clone() }
    }
}

impl PeerNetwork {
    /// Answers other nodes on a listener, and follows them, as long as it is polled.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub async fn run(self, listener: std::net::TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let PeerNetwork { shared, addresses } = self;
        let followers = addresses.into_iter().enumerate();
        let followers =
            followers.map(|(number, address)| follower::follow(address, number, Arc::clone(&shared)));
        tokio::join!(
            listener::serve(listener, Arc::clone(&shared)),
            join_all(followers),
            tidy(&shared),
            renew_tls(&shared),
        );
        Ok(())
    }
}

/// Drops what is not kept any more, some of it every second.
async fn tidy(shared: &Shared) {
    loop {
        pause(PEER_TIDY_EVERY).await;
        let mut replica = shared.replica();
        let most = replica.len() / PEER_TIDY_ROUND + 1;
        replica.tidy(most, shared.now());
        shared.note_changes(&replica);
    }
}

/// Reads the files of TLS again and again. Connections that are open keep what they have.
async fn renew_tls(shared: &Shared) {
    let Some(files) = &shared.tls_files else { return };
    loop {
        pause(PEER_TLS_EVERY).await;
        match files.load() {
            Ok(configs) => *lock(&shared.tls) = Some(configs),
            Err(error) => shared.warn(format!("{error}: the certificates of before are used")),
        }
    }
}

impl Engine for Peers {
    async fn send(&mut self, writes: &[Write<'_>]) -> Result<(), EngineError> {
        let last = self.write(writes)?;
        if writes.is_empty() {
            return Ok(());
        }
        self.shared.arrived(last, false).await
    }

    async fn claim(
        &mut self,
        node: &str,
        holder: &str,
        is_former: &(dyn Fn(&str) -> bool + Sync),
        lasts: Duration,
    ) -> Result<Option<String>, EngineError> {
        let shared = &self.shared;
        // A name may be taken by a server that was not reached yet.
        shared.met().await?;
        let now = shared.now();
        let name = |holder: &str| format!("{node} {holder}");
        let mut replica = shared.replica();
        let holders =
            replica.texts(CLAIMS, now).filter_map(|(claim, _)| claim.strip_prefix(node)?.strip_prefix(' '));
        let holders: Vec<String> = holders.map(str::to_owned).collect();
        let other = holders.iter().find(|other| *other != holder && !is_former(other)).cloned();
        let has_it = holders.iter().any(|held| held == holder);
        if other.is_none() || has_it {
            for former in holders.iter().filter(|held| is_former(held)) {
                replica.set_text((CLAIMS, &name(former)), None, milliseconds(PEER_CLAIM_GONE), now);
            }
            let (text, lasts) = if lasts < CLAIM_LEAST { (None, PEER_CLAIM_GONE) } else { (Some(""), lasts) };
            replica.set_text((CLAIMS, &name(holder)), text, milliseconds(lasts), now);
            shared.note_changes(&replica);
        }
        Ok(other)
    }

    async fn set_text(
        &mut self,
        list: List,
        name: &str,
        text: Option<&str>,
        lasts: Duration,
    ) -> Result<(), EngineError> {
        let shared = &self.shared;
        let mut replica = shared.replica();
        replica.set_text((number_of(list), name), text, milliseconds(lasts), shared.now());
        shared.note_changes(&replica);
        Ok(())
    }

    async fn texts(&mut self, list: List) -> Result<Vec<(String, String)>, EngineError> {
        let (replica, now) = (self.shared.replica(), self.shared.now());
        let texts = replica.texts(number_of(list), now);
        Ok(texts.map(|(name, text)| (name.to_owned(), text.to_owned())).collect())
    }

    /// Always the same: what was sent stays here, and goes to each node that lacks it.
    fn life(&self) -> u64 {
        1
    }

    fn warning(&mut self) -> Option<String> {
        lock(&self.shared.warning).take()
    }

    fn is_complete(&self) -> bool {
        lock(&self.shared.contacts).iter().all(|contact| contact.is_complete)
    }

    fn problem(&self) -> Option<String> {
        self.shared.failure()
    }

    async fn close(&mut self) {
        let last = self.shared.replica().last_own();
        // A node that does not answer gets it from another one, or after the next start.
        let _ = self.shared.arrived(last, true).await;
    }

    async fn read(&mut self, blocks: &[Block<'_>]) -> Result<Vec<Told>, EngineError> {
        let replica = self.shared.replica();
        Ok(blocks.iter().map(|block| replica.read(block)).collect())
    }

    async fn note_changed(&mut self, blocks: &[Block<'_>]) -> Result<(), EngineError> {
        self.shared.replica().note_changed(blocks);
        Ok(())
    }

    async fn take_changed(&mut self, most: usize) -> Result<Vec<OwnedBlock>, EngineError> {
        Ok(self.shared.replica().take_changed(most))
    }

    async fn changed(&mut self) -> Result<usize, EngineError> {
        Ok(self.shared.replica().changed())
    }

    async fn scan(
        &mut self,
        from: Option<&Place>,
        count: usize,
    ) -> Result<(Vec<OwnedBlock>, Option<Place>), EngineError> {
        let behind = match from {
            Some(Place::Behind(last)) => Some(last),
            _ => None,
        };
        let (page, has_more) = self.shared.replica().scan(behind, count.max(1));
        let next = page.last().filter(|_| has_more).cloned().map(Place::Behind);
        Ok((page, next))
    }
}

/// A claim that is shorter lets the name go.
const CLAIM_LEAST: Duration = Duration::from_secs(1);

/// How long other nodes know that a claim is gone.
const PEER_CLAIM_GONE: Duration = Duration::from_secs(60);
