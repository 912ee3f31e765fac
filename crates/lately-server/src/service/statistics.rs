//! The counters of the server.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use lately::limits::MAX_TOTAL;

use super::access::Forbidden;

/// Counters since the start, and memory that is charged now.
#[derive(Default, Debug)]
pub(crate) struct Stats {
    /// Commands answered, errors included.
    pub(crate) commands: AtomicU64,
    /// Hits counted and committed, by weight.
    pub(crate) hits: AtomicU64,
    /// Hits refused, by weight.
    pub(crate) refused_hits: AtomicU64,
    /// Hits that had been counted before, by their id.
    pub(crate) repeated_hits: AtomicU64,
    /// Hits denied by limits, by weight.
    pub(crate) denied_hits: AtomicU64,
    /// Requests of exact limits that other nodes have decided.
    pub(crate) asked_owners: AtomicU64,
    /// Requests of exact limits whose owner was away.
    pub(crate) owners_away: AtomicU64,
    /// Connections accepted.
    pub(crate) connections: AtomicU64,
    /// Connections refused because there were too many.
    pub(crate) refused_connections: AtomicU64,
    /// Connections of HTTP and gRPC.
    pub(crate) refused_http: AtomicU64,
    /// Connections ended because they held too much memory.
    pub(crate) evicted_connections: AtomicU64,
    /// Connections to the port of RESP that sent HTTP.
    pub(crate) http_connections: AtomicU64,
    /// Logins with a wrong user or password.
    pub(crate) failed_logins: AtomicU64,
    /// Requests refused because the user may not use the command, or not on all keys.
    pub(crate) forbidden_commands: AtomicU64,
    /// Requests refused because the user may not use the key.
    pub(crate) forbidden_keys: AtomicU64,
    /// Messages about alerts that a receiver did not take.
    pub(crate) failed_deliveries: AtomicU64,
    /// Messages of OTLP that a receiver did not take.
    pub(crate) failed_exports: AtomicU64,
    /// Reloads of the rules of envoyproxy/ratelimit.
    pub(crate) rule_reloads: AtomicU64,
    /// Reloads that failed.
    pub(crate) rule_errors: AtomicU64,
    /// Whether the last one failed.
    pub(crate) are_rules_failing: AtomicBool,
    /// Bytes that connections hold, and requests over HTTP and gRPC.
    pub(crate) connection_bytes: AtomicU64,
    /// Bytes of connections over HTTP and gRPC without their requests. They are apart, because their number bounds them, and what
    /// others may hold does not depend on them.
    pub(crate) http_bytes: AtomicU64,
    /// Bytes that the journal holds.
    pub(crate) journal_bytes: AtomicU64,
    /// Bytes that are held for dumps.
    pub(crate) dump_bytes: AtomicU64,
    /// Bytes of counts for other nodes.
    pub(crate) cluster_bytes: AtomicU64,
    /// Bytes of the keys and samples of `[[history]]`.
    pub(crate) history_bytes: AtomicU64,
    /// Bytes that are held for a restore.
    pub(crate) restore_bytes: AtomicU64,
    /// Bytes that are charged because the process's memory is fragmented.
    pub(crate) fragmented_bytes: AtomicU64,
}

impl Stats {
    /// Counts a request that was refused.
    pub(crate) fn refused<K>(&self, forbidden: &Forbidden<K>) {
        match forbidden {
            Forbidden::Login => {}
            Forbidden::Verb | Forbidden::AllKeys => Stats::add(&self.forbidden_commands, 1),
            Forbidden::Key(_) => Stats::add(&self.forbidden_keys, 1),
        }
    }

    /// Adds to a counter. It stops at the largest integer of RESP, because a counter never runs backward.
    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        if more > 0 {
            let add = |count: u64| Some(count.saturating_add(more).min(MAX_TOTAL));
            let _ = counter.fetch_update(Relaxed, Relaxed, add);
        }
    }
}
