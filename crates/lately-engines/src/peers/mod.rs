//! A mesh of nodes: each has the counts of all in memory, and asks the others for what has changed there.
//!
//! `replica.rs` has the counts and knows what another node lacks of them, `following.rs` how far another node was followed. `page.rs` and
//! `wire.rs` are what travels, `listener.rs` answers, and `follower.rs` asks.
//!
//! In a tree a node exchanges changes with its parents and children only, and passes on what it learns. `contacts.rs` has the nodes that it reaches, which
//! may be those of a name (`names.rs`), and `children.rs` those that come by themselves. `starts.rs` has those that have not read all
//! since they were started. `stats.rs` counts what was exchanged.

mod address;
mod children;
mod contacts;
mod follower;
mod following;
mod link;
mod listener;
mod names;
mod page;
mod replica;
#[cfg(test)]
mod simulation;
mod starts;
mod stats;
mod tls;
#[cfg(test)]
mod tree_simulation;
mod wire;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use lately::{Clock, Origin, Timestamp};
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::calls::NodeMethods;
use crate::engine::CLAIM_LEAST;
use crate::limits::{
    ENGINE_TIMEOUT, MAX_PEER_FOLLOWERS, MAX_PEER_LIVES, PEER_GATHER, PEER_RELAY_EVERY_MS, PEER_SILENT_MS,
    PEER_TIDY_EVERY, PEER_TIDY_ROUND, PEER_TLS_EVERY, PEER_WAIT,
};
use crate::node_listener::NodeRoom;
use crate::pause::pause;
use crate::url::Parts;
use crate::{Away, Block, Engine, EngineError, KeyText, List, NamedTexts, OwnedBlock, Place, Told, Write};

pub(crate) use address::Address;
use address::Target;
use children::Children;
pub use children::KeepChildren;
use contacts::{Contact, Contacts};
use following::{Answered, Following, Question};
pub use link::{PeerAnswer, PeerLink, PeerReport};
pub use names::{Resolve, Resolving};
use page::Page;
use replica::{OF_KEYS, Part, Replica, Seen, key_of_text, name_of_key_text};
use starts::Starts;
pub use stats::{PeerNeighbour, PeerRole, PeerStats, PeerTraffic};
pub(crate) use tls::Configs;
pub use tls::{PeerTls, PeerTlsError};
use wire::{FollowRequest, FollowResponse, Followed, PROTOCOL, ReportRequest, Start};

/// Gets a key.
pub type OnChange = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// What a node needs to be one of a mesh or of a tree.
pub struct PeersConfig {
    /// Its name.
    pub node: String,
    /// The addresses of the other nodes, such as `peer://eu-2:7382`, or of a name that all of them have, such as `dns://lately.example:7382`.
    pub urls: Vec<String>,
    /// The addresses of the nodes above it. None, or those of one tier.
    pub parents: Vec<String>,
    /// With TLS, each node needs a certificate.
    pub tls: Option<PeerTls>,
    /// The names of the nodes below it that its last start knew.
    pub children: Vec<String>,
    /// Keeps their names for the next start.
    pub keep_children: Option<KeepChildren>,
    /// Gets each key of which another node has sent counts.
    pub on_change: Option<OnChange>,
    /// Finds the addresses of names, instead of the system.
    pub resolve: Option<Resolve>,
    /// The memory that the counts of all nodes may take.
    pub most_bytes: usize,
    /// Gets what they take.
    pub held_bytes: Arc<AtomicUsize>,
    /// The memory that clients of its listener may hold.
    pub room: Arc<NodeRoom>,
    /// Gets what was exchanged with whom.
    pub stats: Arc<PeerStats>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl PeersConfig {
    /// A node with this name, and the addresses of the others; without TLS, children of before and a bound of memory.
    #[must_use]
    pub fn new(node: &str, urls: Vec<String>, clock: Arc<dyn Clock>) -> PeersConfig {
        PeersConfig {
            node: node.to_owned(),
            urls,
            parents: Vec::new(),
            tls: None,
            children: Vec::new(),
            keep_children: None,
            on_change: None,
            resolve: None,
            most_bytes: usize::MAX,
            held_bytes: Arc::default(),
            room: NodeRoom::new(u64::MAX),
            stats: Arc::default(),
            clock,
        }
    }
}

/// The counts of a mesh, as one of its nodes knows them.
pub struct Peers {
    shared: Arc<Shared>,
    targets: Vec<(PeerRole, Target)>,
}

/// The connections of a node to the others.
pub struct PeerNetwork {
    shared: Arc<Shared>,
    targets: Vec<(PeerRole, Target)>,
}

/// What the engine and its connections share.
struct Shared {
    node: String,
    replica: Mutex<Replica>,
    clock: Arc<dyn Clock>,
    held_bytes: Arc<AtomicUsize>,
    room: Arc<NodeRoom>,
    tls_files: Option<PeerTls>,
    tls: Mutex<Option<Configs>>,
    /// The number of the last own change, and of the last one of any kind.
    changed: watch::Sender<Last>,
    followers: Mutex<HashMap<u64, Follower>>,
    /// Notified when a follower has merged more.
    acknowledged: Notify,
    contacts: Mutex<Contacts>,
    /// Notified after each attempt to reach another node.
    contacted: Notify,
    children: Mutex<Children>,
    /// Nodes that have not read all since they were started.
    starts: Mutex<Starts>,
    /// Whether all was read that others know, at some time since the start.
    is_complete: AtomicBool,
    /// Set when the node stops.
    is_leaving: watch::Sender<bool>,
    on_change: Option<OnChange>,
    resolve: Resolve,
    stats: Arc<PeerStats>,
    warning: Mutex<Option<String>>,
}

/// Numbers of the last changes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Last {
    own: u64,
    any: u64,
}

/// A node that asks this one for changes.
struct Follower {
    /// It has merged all own changes up to this number.
    until: u64,
    asked_ms: i64,
}

/// The list of texts with the claims of names.
const CLAIMS: u8 = 2;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let last = Last { own: replica.last_own(), any: replica.last() };
        self.changed.send_if_modified(|held| {
            let has_changed = *held != last;
            *held = last;
            has_changed
        });
        last.own
    }

    /// Waits until there is something to answer, for a while at most.
    async fn wait_for(&self, request: &FollowRequest) {
        let wait = Duration::from_millis(request.wait_ms.into()).min(PEER_WAIT);
        let (after, mut changed) = (self.asked_after(request), self.changed.subscribe());
        let question = Question::of(request.question).filter(|_| !wait.is_zero());
        let is_new = |last: &Last| match question {
            Some(Question::Own(_)) => last.own > after,
            Some(Question::All) => last.any > after,
            // What was learned is asked for now and then.
            Some(Question::Learned) | None => true,
        };
        let has_changed = timeout(wait, changed.wait_for(is_new)).await.is_ok();
        if has_changed && question == Some(Question::All) {
            pause(PEER_GATHER).await;
        }
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
        drop(followers);
        self.acknowledged.notify_waiters();
    }

    fn add_contact(&self, role: PeerRole, address: &Address) -> usize {
        self.stats.expect(&address.to_string(), role);
        lock(&self.contacts).add(role, address.to_string())
    }

    fn drop_contact(&self, number: usize) {
        let gone = lock(&self.contacts).remove(number);
        gone.iter().for_each(|contact| self.stats.drop_address(&contact.address));
        self.contacted.notify_waiters();
    }

    fn note_contact(&self, number: usize, failure: Option<String>, following: &Following) {
        if let Some(contact) = lock(&self.contacts).get_mut(number) {
            contact.note(failure, following);
        }
        self.contacted.notify_waiters();
    }

    /// The node at an address is this one.
    fn note_self(&self, number: usize) {
        if let Some(contact) = lock(&self.contacts).get_mut(number) {
            contact.is_self();
            self.stats.drop_address(&contact.address);
        }
        self.contacted.notify_waiters();
    }

    fn has_met(&self) -> bool {
        lock(&self.contacts).are_tried()
    }

    /// Waits until contacts are like this.
    async fn contacts_are(&self, like_this: impl Fn(&Contacts) -> bool) {
        loop {
            let mut contacted = std::pin::pin!(self.contacted.notified());
            // Registered before the check, so that no notification is missed.
            contacted.as_mut().enable();
            if like_this(&lock(&self.contacts)) {
                return;
            }
            contacted.await;
        }
    }

    /// Waits until each other node was read, or could not be reached.
    async fn met(&self) -> Result<(), EngineError> {
        if self.has_met() {
            return Ok(());
        }
        let waited = timeout(2 * ENGINE_TIMEOUT, self.contacts_are(Contacts::are_tried)).await;
        waited.map_err(|_| EngineError::Away("the other nodes do not answer".to_owned()))
    }

    /// Whether this node has a parent or children.
    fn relays(&self) -> bool {
        lock(&self.contacts).has_parent() || !lock(&self.children).is_empty()
    }

    /// Whether each node was read that this one exchanges changes with, at some time since the start.
    fn has_read(&self) -> bool {
        lock(&self.contacts).are_complete() && lock(&self.children).are_complete()
    }

    /// Whether this node, or one that it has heard from, waits for a start.
    fn has_starts(&self) -> bool {
        !self.is_complete() || !lock(&self.starts).are_read()
    }

    /// What this node says of starts: of its own, and of those that it waits for.
    fn starts(&self) -> Vec<Start> {
        let is_read = self.is_complete() || self.has_read();
        let life = self.life();
        let mut starts = lock(&self.starts);
        if is_read {
            starts.let_go(&self.node);
        }
        let own = Start { life, node: self.node.clone(), is_read };
        starts.list().chain([own]).collect()
    }

    /// The question to a node, and what it is asked with.
    fn ask(&self, following: &Following, with_seen: bool, is_child: bool) -> (Question, FollowRequest) {
        let question = following.next(self.now().as_millis(), PEER_RELAY_EVERY_MS);
        let with_seen = question == Question::Learned || (question == Question::All && with_seen);
        let seen = if with_seen { self.replica().seen() } else { Seen::new() };
        // The first answers do not wait: what is there is read first.
        let wait = if following.may_wait() { PEER_WAIT } else { Duration::ZERO };
        let request = FollowRequest {
            protocol: PROTOCOL,
            node: self.node.clone(),
            follower: self.life(),
            life: following.life(),
            after: following.after(question),
            question: question.number(),
            seen: seen.into_iter().map(|(life, until)| Followed { life, until }).collect(),
            wait_ms: u32::try_from(wait.as_millis()).unwrap_or(u32::MAX),
            is_child,
            asks_starts: self.has_starts(),
        };
        (question, request)
    }

    /// The next question to the contact with this number.
    fn question(&self, number: usize, following: &Following) -> (Question, FollowRequest) {
        let contacts = lock(&self.contacts);
        let is_child = contacts.get(number).is_some_and(|contact| contact.role == PeerRole::Parent);
        let with_seen = contacts.are_several();
        drop(contacts);
        self.ask(following, with_seen, is_child)
    }

    /// Why a question gets no answer.
    fn check(&self, request: &FollowRequest) -> Result<(), Refusal> {
        self.check_protocol(request.protocol)?;
        if request.seen.len() > MAX_PEER_LIVES {
            return Err(Refusal::Wrong("it follows too many nodes".to_owned()));
        }
        if Question::of(request.question).is_none() {
            return Err(Refusal::Wrong("the question is none".to_owned()));
        }
        self.check_node(&request.node, request.follower)?;
        if request.is_child { self.meet(&request.node, request.follower) } else { Ok(()) }
    }

    fn check_protocol(&self, theirs: u32) -> Result<(), Refusal> {
        if theirs == PROTOCOL {
            return Ok(());
        }
        Err(Refusal::Wrong(format!(
            "this node speaks version {PROTOCOL} of the protocol of peers, and the other one version {theirs}"
        )))
    }

    fn check_node(&self, node: &str, life: u64) -> Result<(), Refusal> {
        if life == self.life() {
            return Err(Refusal::Itself);
        }
        match Origin::new(node, 0) {
            Some(_) => Ok(()),
            None => Err(Refusal::Wrong("the name of the node is none".to_owned())),
        }
    }

    /// A child is here.
    fn meet(&self, node: &str, life: u64) -> Result<(), Refusal> {
        lock(&self.children).meet(node, life, self.now().as_millis()).map_err(Refusal::Wrong)
    }

    /// The number after which a question asks.
    fn asked_after(&self, request: &FollowRequest) -> u64 {
        if request.life == self.life() { request.after } else { 0 }
    }

    /// The answer to a question, as it is now.
    fn answer(&self, request: &FollowRequest) -> FollowResponse {
        let is_child = request.is_child || lock(&self.children).name(request.follower).is_some();
        // Before the page is made: it has what was read by then.
        let (relays, is_complete) = (self.relays(), self.is_complete());
        let with_starts = request.asks_starts || self.has_starts();
        let starts = if with_starts { self.starts() } else { Vec::new() };
        let mut above = Vec::new();
        if request.is_child {
            above = lock(&self.contacts).above();
            above.push(self.node.clone());
        }
        let role = if is_child { PeerRole::Child } else { PeerRole::Peer };
        let (after, now) = (self.asked_after(request), self.now());
        let seen: Seen = request.seen.iter().map(|&Followed { life, until }| (life, until)).collect();
        let replica = self.replica();
        let question = Question::of(request.question).unwrap_or(Question::Own(0));
        let Part { page, until, is_all } = match question {
            Question::Own(_) => replica.own_after(after, now),
            Question::Learned => replica.learned_after(after, request.follower, &seen, now),
            Question::All => replica.all_after(after, request.follower, &seen, now),
        };
        let (life, node) = (replica.life(), self.node.clone());
        // Who says how far it has followed others, can use how far this node has.
        let with_seen = question == Question::All && is_all && !seen.is_empty();
        let seen = if with_seen { replica.seen() } else { Seen::new() };
        drop(replica);
        let changes = page.changes();
        let seen = seen.into_iter().map(|(life, until)| Followed { life, until }).collect();
        let page = page.write();
        let response = FollowResponse {
            life,
            after,
            until,
            is_all,
            page,
            node,
            relays,
            seen,
            starts,
            above,
            is_complete,
        };
        let bytes = response.encoded_len() as u64;
        // A parent is known as one by the contact with it.
        self.stats.note(&request.node, (role == PeerRole::Child).then_some(role), now, |traffic| {
            traffic.changes_sent += changes;
            traffic.bytes_sent += bytes;
        });
        response
    }

    /// Merges an answer.
    ///
    /// # Errors
    /// Why it was not merged, or not as a whole.
    fn merge(
        &self,
        (question, answer): (Question, &FollowResponse),
        following: &mut Following,
        role: Option<PeerRole>,
    ) -> Result<(), String> {
        let page = Page::read(&answer.page)
            .map_err(|error| format!("it sent what is no page of counts: {error}: nothing was changed"))?;
        let &FollowResponse { life, after, until, is_all, relays, .. } = answer;
        let mut names = answer.starts.iter().map(|start| &start.node).chain([&answer.node]);
        let is_too_long = answer.seen.len() > MAX_PEER_LIVES || answer.starts.len() > MAX_PEER_LIVES + 1;
        if life == self.life() || is_too_long || names.any(|name| Origin::new(name, 0).is_none()) {
            return Err("it sent what no node sends: nothing was changed".to_owned());
        }
        let now = self.now();
        let is_first = life != following.life();
        let mut replica = self.replica();
        let merged = replica.merge(&page, (life, until), now);
        let answered = Answered { life, after, until, is_all, relays };
        // What a complete node still waits for, a node that is not complete need not.
        let ignores_open = answer.is_complete && !self.is_complete.load(Relaxed);
        let is_told = |start: &&Start| start.life != replica.life() && (start.is_read || !ignores_open);
        let starts: Vec<Start> = answer.starts.iter().filter(is_told).cloned().collect();
        let noted = merged.is_ok().then(|| following.note(question, answered, starts, now.as_millis()));
        if let Some(starts) = noted.flatten() {
            replica.note_followed(life, until);
            answer.seen.iter().for_each(|seen| replica.note_followed(seen.life, seen.until));
            lock(&self.starts).merge(starts, life, now.as_millis());
        }
        self.note_changes(&replica);
        drop(replica);
        if let Some(on_change) = &self.on_change {
            page.counts.iter().for_each(|(key, _)| on_change(key));
            let of_keys = page.texts.iter().filter(|text| text.list == OF_KEYS);
            of_keys.filter_map(|text| key_of_text(&text.name)).for_each(|key| on_change(&key));
        }
        merged.map_err(|full| EngineError::from(full).to_string())?;
        self.stats.note(&answer.node, role, now, |traffic| {
            traffic.changes_received += page.changes();
            traffic.bytes_received += answer.encoded_len() as u64;
            traffic.resyncs += u64::from(is_first);
        });
        Ok(())
    }

    /// Merges an answer of the contact with this number.
    ///
    /// # Errors
    /// Why it was not merged, or not as a whole.
    fn take(
        &self,
        number: usize,
        (question, answer): (Question, &FollowResponse),
        following: &mut Following,
    ) -> Result<(), String> {
        let role = lock(&self.contacts).get(number).map(|contact| contact.role);
        self.merge((question, answer), following, role)?;
        if let Some(contact) = lock(&self.contacts).get_mut(number) {
            if contact.node.as_ref() != Some(&answer.node) {
                contact.node = Some(answer.node.clone());
                self.stats.drop_address(&contact.address);
            }
            if contact.role == PeerRole::Parent {
                contact.set_above(&answer.above, &self.node).into_iter().for_each(|wrong| self.warn(wrong));
            }
        }
        self.note_contact(number, None, following);
        if answer.is_all && question != Question::Learned {
            lock(&self.contacts).get_mut(number).into_iter().for_each(Contact::note_read);
        }
        Ok(())
    }

    /// What this node reports to a parent.
    fn report(&self, answer: Option<FollowResponse>) -> ReportRequest {
        let is_all = answer.as_ref().is_some_and(|answer| answer.is_all);
        ReportRequest {
            protocol: PROTOCOL,
            node: self.node.clone(),
            life: self.life(),
            answer,
            has_others: lock(&self.contacts).are_several(),
            is_leaving: is_all && *self.is_leaving.borrow(),
        }
    }

    /// Merges what a child reports. Returns the next question to it.
    ///
    /// # Errors
    /// Why it was not merged, or not as a whole.
    fn take_report(&self, report: &ReportRequest) -> Result<FollowRequest, Refusal> {
        let ReportRequest { protocol, ref node, life, ref answer, has_others, is_leaving } = *report;
        self.check_protocol(protocol)?;
        self.check_node(node, life)?;
        self.meet(node, life)?;
        let mut following = lock(&self.children).following(life);
        if let Some(answer) = answer {
            if answer.life != life || answer.node != *node {
                let why = "it reported for another node: nothing was changed".to_owned();
                return Err(Refusal::Wrong(why));
            }
            self.merge((Question::All, answer), &mut following, Some(PeerRole::Child))
                .map_err(Refusal::Wrong)?;
        }
        let now_ms = self.now().as_millis();
        let mut children = lock(&self.children);
        children.note((node, life), &following, has_others, now_ms);
        let with_seen = children.has_others(life);
        if is_leaving {
            children.leave(node, life, now_ms).map_err(|error| Refusal::Wrong(error.to_string()))?;
        }
        drop(children);
        Ok(self.ask(&following, with_seen, false).1)
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
            "no other node follows this one: give its address in `urls` of the others, or as their `parent`"
                .to_owned()
        })
    }

    /// The nodes that cannot be followed.
    fn failure(&self) -> Option<String> {
        lock(&self.contacts).failure(&self.node)
    }

    /// Whether all that others know was read, at some time since the start.
    fn is_complete(&self) -> bool {
        if !self.is_complete.load(Relaxed) && self.has_read() {
            let mut starts = lock(&self.starts);
            // What its earlier starts have passed on is here.
            starts.let_go(&self.node);
            if starts.are_read() {
                self.is_complete.store(true, Relaxed);
            }
        }
        self.is_complete.load(Relaxed)
    }
}

/// Why a node gets no answer.
#[derive(PartialEq, Eq, Debug)]
enum Refusal {
    /// It is the node that it asks.
    Itself,
    Wrong(String),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Itself => {
                f.write_str("it is this server itself: give the addresses of the other nodes only")
            }
            Refusal::Wrong(why) => f.write_str(why),
        }
    }
}

impl Peers {
    /// A node of a mesh that knows no counts yet. It reaches the others when its [`network`](Peers::network) runs.
    ///
    /// # Errors
    /// [`EngineError::Url`]: an address is invalid. [`EngineError::Tls`]: a file of TLS cannot be used.
    pub fn new(config: PeersConfig) -> Result<Peers, EngineError> {
        let PeersConfig { node, urls, parents, tls: tls_files, children, keep_children, .. } = config;
        let PeersConfig { on_change, resolve, most_bytes, held_bytes, room, stats, clock, .. } = config;
        let of = |role: PeerRole, urls: &[String]| {
            Target::all(urls).map(|all| all.into_iter().map(move |target| (role, target)))
        };
        let targets = of(PeerRole::Peer, &urls)?.chain(of(PeerRole::Parent, &parents)?);
        let targets: Vec<(PeerRole, Target)> = targets.collect();
        let tls = tls_files.as_ref().map(PeerTls::load).transpose()?;
        // Never 0, which stands for no replica.
        let now_ms = clock.now().as_millis();
        let life = RandomState::new().hash_one(now_ms) | 1;
        for (role, target) in &targets {
            if let Target::Node(address) = target {
                stats.expect(&address.to_string(), *role);
            }
        }
        let shared = Shared {
            node,
            replica: Mutex::new(Replica::new(life, most_bytes)),
            clock,
            held_bytes,
            room,
            tls_files,
            tls: Mutex::new(tls),
            changed: watch::Sender::new(Last::default()),
            followers: Mutex::default(),
            acknowledged: Notify::new(),
            contacts: Mutex::new(Contacts::new(&targets)),
            contacted: Notify::new(),
            children: Mutex::new(Children::new(children, keep_children, now_ms)),
            starts: Mutex::default(),
            is_complete: AtomicBool::new(false),
            is_leaving: watch::Sender::new(false),
            on_change,
            resolve: resolve.unwrap_or_else(names::system),
            stats,
            warning: Mutex::default(),
        };
        Ok(Peers { shared: Arc::new(shared), targets })
    }

    /// Checks the addresses of other nodes.
    ///
    /// # Errors
    /// [`EngineError::Url`]: one is invalid.
    pub fn check<U: AsRef<str>>(urls: &[U]) -> Result<(), EngineError> {
        Target::all(urls).map(drop)
    }

    /// The host and port of each of these addresses.
    ///
    /// # Errors
    /// [`EngineError::Url`]: one is invalid.
    pub fn hosts<U: AsRef<str>>(urls: &[U]) -> Result<Vec<String>, EngineError> {
        Ok(Target::all(urls)?.iter().map(Target::to_string).collect())
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
        PeerNetwork { shared: Arc::clone(&self.shared), targets: self.targets.clone() }
    }
}

impl PeerNetwork {
    /// Answers other nodes on a listener, and follows them, as long as it is polled. Methods that are not of the mesh are among `more`.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub async fn run(self, listener: std::net::TcpListener, more: Option<NodeMethods>) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let PeerNetwork { shared, targets } = self;
        let (mut nodes, mut names) = (Vec::new(), Vec::new());
        for (role, target) in targets {
            let shared = Arc::clone(&shared);
            match target {
                // The first contacts are these nodes, in this order.
                Target::Node(address) => nodes.push(follower::follow(address, nodes.len(), shared)),
                Target::Name(name) => names.push(names::follow(name, role, shared)),
            }
        }
        tokio::join!(
            listener::serve(listener, Arc::clone(&shared), more),
            join_all(nodes),
            join_all(names),
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
        drop(replica);
        let tidied = lock(&shared.children).tidy(shared.now().as_millis());
        lock(&shared.starts).tidy(shared.now().as_millis());
        if let Err(error) = tidied {
            shared.warn(format!("the names of children cannot be kept: {error}"));
        }
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
        let holders = replica
            .texts((CLAIMS, String::new()), now)
            .filter_map(|(claim, _)| claim.strip_prefix(node)?.strip_prefix(' '));
        let holders: Vec<String> = holders.map(str::to_owned).collect();
        let other = holders.iter().find(|other| *other != holder && !is_former(other)).cloned();
        let has_it = holders.iter().any(|held| held == holder);
        if other.is_none() || has_it {
            for former in holders.iter().filter(|held| is_former(held)) {
                replica.set_text((CLAIMS, &name(former)), None, milliseconds(PEER_CLAIM_GONE), now)?;
            }
            let (text, lasts) = if lasts < CLAIM_LEAST { (None, PEER_CLAIM_GONE) } else { (Some(""), lasts) };
            replica.set_text((CLAIMS, &name(holder)), text, milliseconds(lasts), now)?;
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
        replica.set_text((list.number(), name), text, milliseconds(lasts), shared.now())?;
        shared.note_changes(&replica);
        Ok(())
    }

    async fn texts(&mut self, list: List) -> Result<Vec<(String, String)>, EngineError> {
        let (replica, now) = (self.shared.replica(), self.shared.now());
        let texts = replica.texts((list.number(), String::new()), now);
        Ok(texts.map(|(name, text)| (name.to_owned(), text.to_owned())).collect())
    }

    fn carries_key_texts(&self) -> bool {
        true
    }

    async fn set_key_texts(&mut self, texts: &[KeyText<'_>]) -> Result<(), EngineError> {
        let shared = &self.shared;
        let (mut replica, now) = (shared.replica(), shared.now());
        let stored = texts.iter().try_for_each(|&KeyText { key, name, text, keep_until }| {
            let lasts_ms = u64::try_from(keep_until.as_millis() - now.as_millis()).unwrap_or(0);
            replica.set_text((OF_KEYS, &name_of_key_text(key, name)), text, lasts_ms, now)
        });
        shared.note_changes(&replica);
        Ok(stored?)
    }

    async fn key_texts(&mut self, keys: &[&[u8]]) -> Result<Vec<NamedTexts>, EngineError> {
        let (replica, now) = (self.shared.replica(), self.shared.now());
        let of_key = |key: &&[u8]| {
            let prefix = name_of_key_text(key, "");
            let texts = replica.texts((OF_KEYS, prefix.clone()), now);
            texts.map(|(name, text)| (name[prefix.len()..].to_owned(), text.to_owned())).collect()
        };
        Ok(keys.iter().map(of_key).collect())
    }

    /// Always the same: what was sent stays here, and goes to each node that lacks it.
    fn life(&self) -> u64 {
        1
    }

    fn warning(&mut self) -> Option<String> {
        lock(&self.shared.warning).take()
    }

    fn is_complete(&self) -> bool {
        self.shared.is_complete()
    }

    fn away(&self) -> Away {
        let now_ms = self.shared.now().as_millis();
        if lock(&self.shared.children).are_silent(now_ms) || !lock(&self.shared.starts).are_read() {
            return Away::AllBut(Vec::new());
        }
        lock(&self.shared.contacts).away()
    }

    fn problem(&self) -> Option<String> {
        self.shared.failure()
    }

    async fn close(&mut self) {
        let last = self.shared.replica().last_own();
        // A node that does not answer gets it from another one, or after the next start.
        let _ = self.shared.arrived(last, true).await;
        // A parent need not wait for this node then.
        self.shared.is_leaving.send_replace(true);
        let _ = timeout(ENGINE_TIMEOUT, self.shared.contacts_are(Contacts::have_left)).await;
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

/// How long other nodes know that a claim is gone.
const PEER_CLAIM_GONE: Duration = Duration::from_secs(60);
