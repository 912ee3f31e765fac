//! The loads of the sections: the same million keys, the same number of connections.

use std::time::Duration;

use lately_load::{Ending, Order, Plan, Request};

use crate::options::Options;
use crate::server::process::Process;

/// Keys of a normal load, and of a large one.
pub(crate) const KEYS: u64 = 1_000_000;
pub(crate) const MANY_KEYS: u64 = 10_000_000;

/// Connections of a normal load.
pub(crate) const CLIENTS: usize = 50;

/// A request with a key of this prefix, over a million uniformly random keys, for the time of one round.
pub(crate) fn round(
    options: &Options,
    server: &Process,
    request: &str,
    prefix: &str,
    pipeline: usize,
) -> Plan {
    let time = options.pick(Duration::from_millis(1_500), Duration::from_millis(400));
    Plan {
        keys: KEYS,
        order: Order::Uniform,
        clients: CLIENTS,
        pipeline,
        ending: Ending::After(time),
        ..Plan::new(server.address, Request::parse(request, prefix))
    }
}

/// A request for each key, so that a following round finds all keys.
pub(crate) fn fill(server: &Process, request: &str, prefix: &str, keys: u64) -> Plan {
    Plan {
        keys,
        order: Order::Permuted,
        clients: 4,
        pipeline: 256,
        ending: Ending::Requests(keys),
        ..Plan::new(server.address, Request::parse(request, prefix))
    }
}
