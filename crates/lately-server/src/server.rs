//! The server as a whole: binds, runs, stops.

use std::net::SocketAddr;
use std::sync::Arc;

use lately::{Clock, Cursor};
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::MissedTickBehavior;

use crate::config::Config;
use crate::engine::Engine;
use crate::limits::{LISTEN_BACKLOG, SWEEP_EVERY, WATCH_EVERY};
use crate::listener;
use crate::listener::resp::Resp;
use crate::stopper::Stopper;
use crate::watch::Watch;

/// Why a server did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// An address cannot be bound.
    #[error("cannot listen on {address} for {what}: {error}")]
    Bind {
        /// `RESP` or `HTTP`.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// An address beyond loopback without auth and without leave to do so.
    #[error(
        "refusing to listen on {address} for {what}: there is no authentication, anybody who reaches it could count and delete"
    )]
    Exposed {
        /// `RESP` or `HTTP`.
        what: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// The settings do not hold.
    #[error(transparent)]
    Settings(#[from] lately::SettingsError),
}

/// A server whose listeners are bound.
pub struct Server {
    engine: Arc<Engine>,
    resp: Resp,
    http: TcpListener,
    stopper: Stopper,
    tell: Tell,
}

/// Who is told what an operator should know.
type Tell = Box<dyn Fn(&str) + Send + Sync>;

impl Server {
    /// Binds the listeners. Connections wait from here on; [`Server::run`] serves them.
    ///
    /// # Errors
    /// [`ServerError`] when an address cannot be bound, or may not be.
    pub async fn bind(mut config: Config, clock: Arc<dyn Clock>) -> Result<Server, ServerError> {
        let resp = listen("RESP", config.resp, config.insecure)?;
        let http = listen("HTTP", config.http, config.insecure)?;
        // From here on the config says what is, not what was asked for.
        config.resp = address_of(&resp, config.resp);
        config.http = address_of(&http, config.http);
        let address = config.resp;
        let engine = Arc::new(Engine::new(config, clock)?);
        let stopper = Stopper::new();
        let resp = Resp::new(resp, Arc::clone(&engine), stopper.clone())
            .map_err(|error| ServerError::Bind { what: "RESP", address, error })?;
        Ok(Server { engine, resp, http, stopper, tell: Box::new(|_| ()) })
    }

    /// Where RESP clients connect.
    #[must_use]
    pub fn resp_address(&self) -> SocketAddr {
        self.engine.config.resp
    }

    /// Where HTTP clients connect.
    #[must_use]
    pub fn http_address(&self) -> SocketAddr {
        self.engine.config.http
    }

    /// Where gRPC clients will connect; nothing listens there in this version.
    #[must_use]
    pub fn grpc_address(&self) -> SocketAddr {
        self.engine.config.grpc
    }

    /// What stops the server.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Has `tell` called with what an operator should know while the server runs: the wall clock was
    /// set, keys were evicted.
    #[must_use]
    pub fn telling(self, tell: impl Fn(&str) + Send + Sync + 'static) -> Server {
        Server { tell: Box::new(tell), ..self }
    }

    /// Serves until the stop, and ends when all clients are answered.
    pub async fn run(self) {
        let Server { engine, resp, http, stopper, tell } = self;
        let tend = tend(Arc::clone(&engine), stopper.clone(), tell);
        let resp = tokio::spawn(resp.serve());
        let http = tokio::spawn(listener::http::serve(http, engine, stopper));
        // A listener that panicked is a bug that has been reported; the others are still waited for.
        let _ = tokio::join!(resp, http, tokio::spawn(tend));
    }
}

fn listen(what: &'static str, address: SocketAddr, insecure: bool) -> Result<TcpListener, ServerError> {
    if !address.ip().to_canonical().is_loopback() && !insecure {
        return Err(ServerError::Exposed { what, address });
    }
    let bound = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // As every server does: an address whose last connections still linger can be taken again.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(LISTEN_BACKLOG)
    };
    bound().map_err(|error| ServerError::Bind { what, address, error })
}

fn address_of(listener: &TcpListener, asked: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(asked)
}

/// Removes expired keys, a part of the store at a time, and tells what should be known.
async fn tend(engine: Arc<Engine>, stopper: Stopper, tell: Tell) {
    let [mut sweep, mut look] = [SWEEP_EVERY, WATCH_EVERY].map(|period| {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    });
    let mut cursor = Cursor::START;
    let mut watch = Watch::default();
    loop {
        tokio::select! {
            _ = sweep.tick() => cursor = engine.sweep(cursor),
            _ = look.tick() => watch.look(&engine).iter().for_each(|news| tell(news)),
            () = stopper.stopped() => return,
        }
    }
}
