//! The way to the owner of other keys: what is asked meanwhile travels together.

use std::convert::Infallible;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hyper::http::uri::Authority;
use lately_engines::{PeerTls, call_node, connect_node, reason};
use tokio::sync::Notify;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::transport::Channel;

use super::wire::{Answer, Ask, DECIDE, DecideRequest, DecideResponse, PROTOCOL};
use crate::limits::{MAX_ASKED, OWNER_ASKS, OWNER_RETRY, OWNER_TIMEOUT};
use crate::log::Log;
use crate::service::cluster::Wait;
use crate::service::{Service, Stats};

/// A request that the owner of its key decides.
pub(crate) struct Asked {
    pub(super) ask: Ask,
    wait: Arc<Wait>,
    /// The answer. `None` if the owner is away.
    answer: OnceLock<Option<Answer>>,
}

/// The way to a node.
pub(crate) struct Link {
    pub(crate) node: String,
    address: Authority,
    /// A hash of the names of all owners.
    owners: u64,
    tls: Option<PeerTls>,
    queue: Mutex<Vec<Arc<Asked>>>,
    /// Notified when something was asked.
    more: Notify,
    is_reached: AtomicBool,
}

impl Asked {
    /// What waits for the answer.
    pub(crate) fn wait(&self) -> &Arc<Wait> {
        &self.wait
    }

    /// The answer. `None` if there is none: the owner is away, or has not answered in time.
    pub(super) fn answer(&self) -> Option<&Answer> {
        self.answer.get()?.as_ref()
    }

    /// Whether it asks for this.
    pub(crate) fn is_of(&self, ask: &Ask) -> bool {
        self.ask == *ask
    }

    /// Its memory, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Asked>() + self.ask.heap_bytes()
    }

    fn end(&self, answer: Option<Answer>) {
        let _ = self.answer.set(answer);
        self.wait.done();
    }
}

impl Link {
    pub(super) fn new((node, address): (&str, &Authority), owners: u64, tls: Option<&PeerTls>) -> Arc<Link> {
        Arc::new(Link {
            node: node.to_owned(),
            address: address.clone(),
            owners,
            tls: tls.cloned(),
            queue: Mutex::default(),
            more: Notify::new(),
            is_reached: AtomicBool::new(false),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Vec<Arc<Asked>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the node was reached last.
    pub(crate) fn is_reached(&self) -> bool {
        self.is_reached.load(Acquire)
    }

    /// Asks the node. While it is not reached, the answer is there at once: none.
    pub(crate) fn ask(&self, ask: Ask) -> Arc<Asked> {
        let asked = Arc::new(Asked { ask, wait: Wait::new(), answer: OnceLock::new() });
        let mut queue = self.queue();
        if self.is_reached() && queue.len() < MAX_ASKED {
            queue.push(Arc::clone(&asked));
            drop(queue);
            self.more.notify_one();
        } else {
            asked.end(None);
        }
        asked
    }

    /// Takes the first of what was asked.
    fn next(&self, most: usize) -> Vec<Arc<Asked>> {
        let mut queue = self.queue();
        let count = queue.len().min(most);
        queue.drain(..count).collect()
    }

    /// Keeps a connection to the node, and asks it, as long as it is polled.
    pub(super) async fn keep(&self, service: &Service, tell: &Log) {
        let name = format!("node {} at {}", self.node, self.address);
        // What the log says last.
        let mut was_reached = None;
        loop {
            let reached = || {
                if was_reached.replace(true) == Some(false) {
                    tell(&format!(
                        "{name}: it decides the exact limits of its keys, and counts their hits with ids, again"
                    ));
                }
            };
            let Err(failure) = self.exchange(service, reached).await;
            self.is_reached.store(false, Release);
            // Nothing more comes into the queue.
            self.next(usize::MAX).iter().for_each(|asked| asked.end(None));
            service.wake();
            if was_reached.replace(false) != Some(false) {
                tell(&format!(
                    "{name}: {failure}: it does not decide the exact limits of its keys, and their on_owner_down holds; hits on \
                     them with an id are refused"
                ));
            }
            crate::pause::pause(OWNER_RETRY).await;
        }
    }

    /// Connects, and asks until something fails. Returns what.
    async fn exchange(&self, service: &Service, reached: impl FnOnce()) -> Result<Infallible, String> {
        let mut grpc = Grpc::new(connect_node(&self.address, self.tls.as_ref()).await?);
        // An empty request says whether it is the owner that this node takes it for.
        self.call(&mut grpc, &[]).await?;
        self.is_reached.store(true, Release);
        reached();
        loop {
            let asked = self.next(OWNER_ASKS);
            if asked.is_empty() && timeout(OWNER_TIMEOUT, self.more.notified()).await.is_ok() {
                continue;
            }
            // A node that was asked nothing for a while is called, too: its end is noticed before somebody waits for it.
            match self.call(&mut grpc, &asked).await {
                Ok(answers) if answers.is_empty() => {}
                Ok(answers) => {
                    Stats::add(&service.stats.asked_owners, answers.len() as u64);
                    asked.iter().zip(answers).for_each(|(asked, answer)| asked.end(Some(answer)));
                    service.wake();
                }
                Err(failure) => {
                    asked.iter().for_each(|asked| asked.end(None));
                    return Err(failure);
                }
            }
        }
    }

    /// Has the node decide these requests.
    async fn call(&self, grpc: &mut Grpc<Channel>, asked: &[Arc<Asked>]) -> Result<Vec<Answer>, String> {
        let request = DecideRequest {
            protocol: PROTOCOL,
            owner: self.node.clone(),
            owners: self.owners,
            asks: asked.iter().map(|asked| asked.ask.clone()).collect(),
        };
        let answered = call_node(grpc, DECIDE, request, OWNER_TIMEOUT).await;
        let DecideResponse { answers } = answered.map_err(|status| reason(&status))?;
        if answers.len() == asked.len() {
            Ok(answers)
        } else {
            Err("it has not answered all requests".to_owned())
        }
    }
}
