//! Exact limits and ids over several nodes: each key is decided by one node, its owner, and the other nodes ask it. The owner also counts all hits
//! with an id, so that one which is sent to several nodes counts once.
//!
//! The owner is found by rendezvous hashing over the nodes of the config, whether they run or not. So there are never two: a node that is
//! away has its keys nevertheless, and for these the others do what `on_owner_down` says. Nodes whose configs have other owners
//! do not answer each other.
//!
//! `link.rs` asks other nodes, and `wire.rs` has the messages.

mod link;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use futures_util::future::join_all;
use hyper::Request as HttpRequest;
use lately::route::Nodes;
use lately::{
    Admission, Decision, HitError, HitOnce, MemberHit, Outcome, Request, Retry, Timestamp, seconds,
};
use lately_engines::{KafkaRole, NodeBody, NodeMethods, NodeResponse, NodeRoom, answer_node, serve_nodes};
use tokio::net::TcpListener;
use tonic::Status;

use super::commit::Changes;
use super::named_limits::Rules;
use super::{Batch, DecideError, Decided, NamedRequest, Service, Stats, code_of};
use crate::config::ClusterConfig;
use crate::config::{NamedLimit, OwnerDown};
use crate::limits::{MAX_DECIDE_BYTES, OWNER_TIMEOUT};
use crate::log::Log;
use crate::stopper::Stopper;
pub(crate) use link::{Asked, Link};
pub(crate) use wire::Ask;
use wire::{Answer, DECIDE, DecideRequest, DecideResponse, PROTOCOL};

/// The owners of keys, as this node knows them.
pub(crate) struct Owners {
    node: String,
    nodes: Nodes<String>,
    links: BTreeMap<String, Arc<Link>>,
    /// A hash of the names of all owners.
    hash: u64,
    /// Whether the name of this node is its own. While another server may have it, both would decide the same keys.
    has_name: AtomicBool,
}

/// Who decides a request.
pub(crate) enum Decider<'o> {
    /// This node.
    Here,
    /// The node at the end of this link.
    There(&'o Arc<Link>),
    /// The node of this name, and another server may have it.
    Nobody,
}

/// What the owner of a key says, or what is done without it.
pub(crate) enum Verdict {
    Decided(Decided),
    /// The owner refuses the request: [`ARGUMENT`] or the first word of the error in RESP, and the rest.
    Refused {
        code: &'static str,
        error: String,
    },
    /// Nobody else decides, and this node does. `is_exempt`: the request is allowed in any case.
    Here {
        is_exempt: bool,
    },
}

/// Hits with an id, and with a member or without.
#[derive(Clone, Copy)]
pub(crate) struct IdHits<'h> {
    pub(crate) key: &'h [u8],
    pub(crate) weight: u64,
    pub(crate) at: Option<Timestamp>,
    pub(crate) id: &'h [u8],
    pub(crate) member: Option<&'h [u8]>,
}

impl IdHits<'_> {
    /// Checks the lengths of the id and of the member.
    pub(crate) fn check(&self) -> Result<(), HitError> {
        HitOnce::check_id(self.id)?;
        self.member.map_or(Ok(()), MemberHit::check_member)
    }
}

/// Why the owner of a key has not counted hits.
#[derive(Clone, Debug)]
pub(crate) struct NotCounted {
    /// [`ARGUMENT`], or the first word of the error in RESP.
    pub(crate) code: &'static str,
    /// The rest.
    pub(crate) error: String,
}

/// Hits that an owner was asked to count, or why it was not asked.
pub(crate) type ToCount = Result<Arc<Asked>, NotCounted>;

impl From<NotCounted> for DecideError {
    fn from(NotCounted { code, error }: NotCounted) -> DecideError {
        DecideError::Owner { code, error }
    }
}

impl NotCounted {
    /// Nobody has said whether they count.
    fn away(node: &str) -> NotCounted {
        let error = format!(
            "node {node} counts the hits on this key that have an id, and does not answer: send them again later"
        );
        NotCounted { code: TRY_AGAIN, error }
    }
}

impl Owners {
    /// `None` without owners.
    pub(crate) fn new(config: &ClusterConfig) -> Option<Owners> {
        let ClusterConfig { node, owners, peer, .. } = config;
        if owners.is_empty() {
            return None;
        }
        let (hash, tls) = (hash_of(owners), peer.as_ref().and_then(|peer| peer.tls.as_ref()));
        let others = owners.iter().filter(|(name, _)| *name != node);
        let link = |(name, address): (&String, _)| (name.clone(), Link::new((name, address), hash, tls));
        let nodes = Nodes::new(owners.keys().cloned());
        Some(Owners {
            node: node.clone(),
            nodes,
            links: others.map(link).collect(),
            hash,
            has_name: AtomicBool::new(false),
        })
    }

    /// The way to the owner of a key. `None` if it is this node.
    pub(crate) fn link(&self, key: &[u8]) -> Option<&Arc<Link>> {
        self.links.get(self.nodes.of(key)?)
    }

    /// Notes whether the name of this node is its own.
    pub(crate) fn set_name(&self, is_own: bool) {
        self.has_name.store(is_own, Relaxed);
    }

    /// The ways to the other owners, by their names.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values().map(|link| &**link)
    }

    /// Why requests of another node are not decided.
    fn check(&self, request: &DecideRequest) -> Result<(), String> {
        if request.protocol != PROTOCOL {
            let theirs = request.protocol;
            return Err(format!(
                "it speaks version {PROTOCOL} of the protocol of owners, and this node version {theirs}"
            ));
        }
        if request.owner != self.node {
            return Err(format!("the node there is {}", self.node));
        }
        if request.owners != self.hash {
            return Err("its config has other owners: all nodes need the same names in owners".to_owned());
        }
        Ok(())
    }
}

/// A hash of the names of owners, the same on each node.
fn hash_of<V>(owners: &BTreeMap<String, V>) -> u64 {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for name in owners.keys() {
        context.update(name.as_bytes());
        context.update(b"\n");
    }
    context.finish().as_ref()[..8].iter().fold(0, |hash, byte| (hash << 8) | u64::from(*byte))
}

/// The code of an error about what was asked for. All others are the first word of the error in RESP.
pub(crate) const ARGUMENT: &str = "ARGUMENT";

/// The code of an error that a later try need not have, as in a Redis Cluster.
pub(crate) const TRY_AGAIN: &str = "TRYAGAIN";

/// The code of an error of another node.
fn known(code: &str) -> &'static str {
    ["OOM", "LATE", "FUTURE", "MISCONF", ARGUMENT].into_iter().find(|known| *known == code).unwrap_or("ERR")
}

/// The decision of a limit whose owner is away.
fn denied(max: u64) -> Decision {
    // By then it may be back.
    Decision { max, remaining: 0, retry: Retry::After(seconds(1)), reset_after: Some(seconds(1)) }
}

impl Service {
    /// Who decides a request of a limit.
    pub(crate) fn decider(&self, limit: &NamedLimit, key: &[u8]) -> Decider<'_> {
        if limit.exact.is_some() { self.owner_of(key) } else { Decider::Here }
    }

    /// Who decides the exact limits of a key, and counts its hits that have an id.
    pub(crate) fn owner_of(&self, key: &[u8]) -> Decider<'_> {
        // One that writes to Kafka counts nothing, and its records have the ids.
        let owners = self.owners.as_ref().filter(|_| self.role != Some(KafkaRole::Produce));
        let Some(owners) = owners else { return Decider::Here };
        match owners.link(key) {
            Some(link) => Decider::There(link),
            None if owners.has_name.load(Relaxed) => Decider::Here,
            None => Decider::Nobody,
        }
    }

    /// Has the owner of a key count hits with an id. `None` if this node counts them.
    pub(crate) fn ask_to_count(&self, hits: &IdHits<'_>) -> Option<ToCount> {
        match self.owner_of(hits.key) {
            Decider::Here => None,
            Decider::There(link) => Some(match self.deletion_of(hits.key) {
                Some(refused) => Err(refused),
                None => Ok(link.ask(Ask::of_hits(hits))),
            }),
            Decider::Nobody => Some(Err(self.own_name_is_not_known())),
        }
    }

    /// Why hits on a key may not be passed on: it was deleted here, and its marks would take them, too.
    pub(crate) fn deletion_of(&self, key: &[u8]) -> Option<NotCounted> {
        self.cluster.as_ref().filter(|cluster| cluster.is_deleted(key))?;
        let error = "the key was deleted, and the other nodes do not have that yet: send the hits again";
        Some(NotCounted { code: TRY_AGAIN, error: error.to_owned() })
    }

    /// Another server may have the name of this node, and count the same hits.
    pub(crate) fn own_name_is_not_known(&self) -> NotCounted {
        Stats::add(&self.stats.owners_away, 1);
        let error = "this node counts the hits on this key that have an id, and does not know yet that no other server has its name: send \
                     them again later";
        NotCounted { code: TRY_AGAIN, error: error.to_owned() }
    }

    /// What the owner of a key says of hits: how many it has in the default window.
    pub(crate) fn counted(&self, asked: &Asked) -> Result<u64, NotCounted> {
        match asked.answer() {
            Some(Answer { hits: Some(hits), .. }) => Ok(*hits),
            Some(answer) => Err(NotCounted { code: known(&answer.code), error: answer.error.clone() }),
            None => {
                Stats::add(&self.stats.owners_away, 1);
                let owners = self.owners.as_ref().and_then(|owners| owners.link(&asked.ask.key));
                Err(NotCounted::away(owners.map_or("", |link| &link.node)))
            }
        }
    }

    /// What the owners say of hits that they were asked to count, in this order.
    pub(crate) async fn all_counted(&self, asked: Vec<ToCount>) -> Vec<Result<u64, NotCounted>> {
        let mut counted = Vec::with_capacity(asked.len());
        let begun = (self.moment)();
        for asked in asked {
            counted.push(match asked {
                Ok(asked) => {
                    self.over(asked.wait(), (2 * OWNER_TIMEOUT).saturating_sub((self.moment)() - begun))
                        .await;
                    self.counted(&asked)
                }
                Err(refused) => Err(refused),
            });
        }
        counted
    }

    /// What the owner says of a request that it was asked for, or what is done without an answer.
    pub(crate) fn verdict(&self, asked: &Asked, limit: &NamedLimit) -> Verdict {
        if let Some(answer) = asked.answer() {
            return match answer.decided() {
                Some(decided) if answer.code.is_empty() => Verdict::Decided(decided),
                _ => Verdict::Refused { code: known(&answer.code), error: answer.error.clone() },
            };
        }
        let Some(request) = asked.ask.request() else { unreachable!("it was asked by this node") };
        self.without_owner(limit, &request)
    }

    /// What is done while nobody decides.
    pub(crate) fn without_owner(&self, limit: &NamedLimit, request: &NamedRequest<'_>) -> Verdict {
        Stats::add(&self.stats.owners_away, 1);
        let is_exempt = matches!(limit.admission(request.key, request.address), Admission::Exempt);
        match limit.exact {
            // One in shadow denies nothing.
            Some(OwnerDown::Deny) if !limit.is_shadow && !is_exempt => {
                let (max, window) = request.instead.unwrap_or((limit.max, limit.window));
                Verdict::Decided(Decided { decision: denied(max), window, more_after: Some(seconds(1)) })
            }
            Some(OwnerDown::Allow) => Verdict::Here { is_exempt: true },
            _ => Verdict::Here { is_exempt: false },
        }
    }

    /// Has the owner of a key decide. `None` if that is this node.
    pub(crate) async fn decided_by_owner(
        &self,
        limit: &NamedLimit,
        request: &NamedRequest<'_>,
    ) -> Option<Verdict> {
        let link = match self.decider(limit, request.key) {
            Decider::Here => return None,
            Decider::Nobody => return Some(self.without_owner(limit, request)),
            Decider::There(link) => link,
        };
        let asked = link.ask(Ask::new(request, true));
        self.over(asked.wait(), 2 * OWNER_TIMEOUT).await;
        Some(self.verdict(&asked, limit))
    }

    /// Decides requests of other nodes on keys of this one. Returns once what they counted is committed.
    async fn decide_for_others(self: &Arc<Service>, asks: &[Ask]) -> Vec<Answer> {
        let rules = self.rules.get();
        let mut answers = Vec::with_capacity(asks.len());
        while answers.len() < asks.len() {
            self.decide_some(&asks[answers.len()..], &rules, &mut answers).await;
        }
        answers
    }

    /// Decides the first of some requests, at least one.
    async fn decide_some(self: &Arc<Service>, asks: &[Ask], rules: &Arc<Rules>, answers: &mut Vec<Answer>) {
        let now = self.now();
        let mut changes = Changes::default();
        let (outcomes, done, commit) = {
            let mut batch = Batch::default();
            batch.use_rules(Arc::clone(rules));
            let mut done = Vec::new();
            for ask in asks {
                if batch.len() >= batch.most_operations() {
                    break;
                }
                done.push(self.add_ask(ask, rules, &mut batch));
            }
            let _entered = self.enter();
            self.execute(&mut batch, &mut changes, now);
            let outcomes: Vec<_> = batch.outcomes().collect();
            (outcomes, done, self.commit(&mut [&mut changes]))
        };
        let committed = self.settled(commit, changes).await;
        let mut outcomes = outcomes.into_iter();
        for (ask, added) in asks.iter().zip(done) {
            let answer = match (added, &committed) {
                (Err(refused), _) => *refused,
                (Ok(()), Err(refused)) => {
                    outcomes.next();
                    Answer::refused(refused.code(), refused)
                }
                (Ok(()), Ok(())) => match outcomes.next() {
                    Some(Ok(Outcome::Hit(Ok(hits)) | Outcome::Repeated(hits))) => Answer::of_hits(hits),
                    Some(Ok(Outcome::Hit(Err(error)))) => Answer::refused(code_of(&error), error),
                    Some(Ok(Outcome::Limit(Ok(decision)))) => self.answer(ask, decision, rules, now),
                    Some(Ok(Outcome::Limit(Err(lately::LimitError::Hit(error))))) => {
                        Answer::refused(code_of(&error), error)
                    }
                    Some(Ok(Outcome::Limit(Err(error)))) => Answer::refused(ARGUMENT, error),
                    Some(Err(refused)) => Answer::refused(refused.code(), refused),
                    _ => unreachable!("a limit was asked for"),
                },
            };
            answers.push(answer);
        }
    }

    /// Adds a request of another node to a batch.
    fn add_ask<'a>(&self, ask: &'a Ask, rules: &Rules, batch: &mut Batch<'a>) -> Result<(), Box<Answer>> {
        let out_of_range = || Box::new(Answer::refused(ARGUMENT, "a time or a window is out of range"));
        if let Some(hits) = &ask.hits {
            let (at, member) = (ask.at().ok_or_else(out_of_range)?, hits.member.as_deref());
            let hits = IdHits { key: &ask.key, weight: hits.weight, at, id: &hits.id, member };
            hits.check().map_err(|error| Box::new(Answer::refused(ARGUMENT, error)))?;
            batch.hit_with((hits.key, hits.weight, at), (Some(hits.id), member));
            return Ok(());
        }
        let Some(request) = ask.request() else { return Err(out_of_range()) };
        let limit = rules.find(request.name).map(|number| &rules.rule(number).limit);
        if limit.is_none_or(|limit| limit.exact.is_none()) {
            let name = String::from_utf8_lossy(request.name);
            return Err(Box::new(Answer::refused(
                ARGUMENT,
                format!("the config of the node that decides this key has no exact limit '{name}'"),
            )));
        }
        batch.limit_by_name(&request, self).map_err(|error| Box::new(Answer::refused(ARGUMENT, error)))
    }

    fn answer(&self, ask: &Ask, decision: Decision, rules: &Rules, now: Timestamp) -> Answer {
        let limit = rules.find(&ask.limit).map(|number| &rules.rule(number).limit);
        let of_config = limit.map(|limit| (limit.max, limit.window));
        let instead = ask.request().and_then(|request| request.instead);
        let Some((max, window)) = instead.or(of_config) else { unreachable!("it was decided") };
        let at = ask.at_ms.and_then(Timestamp::from_millis);
        let request = Request { at, ..Request::new(&ask.key, max, window, 1) };
        let more_after = if ask.wants_more { self.more_after(request, &decision, now) } else { None };
        Answer::of(&Decided { decision, window, more_after })
    }
}

/// The methods that other nodes call.
pub(crate) fn methods(service: &Arc<Service>) -> NodeMethods {
    let service = Arc::clone(service);
    Arc::new(move |request| Box::pin(respond(request, Arc::clone(&service))))
}

async fn respond(request: HttpRequest<NodeBody>, service: Arc<Service>) -> NodeResponse {
    if request.uri().path() != DECIDE {
        return Status::unimplemented("only nodes of Lately talk here").into_http();
    }
    let method = |request| {
        let service = Arc::clone(&service);
        async move { decide(request, &service).await }
    };
    answer_node(request, MAX_DECIDE_BYTES, method).await
}

async fn decide(request: DecideRequest, service: &Arc<Service>) -> Result<DecideResponse, Status> {
    let Some(owners) = &service.owners else {
        return Err(Status::failed_precondition("its config has no owners"));
    };
    owners.check(&request).map_err(Status::failed_precondition)?;
    if service.is_loading() {
        return Err(Status::unavailable("it is loading its counts"));
    }
    if !owners.has_name.load(Relaxed) {
        return Err(Status::unavailable("it does not know yet that no other server has its name"));
    }
    if request.asks.iter().any(|ask| owners.link(&ask.key).is_some()) {
        return Err(Status::failed_precondition("a key is of another node"));
    }
    Ok(DecideResponse { answers: service.decide_for_others(&request.asks).await })
}

/// Answers other nodes, if there is a listener for that, and keeps the ways to them, until `drained`.
pub(crate) async fn keep(service: Arc<Service>, listener: Option<TcpListener>, drained: Stopper, tell: Log) {
    let Some(owners) = &service.owners else { return };
    let tls = service.config.cluster.as_ref().and_then(|cluster| cluster.peer.as_ref()?.tls.clone());
    let room = service.cluster.as_ref().map(|cluster| Arc::clone(&cluster.node_room));
    let room = room.unwrap_or_else(|| NodeRoom::new(service.config.ceiling_bytes));
    let links = owners.links.values().map(|link| link.keep(&service, &tell));
    let serving = async {
        if let Some(listener) = listener {
            let tell = Arc::clone(&tell);
            serve_nodes(listener, tls.clone(), (methods(&service), room), move |warning| tell(&warning))
                .await;
        }
    };
    tokio::select! {
        _ = async { tokio::join!(join_all(links), serving) } => {}
        () = drained.stopped() => {}
    }
}
