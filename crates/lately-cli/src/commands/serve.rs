//! `lately serve`: the server.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lately::SystemClock;
use lately_server::limits::MAX_HTTP_CONNECTIONS;
use lately_server::{Config, Server, ServerError, Stopper};
use tokio::signal::unix::{SignalKind, signal};

use crate::error::{CliError, Outcome};
use crate::limits::{MAX_THREADS, OWN_FILES};
use crate::output;

/// Run the server until SIGTERM, SIGINT or SHUTDOWN.
///
/// Counts are in memory only: they are gone when the server stops. On a stop the listeners close,
/// what clients had sent is answered, and the exit code is 0. When the listeners are ready, their
/// addresses are printed to standard output, a line each: resp ADDR, http ADDR.
#[derive(Args)]
pub(crate) struct Serve {
    /// Config file, TOML. Flags win over it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where Redis clients connect; port 0 picks a free one [default: 127.0.0.1:7379].
    #[arg(long, value_name = "ADDR")]
    resp: Option<SocketAddr>,

    /// Where HTTP clients connect: /healthz, /readyz and /metrics [default: 127.0.0.1:7380].
    #[arg(long, value_name = "ADDR")]
    http: Option<SocketAddr>,

    /// Where gRPC clients will connect: nothing listens there in this version.
    #[arg(long, value_name = "ADDR")]
    grpc: Option<SocketAddr>,

    /// Where counts will be kept: this version keeps them in memory only.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Keep counts in memory only, which is all this version does.
    #[arg(long, conflicts_with = "data")]
    in_memory: bool,

    /// Threads that serve clients [default: one less than there are cores, and at least one].
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<NonZeroUsize>,

    /// Listen beyond loopback though there is no authentication: anybody who reaches the server can
    /// count, read and delete.
    #[arg(long)]
    insecure: bool,
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads = text.parse().ok().filter(|threads: &NonZeroUsize| threads.get() <= MAX_THREADS);
    threads.ok_or_else(|| format!("give a number from 1 to {MAX_THREADS}"))
}

pub(crate) fn run(serve: &Serve) -> Result<Outcome, CliError> {
    let config = configure(serve)?;
    raise_file_limit(config.max_clients);
    let threads = serve.threads.unwrap_or_else(usual_threads).get();
    // One thread alone need not look whether another has work for it.
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|error| CliError::new("serve", error, "the system gave no threads or no event queue"))?;
    let outcome = runtime.block_on(async {
        let server =
            Server::bind(config, Arc::new(SystemClock::new())).await.map_err(|error| refusal(&error))?;
        watch_signals(server.stopper())?;
        announce(&server, serve);
        server.telling(|news| output::message(&format_args!("lately: {news}"))).run().await;
        output::message(&"lately: stopped");
        Ok(Outcome::Done)
    });
    // Clients had their time to drain: whatever still runs is not waited for.
    runtime.shutdown_background();
    outcome
}

/// A thread for each core but one: whoever asks, and the kernel that carries it, need the other.
fn usual_threads() -> NonZeroUsize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::new(cores - 1).unwrap_or(NonZeroUsize::MIN)
}

/// Raises the limit on open files to what the clients need, those of HTTP included, and says so when that is not to be had.
fn raise_file_limit(max_clients: usize) {
    let others = OWN_FILES + MAX_HTTP_CONNECTIONS as u64;
    let needed = others + max_clients as u64;
    let limit = rlimit::increase_nofile_limit(needed).unwrap_or(0);
    if limit < needed {
        let clients = limit.saturating_sub(others);
        output::message(&format_args!(
            "lately: the limit of {limit} open files leaves room for {clients} of max_clients = {max_clients}: raise it with ulimit -n {needed}"
        ));
    }
}

fn configure(serve: &Serve) -> Result<Config, CliError> {
    let mut config = match &serve.config {
        Some(path) => Config::load(path)
            .map_err(|error| CliError::new("config", error, "the server was not started"))?,
        None => Config::default(),
    };
    config.resp = serve.resp.unwrap_or(config.resp);
    config.http = serve.http.unwrap_or(config.http);
    config.grpc = serve.grpc.unwrap_or(config.grpc);
    config.insecure |= serve.insecure;
    Ok(config)
}

fn refusal(error: &ServerError) -> CliError {
    let hint = match error {
        ServerError::Exposed { .. } => {
            "listen on 127.0.0.1 or ::1, or say --insecure if the network is trusted"
        }
        ServerError::Bind { .. } => "is another server running there? port 0 picks a free port",
        _ => "see lately serve --help",
    };
    CliError::new("serve", error, hint)
}

/// Says where the server listens, and what this version does not do.
fn announce(server: &Server, serve: &Serve) {
    let (resp, http, grpc) = (server.resp_address(), server.http_address(), server.grpc_address());
    output::message(&format_args!("lately: serving RESP on {resp} and HTTP on {http}"));
    output::message(&format_args!(
        "lately: gRPC is not supported by this version: nothing listens on {grpc}"
    ));
    let unused = match &serve.data {
        Some(data) => format!(", {} is not used", data.display()),
        None => String::new(),
    };
    output::message(&format_args!(
        "lately: counts are in memory only and gone when the server stops{unused}"
    ));
    // Data for whoever started the server; when nobody listens, the server serves all the same.
    let _ = output::data(|out| writeln!(out, "resp {resp}\nhttp {http}"));
}

/// Stops the server on SIGTERM and SIGINT; takes note of SIGHUP, which would end the process.
fn watch_signals(stopper: Stopper) -> Result<(), CliError> {
    let listen =
        |kind| signal(kind).map_err(|error| CliError::new("serve", error, "signals cannot be caught"));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let mut hang_up = listen(SignalKind::hangup())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hang_up.recv() => {
                    output::message(&"lately: SIGHUP: the config is not reloaded by this version: restart to change it");
                }
            }
        }
        output::message(&"lately: stopping: waiting for clients to take their last replies");
        stopper.stop();
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_bounded() {
        assert_eq!(threads("1024").map(NonZeroUsize::get), Ok(MAX_THREADS));
        for bad in ["0", "1025", "-1", "many"] {
            assert!(threads(bad).is_err_and(|error| error.contains("from 1 to 1024")), "{bad}");
        }
    }
}
