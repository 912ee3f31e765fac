//! The nodes of the cluster: each keeps its status in the engine, and has the last list of all that it read.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lately::{Origin, Timestamp};
use lately_engines::{Engine, EngineError, List, Server};
use serde::{Deserialize, Serialize};

use super::Cluster;
use crate::VERSION;
use crate::limits::{
    MAX_LISTED_NODES, MAX_NODE_STATUS_BYTES, NODE_FORGOTTEN, NODE_SILENT, NODES_EVERY, NODES_RETRY,
};
use crate::service::Service;

/// What a node says of itself, as JSON in the engine. Members of later versions are ignored, missing ones have their
/// defaults.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    /// The origin that it counts under.
    pub(crate) origin: String,
    pub(crate) run_id: String,
    pub(crate) version: String,
    /// When it said so, by its clock.
    pub(crate) seen_ms: i64,
    /// When it last exchanged counts, by its clock.
    pub(crate) reached_ms: Option<i64>,
    /// All hits from before then were sent, by its clock.
    pub(crate) sent_until_ms: Option<i64>,
    /// Keys with counts that others do not have.
    pub(crate) unsent_keys: usize,
    /// Why its last exchange failed.
    pub(crate) failure: Option<String>,
}

/// A node as this one knows it.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) status: Status,
    /// Why its counts may not reach the others, or theirs may not reach it.
    pub(crate) degraded: Option<String>,
}

/// What was last read of all nodes.
#[derive(Default)]
pub(super) struct Nodes {
    list: Mutex<Listed>,
}

#[derive(Default)]
struct Listed {
    nodes: Vec<(String, Status)>,
    /// When the list was read.
    read_ms: Option<i64>,
    /// When it is to be read again.
    due_ms: i64,
    /// Why the engine refused it.
    refused: Option<String>,
    /// The servers of the engine.
    servers: Vec<Server>,
}

impl Nodes {
    fn lock(&self) -> MutexGuard<'_, Listed> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of the nodes on the list, and whether each is silent.
    pub(super) fn seen(&self) -> Vec<(String, bool)> {
        let list = self.lock();
        let node =
            |(name, status): &(String, Status)| (name.clone(), list.silent_ms(status) > millis(NODE_SILENT));
        list.nodes.iter().map(node).collect()
    }
}

impl Listed {
    /// For how long a node has not said anything.
    fn silent_ms(&self, status: &Status) -> i64 {
        self.read_ms.unwrap_or(0).saturating_sub(status.seen_ms)
    }
}

impl Cluster {
    /// When the list of nodes was read, and why the engine refuses it.
    pub(crate) fn list_state(&self) -> (Option<Timestamp>, Option<String>) {
        let list = self.nodes.lock();
        (list.read_ms.and_then(Timestamp::from_millis), list.refused.clone())
    }

    /// Whether an origin is of a node that is not on the list, and that was read just now. A topic of records is no node.
    pub(super) fn is_gone(&self, origin: &Origin, now: Timestamp) -> bool {
        let is_node = self.config.kafka.as_ref().is_none_or(|kafka| kafka.may_be(origin.node()));
        let list = self.nodes.lock();
        let is_new = list.read_ms.is_some_and(|ms| now.as_millis() - ms <= millis(NODE_SILENT));
        is_node
            && is_new
            && list.nodes.len() < MAX_LISTED_NODES
            && list.nodes.iter().all(|(name, _)| name != origin.node())
    }

    /// The servers of the engine, as they were last known.
    pub(crate) fn engine_servers(&self) -> Vec<Server> {
        self.nodes.lock().servers.clone()
    }

    /// All nodes by name. This one is as it is now, the others are as they were last read.
    pub(crate) fn nodes(&self, service: &Service) -> Vec<Node> {
        let own = self.status(service);
        let own_degraded = match (&own.failure, own.reached_ms) {
            (None, None) => Some("the engine was not reached yet".to_owned()),
            (failure, _) => failure.as_ref().map(of_engine),
        };
        let list = self.nodes.lock();
        let others = list.nodes.iter().filter(|(name, _)| *name != self.config.node);
        let mut nodes: Vec<Node> = others
            .map(|(name, status)| {
                let silent_ms = list.silent_ms(status);
                let is_silent = silent_ms > millis(NODE_SILENT);
                let silence = is_silent.then(|| format!("not seen for {} s", silent_ms / 1_000));
                let degraded = silence.or_else(|| status.failure.as_ref().map(of_engine));
                Node { name: name.clone(), status: status.clone(), degraded }
            })
            .collect();
        nodes.push(Node { name: self.config.node.clone(), status: own, degraded: own_degraded });
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        nodes
    }

    fn status(&self, service: &Service) -> Status {
        let state = self.state();
        Status {
            origin: self.outgoing.get().map_or_else(String::new, |outgoing| outgoing.origin().to_string()),
            run_id: service.run_id.clone(),
            version: VERSION.to_owned(),
            seen_ms: service.now().as_millis(),
            reached_ms: state.contact.reached.map(Timestamp::as_millis),
            sent_until_ms: state.sent_until.map(Timestamp::as_millis),
            unsent_keys: service.store.unsent_keys(),
            failure: state.contact.failure,
        }
    }
}

/// The failure of an exchange, as a reason.
fn of_engine(failure: impl std::fmt::Display) -> String {
    format!("engine: {failure}")
}

/// Writes the status of this node and reads those of all, if that is due. Counting does not depend on it: an engine that
/// refuses it is asked again later.
pub(super) async fn renew(
    engine: &mut impl Engine,
    service: &Service,
    cluster: &Cluster,
    tell: &(dyn Fn(&str) + Send + Sync),
) {
    let now_ms = service.now().as_millis();
    if now_ms < cluster.nodes.lock().due_ms {
        return;
    }
    let read = exchange(engine, service, cluster, now_ms).await;
    let servers = engine.servers();
    let mut list = cluster.nodes.lock();
    list.due_ms = now_ms + millis(NODES_EVERY);
    if !servers.is_empty() {
        list.servers = servers;
    }
    match read {
        Ok(nodes) => {
            (list.nodes, list.read_ms, list.refused) = (nodes, Some(now_ms), None);
        }
        // The next exchange of counts reports it.
        Err(EngineError::Away(_)) => {}
        Err(refused) => {
            list.due_ms = now_ms + millis(NODES_RETRY);
            let refused = refused.to_string();
            if list.refused.as_ref() != Some(&refused) {
                tell(&format!("the list of nodes: {refused}: counts are exchanged without it"));
            }
            list.refused = Some(refused);
        }
    }
}

async fn exchange(
    engine: &mut impl Engine,
    service: &Service,
    cluster: &Cluster,
    now_ms: i64,
) -> Result<Vec<(String, Status)>, EngineError> {
    let status = serde_json::to_string(&cluster.status(service)).expect("it has names and numbers");
    engine.set_text(List::Nodes, &cluster.config.node, Some(&status), NODE_FORGOTTEN).await?;
    let (mut nodes, mut forgotten) = (Vec::new(), Vec::new());
    for (name, text) in engine.texts(List::Nodes).await? {
        let Some(status) = read(&name, &text) else { continue };
        // A time far ahead is no time of a node, either.
        let is_over = now_ms.saturating_sub(status.seen_ms).saturating_abs() > millis(NODE_FORGOTTEN);
        if is_over { forgotten.push(name) } else { nodes.push((name, status)) }
    }
    for node in forgotten {
        engine.set_text(List::Nodes, &node, None, NODE_FORGOTTEN).await?;
    }
    nodes.sort_by(|(one, _), (other, _)| one.cmp(other));
    nodes.truncate(MAX_LISTED_NODES);
    Ok(nodes)
}

/// A status that a node wrote; `None` for anything else.
fn read(name: &str, text: &str) -> Option<Status> {
    let is_ours = Origin::new(name, 0).is_some() && text.len() <= MAX_NODE_STATUS_BYTES;
    is_ours.then(|| serde_json::from_str(text).ok()).flatten()
}

/// Takes this node off the list: it stops.
pub(super) async fn leave(engine: &mut impl Engine, cluster: &Cluster) {
    // A node that could not say so is on the list for a while longer.
    let _ = engine.set_text(List::Nodes, &cluster.config.node, None, NODE_FORGOTTEN).await;
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lately::{Clock, ManualClock, Tier, milliseconds};
    use lately_engines::{Block, Known, Memory, OwnedBlock, Place, Told, Write};

    use super::*;
    use crate::config::ClusterConfig;
    use crate::config::Config;

    const START_MS: i64 = 1_700_000_000_000;
    const MILLISECOND: Duration = Duration::from_millis(1);

    fn clock() -> Arc<ManualClock> {
        Arc::new(ManualClock::new(Timestamp::from_millis(START_MS).expect("a time")))
    }

    fn pass(clock: &ManualClock, time: Duration) {
        clock.advance(milliseconds(u64::try_from(time.as_millis()).expect("short")));
    }

    fn service(node: &str, clock: &Arc<ManualClock>) -> Service {
        let cluster = ClusterConfig::new(node, &["redis://:secret@127.0.0.1:1"]).expect("valid");
        let config = Config { cluster: Some(cluster), ..Config::default() };
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
        let service = Service::new(config, clock).expect("valid");
        super::super::start(&service).expect("there is no folder");
        service
    }

    fn cluster(service: &Service) -> &Cluster {
        service.cluster.as_ref().expect("it is configured")
    }

    fn renews(engine: &mut impl Engine, service: &Service) -> Vec<String> {
        let told = Mutex::new(Vec::new());
        let tell = |line: &str| told.lock().expect("one thread").push(line.to_owned());
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(renew(engine, service, cluster(service), &tell));
        told.into_inner().expect("one thread")
    }

    /// Each node with why it is degraded.
    fn listed(service: &Service) -> Vec<String> {
        let nodes = cluster(service).nodes(service).into_iter();
        nodes
            .map(|node| format!("{}: {}", node.name, node.degraded.unwrap_or_else(|| "ok".to_owned())))
            .collect()
    }

    fn reached(service: &Service) {
        let now = service.now();
        cluster(service).set_state(|state| _ = state.contact.note(None, Tier::Local, now));
    }

    #[test]
    fn nodes_list_each_other_and_forget_who_is_gone() {
        let (clock, mut engine) = (clock(), Memory::default());
        let (one, other) = (service("b", &clock), service("a", &clock));
        assert_eq!(listed(&one), ["b: the engine was not reached yet"]);
        reached(&one);
        cluster(&other).set_state(|state| state.contact.failure = Some("it answered: OOM".to_owned()));
        renews(&mut engine, &other);
        renews(&mut engine, &one);
        assert_eq!(listed(&one), ["a: engine: it answered: OOM", "b: ok"]);
        reached(&other);
        // The list is not read before it is due.
        pass(&clock, NODES_EVERY - MILLISECOND);
        renews(&mut engine, &other);
        assert_eq!(listed(&one)[0], "a: engine: it answered: OOM");
        pass(&clock, MILLISECOND);
        renews(&mut engine, &other);
        renews(&mut engine, &one);
        assert_eq!(listed(&one), ["a: ok", "b: ok"]);
        let node = cluster(&one).nodes(&one).swap_remove(0);
        assert_eq!(node.status.origin, format!("a.{START_MS}"));
        assert_eq!((node.status.run_id, node.status.version.as_str()), (other.run_id.clone(), VERSION));
        // The first is silent from now on.
        pass(&clock, NODE_SILENT);
        renews(&mut engine, &one);
        assert_eq!(listed(&one)[0], "a: ok");
        pass(&clock, NODES_EVERY);
        // Who has not read the list does not know.
        assert_eq!(listed(&one)[0], "a: ok");
        renews(&mut engine, &one);
        assert_eq!(listed(&one)[0], "a: not seen for 12 s");
        pass(&clock, NODE_FORGOTTEN - NODE_SILENT - NODES_EVERY);
        renews(&mut engine, &one);
        assert_eq!(listed(&one)[0], "a: not seen for 3600 s");
        pass(&clock, NODES_EVERY);
        renews(&mut engine, &one);
        assert_eq!(listed(&one), ["b: ok"]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let left = runtime.block_on(engine.texts(List::Nodes)).expect("it answers");
        assert_eq!(left.len(), 1);
        runtime.block_on(leave(&mut engine, cluster(&one)));
        assert_eq!(runtime.block_on(engine.texts(List::Nodes)).expect("it answers"), []);
    }

    #[test]
    fn what_no_node_wrote_is_not_listed() {
        let (clock, mut engine) = (clock(), Memory::default());
        let one = service("m", &clock);
        reached(&one);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let status = |bytes: usize| {
            let text = format!("{{\"seen_ms\":{START_MS},\"later\":[1],\"version\":\"\"}}");
            text.replace("\"\"", &format!("\"{}\"", "v".repeat(bytes - text.len())))
        };
        let longest = status(MAX_NODE_STATUS_BYTES);
        assert_eq!(longest.len(), MAX_NODE_STATUS_BYTES);
        let too_long = status(MAX_NODE_STATUS_BYTES + 1);
        for (node, status) in [
            ("a", "no JSON"),
            ("b", "[]"),
            ("c\x1b[m", "{}"),
            ("d", &longest),
            ("e", &too_long),
            ("f", "7"),
            ("g", "{\"seen_ms\":-9223372036854775808}"),
            ("h", "{\"seen_ms\":9223372036854775807}"),
        ] {
            runtime
                .block_on(engine.set_text(List::Nodes, node, Some(status), NODE_FORGOTTEN))
                .expect("it takes it");
        }
        renews(&mut engine, &one);
        assert_eq!(listed(&one), ["d: ok", "m: ok"]);
        let status = format!("{{\"seen_ms\":{START_MS}}}");
        for node in 0..=MAX_LISTED_NODES {
            let name = format!("n{node}");
            runtime
                .block_on(engine.set_text(List::Nodes, &name, Some(&status), NODE_FORGOTTEN))
                .expect("it takes it");
        }
        pass(&clock, NODES_EVERY);
        renews(&mut engine, &one);
        assert_eq!(listed(&one).len(), MAX_LISTED_NODES);
    }

    /// An engine that refuses the list.
    struct Refusing;

    impl Engine for Refusing {
        async fn send(&mut self, _: &[Write<'_>]) -> Result<(), EngineError> {
            Ok(())
        }
        async fn claim(
            &mut self,
            _: &str,
            _: &str,
            _: &(dyn Fn(&str) -> bool + Sync),
            _: Duration,
        ) -> Result<Option<String>, EngineError> {
            Ok(None)
        }
        async fn set_text(
            &mut self,
            _: List,
            _: &str,
            _: Option<&str>,
            _: Duration,
        ) -> Result<(), EngineError> {
            Err(EngineError::Full { server: "redis:6379".to_owned() })
        }
        async fn texts(&mut self, _: List) -> Result<Vec<(String, String)>, EngineError> {
            Ok(Vec::new())
        }
        fn life(&self) -> u64 {
            0
        }
        async fn read(&mut self, _: &[Block<'_>]) -> Result<Vec<Told>, EngineError> {
            Ok(Vec::<Vec<Known>>::new())
        }
        async fn note_changed(&mut self, _: &[Block<'_>]) -> Result<(), EngineError> {
            Ok(())
        }
        async fn take_changed(&mut self, _: usize) -> Result<Vec<OwnedBlock>, EngineError> {
            Ok(Vec::new())
        }
        async fn changed(&mut self) -> Result<usize, EngineError> {
            Ok(0)
        }
        async fn scan(
            &mut self,
            _: Option<&Place>,
            _: usize,
        ) -> Result<(Vec<OwnedBlock>, Option<Place>), EngineError> {
            Ok((Vec::new(), None))
        }
    }

    #[test]
    fn an_engine_that_refuses_the_list_is_logged_once_and_asked_again() {
        let clock = clock();
        let one = service("a", &clock);
        reached(&one);
        let logged = [
            "the list of nodes: redis:6379 is out of memory: raise its maxmemory: counts are exchanged without it",
        ];
        assert_eq!(renews(&mut Refusing, &one), logged);
        assert_eq!(
            cluster(&one).list_state(),
            (None, Some("redis:6379 is out of memory: raise its maxmemory".to_owned()))
        );
        pass(&clock, NODES_RETRY - MILLISECOND);
        renews(&mut Memory::default(), &one);
        assert!(cluster(&one).list_state().1.is_some(), "it is not due");
        pass(&clock, MILLISECOND);
        assert_eq!(renews(&mut Refusing, &one), [""; 0]);
        pass(&clock, NODES_RETRY);
        renews(&mut Memory::default(), &one);
        assert_eq!(cluster(&one).list_state(), (Some(one.now()), None));
    }
}
