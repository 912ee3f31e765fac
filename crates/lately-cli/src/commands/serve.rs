//! `lately serve`: the server.

use std::env;
use std::fs::File;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lately::SystemClock;
use lately_journal::{Durability, JournalError};
use lately_server::config::{Mode, RuleFolder, parse_address};
use lately_server::limits::{MAX_GRPC_CONNECTIONS, MAX_HTTP2_CONNECTIONS, MAX_PROBES};
use lately_server::{
    ClusterConfig, ClusterError, Config, PeerConfig, Reloader, Server, ServerError, Stopper, Storage,
};
use rustix::io::Errno;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{CliError, Outcome};
use crate::limits::{
    CEILING_PER_THREAD_BYTES, FILES_PER_THREAD, LARGE_BLOCK_BYTES, MAX_ARENAS, MAX_THREADS, OWN_FILES,
    THREADS_PER_ARENA, THREADS_WITHOUT_MORE,
};
use crate::output;
use crate::service_manager;
use crate::storage::folder_parser;
use crate::table::{harmless, printable_path};

/// Run the server until SIGTERM, SIGINT or SHUTDOWN.
///
/// When the server is ready, it prints its addresses to standard output, a line each: resp ADDR, http ADDR, grpc ADDR,
/// and metrics ADDR if it has one. If loading takes longer than a second, it prints them then, and answers LOADING until
/// all counts are loaded.
///
/// Counts are kept in the data folder. On a stop the server answers the requests that were already sent, syncs all
/// counts to the disk, and exits with 0.
///
/// With NOTIFY_SOCKET in the environment, the server tells systemd when it is ready and when it stops.
///
/// The server reloads limits, users, passwords and certificates when the config file or the files that it names change,
/// and on SIGHUP. It reloads the rules of --ratelimit-config when a file of the folder changes.
#[derive(Args)]
pub(crate) struct Serve {
    /// The config file (TOML). Flags override it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// A folder with rules of envoyproxy/ratelimit: its files *.yaml. Their domains are decided by them.
    #[arg(long, value_name = "DIR")]
    ratelimit_config: Option<PathBuf>,

    /// Address for Redis clients; port 0 picks a free port [default: 127.0.0.1:7379].
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    resp: Option<SocketAddr>,

    /// Address for HTTP: counting, health, metrics, dump and restore [default: 127.0.0.1:7380].
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    http: Option<SocketAddr>,

    /// Address for gRPC: Envoy's rate limit service, counting [default: 127.0.0.1:7381].
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    grpc: Option<SocketAddr>,

    /// A second HTTP address with /healthz, /readyz and /metrics only. It may be beyond loopback [default: none].
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    metrics: Option<SocketAddr>,

    /// The data folder [default: ./lately-data].
    #[arg(long, value_name = "DIR", value_parser = folder_parser())]
    data: Option<PathBuf>,

    /// Keep counts in memory only: they are gone when the server stops.
    #[arg(long, conflicts_with_all = ["data", "durability", "repair"])]
    in_memory: bool,

    /// When acknowledged hits are lost. off: at every stop. interval: never by kill -9; a loss of power may take those of
    /// the last second. always: never [default: interval].
    #[arg(long, value_name = "MODE")]
    durability: Option<Mode>,

    /// Start although files in the data folder are damaged, or more than a day ahead of the clock. The server keeps what
    /// it can read, logs what was lost, and removes the damaged files: copy the folder first.
    #[arg(long)]
    repair: bool,

    /// Threads that serve Redis clients [default: the number of cores minus one, at least one, and one more while a core is idle].
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<NonZeroUsize>,

    /// Count together with other servers, through the Redis, Valkey or PostgreSQL server at this address:
    /// redis://HOST:PORT or postgres://USER:PASSWORD@HOST:PORT/DATABASE. For a Redis Cluster, name several of
    /// its servers. Without such a server, name peer://HOST:PORT of each other node, and give --peer [default: alone].
    #[arg(long, value_name = "URL", num_args = 1.., requires = "node")]
    cluster: Vec<String>,

    /// Also count together with other data centres, through the server at this address. --cluster is that of
    /// this data centre.
    #[arg(long, value_name = "URL", requires = "cluster")]
    upstream: Vec<String>,

    /// The node above this one in a tree of nodes: peer://HOST:PORT. Give the option again for further nodes of that level.
    /// Without it, a node with --peer and without --cluster is the root [default: none].
    #[arg(long, value_name = "URL", requires = "node")]
    parent: Vec<String>,

    /// Where the other nodes reach this one, if their addresses are peer://HOST:PORT [default: 127.0.0.1:7382].
    #[arg(long, value_name = "ADDR", requires = "node", value_parser = parse_address)]
    peer: Option<SocketAddr>,

    /// The name of this server in the cluster: letters, digits, - and _. Each server has its own.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,

    /// Allow addresses beyond loopback without users. Anybody who reaches the server can then count, read and delete. Dump
    /// and restore work on the same machine only. With users in the config this is not needed.
    #[arg(long)]
    insecure: bool,
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads = text.parse().ok().filter(|threads: &NonZeroUsize| threads.get() <= MAX_THREADS);
    threads.ok_or_else(|| format!("give a number from 1 to {MAX_THREADS}"))
}

pub(crate) fn run(serve: &Serve) -> Result<Outcome, CliError> {
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = serve.threads.unwrap_or_else(|| threads_for(cores));
    let mut config = configure(serve)?;
    let most = threads_in(config.ceiling_bytes, cores.max(threads).get());
    config.loops = threads.get().min(most);
    config.has_extra_loop = serve.threads.is_none() && config.loops < most;
    // No thread may have started before it.
    tune_allocator(config.loops + usize::from(config.has_extra_loop));
    output::log_on_a_thread().map_err(|error| CliError::new("serve", error, "the system gave no thread"))?;
    if config.loops < threads.get() {
        output::message(&format_args!(
            "lately: the memory ceiling of {} bytes has room for {} of {threads} threads: each needs {mib} MiB of it, and the rest of the server as much",
            config.ceiling_bytes,
            config.loops,
            mib = CEILING_PER_THREAD_BYTES >> 20,
        ));
    }
    let (storage, cluster) = (config.storage.clone(), config.cluster.clone());
    raise_file_limit(&mut config)?;
    // It accepts connections and serves HTTP; event loops have threads of their own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::new("serve", error, "the system gave no threads or no event queue"))?;
    let failed = |error| refusal("serve", &error, serve.repair);
    let outcome = runtime.block_on(async {
        // This comes first, so that an early signal is not lost.
        let signals = Signals::catch()?;
        let clock = SystemClock::with_max_skew(config.least_max_skew());
        let server = Server::bind(config, Arc::new(clock)).await.map_err(failed)?;
        tokio::spawn(signals.watch(server.stopper(), server.reloader()));
        let stopper = server.stopper();
        let stopping = tokio::spawn(notify_stop(stopper.clone()));
        let announcement = announcement(&server, storage.as_ref(), cluster.as_ref());
        let server = server.log_to(|line| output::message(&format_args!("lately: {line}")));
        let ready = || {
            announcement();
            service_manager::ready();
            // Most of it was for the start.
            lately::give_program_back();
        };
        let served = server.when_ready(ready).run().await;
        // A start that failed is a stop, too.
        stopper.stop();
        let _ = stopping.await;
        served.map_err(failed)?;
        output::message(&"lately: stopped");
        Ok(Outcome::Done)
    });
    // Clients had their time to drain, so the runtime does not wait.
    runtime.shutdown_background();
    outcome
}

/// Makes threads share the arenas of the allocator, because lists that several threads grow then take less memory, and
/// makes it return large blocks to the system. Environment variables override both.
fn tune_allocator(threads: usize) {
    let is_set = |name, part| env::var_os(name).is_some_and(|value| value.to_string_lossy().contains(part));
    if !is_set("MALLOC_MMAP_THRESHOLD_", "") && !is_set("GLIBC_TUNABLES", "malloc.mmap_threshold") {
        lately::give_blocks_back(LARGE_BLOCK_BYTES);
    }
    if !is_set("MALLOC_ARENA_MAX", "") && !is_set("GLIBC_TUNABLES", "malloc.arena_max") {
        let arenas = threads.div_ceil(THREADS_PER_ARENA).min(MAX_ARENAS);
        lately::share_arenas(u16::try_from(arenas).unwrap_or(u16::MAX));
    }
}

/// The number of cores minus one, which is left to the system and to local clients. While it is idle, an extra loop uses it.
fn threads_for(cores: NonZeroUsize) -> NonZeroUsize {
    NonZeroUsize::new(cores.get() - 1).unwrap_or(NonZeroUsize::MIN)
}

/// As many of these threads as the ceiling has room for, beside the rest of the server.
fn threads_in(ceiling_bytes: u64, threads: usize) -> usize {
    let rest_bytes = ceiling_bytes.saturating_sub(CEILING_PER_THREAD_BYTES);
    match usize::try_from(rest_bytes / CEILING_PER_THREAD_BYTES) {
        Ok(room) if room < THREADS_WITHOUT_MORE => threads.min(room.max(1)),
        _ => threads,
    }
}

/// Raises the limit of open files to what RESP and HTTP clients need. If the system refuses, logs that, and lowers the number of
/// HTTP connections and `max_clients`.
///
/// # Errors
/// If there is no room for a single client.
fn raise_file_limit(config: &mut Config) -> Result<(), CliError> {
    let Config { max_clients, max_http_connections, loops, has_extra_loop, metrics, .. } = config;
    let http_listeners = 1 + u64::from(metrics.is_some());
    let threads = *loops - 1 + usize::from(*has_extra_loop);
    let of_probes = MAX_PROBES as u64 * (http_listeners + 1);
    let others = FILES_PER_THREAD * threads as u64 + of_probes;
    let without_http = OWN_FILES + MAX_GRPC_CONNECTIONS as u64 + others;
    // For each connection with a place, one waits, and one has sent nothing. gRPC has as many of the last two.
    let files_a_place = 3 * http_listeners + 2;
    let with_clients = without_http.saturating_add(*max_clients as u64);
    let needed = with_clients.saturating_add(*max_http_connections as u64 * files_a_place);
    let limit = rlimit::increase_nofile_limit(needed).unwrap_or(0);
    lengthen_file_table(limit.min(needed));
    if limit >= needed {
        return Ok(());
    }
    // Clients of Redis come first, but HTTP always has some connections.
    let for_http = limit.saturating_sub(with_clients) / files_a_place;
    *max_http_connections = usize::try_from(for_http).unwrap_or(usize::MAX).max(MAX_HTTP2_CONNECTIONS);
    let others = without_http + *max_http_connections as u64 * files_a_place;
    let clients = limit.saturating_sub(others);
    if clients == 0 {
        let cause = format!(
            "the limit of {limit} open files is too low: the server needs {others}, and one for each client"
        );
        let hint = format!("raise it with ulimit -n {needed}; {} is the least", others + 1);
        return Err(CliError::new("serve", cause, hint));
    }
    let room = if clients < *max_clients as u64 {
        let of = format!("{clients} of max_clients = {max_clients}");
        *max_clients = usize::try_from(clients).unwrap_or(*max_clients);
        of
    } else {
        format!("{max_http_connections} connections of HTTP")
    };
    output::message(&format_args!(
        "lately: the limit of {limit} open files leaves room for {room}: raise it with ulimit -n {needed}"
    ));
    Ok(())
}

/// Makes the kernel extend the file table of this process to its final length. Later, with several threads, each
/// extension would delay an accept by some 10 ms.
fn lengthen_file_table(files: u64) {
    let last = i32::try_from(files.saturating_sub(1)).unwrap_or(i32::MAX);
    // A failure only costs speed.
    if let Ok(file) = File::open("/dev/null") {
        let _ = rustix::io::fcntl_dupfd_cloexec(&file, last);
    }
}

/// The cluster that the options describe.
fn cluster_of(serve: &Serve, node: &str) -> Result<ClusterConfig, String> {
    let Serve { cluster: urls, parent, peer, .. } = serve;
    let is_peers = peer.is_some() || !parent.is_empty();
    let is_of_another = |url: &&String| url.contains("://") && !ClusterConfig::is_peer(url);
    match urls.iter().find(is_of_another) {
        _ if !is_peers && urls.is_empty() => Err(format!(
            "the node '{node}' has no other nodes: add --cluster URL, or for nodes that reach each other directly --parent peer://HOST:PORT, or --peer ADDR for the root"
        )),
        None if is_peers => {
            let mut config = PeerConfig { parents: parent.clone(), ..PeerConfig::default() };
            config.listen = peer.unwrap_or(config.listen);
            ClusterConfig::of_peers(node, urls, config)
        }
        Some(_) if is_peers => {
            let engine = ClusterConfig::new(node, urls)?.engine();
            let option = if parent.is_empty() { "--peer" } else { "--parent" };
            Err(format!(
                "{option} is for nodes that reach each other directly, and the engine is {engine}: leave it out, or give peer://HOST:PORT of the other nodes"
            ))
        }
        _ => ClusterConfig::new(node, urls),
    }
}

fn configure(serve: &Serve) -> Result<Config, CliError> {
    let mut config = match &serve.config {
        Some(path) => Config::load(path).map_err(|error| {
            CliError::new("config", error, "lately check FILE reads a config without a start")
        })?,
        None => Config { storage: Some(Storage::default()), ..Config::default() },
    };
    config.storage = storage(serve, &config)?;
    config.resp = serve.resp.unwrap_or(config.resp);
    config.http = serve.http.unwrap_or(config.http);
    config.grpc = serve.grpc.unwrap_or(config.grpc);
    config.metrics = serve.metrics.or(config.metrics);
    config.insecure |= serve.insecure;
    config.rule_folder = rule_folder(serve.ratelimit_config.as_deref(), "the server was not started")?;
    if let Some(node) = &serve.node {
        let cluster = cluster_of(serve, node);
        let cluster = cluster.and_then(|cluster| match &serve.upstream[..] {
            [] => Ok(cluster),
            upstream => cluster.with_upstream(upstream),
        });
        let cluster = cluster.map_err(|cause| {
            CliError::new(
                "serve",
                cause,
                "see --cluster, --upstream, --parent, --peer and --node in lately serve --help",
            )
        })?;
        config.cluster = Some(cluster);
    }
    Ok(config)
}

/// Reads the folder of `--ratelimit-config`, if there is one.
pub(super) fn rule_folder(folder: Option<&Path>, hint: &str) -> Result<Option<RuleFolder>, CliError> {
    let refused = |error| CliError::new("ratelimit-config", error, hint);
    folder.map(|folder| RuleFolder::load(folder).map_err(refused)).transpose()
}

/// The storage settings, from the flags and the config file.
fn storage(serve: &Serve, config: &Config) -> Result<Option<Storage>, CliError> {
    if serve.in_memory {
        return Ok(None);
    }
    let configured = config.storage.as_ref().map(|storage| storage.durability);
    let Some(durability) = serve.durability.map_or(configured, Mode::durability) else {
        // A flag without effect is an error.
        let asked = [("--data", serve.data.is_some()), ("--repair", serve.repair)];
        let Some((flag, _)) = asked.into_iter().find(|(_, is_asked)| *is_asked) else { return Ok(None) };
        let cause = format!("{flag} needs a data folder, and durability is off: nothing is kept");
        return Err(CliError::new("serve", cause, format!("use --durability interval, or leave {flag} out")));
    };
    let path = serve.data.as_ref().or(config.storage_path.as_ref());
    let path = path.cloned().unwrap_or_else(|| Storage::default().path);
    Ok(Some(Storage { path, durability, repair: serve.repair }))
}

/// The error that explains why the server did not start. With `repair`, the hint does not suggest a repair.
pub(super) fn refusal(command: &str, error: &ServerError, repair: bool) -> CliError {
    let hint = match error {
        ServerError::SameAddress { what, other, .. } => {
            // `--peer` is for one address, of the listener for peers.
            let flag = |listener: &str| format!("--{}", listener.to_lowercase().replace("peers", "peer"));
            let flags = [what, other].map(|listener| flag(listener)).join(" or ");
            return CliError::new(
                command,
                error,
                format!("set another port with {flags}, or in the config file"),
            );
        }
        ServerError::Journal(JournalError::InUse { .. }) => {
            "two servers cannot share a folder: stop the other, or name another folder with --data"
        }
        ServerError::Journal(JournalError::Foreign { .. }) => {
            "name a folder of its own with --data: an empty one, or one that is not there yet"
        }
        ServerError::Journal(JournalError::Damaged { .. } | JournalError::Missing { .. }) if repair => {
            "restore the folder from a copy"
        }
        ServerError::Journal(JournalError::Bug { .. }) if repair => {
            "keep a copy of the folder and report the bug with it"
        }
        ServerError::Journal(JournalError::Ahead { .. }) if repair => "correct the clock",
        ServerError::Journal(JournalError::Version { .. }) if repair => {
            "start the version of lately that wrote it; or move the file away, and start without what is in it"
        }
        ServerError::Journal(JournalError::Damaged { .. } | JournalError::Missing { .. }) => {
            "restore the folder from a copy; or keep a copy of it and start without what is lost: add --repair"
        }
        ServerError::Journal(JournalError::Bug { .. }) => {
            "keep a copy of the folder and report the bug with it; or start without what is lost: add --repair"
        }
        ServerError::Bug { .. } => "keep a copy of the folder and report the bug with it",
        ServerError::Journal(JournalError::Ahead { .. }) => {
            "correct the clock; if it is right, keep a copy of the folder and start with its time: add --repair"
        }
        ServerError::Journal(JournalError::Version { .. }) => {
            "start the version of lately that wrote it; if this one did, keep a copy of the folder and add --repair"
        }
        ServerError::Journal(JournalError::Disk { error, .. }) if error.kind() == ErrorKind::StorageFull => {
            "make room on the disk: no counts are lost, and lately dump --data can write them elsewhere"
        }
        ServerError::Journal(_) => "name a folder that can be written with --data, or use --in-memory",
        ServerError::Cluster(ClusterError::NodeTaken { .. }) => {
            "give each server of the cluster a name of its own with --node"
        }
        ServerError::Close(_) => "check the disk: the system log may say more",
        ServerError::Exposed { .. } => {
            "have clients log in, with password_file in [server] or a [[user]]; listen on 127.0.0.1 or ::1; or use --insecure if the network is trusted"
        }
        ServerError::ExposedPeer { .. } => {
            "give each node a certificate, with tls in [cluster]; listen on 127.0.0.1 or ::1; or use --insecure if the network is trusted"
        }
        ServerError::File(_) | ServerError::PeerTls(_) => {
            "correct the file, or name another one in the config file"
        }
        ServerError::Bind { address, error, .. }
            if error.raw_os_error() == Some(Errno::ADDRNOTAVAIL.raw_os_error()) =>
        {
            let all = if address.is_ipv4() { "0.0.0.0" } else { "[::]" };
            let cause = format!("{} is no address of this machine", address.ip());
            return CliError::new(command, cause, format!("{all} listens on all of them"));
        }
        ServerError::Bind { error, .. } if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
            "raise the limit of open files with ulimit -n, or use a smaller number of --threads"
        }
        ServerError::Bind { .. } => "is another server running there? port 0 picks a free port",
        _ => "see lately serve --help",
    };
    CliError::new(command, error, hint)
}

/// Logs and prints the addresses, and logs the storage settings.
fn announcement(
    server: &Server,
    storage: Option<&Storage>,
    cluster: Option<&ClusterConfig>,
) -> impl FnOnce() + Send + use<> {
    let (resp, http, grpc) = (server.resp_address(), server.http_address(), server.grpc_address());
    let (metrics, peer) = (server.metrics_address(), server.peer_address());
    let kept = match storage {
        Some(Storage { path, durability, .. }) => {
            let survives = match durability {
                Durability::Interval => "a loss of power loses at most the last second",
                Durability::Always => "every hit is on the disk before it is acknowledged",
            };
            // Absolute, because the reader may be in another folder.
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            format!("counts are kept in {}: {survives}", printable_path(&path))
        }
        None => "counts are in memory only: they are gone when the server stops".to_owned(),
    };
    let together = cluster.map(|cluster| {
        let urls = cluster.through();
        if cluster.is_mesh() {
            return format!("counting together with others as node {}: {}", cluster.node, harmless(&urls));
        }
        format!("counting together with others as node {} through {}", cluster.node, harmless(&urls))
    });
    move || {
        output::message(&format_args!("lately: serving RESP on {resp}, HTTP on {http} and gRPC on {grpc}"));
        if let Some(metrics) = metrics {
            output::message(&format_args!("lately: serving health and metrics on {metrics}"));
        }
        if let Some(peer) = peer {
            output::message(&format_args!("lately: serving other nodes on {peer}"));
        }
        output::message(&format_args!("lately: {kept}"));
        if let Some(together) = together {
            output::message(&format_args!("lately: {together}"));
        }
        // The addresses are data for the program that started the server. The server runs even if they cannot be written.
        let _ = output::data(|out| {
            writeln!(out, "resp {resp}\nhttp {http}\ngrpc {grpc}")?;
            metrics.map_or(Ok(()), |metrics| writeln!(out, "metrics {metrics}"))?;
            peer.map_or(Ok(()), |peer| writeln!(out, "peer {peer}"))
        });
    }
}

/// Tells the service manager that the server stops, as soon as it does.
async fn notify_stop(stopper: Stopper) {
    stopper.stopped().await;
    service_manager::stopping();
}

/// Reloads the config file, and reports that to the service manager.
async fn reload(reloader: Reloader, stopper: Stopper) {
    let is_reported = service_manager::reloading();
    tokio::select! {
        () = reloader.reloaded() => {}
        () = stopper.stopped() => return,
    }
    if is_reported {
        service_manager::ready();
    }
}

/// Handlers of signals.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// Caught only: a write past a limit of file sizes is then an error, as on a full disk.
    _file_too_large: Signal,
}

impl Signals {
    fn catch() -> Result<Signals, CliError> {
        let catch =
            |kind| signal(kind).map_err(|error| CliError::new("serve", error, "signals cannot be caught"));
        Ok(Signals {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            hang_up: catch(SignalKind::hangup())?,
            _file_too_large: catch(SignalKind::from_raw(signal_hook::consts::SIGXFSZ))?,
        })
    }

    /// Stops the server on SIGTERM and SIGINT. Reloads the config file on SIGHUP.
    async fn watch(mut self, stopper: Stopper, reloader: Reloader) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => break,
                _ = self.interrupt.recv() => break,
                // A reload may wait for a slow disk, and a stop does not wait for a reload.
                _ = self.hang_up.recv() => drop(tokio::spawn(reload(reloader.clone(), stopper.clone()))),
            }
        }
        output::message(&"lately: stopping: waiting for clients to read their last replies");
        stopper.stop();
    }
}

#[cfg(test)]
mod tests {
    use lately::Timestamp;

    use super::*;

    #[test]
    fn one_core_is_left_free() {
        for (cores, expected) in [(1, 1), (2, 1), (3, 2), (64, 63)] {
            let cores = NonZeroUsize::new(cores).expect("not zero");
            assert_eq!(threads_for(cores).get(), expected, "{cores}");
        }
    }

    #[test]
    fn a_low_ceiling_has_room_for_few_threads() {
        const MIB: u64 = 1 << 20;
        let cases = [
            (1, 16, 1),
            (16, 16, 1),
            (23, 16, 1),
            (24, 16, 2),
            (32, 3, 3),
            (32, 4, 3),
            (135, 16, 15),
            (136, 16, 16),
            (136, 1_024, 1_024),
        ];
        for (ceiling_mib, threads, expected) in cases {
            assert_eq!(threads_in(ceiling_mib * MIB, threads), expected, "{ceiling_mib} {threads}");
        }
    }

    #[test]
    fn threads_are_bounded() {
        assert_eq!(threads("1024").map(NonZeroUsize::get), Ok(MAX_THREADS));
        for bad in ["0", "1025", "-1", "many"] {
            assert!(threads(bad).is_err_and(|error| error.contains("from 1 to 1024")), "{bad}");
        }
    }

    #[test]
    fn a_refused_repair_does_not_suggest_a_repair() {
        let errors = || {
            let (path, what) = (PathBuf::from("log-0000000001"), "it is".to_owned());
            [
                JournalError::Damaged { path: path.clone(), offset: 8, what: what.clone() },
                JournalError::Missing { path: path.clone(), what: what.clone() },
                JournalError::Bug { path: path.clone(), offset: 8, what },
                JournalError::Ahead { path: path.clone(), written: Timestamp::MAX, clock: Timestamp::MIN },
                JournalError::Version { path, found: 4, known: 3 },
            ]
        };
        for repair in [false, true] {
            for error in errors() {
                let text = refusal("serve", &ServerError::Journal(error), repair).to_string();
                assert_eq!(text.contains("--repair"), !repair, "{text}");
                assert!(text.contains("hint: "), "{text}");
            }
        }
    }
}
