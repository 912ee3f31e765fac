//! A connected client and its socket at the server, for tests.

use std::cell::Cell;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lately::{ManualClock, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock;
use crate::config::ClusterConfig;
use crate::config::Config;
use crate::config::Storage;
use crate::service::Service;

pub(crate) fn service() -> Arc<Service> {
    engine_of(Config::default())
}

/// A service of a cluster, of which nothing is read.
pub(super) fn service_in_cluster() -> Arc<Service> {
    let cluster = ClusterConfig::new("a", &["redis://127.0.0.1:1"]).expect("valid");
    engine_of(Config { cluster: Some(cluster), ..Config::default() })
}

/// A service that is still loading.
pub(super) fn loading_engine() -> Arc<Service> {
    engine_of(Config { storage: Some(Storage::default()), ..Config::default() })
}

pub(super) fn engine_of(config: Config) -> Arc<Service> {
    let now = Timestamp::from_seconds(1_700_000_040).expect("in range");
    service_at(config, Arc::new(ManualClock::new(now)))
}

/// A service whose requests take no time, unless the test sets another clock ([`set_slow`]).
pub(crate) fn service_at(config: Config, clock: Arc<ManualClock>) -> Arc<Service> {
    let mut service = Service::new(config, clock).expect("valid settings");
    service.users.replace(service.users.load(&service.config.users).expect("files"));
    service.moment = || MOMENT.get() + SLOW.get() * READS.replace(READS.get() + 1);
    Arc::new(service)
}

thread_local! {
    static MOMENT: Cell<Instant> = Cell::new(clock::moment());
    static READS: Cell<u32> = const { Cell::new(0) };
    static SLOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// From now on, everything that is executed in this thread takes this long.
pub(super) fn set_slow(time: Duration) {
    READS.set(0);
    SLOW.set(time);
}

/// An accepted socket, its permit, and the client's end.
pub(super) fn client() -> (mio::net::TcpStream, OwnedSemaphorePermit, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (socket, _) = listener.accept().expect("a client");
    socket.set_nonblocking(true).expect("a socket");
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("a place");
    (mio::net::TcpStream::from_std(socket), place, client)
}
