//! Servers: ours, its rivals, and one that does nothing, on free ports and under the same load.

use crate::options::Options;
use crate::row::Row;

/// The rows of the servers.
pub(crate) fn rows(_options: &Options) -> Vec<Row> {
    Vec::new()
}
