//! The cost of keeping counts in a folder: throughput, latency, syncs, and the time of recovery.

mod always;
mod checkpoints;
mod hits;
mod kept;
mod persistence;
mod recovery;

use crate::options::Options;
use crate::output::section;
use crate::row::Row;
use crate::server::failure::Failure;

const TABLE: &str = "durability of the server";

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let mut rows = section("server/durability, hits", || hits::rows(options))?;
    rows.extend(section("server/durability, checkpoints", || checkpoints::rows(options))?);
    rows.extend(section("server/durability, always", || always::rows(options))?);
    rows.extend(section("server/durability, recovery", || recovery::rows(options))?);
    Ok(rows)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn to_f64(count: u64) -> f64 {
    count as f64
}
