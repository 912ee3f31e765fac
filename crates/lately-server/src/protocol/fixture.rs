//! A connected client and its socket at the server, for tests.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use lately::{ManualClock, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Config;
use crate::config::Storage;
use crate::service::Service;
use crate::service::cluster::ClusterConfig;

pub(super) fn service() -> Arc<Service> {
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

fn engine_of(config: Config) -> Arc<Service> {
    let now = Timestamp::from_seconds(1_700_000_040).expect("in range");
    let clock = Arc::new(ManualClock::new(now));
    Arc::new(Service::new(config, clock).expect("valid"))
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
