//! The busy keys of each node, so that `TOP` finds keys that only other nodes have counted.
//!
//! Each node walks over its keys, a step with each exchange. It ranks them by the hits that it counted itself, in several windows, and
//! stores the first ones in the engine, each with its hits. All nodes read these lists. A question takes the keys with the greatest
//! sums as candidates, and reads their hits as for any other question: no number of an answer is from a list. Any other key has at most
//! the sum of what the lists leave out. (Cao and Wang, "Efficient top-K query calculation in distributed networks", 2004, find
//! candidates and this bound in the same way.)

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lately::limits::MAX_KEY_BYTES;
use lately::{Count, Cursor, Origin, Span, Tier, Timestamp};
use lately_engines::{Engine, EngineError, List};
use serde::{Deserialize, Serialize};

use super::Cluster;
use super::interest::{TIERS, index};
use super::reconcile::after;
use crate::limits::{
    BUSY_ASKED_MS, BUSY_EVERY_MS, BUSY_LEAST_MS, BUSY_LIST_BYTES, BUSY_LISTS_SHARE, BUSY_NODE_MS,
    BUSY_OVERDUE_MS, BUSY_PAUSES, BUSY_QUESTIONS, BUSY_READ_BYTES, BUSY_RENEW_MS, BUSY_STEP, BUSY_TEXT_BYTES,
    BUSY_TEXTS_BYTES, BUSY_WATCHED_MS, BUSY_WINDOWS, MAX_BUSY_TEXT_BYTES, MAX_CANDIDATES, MORE_CANDIDATES,
    NODES_RETRY,
};
use crate::service::alerts::is_total;
use crate::service::{Candidates, Ranking, Service, TopQuestion};

/// The lists of busy keys that the nodes have published, and the one that this node is making.
#[derive(Default)]
pub(super) struct BusyLists(Mutex<State>);

#[derive(Default)]
struct State {
    /// What was read from each engine.
    engines: [EngineLists; TIERS],
    /// The questions of clients of this node that no list of a fixed window answers, and when they were last asked.
    asked: Vec<(Asked, Timestamp)>,
    /// When a client of this node asked last.
    watched: Option<Timestamp>,
    round: Option<Round>,
    round_bytes: usize,
    next_round_ms: i64,
    /// Exchanges since the last step of a walk.
    pauses: u32,
    /// What this node published last.
    published: Published,
}

/// What was last read from an engine.
#[derive(Default)]
struct EngineLists {
    /// What each node published. In the local engine this one is among them.
    nodes: Vec<(String, Published)>,
    /// Whether nodes were left out, because there was no room for what they published.
    is_cut: bool,
    /// When the engine was read, and is to be read again.
    read_ms: Option<i64>,
    due_ms: i64,
    /// Why it refused.
    refused: Option<String>,
}

/// Keys that begin with a prefix, in a window; `None` is that of the class of each key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Asked {
    #[serde(with = "bytes_as_text")]
    prefix: Box<[u8]>,
    window_ms: Option<i64>,
}

/// What a node publishes, as JSON in the engine.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
struct Published {
    /// When its walk began, by its clock.
    at_ms: i64,
    lists: Vec<BusyList>,
    /// What its clients have asked lately.
    asked: Vec<Asked>,
    /// Whether they have asked anything lately.
    is_watched: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct BusyList {
    #[serde(flatten)]
    of: Asked,
    /// A key is there once for the hits of clients, and once for those of records.
    keys: Vec<BusyKey>,
    /// The most hits that the node has counted of another key. `None` if that is not known.
    others: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct BusyKey(#[serde(with = "bytes_as_text")] Box<[u8]>, u64);

/// A walk over the keys of this node, and then over those of records that it counts.
struct Round {
    at: Timestamp,
    place: Place,
    lists: Vec<Ranked>,
}

#[derive(Clone, Copy)]
enum Place {
    Keys(Cursor),
    /// A page of the engine.
    Records(usize),
}

/// A list that is being made.
struct Ranked {
    of: Asked,
    keys: Ranking,
    records: Ranking,
}

/// Any bytes as text: a character for each.
mod bytes_as_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&bytes.iter().map(|byte| char::from(*byte)).collect::<String>())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Box<[u8]>, D::Error> {
        let text = String::deserialize(from)?;
        text.chars().map(u8::try_from).collect::<Result<_, _>>().map_err(D::Error::custom)
    }
}

impl Asked {
    fn window(&self) -> Option<Span> {
        self.window_ms.and_then(Span::from_millis)
    }

    /// Whether each key of the other is one of these, with no more hits.
    fn covers(&self, other: &Asked) -> bool {
        let is_as_long = match (self.window_ms, other.window_ms) {
            (Some(own), Some(other)) => own >= other,
            (own, other) => own == other,
        };
        is_as_long && other.prefix.starts_with(&self.prefix)
    }
}

impl BusyList {
    fn bytes(&self) -> usize {
        let keys = self.keys.iter().map(|BusyKey(key, _)| size_of::<BusyKey>() + key.len());
        size_of::<BusyList>() + self.of.prefix.len() + keys.sum::<usize>()
    }
}

impl Published {
    fn bytes(&self) -> usize {
        let asked = self.asked.iter().map(|asked| size_of::<Asked>() + asked.prefix.len());
        size_of::<(String, Published)>()
            + self.lists.iter().map(BusyList::bytes).sum::<usize>()
            + asked.sum::<usize>()
    }

    /// The narrowest list for a question, and whether no key with more hits can be missing but for its `others`.
    fn list_for(&self, asked: &Asked) -> Option<(&BusyList, bool)> {
        let narrowest = |list: &&BusyList| (list.of.window_ms, Reverse(list.of.prefix.len()));
        let covers = self.lists.iter().filter(|list| list.of.covers(asked)).min_by_key(narrowest);
        let longest = || {
            let of_prefix = self.lists.iter().filter(|list| asked.prefix.starts_with(&list.of.prefix));
            of_prefix.max_by_key(|list| (list.of.window_ms, list.of.prefix.len()))
        };
        covers.map(|list| (list, true)).or_else(|| longest().map(|list| (list, false)))
    }
}

impl BusyLists {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory of the lists, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        let state = self.lock();
        state.nodes().map(|(.., published)| published.bytes()).sum::<usize>()
            + state.published.bytes()
            + state.round_bytes
    }

    /// Notes how it went with an engine. False if it is to be asked again later.
    fn note(
        &self,
        tier: Tier,
        done: Result<(), EngineError>,
        now: Timestamp,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> bool {
        let state = &mut *self.lock();
        let of_engine = &mut state.engines[index(tier)];
        let Err(error) = done else {
            of_engine.refused = None;
            return true;
        };
        if let EngineError::Away(_) = error {
            // The next exchange of counts reports that, and is not to wait for these lists, too.
            of_engine.due_ms = now.as_millis() + BUSY_EVERY_MS;
        } else {
            of_engine.due_ms = now.as_millis() + i64::try_from(NODES_RETRY.as_millis()).unwrap_or(i64::MAX);
            if tier == Tier::Local {
                state.next_round_ms = of_engine.due_ms;
            }
            let refused = error.to_string();
            if of_engine.refused.as_ref() != Some(&refused) {
                tell(&format!(
                    "the lists of busy keys: {refused}: TOP lacks keys that other nodes alone have counted"
                ));
            }
            of_engine.refused = Some(refused);
        }
        false
    }

    /// Walks over some keys. Returns what is to be published at the end of a walk.
    fn walk(&self, engine: &impl Engine, service: &Service, now: Timestamp) -> Option<Published> {
        // Questions are answered meanwhile.
        let round = self.lock().take_round(service, now);
        let mut round = round?;
        let is_over = round.step(engine, service, now);
        let mut state = self.lock();
        if !is_over {
            let bytes = |list: &Ranked| list.keys.held_bytes() + list.records.held_bytes();
            state.round_bytes = round.lists.iter().map(bytes).sum();
            state.round = Some(round);
            return None;
        }
        state.round_bytes = 0;
        let asked = state.asked.iter().map(|(asked, _)| asked.clone()).collect();
        let is_watched = state.is_watched_here(now);
        drop(state);
        let lists = round.lists.into_iter().map(Ranked::into_list).collect();
        Some(Published { at_ms: round.at.as_millis(), lists, asked, is_watched })
    }
}

impl EngineLists {
    /// Whether the engine was read when that was due.
    fn is_new(&self, now: Timestamp) -> bool {
        self.read_ms.is_some() && now.as_millis() < self.due_ms + BUSY_OVERDUE_MS
    }
}

impl State {
    /// What each node of all data centres published, once.
    fn nodes(&self) -> impl Iterator<Item = (Tier, &String, &Published)> {
        let [local, upstream] = &self.engines;
        let is_here = |name: &String| local.nodes.iter().any(|(here, _)| here == name);
        let far = upstream.nodes.iter().filter(move |(name, _)| !is_here(name));
        let local = local.nodes.iter().map(|(name, published)| (Tier::Local, name, published));
        local.chain(far.map(|(name, published)| (Tier::Upstream, name, published)))
    }

    /// What clients of any node have asked lately: each once.
    fn questions(&mut self, now: Timestamp) -> Vec<Asked> {
        self.asked.retain(|(_, at)| now < after(*at, BUSY_ASKED_MS));
        let own = self.asked.iter().map(|(asked, _)| asked);
        let of_others = self.nodes().flat_map(|(_, _, published)| &published.asked);
        let mut questions: Vec<Asked> = Vec::new();
        for asked in own.chain(of_others) {
            if questions.len() < BUSY_QUESTIONS && !questions.contains(asked) {
                questions.push(asked.clone());
            }
        }
        questions
    }

    fn is_watched_here(&self, now: Timestamp) -> bool {
        self.watched.is_some_and(|at| now < after(at, BUSY_ASKED_MS))
    }

    /// Whether clients of any node have asked lately.
    fn is_watched(&self, now: Timestamp) -> bool {
        self.is_watched_here(now) || self.nodes().any(|(_, _, published)| published.is_watched)
    }

    /// The walk that is under way, or the next one if it is due. While nobody asks, a walk takes its time.
    fn take_round(&mut self, service: &Service, now: Timestamp) -> Option<Round> {
        if self.round.is_some() && !self.is_watched(now) && self.pauses < BUSY_PAUSES {
            self.pauses += 1;
            return None;
        }
        self.pauses = 0;
        let is_due = now.as_millis() >= self.next_round_ms;
        self.round.take().or_else(|| is_due.then(|| self.begin(service, now)))
    }

    fn begin(&mut self, service: &Service, now: Timestamp) -> Round {
        let longest = service.config.longest_retention();
        let mut of = self.questions(now);
        let windows = BUSY_WINDOWS.into_iter().filter(|window| *window < longest).chain([longest]);
        for window in [None].into_iter().chain(windows.map(Some)) {
            let fixed = Asked { prefix: Box::default(), window_ms: window.map(Span::as_millis) };
            if !of.contains(&fixed) {
                of.push(fixed);
            }
        }
        let part = most_bytes(service) / self.nodes().count().max(1);
        let most_bytes = (BUSY_TEXT_BYTES.min(part) / of.len()).min(BUSY_LIST_BYTES);
        let has_records = service.cluster.as_ref().is_some_and(|cluster| cluster.config.kafka.is_some());
        let most_bytes = if has_records { most_bytes / 2 } else { most_bytes };
        let nodes = i64::try_from(self.nodes().count()).unwrap_or(i64::MAX);
        self.next_round_ms = now.as_millis() + BUSY_EVERY_MS.max(nodes.saturating_mul(BUSY_NODE_MS));
        let ranking = || Ranking::new(usize::MAX, most_bytes);
        let lists = of.into_iter().map(|of| Ranked { of, keys: ranking(), records: ranking() });
        Round { at: now, place: Place::Keys(Cursor::START), lists: lists.collect() }
    }
}

impl Ranked {
    fn into_list(self) -> BusyList {
        let ((keys, others), (records, other_records)) = (self.keys.into_keys(), self.records.into_keys());
        let keys = keys.into_iter().chain(records).map(|(key, hits)| BusyKey(key, hits)).collect();
        let others = others.zip(other_records).map(|(one, other)| one.saturating_add(other));
        BusyList { of: self.of, keys, others }
    }
}

impl Round {
    /// Walks over some keys. True at the end.
    fn step(&mut self, engine: &impl Engine, service: &Service, now: Timestamp) -> bool {
        match self.place {
            Place::Keys(cursor) => {
                let page = service.store.scan(cursor, None, BUSY_STEP, now);
                for key in &page.keys {
                    for Ranked { of, keys, .. } in lists_of(&mut self.lists, key) {
                        keys.rank(key, &service.store.own_count(key, of.window(), Some(self.at), now));
                    }
                }
                let is_over = page.next == Cursor::START;
                self.place = if is_over { Place::Records(0) } else { Place::Keys(page.next) };
                // Most engines have no records.
                is_over && self.step(engine, service, now)
            }
            Place::Records(first) => {
                let (at, mut visited) = (self.at, 0);
                for page in first.. {
                    let has_more = engine.visit_records(page, &mut |key, hits| {
                        visited += 1;
                        for Ranked { of, records, .. } in lists_of(&mut self.lists, key) {
                            let window = of.window().unwrap_or_else(|| service.default_window(key));
                            let most = hits(window, at);
                            let count = Count { estimate: most, lower: 0, upper: Some(most), cell: window };
                            records.rank(key, &count);
                        }
                    });
                    if !has_more {
                        return true;
                    }
                    if visited >= BUSY_STEP {
                        self.place = Place::Records(page + 1);
                        return false;
                    }
                }
                true
            }
        }
    }
}

/// The lists that a key may be on.
fn lists_of<'l>(lists: &'l mut [Ranked], key: &[u8]) -> impl Iterator<Item = &'l mut Ranked> {
    let is_total = is_total(key);
    lists.iter_mut().filter(move |list| !is_total && key.starts_with(&list.of.prefix))
}

impl Cluster {
    /// Keys that may be among the answer to a question, because of what the nodes published. Notes the question, so that later answers
    /// know of more keys, if no node has a list for it.
    pub(crate) fn candidates(&self, question: TopQuestion<'_>, now: Timestamp) -> Candidates {
        let TopQuestion { count, window, prefix, pattern } = question;
        let asked = Asked { prefix: prefix.into(), window_ms: window.map(Span::as_millis) };
        let nodes = self.nodes.seen();
        let mut state = self.busy.lock();
        state.watched = Some(now);
        let is_missing = |(node, _): &(String, bool)| state.nodes().all(|(_, name, _)| name != node);
        let mut sums: HashMap<&[u8], u64> = HashMap::new();
        // Which nodes other data centres have is not known. With Kafka, another node may count a partition than did when the lists were made.
        let knows_all = self.upstream.is_none() && self.config.kafka.is_none();
        let knows_all = knows_all && state.engines[0].is_new(now) && !state.engines[0].is_cut;
        let knows_all = knows_all && !nodes.is_empty() && !nodes.iter().any(is_missing);
        let mut others = knows_all.then_some(0_u64);
        let mut has_exact = true;
        for (tier, name, published) in state.nodes() {
            let Some((list, is_covered)) = published.list_for(&asked) else {
                (others, has_exact) = (None, false);
                continue;
            };
            has_exact &= list.of == asked;
            let age_ms = now.as_millis() - published.at_ms;
            // None of the hits of a node that has ended is in a window that began after its walk.
            let is_on =
                tier == Tier::Upstream || nodes.iter().any(|(node, is_silent)| node == name && !is_silent);
            if !is_on && list.of.window_ms.is_some_and(|window_ms| window_ms < age_ms) {
                continue;
            }
            if *name != self.config.node {
                let more = list.others.filter(|_| is_covered && (age_ms < BUSY_OVERDUE_MS || !is_on));
                others = others.zip(more).map(|(sum, more)| sum.saturating_add(more));
            }
            for BusyKey(key, hits) in &list.keys {
                if key.starts_with(prefix) && pattern.is_none_or(|pattern| pattern.matches(key)) {
                    let sum = sums.entry(key).or_default();
                    *sum = sum.saturating_add(*hits);
                }
            }
        }
        let mut sums: Vec<_> = sums.into_iter().map(|(key, hits)| (Reverse(hits), key)).collect();
        sums.sort_unstable();
        let most = count.saturating_mul(2).saturating_add(MORE_CANDIDATES).min(MAX_CANDIDATES);
        let next = sums.get(most).map_or(0, |(Reverse(hits), _)| *hits);
        let keys = sums.iter().take(most).map(|(_, key)| Box::from(*key)).collect();
        if !has_exact || state.asked.iter().any(|(known, _)| *known == asked) {
            state.asked.retain(|(known, _)| *known != asked);
            state.asked.insert(0, (asked, now));
            state.asked.truncate(BUSY_QUESTIONS);
        }
        Candidates { keys, most_of_others: others.map(|others| others.saturating_add(next)) }
    }
}

/// Walks over some keys of this node. At the end of a walk it stores the lists, and reads those of all nodes when they are due.
/// Counting does not depend on it: an engine that refuses it is asked again later.
pub(super) async fn renew(
    engine: &mut impl Engine,
    service: &Service,
    cluster: &Cluster,
    tell: &(dyn Fn(&str) + Send + Sync),
) {
    let now = service.now();
    if service.is_loading() {
        return;
    }
    let done = match cluster.busy.walk(engine, service, now) {
        Some(published) => store(engine, service, cluster, published).await,
        None => Ok(()),
    };
    if cluster.busy.note(Tier::Local, done, now, tell) {
        read(engine, Tier::Local, service, cluster, tell).await;
    }
}

/// Reads what the nodes published, if that is due.
pub(super) async fn read(
    engine: &mut impl Engine,
    tier: Tier,
    service: &Service,
    cluster: &Cluster,
    tell: &(dyn Fn(&str) + Send + Sync),
) {
    let now = service.now();
    if now.as_millis() >= cluster.busy.lock().engines[index(tier)].due_ms {
        let done = read_lists(engine, tier, service, cluster).await;
        cluster.busy.note(tier, done, now, tell);
    }
}

/// Copies what the nodes of this data centre published to the upstream engine, if that is new. `copied` has the time of each list that was copied.
///
/// # Errors
/// The engine is away.
pub(super) async fn copy_up(
    upstream: &mut impl Engine,
    service: &Service,
    cluster: &Cluster,
    copied: &mut HashMap<String, i64>,
) -> Result<(), EngineError> {
    let new: Vec<(String, Published)> = {
        let state = cluster.busy.lock();
        let is_new = |(name, published): &&(String, Published)| copied.get(name) != Some(&published.at_ms);
        state.engines[index(Tier::Local)].nodes.iter().filter(is_new).cloned().collect()
    };
    for (name, published) in new {
        match upstream.set_text(List::BusyKeys, &name, Some(&text_of(&published)), lasts(service)).await {
            Err(EngineError::Away(away)) => return Err(EngineError::Away(away)),
            // Who reads the lists reports a refusal.
            Ok(()) | Err(_) => copied.insert(name, published.at_ms),
        };
    }
    Ok(())
}

async fn store(
    engine: &mut impl Engine,
    service: &Service,
    cluster: &Cluster,
    published: Published,
) -> Result<(), EngineError> {
    let is_new = {
        let state = cluster.busy.lock();
        let (last, is_watched) = (&state.published, state.is_watched(service.now()));
        published.lists != last.lists
            || published.asked != last.asked
            || published.is_watched != last.is_watched
            || published.at_ms >= last.at_ms + if is_watched { BUSY_WATCHED_MS } else { BUSY_RENEW_MS }
    };
    if is_new {
        engine
            .set_text(List::BusyKeys, &cluster.config.node, Some(&text_of(&published)), lasts(service))
            .await?;
        cluster.busy.lock().published = published;
    }
    Ok(())
}

async fn read_lists(
    engine: &mut impl Engine,
    tier: Tier,
    service: &Service,
    cluster: &Cluster,
) -> Result<(), EngineError> {
    let (now, lasts) = (service.now(), lasts(service));
    let lasts_ms = i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX);
    let (mut nodes, mut text_bytes, mut held_bytes, mut is_cut) = (Vec::new(), 0, 0, false);
    for (name, text) in engine.texts(List::BusyKeys).await? {
        text_bytes += text.len();
        let Some(published) = parse(&name, &text) else { continue };
        if now.as_millis().saturating_sub(published.at_ms) > lasts_ms {
            // None of its hits count any more.
            engine.set_text(List::BusyKeys, &name, None, lasts).await?;
            continue;
        }
        held_bytes += published.bytes();
        if held_bytes > most_bytes(service) {
            is_cut = true;
            continue;
        }
        nodes.push((name, published));
    }
    nodes.sort_by(|(one, _), (other, _)| one.cmp(other));
    let pause_ms = i64::try_from(text_bytes / BUSY_READ_BYTES).unwrap_or(i64::MAX).saturating_mul(1_000);
    let of_engine = &mut cluster.busy.lock().engines[index(tier)];
    (of_engine.nodes, of_engine.is_cut, of_engine.read_ms) = (nodes, is_cut, Some(now.as_millis()));
    of_engine.due_ms = now.as_millis().saturating_add(pause_ms.max(BUSY_EVERY_MS));
    Ok(())
}

/// How long the engine keeps a text: until none of its hits count any more. A slow walk may take minutes.
fn lasts(service: &Service) -> Duration {
    let longest_ms = service.config.longest_retention().as_millis().max(BUSY_LEAST_MS);
    Duration::from_millis(u64::try_from(longest_ms).unwrap_or(0))
}

/// The memory of the lists of all nodes.
fn most_bytes(service: &Service) -> usize {
    let part = service.config.ceiling_bytes / BUSY_LISTS_SHARE;
    usize::try_from(part).unwrap_or(BUSY_TEXTS_BYTES).min(BUSY_TEXTS_BYTES)
}

fn text_of(published: &Published) -> String {
    serde_json::to_string(published).expect("it has texts and numbers")
}

/// What a node wrote; `None` for anything else.
fn parse(name: &str, text: &str) -> Option<Published> {
    let is_ours = Origin::new(name, 0).is_some() && text.len() <= MAX_BUSY_TEXT_BYTES;
    let published: Published = is_ours.then(|| serde_json::from_str(text).ok()).flatten()?;
    let is_key = |BusyKey(key, _): &BusyKey| (1..=MAX_KEY_BYTES).contains(&key.len());
    published.lists.iter().flat_map(|list| &list.keys).all(is_key).then_some(published)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use lately::{Clock, ManualClock, milliseconds, minutes, seconds};
    use lately_engines::Memory;
    use test_support::Rng;

    use super::*;
    use crate::config::{ClusterConfig, Config};

    const START_MS: i64 = 1_700_000_000_000;

    /// Nodes with an engine and a clock in common.
    struct Nodes {
        clock: Arc<ManualClock>,
        engine: Memory,
        nodes: Vec<Service>,
    }

    impl Nodes {
        fn start(count: usize) -> Nodes {
            let clock = Arc::new(ManualClock::new(Timestamp::from_millis(START_MS).expect("a time")));
            let node = |number: usize| {
                let cluster = ClusterConfig::new(&format!("n{number}"), &["redis://127.0.0.1:1"]);
                let config = Config { cluster: Some(cluster.expect("valid")), ..Config::default() };
                let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
                let service = Service::new(config, shared).expect("valid");
                super::super::start(&service).expect("there is no folder");
                service
            };
            Nodes { engine: Memory::default(), nodes: (0..count).map(node).collect(), clock }
        }

        fn hit(&self, node: usize, key: &[u8], hits: u64) {
            let store = &self.nodes[node].store;
            store.hit_n(key, hits, None, self.nodes[node].now()).expect("a time of now");
        }

        /// All nodes publish their busy keys, and read those of the others. Returns what is logged.
        fn exchange(&mut self) -> Vec<String> {
            let lines = Mutex::new(Vec::new());
            let tell = |line: &str| lines.lock().expect("one thread").push(line.to_owned());
            for _ in 0..2 {
                for service in &self.nodes {
                    let cluster = service.cluster.as_ref().expect("it is configured");
                    let seen = || cluster.busy.lock().next_round_ms;
                    let before = seen();
                    // A walk, to its end.
                    while seen() == before || cluster.busy.lock().round.is_some() {
                        block_on(renew(&mut self.engine, service, cluster, &tell));
                    }
                    block_on(super::super::nodes::renew(&mut self.engine, service, cluster, &tell));
                }
                self.clock.advance(milliseconds(u64::try_from(BUSY_EVERY_MS).expect("positive")));
            }
            lines.into_inner().expect("one thread")
        }

        fn ask(&self, node: usize, count: usize, window: Option<Span>, prefix: &[u8]) -> Candidates {
            let service = &self.nodes[node];
            let cluster = service.cluster.as_ref().expect("it is configured");
            cluster.candidates(TopQuestion { count, window, prefix, pattern: None }, service.now())
        }
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    fn keys(candidates: &Candidates) -> Vec<String> {
        let mut keys: Vec<_> =
            candidates.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn keys_of_all_nodes_are_candidates() {
        let mut nodes = Nodes::start(3);
        assert_eq!(nodes.ask(0, 10, None, b"").most_of_others, None, "no node is known");
        nodes.hit(0, b"a", 5);
        nodes.hit(1, b"\x00\xff\"\\", 7);
        nodes.hit(2, "é".as_bytes(), 1);
        nodes.exchange();
        for node in 0..3 {
            for window in [None, Some(minutes(1)), Some(seconds(17))] {
                let found = nodes.ask(node, 10, window, b"");
                assert_eq!((found.keys.len(), found.most_of_others), (3, Some(0)), "{window:?}");
                assert!(found.keys.contains(&b"\x00\xff\"\\"[..]));
            }
            assert_eq!(keys(&nodes.ask(node, 10, None, b"a")), ["a"]);
        }
        // There is no bound while the engine is away.
        nodes.clock.advance(seconds(60));
        let away = nodes.ask(0, 10, Some(minutes(10)), b"");
        assert_eq!((away.keys.len(), away.most_of_others), (3, None));
        nodes.exchange();
        // A window beyond all lists has keys, and no bound.
        let beyond = nodes.ask(0, 10, Some(Span::MAX), b"");
        assert_eq!((beyond.keys.len(), beyond.most_of_others), (3, None));
    }

    #[test]
    fn no_key_that_is_left_out_has_more_hits_than_the_bound() {
        for seed in 0..20 {
            let (mut nodes, mut rng) = (Nodes::start(3), Rng::new(seed));
            let mut hits: HashMap<Vec<u8>, [u64; 3]> = HashMap::new();
            for _ in 0..3_000 {
                let most = 1 << (1 + rng.below(10));
                let (node, number) = (rng.index(3), rng.below(most));
                let (key, weight) = (format!("key-number-{number}"), 1 + rng.below(9));
                nodes.hit(node, key.as_bytes(), weight);
                hits.entry(key.into_bytes()).or_default()[node] += weight;
            }
            nodes.exchange();
            for (node, count) in [(0, 1), (1, 10), (2, 300)] {
                let found = nodes.ask(node, count, Some(minutes(10)), b"key-");
                let bound = found.most_of_others.expect("all nodes have lists");
                let left_out = hits.iter().filter(|(key, _)| !found.keys.contains(&key[..]));
                let of_others = |(_, of): (&Vec<u8>, &[u64; 3])| of.iter().sum::<u64>() - of[node];
                let most = left_out.map(of_others).max().unwrap_or(0);
                assert!(most <= bound, "seed {seed}: {most} of {bound}");
                // The first keys of one node are among them.
                let first = hits.iter().max_by_key(|(_, of)| of.iter().sum::<u64>()).expect("some");
                assert!(found.keys.contains(&first.0[..]), "seed {seed}");
            }
        }
    }

    #[test]
    fn what_has_no_list_gets_one_when_it_is_asked_for() {
        let mut nodes = Nodes::start(2);
        (0..500).for_each(|number| nodes.hit(1, format!("busy-{number:020}").as_bytes(), 9));
        nodes.hit(1, b"page:/a", 1);
        nodes.exchange();
        assert_eq!(keys(&nodes.ask(0, 5, Some(minutes(1)), b"page:")), [""; 0]);
        nodes.exchange();
        nodes.exchange();
        let found = nodes.ask(0, 5, Some(minutes(1)), b"page:");
        assert_eq!((keys(&found), found.most_of_others), (vec!["page:/a".to_owned()], Some(0)));
        // Nobody asks any more.
        nodes.clock.advance(milliseconds(u64::try_from(BUSY_ASKED_MS).expect("positive")));
        nodes.exchange();
        nodes.exchange();
        let lists = |node: usize| {
            let state = nodes.nodes[node].cluster.as_ref().expect("it is configured").busy.lock();
            state.published.lists.iter().map(|list| list.of.prefix.clone()).collect::<HashSet<_>>()
        };
        assert_eq!((lists(0), lists(1)), (HashSet::from([Box::default()]), HashSet::from([Box::default()])));
    }

    #[test]
    fn hits_of_a_node_that_has_ended_leave_its_lists() {
        let mut nodes = Nodes::start(2);
        nodes.hit(1, b"gone", 5);
        nodes.exchange();
        nodes.nodes.pop();
        nodes.clock.advance(minutes(2));
        nodes.exchange();
        assert_eq!(keys(&nodes.ask(0, 5, Some(minutes(1)), b"")), [""; 0]);
        assert_eq!(keys(&nodes.ask(0, 5, Some(minutes(10)), b"")), ["gone"]);
        // Until none of them count.
        nodes.clock.advance(nodes.nodes[0].config.longest_retention());
        nodes.exchange();
        assert_eq!(block_on(nodes.engine.texts(List::BusyKeys)).expect("it answers").len(), 1);
    }

    #[test]
    fn lists_of_many_nodes_take_bounded_memory() {
        let mut nodes = Nodes::start(1);
        let key = |number: usize| format!("{number:0>1000}").into_bytes().into_boxed_slice();
        let of = Asked { prefix: Box::default(), window_ms: None };
        let keys = (0..500).map(|number| BusyKey(key(number), 1)).collect();
        let list = BusyList { of, keys, others: Some(1) };
        let published = Published { at_ms: START_MS, lists: vec![list], ..Published::default() };
        let text = text_of(&published);
        assert!(text.len() < MAX_BUSY_TEXT_BYTES);
        for node in 0..20 {
            let name = format!("m{node}");
            let stored = nodes.engine.set_text(List::BusyKeys, &name, Some(&text), Duration::from_secs(60));
            block_on(stored).expect("it takes it");
        }
        nodes.exchange();
        let service = &nodes.nodes[0];
        let cluster = service.cluster.as_ref().expect("it is configured");
        let held_bytes = cluster.busy.held_bytes();
        assert!((published.bytes()..=most_bytes(service)).contains(&held_bytes), "{held_bytes}");
        // The lists that were left out may have anything.
        assert_eq!(nodes.ask(0, 5, None, b"").most_of_others, None);
        // They are read the less often the more there is to read.
        let state = cluster.busy.lock();
        assert!(state.engines[0].due_ms - service.now().as_millis() > 10 * BUSY_EVERY_MS);
    }

    #[test]
    fn what_no_node_published_is_left_out() {
        let mut nodes = Nodes::start(1);
        nodes.hit(0, b"a", 1);
        let list = |key: &str| {
            format!("{{\"lists\":[{{\"prefix\":\"\",\"window_ms\":null,\"keys\":[[\"{key}\",5]]}}]}}")
        };
        for (name, text) in [
            ("b", "no JSON".to_owned()),
            ("c\x1b[m", list("c")),
            ("d", list("€")),
            ("e", list("")),
            ("f", list(&"k".repeat(MAX_KEY_BYTES + 1))),
            ("g", "x".repeat(MAX_BUSY_TEXT_BYTES + 1)),
            ("h", "{\"at_ms\":-9223372036854775808}".to_owned()),
        ] {
            block_on(nodes.engine.set_text(List::BusyKeys, name, Some(&text), Duration::from_secs(60)))
                .expect("it takes it");
        }
        assert_eq!(nodes.exchange(), [""; 0]);
        assert_eq!(keys(&nodes.ask(0, 5, None, b"")), ["a"]);
    }
}
