//! The way to the owner of other keys: what is asked meanwhile travels together.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hyper::http::uri::{Authority, PathAndQuery};
use lately_engines::{PeerTls, connect_node};
use tokio::sync::Notify;
use tokio::time::timeout;
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use super::wire::{Answer, Ask, DECIDE, DecideRequest, DecideResponse, PROTOCOL};
use crate::limits::{MAX_ASKED, OWNER_ASKS, OWNER_RETRY, OWNER_TIMEOUT};
use crate::log::Log;
use crate::service::cluster::Wait;
use crate::service::{NamedRequest, Service, Stats};

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

    /// Whether it asks for the same.
    pub(crate) fn is_of(&self, request: &NamedRequest<'_>) -> bool {
        self.ask.is_of(request)
    }

    /// Its memory, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Asked>() + self.ask.key.len() + self.ask.limit.len()
    }

    fn end(&self, answer: Option<Answer>) {
        let _ = self.answer.set(answer);
        self.wait.done();
    }
}

impl Link {
    pub(super) fn new(node: &str, address: &Authority) -> Arc<Link> {
        Arc::new(Link {
            node: node.to_owned(),
            address: address.clone(),
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
    pub(super) fn ask(&self, request: &NamedRequest<'_>, wants_more: bool) -> Arc<Asked> {
        let asked = Arc::new(Asked {
            ask: Ask::new(request, wants_more),
            wait: Wait::new(),
            answer: OnceLock::new(),
        });
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

    /// Takes some of what was asked, in its order.
    fn next(&self) -> Vec<Arc<Asked>> {
        let mut queue = self.queue();
        let count = queue.len().min(OWNER_ASKS);
        queue.drain(..count).collect()
    }

    /// Keeps a connection to the node, and asks it, as long as it is polled.
    pub(super) async fn keep(
        self: Arc<Link>,
        (owners, tls): (u64, Option<PeerTls>),
        service: Arc<Service>,
        tell: Log,
    ) {
        let mut was_reached = None;
        loop {
            let failure = match connect_node(&self.address, tls.as_ref()).await {
                Err(failure) => failure,
                Ok(channel) => {
                    // An empty request says whether it is the owner that this node takes it for.
                    let mut grpc = Grpc::new(channel);
                    match call(&mut grpc, self.request(owners, &[])).await {
                        Err(failure) => failure,
                        Ok(_) => {
                            self.is_reached.store(true, Release);
                            if was_reached == Some(false) {
                                tell(&format!(
                                    "{}: it decides the exact limits of its keys again",
                                    self.name()
                                ));
                            }
                            was_reached = Some(true);
                            self.exchange(&mut grpc, owners, &service).await
                        }
                    }
                }
            };
            self.is_reached.store(false, Release);
            // What was asked before that is in the queue, and nothing more comes.
            self.next_all().iter().for_each(|asked| asked.end(None));
            service.wake();
            if was_reached != Some(false) {
                tell(&format!(
                    "{}: {failure}: it does not decide the exact limits of its keys, and their on_owner_down holds",
                    self.name()
                ));
            }
            was_reached = Some(false);
            crate::protocol::pause(OWNER_RETRY).await;
        }
    }

    fn name(&self) -> String {
        format!("node {} at {}", self.node, self.address)
    }

    fn next_all(&self) -> Vec<Arc<Asked>> {
        std::mem::take(&mut *self.queue())
    }

    fn request(&self, owners: u64, asked: &[Arc<Asked>]) -> DecideRequest {
        DecideRequest {
            protocol: PROTOCOL,
            owner: self.node.clone(),
            owners,
            asks: asked.iter().map(|asked| asked.ask.clone()).collect(),
        }
    }

    /// Asks until something fails. Returns what.
    async fn exchange(&self, grpc: &mut Grpc<Channel>, owners: u64, service: &Service) -> String {
        loop {
            let asked = self.next();
            if asked.is_empty() {
                // A node that is silent for long is asked, so that its end is noticed before somebody waits for it.
                if timeout(OWNER_TIMEOUT, self.more.notified()).await.is_err()
                    && let Err(failure) = call(grpc, self.request(owners, &[])).await
                {
                    return failure;
                }
                continue;
            }
            let answered = call(grpc, self.request(owners, &asked)).await;
            let (answers, failure) = match answered {
                Ok(response) if response.answers.len() == asked.len() => (response.answers, None),
                Ok(_) => (Vec::new(), Some("it has not answered all requests".to_owned())),
                Err(failure) => (Vec::new(), Some(failure)),
            };
            if failure.is_some() {
                // Nothing waits for it from here on.
                self.is_reached.store(false, Release);
            }
            Stats::add(&service.stats.asked_owners, answers.len() as u64);
            let mut answers = answers.into_iter();
            asked.iter().for_each(|asked| asked.end(answers.next()));
            service.wake();
            if let Some(failure) = failure {
                return failure;
            }
        }
    }
}

async fn call(grpc: &mut Grpc<Channel>, request: DecideRequest) -> Result<DecideResponse, String> {
    let codec = ProstCodec::<DecideRequest, DecideResponse>::default();
    let called = timeout(OWNER_TIMEOUT, async {
        grpc.ready().await.map_err(|error| error.to_string())?;
        let answered = grpc.unary(Request::new(request), PathAndQuery::from_static(DECIDE), codec).await;
        answered.map_err(|status| status.message().to_owned())
    });
    let answered = called.await.map_err(|_| format!("no answer within {} ms", OWNER_TIMEOUT.as_millis()))?;
    Ok(answered?.into_inner())
}
