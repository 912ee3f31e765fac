//! The server as a whole: it binds, loads, serves and stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use lately::{Clock, Cursor, MemoryStats};
use lately_engines::{EngineError, PeerTlsError, Remote};
use lately_journal::{Folder, Journal, JournalError, Loss};
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::MissedTickBehavior;

use crate::alerting;
use crate::config::{Alert, Config, FileError, HistoryLogin, NamedLimit};
use crate::history;
use crate::limits::{CLOCK_STEP_MS, LISTEN_BACKLOG, PROGRESS_EVERY, READY_WITHIN, SWEEP_EVERY, WATCH_EVERY};
use crate::log::Log;
use crate::otlp;
use crate::pause::pause;
use crate::protocol;
use crate::protocol::http::Speaks;
use crate::protocol::resp::Resp;
use crate::reload::{self, Live, Reload, Reloader};
use crate::rule_reload::RuleReload;
use crate::service::Fragmentation;
use crate::service::Service;
use crate::service::cluster::{self, ClusterError, Signals, former_node};
use crate::service::owners;
use crate::service::users::CurrentUsers;
use crate::stopper::Stopper;
use crate::tls::CurrentTls;
use crate::watch::Watch;

/// Why a server did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// An address cannot be bound.
    #[error("cannot listen on {address} for {what}: {error}")]
    Bind {
        /// `RESP`, `HTTP`, `gRPC` or `metrics`.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// A file of a password, a certificate or a key cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// An address beyond loopback, without users and without `insecure`.
    #[error(
        "refusing to listen on {address} for {what}: there are no users, anybody who reaches it could count, read and delete"
    )]
    Exposed {
        /// `RESP`, `HTTP` or `gRPC`.
        what: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// Two listeners at one address.
    #[error("{what} and {other} cannot both listen on {address}: give each its own port")]
    SameAddress {
        /// `RESP`, `HTTP` or `gRPC`.
        what: &'static str,
        /// `HTTP`, `gRPC` or `metrics`.
        other: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// The settings are invalid.
    #[error(transparent)]
    Settings(#[from] lately::SettingsError),
    /// The data folder cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Loading panicked.
    #[error("the counts cannot be loaded because of a bug: {what}")]
    Bug {
        /// The message of the panic.
        what: String,
    },
    /// The server cannot count together with others.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A file of TLS between nodes cannot be used.
    #[error(transparent)]
    PeerTls(#[from] PeerTlsError),
    /// A listener for other nodes beyond loopback, without TLS and without `insecure`.
    #[error(
        "refusing to listen on {address} for other nodes: there is no TLS between nodes, anybody who reaches it could change all counts"
    )]
    ExposedPeer {
        /// The address.
        address: SocketAddr,
    },
    /// An exact limit cannot be decided.
    #[error("limit '{limit}': exact = true {why}")]
    Exact {
        /// Its name.
        limit: String,
        /// Why.
        why: &'static str,
    },
    /// The last changes could not be synced at the stop.
    #[error("the last counts may not survive a loss of power: {0}")]
    Close(std::io::Error),
}

/// A server whose listeners are bound.
pub struct Server {
    service: Arc<Service>,
    resp: Resp,
    http: TcpListener,
    grpc: TcpListener,
    metrics: Option<TcpListener>,
    exchange: Option<Exchange>,
    /// The listener for nodes that ask for exact limits, unless that for peers is theirs.
    owners: Option<TcpListener>,
    tls: Option<Arc<CurrentTls>>,
    stopper: Stopper,
    source: Option<Reload>,
    rule_reload: Option<RuleReload>,
    reloader: Reloader,
    folder: Option<Folder>,
    tell: Log,
    ready: Ready,
}

/// Called when the server is ready for clients.
type Ready = Box<dyn FnOnce() + Send>;

impl Server {
    /// Binds the listeners and locks the data folder. Connections queue from here on; [`Server::run`] serves them.
    ///
    /// # Errors
    /// [`ServerError`] when the folder is in use, or an address cannot be bound or is not allowed.
    pub async fn bind(mut config: Config, clock: Arc<dyn Clock>) -> Result<Server, ServerError> {
        check_addresses(&config)?;
        check_exact(&config.limits, &config)?;
        // Before the files are read: a change from here on is found.
        let source = config.source.take().map(Reload::new);
        let rule_reload = config.rule_folder.clone().map(RuleReload::new);
        let tls = config.tls.as_ref().map(CurrentTls::new).transpose()?.map(Arc::new);
        let users = CurrentUsers::new(&config.users);
        users.replace(users.load(&config.users)?);
        check_secrets(&config.alerts)?;
        config.histories.iter().filter_map(|history| history.login.as_ref()).try_for_each(check_login)?;
        let resp = listen(RESP, config.resp)?;
        let http = listen(HTTP, config.http)?;
        let grpc = listen(GRPC, config.grpc)?;
        let metrics = config.metrics.map(|address| listen(METRICS, address)).transpose()?;
        // Opened last: a refused start leaves no folder behind.
        let folder = config.storage.as_ref().map(|storage| Folder::open(&storage.path)).transpose()?;
        // From here on the config has the bound addresses: port 0 became a real port.
        config.resp = address_of(&resp, config.resp);
        config.http = address_of(&http, config.http);
        config.grpc = address_of(&grpc, config.grpc);
        config.metrics = metrics.as_ref().zip(config.metrics).map(|(it, asked)| address_of(it, asked));
        let address = config.resp;
        let reloader = Reloader::default();
        let peers = peer_address(&config).map(|address| listen(PEERS, address)).transpose()?;
        if let (Some(listener), Some(address)) = (&peers, peer_address_mut(&mut config)) {
            *address = address_of(listener, *address);
        }
        let mut service = Service::new(config, clock)?;
        service.users = users;
        let service = Arc::new(service);
        cluster::start(&service)?;
        // The nodes of a mesh reach each other for their counts anyway.
        let is_mesh = service.cluster.as_ref().is_some_and(|cluster| cluster.config.is_mesh());
        let (peers, owners) = if is_mesh { (peers, None) } else { (None, peers) };
        let exchange = Exchange::new(&service, peers)?;
        let stopper = Stopper::new();
        let resp = Resp::new(resp, Arc::clone(&service), tls.clone(), stopper.clone())
            .map_err(|error| ServerError::Bind { what: "RESP", address, error })?;
        let (tell, ready): (Log, Ready) = (Arc::new(|_: &str| ()), Box::new(|| ()));
        Ok(Server {
            service,
            resp,
            http,
            grpc,
            metrics,
            exchange,
            owners,
            tls,
            stopper,
            source,
            rule_reload,
            reloader,
            folder,
            tell,
            ready,
        })
    }

    /// The address of the RESP listener.
    #[must_use]
    pub fn resp_address(&self) -> SocketAddr {
        self.service.config.resp
    }

    /// The address of the HTTP listener.
    #[must_use]
    pub fn http_address(&self) -> SocketAddr {
        self.service.config.http
    }

    /// The address of the gRPC listener.
    #[must_use]
    pub fn grpc_address(&self) -> SocketAddr {
        self.service.config.grpc
    }

    /// The address of the listener for health and metrics, if there is one.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.service.config.metrics
    }

    /// The address of the listener for other nodes, if there is one.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        peer_address(&self.service.config)
    }

    /// A handle that stops the server.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// A handle that makes the server reload its config file.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Sets the function that gets each log line, such as: the system clock was set, keys were evicted, the config was
    /// reloaded.
    #[must_use]
    pub fn log_to(self, tell: impl Fn(&str) + Send + Sync + 'static) -> Server {
        Server { tell: Arc::new(tell), ..self }
    }

    /// Sets the function that is called when all counts are loaded, or after [`READY_WITHIN`]. Until all are loaded,
    /// commands for keys get `LOADING`.
    #[must_use]
    pub fn when_ready(self, ready: impl FnOnce() + Send + 'static) -> Server {
        Server { ready: Box::new(ready), ..self }
    }

    /// Serves until the stop. Returns when all clients are answered and all counts are on the disk.
    ///
    /// # Errors
    /// [`ServerError`] when the data folder cannot be loaded, or the last counts cannot be synced.
    pub async fn run(self) -> Result<(), ServerError> {
        let Server {
            service,
            resp,
            http,
            grpc,
            metrics,
            exchange,
            owners,
            tls,
            stopper,
            source,
            rule_reload,
            reloader,
            folder,
            tell,
            ready,
        } = self;
        let reload = {
            let tell = Arc::clone(&tell);
            let live = Live { service: Arc::clone(&service), tls: tls.clone() };
            reload::keep(live, (source, rule_reload), (reloader, stopper.clone()), move |news| tell(news))
        };
        let drained = Stopper::new();
        let cluster = exchange.map(|exchange| exchange.start(&service, &stopper, &drained, &tell));
        let owners = owners::keep(Arc::clone(&service), owners, drained.clone(), Arc::clone(&tell));
        let owners = tokio::spawn(owners);
        let tend = tend(Arc::clone(&service), stopper.clone(), Arc::clone(&tell));
        let resp = tokio::spawn(resp.serve());
        let all = protocol::http::all(Arc::clone(&service), stopper.clone());
        let http = (http, Speaks::Http, Arc::clone(&service));
        let http = tokio::spawn(protocol::http::serve(http, all, tls.clone(), stopper.clone()));
        let methods = protocol::grpc::routes(Arc::clone(&service), stopper.clone());
        let grpc = (grpc, Speaks::Grpc, Arc::clone(&service));
        let grpc = tokio::spawn(protocol::http::serve(grpc, methods, tls, stopper.clone()));
        let watching = protocol::http::watching(Arc::clone(&service));
        let metrics = metrics
            .map(|listener| (listener, Speaks::Http, Arc::clone(&service)))
            .map(|listener| tokio::spawn(protocol::http::serve(listener, watching, None, stopper.clone())));
        let tend = tokio::spawn(tend);
        let alerting = tokio::spawn(alerting::keep(Arc::clone(&service), stopper.clone(), Arc::clone(&tell)));
        let otlp = tokio::spawn(otlp::keep(Arc::clone(&service), stopper.clone(), Arc::clone(&tell)));
        let history = tokio::spawn(history::keep(Arc::clone(&service), stopper.clone(), Arc::clone(&tell)));
        let reload = tokio::spawn(reload);
        let loaded = match folder {
            Some(folder) => load(&service, folder, &stopper, &tell, ready).await,
            None => {
                ready();
                Ok(Vec::new())
            }
        };
        if loaded.is_err() {
            stopper.stop();
        }
        // A panic of a task has been reported. Wait for the others all the same.
        let _ = tokio::join!(resp, http, grpc, tend, reload, alerting, otlp, history);
        if let Some(metrics) = metrics {
            let _ = metrics.await;
        }
        drained.stop();
        let _ = owners.await;
        let exchanged = tokio::task::spawn_blocking(move || join_exchange(cluster.unwrap_or_default()))
            .await
            .expect("it only waits");
        close(&service, loaded?).await?;
        Ok(exchanged?)
    }
}

/// The threads that exchange counts with other nodes.
type Threads = Vec<JoinHandle<Result<(), ClusterError>>>;

/// The exchange with other nodes, before it starts.
struct Exchange {
    engine: Remote,
    /// The listener for the other nodes of a mesh.
    peers: Option<std::net::TcpListener>,
}

impl Exchange {
    /// `None` if there are no other nodes.
    fn new(service: &Arc<Service>, peers: Option<TcpListener>) -> Result<Option<Exchange>, ServerError> {
        let Some(cluster) = &service.cluster else { return Ok(None) };
        let engine = cluster::engine(service, cluster).map_err(|error| match error {
            EngineError::Tls(error) => ServerError::PeerTls(error),
            _ => unreachable!("the config was checked"),
        })?;
        let bound = |error| ServerError::Bind { what: PEERS, address: service.config.resp, error };
        let peers = peers.map(TcpListener::into_std).transpose().map_err(bound)?;
        Ok(Some(Exchange { engine, peers }))
    }

    /// Starts it, on a thread for each engine, and one for the connections of a mesh.
    fn start(self, service: &Arc<Service>, stopper: &Stopper, drained: &Stopper, tell: &Log) -> Threads {
        let Exchange { engine, peers } = self;
        // The upstream engine gets what was sent last, and so do the other nodes of a mesh.
        let exchanged = Stopper::new();
        let signals = |drained: &Stopper| Signals {
            stopper: stopper.clone(),
            drained: drained.clone(),
            tell: Arc::clone(tell),
        };
        let network = match (&engine, peers) {
            (Remote::Peers(peers), Some(listener)) => Some((peers.network(), listener)),
            _ => None,
        };
        let more = service.owners.is_some().then(|| owners::methods(service));
        let network = network.map(|(network, listener)| {
            let (exchanged, tell) = (exchanged.clone(), Arc::clone(tell));
            start_thread("lately-peers", move || async move {
                tokio::select! {
                    Err(error) = network.run(listener, more) => tell(&format!("no node can reach this one: {error}")),
                    () = exchanged.stopped() => {}
                }
                Ok(())
            })
        });
        let has_upstream = service.cluster.as_ref().is_some_and(|cluster| cluster.upstream.is_some());
        let upstream = has_upstream.then(|| {
            let (service, signals) = (Arc::clone(service), signals(&exchanged));
            start_thread("lately-upstream", move || cluster::run_upstream(service, signals))
        });
        let (service, signals) = (Arc::clone(service), signals(drained));
        let local = start_thread("lately-cluster", move || async move {
            let _stops = StopOnDrop(exchanged);
            cluster::run(service, engine, signals).await
        });
        [local].into_iter().chain(upstream).chain(network).collect()
    }
}

/// Stops something at the end of a thread, also when it panics.
struct StopOnDrop(Stopper);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn start_thread<W>(name: &str, work: impl FnOnce() -> W + Send + 'static) -> JoinHandle<W::Output>
where
    W: Future,
    W::Output: Send + 'static,
{
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("the system gives an event queue").block_on(work())
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run).expect("the system gives a thread")
}

/// Waits until the exchange has ended. A panic has been reported.
fn join_exchange(exchange: Threads) -> Result<(), ClusterError> {
    exchange.into_iter().map(|thread| thread.join().unwrap_or(Ok(()))).fold(Ok(()), Result::and)
}

/// Loads the data folder, and starts the threads of the journal. Returns early when the server stops.
async fn load(
    service: &Arc<Service>,
    folder: Folder,
    stopper: &Stopper,
    tell: &Log,
    ready: Ready,
) -> Result<Vec<JoinHandle<()>>, ServerError> {
    let Some(storage) = service.config.storage.clone() else { return Ok(Vec::new()) };
    let path = storage.path.display().to_string();
    let is_alone = service.cluster.is_none();
    let former_node = is_alone.then(|| former_node(&storage.path)).flatten();
    if let Some(mode) = folder.mode_for_others() {
        tell(&exposure(&path, mode));
    }
    let mut loading = {
        let service = Arc::clone(service);
        // Much of the program was for the start. What is loaded takes its place.
        lately::give_program_back();
        tokio::task::spawn_blocking(move || service.load(folder, &storage))
    };
    let mut ready = Some(ready);
    let mut waited = READY_WITHIN;
    let loaded = loop {
        tokio::select! {
            loaded = &mut loading => break loaded,
            () = stopper.stopped() => return Ok(Vec::new()),
            () = pause(waited) => {
                if let Some(ready) = ready.take() {
                    ready();
                }
                waited = PROGRESS_EVERY;
                let (done_bytes, total_bytes) = service.progress.bytes();
                let (percent, mib) = (done_bytes * 100 / total_bytes.max(1), total_bytes >> 20);
                tell(&format!("loading {path}: {percent} % of {mib} MiB"));
            }
        }
    };
    let (loaded, journal) = loaded.map_err(|panic| ServerError::Bug { what: panic.to_string() })??;
    service.loaded(journal);
    loaded.losses.iter().for_each(|loss| tell(&loss.to_string()));
    if !is_alone && loaded.losses.iter().any(Loss::has_hits) {
        tell(
            "the other nodes may still count hits that are lost here: this node answers too little for them. To have them again, stop it and start it with an empty data folder",
        );
    }
    if loaded.bytes > 0 {
        let keys = if loaded.keys == 1 { "key" } else { "keys" };
        tell(&format!("{} {keys} loaded from {path}", loaded.keys));
    }
    if let Some(node) = former_node {
        tell(&format!(
            "this is the data folder of node '{node}', and there is no [cluster]: the other nodes keep hits that are deleted or refunded here"
        ));
    }
    remarks(service).iter().for_each(|remark| tell(remark));
    let threads = service.start_journal_threads().map_err(ServerError::Close)?;
    if let Some(ready) = ready {
        ready();
    }
    Ok(threads)
}

/// The warning that other users can enter the data folder, by its mode.
fn exposure(path: &str, mode: u32) -> String {
    // To add or remove a file takes write and search permission. In a sticky folder only owners remove.
    let may_write = [0o030, 0o003].iter().any(|bits| mode & bits == *bits);
    let can = match (may_write, mode & 0o1000 == 0) {
        (true, true) => "remove and replace its files",
        (true, false) => "add files to it",
        (false, _) => "list its files, but not read counts",
    };
    format!("{path} has mode {mode:o}: other users can {can}: chmod 700 it")
}

/// Log lines about the loaded counts.
fn remarks(service: &Service) -> Vec<String> {
    let mut remarks = Vec::new();
    let MemoryStats { evicted_keys, ceiling_bytes, used_bytes, .. } = service.memory();
    let ceiling_bytes = ceiling_bytes.unwrap_or(u64::MAX);
    if used_bytes > ceiling_bytes {
        remarks.push(format!(
            "the keys take {used_bytes} bytes, more than the memory ceiling of {ceiling_bytes}: \
             they are kept because their limits are in force; new keys are refused"
        ));
    }
    if evicted_keys > 0 {
        remarks.push(format!(
            "{evicted_keys} keys were left out: the memory ceiling of {ceiling_bytes} bytes has no room for them"
        ));
    }
    let ahead_ms = -service.clock_step_ms();
    if ahead_ms > CLOCK_STEP_MS {
        let ahead_s = ahead_ms / 1_000;
        remarks.push(format!(
            "the newest hit is {ahead_s} s ahead of the system clock, which was set back or is wrong: \
             the server's clock goes on from that hit, 5 % slower until both agree"
        ));
    }
    remarks
}

/// Syncs all counts to the disk, and joins the threads of the journal.
async fn close(service: &Arc<Service>, threads: Vec<JoinHandle<()>>) -> Result<(), ServerError> {
    let service = Arc::clone(service);
    let closed = tokio::task::spawn_blocking(move || {
        let closed = service.journal().map_or(Ok(()), Journal::close);
        for thread in threads {
            // A panic has been reported.
            let _ = thread.join();
        }
        closed
    });
    closed.await.expect("a panic is a bug that has been reported").map_err(ServerError::Close)
}

/// Checks the addresses of a config, without binding them.
///
/// # Errors
/// [`ServerError::Exposed`]: RESP, HTTP or gRPC would listen beyond loopback without users and without `insecure`. The listener for metrics
/// may, because it neither reads keys nor changes anything. [`ServerError::SameAddress`]: two listeners have one
/// address.
pub fn check_addresses(config: &Config) -> Result<(), ServerError> {
    let listeners = [(RESP, config.resp), (HTTP, config.http), (GRPC, config.grpc)];
    let more = [(METRICS, config.metrics), (PEERS, peer_address(config))];
    let more = more.into_iter().filter_map(|(what, address)| Some((what, address?)));
    let all: Vec<_> = listeners.into_iter().chain(more).collect();
    for (index, &(other, address)) in all.iter().enumerate() {
        if let Some(&(what, _)) = all[..index].iter().find(|(_, before)| collide(*before, address)) {
            return Err(ServerError::SameAddress { what, other, address });
        }
    }
    let is_exposed = |address: SocketAddr| !address.ip().to_canonical().is_loopback();
    let peer = config.cluster.as_ref().and_then(|cluster| cluster.peer.as_ref());
    let open_peer = peer.filter(|peer| peer.tls.is_none()).map(|peer| peer.listen);
    if let Some(address) = open_peer.filter(|address| !config.insecure && is_exposed(*address)) {
        return Err(ServerError::ExposedPeer { address });
    }
    let exposed = |(_, address): &(_, SocketAddr)| is_exposed(*address);
    match listeners.into_iter().find(exposed) {
        Some((what, address)) if !config.insecure && config.users.is_empty() => {
            Err(ServerError::Exposed { what, address })
        }
        _ => Ok(()),
    }
}

/// Checks that the exact ones of these limits can be decided by a server with this config.
///
/// # Errors
/// [`ServerError::Exact`]: the nodes that decide are not known, or nothing is kept.
pub fn check_exact(limits: &[NamedLimit], config: &Config) -> Result<(), ServerError> {
    let Some(limit) = limits.iter().find(|limit| limit.exact.is_some()) else { return Ok(()) };
    let cluster = config.cluster.as_ref();
    let checked = cluster.map_or(Ok(()), |cluster| cluster.check_exact(config.storage.is_some()));
    checked.map_err(|why| ServerError::Exact { limit: limit.name.clone(), why })
}

/// Reads the files of passwords, certificates and keys that a config names, as a start does.
///
/// # Errors
/// [`ServerError::File`]: the first one that cannot be used.
pub fn check_files(config: &Config) -> Result<(), ServerError> {
    CurrentUsers::new(&config.users).load(&config.users)?;
    config.tls.as_ref().map(CurrentTls::new).transpose()?;
    config.histories.iter().filter_map(|history| history.login.as_ref()).try_for_each(check_login)?;
    let peer = config.cluster.as_ref().and_then(|cluster| cluster.peer.as_ref());
    if let Some(tls) = peer.and_then(|peer| peer.tls.as_ref()) {
        tls.check()?;
    }
    check_secrets(&config.alerts)
}

/// Reads the secret of a login at a receiver.
fn check_login(login: &HistoryLogin) -> Result<(), ServerError> {
    Ok(history::authorization(login).map(|_| ())?)
}

/// Reads the secrets of webhooks.
pub(crate) fn check_secrets(alerts: &[Alert]) -> Result<(), ServerError> {
    let files = alerts.iter().filter_map(|alert| alert.webhook.as_ref()?.secret_file.as_ref());
    files.map(|path| alerting::load_secret(path)).try_for_each(|loaded| Ok(loaded.map(|_| ())?))
}

/// Whether two listeners would collide. With port 0 each gets its own port.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = |address: SocketAddr| address.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && (one.ip() == other.ip() || is_any(one) || is_any(other))
}

/// Names of the listeners in errors.
const RESP: &str = "RESP";
const HTTP: &str = "HTTP";
const GRPC: &str = "gRPC";
const METRICS: &str = "metrics";
const PEERS: &str = "peers";

/// The address for other nodes of a mesh.
fn peer_address(config: &Config) -> Option<SocketAddr> {
    Some(config.cluster.as_ref()?.peer.as_ref()?.listen)
}

fn peer_address_mut(config: &mut Config) -> Option<&mut SocketAddr> {
    Some(&mut config.cluster.as_mut()?.peer.as_mut()?.listen)
}

fn listen(what: &'static str, address: SocketAddr) -> Result<TcpListener, ServerError> {
    let bound = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restarted server can bind while old connections are in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(LISTEN_BACKLOG)
    };
    bound().map_err(|error| ServerError::Bind { what, address, error })
}

fn address_of(listener: &TcpListener, asked: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(asked)
}

/// Sweeps expired keys, a part of the store at a time, and logs what [`Watch`] finds.
async fn tend(service: Arc<Service>, stopper: Stopper, tell: Log) {
    let [mut sweep, mut look] = [SWEEP_EVERY, WATCH_EVERY].map(|period| {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    });
    let mut cursor = Cursor::START;
    let (mut watch, mut fragmentation) = (Watch::default(), Fragmentation::default());
    loop {
        tokio::select! {
            _ = sweep.tick() => {
                cursor = service.sweep(cursor);
                if service.is_dumping() {
                    service.charge_journal_and_dumps();
                }
                if fragmentation.is_close() || service.is_loading() {
                    service.charge_fragmentation(&mut fragmentation);
                }
            }
            _ = look.tick() => {
                service.charge_journal_and_dumps();
                service.charge_fragmentation(&mut fragmentation);
                service.note_throughput();
                watch.check(&service).iter().for_each(|line| tell(line));
            }
            () = stopper.stopped() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use lately::SystemClock;

    use super::*;
    use crate::config::Storage;

    /// Symptom: a server that was stopped while it loaded never ended. Cause: the load went on and ended loading, and commits of
    /// requests from other nodes waited for the journal, whose threads were not started any more. Fix: after a stop, loading
    /// does not end.
    #[test]
    fn a_stop_while_keys_are_loaded_lets_no_request_in() {
        let dir = tempfile::tempdir().expect("a folder");
        let storage = Some(Storage { path: dir.path().to_owned(), ..Storage::default() });
        let service = Service::new(Config { storage, ..Config::default() }, Arc::new(SystemClock::new()));
        let service = Arc::new(service.expect("valid settings"));
        let folder = Folder::open(dir.path()).expect("it is empty");
        let (stopper, tell): (Stopper, Log) = (Stopper::new(), Arc::new(|_: &str| ()));
        stopper.stop();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let threads = runtime.block_on(load(&service, folder, &stopper, &tell, Box::new(|| ())));
        assert_eq!(threads.expect("nothing failed").len(), 0);
        // The blocking thread has ended then.
        drop(runtime);
        assert!(service.is_loading() && service.journal().is_none());
    }

    #[test]
    fn the_warning_of_an_open_folder_names_its_permissions() {
        for (mode, expected) in [
            (0o777, "w has mode 777: other users can remove and replace its files: chmod 700 it"),
            (0o770, "w has mode 770: other users can remove and replace its files: chmod 700 it"),
            (0o703, "w has mode 703: other users can remove and replace its files: chmod 700 it"),
            (0o1777, "w has mode 1777: other users can add files to it: chmod 700 it"),
            (0o755, "w has mode 755: other users can list its files, but not read counts: chmod 700 it"),
            (0o711, "w has mode 711: other users can list its files, but not read counts: chmod 700 it"),
        ] {
            assert_eq!(exposure("w", mode), expected);
        }
    }
}
