//! Names that have the addresses of all nodes: each is resolved again and again, and nodes come and go with it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::task::{AbortHandle, JoinSet};

use super::address::Address;
use super::stats::PeerRole;
use super::{Shared, follower, lock};
use crate::limits::{MAX_PEER_ADDRESSES, PEER_RESOLVE_EVERY};
use crate::pause::pause;

/// What a resolver finds.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Finds the addresses of a host.
pub type Resolve = Arc<dyn Fn(String, u16) -> Resolving + Send + Sync>;

/// The resolver of the system.
pub(super) fn system() -> Resolve {
    Arc::new(|host, port| {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect::<Vec<_>>()) })
    })
}

/// Follows all nodes of a name, as long as it is polled.
pub(super) async fn follow(name: Address, role: PeerRole, shared: Arc<Shared>) {
    let mut tasks = JoinSet::new();
    let mut followed: BTreeMap<SocketAddr, (usize, AbortHandle)> = BTreeMap::new();
    loop {
        match (shared.resolve)(name.host.clone(), name.port).await {
            Ok(found) if !found.is_empty() => {
                let found: std::collections::BTreeSet<_> =
                    found.into_iter().take(MAX_PEER_ADDRESSES).collect();
                followed.retain(|address, (number, task)| {
                    let is_there = found.contains(address);
                    if !is_there {
                        task.abort();
                        shared.drop_contact(*number);
                    }
                    is_there
                });
                for address in found {
                    followed.entry(address).or_insert_with(|| {
                        let at = Address { ip: Some(address.ip()), port: address.port(), ..name.clone() };
                        let number = shared.add_contact(role, &at);
                        (number, tasks.spawn(follower::follow(at, number, Arc::clone(&shared))))
                    });
                }
                lock(&shared.contacts).note_name(&name.to_string(), None);
            }
            found => {
                let why = found.err().map_or_else(|| "no address".to_owned(), |error| error.to_string());
                let kept = if followed.is_empty() { "" } else { ": its last addresses are used" };
                let failure = format!("dns://{name} cannot be resolved: {why}{kept}");
                if !followed.is_empty() {
                    shared.warn(failure.clone());
                }
                lock(&shared.contacts).note_name(&name.to_string(), Some(failure));
            }
        }
        shared.contacted.notify_waiters();
        pause(PEER_RESOLVE_EVERY).await;
        // Tasks that were ended are not kept.
        while tasks.try_join_next().is_some() {}
    }
}
