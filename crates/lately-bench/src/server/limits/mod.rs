//! The cost of decisions, compared with plain hits and with rivals.

mod counts;
mod crowded;
mod figures;
mod load;
mod pipelined;
mod servers;
mod single;

use servers::Servers;

use crate::options::Options;
use crate::output::section;
use crate::row::Row;
use crate::server::failure::Failure;

const TABLE: &str = "decisions of the server";

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let servers = section("server/limits, filling", || Servers::start(options))?;
    let mut rows = vec![section("server/limits, counts", || counts::row(options, &servers))?];
    rows.extend(section("server/limits, pipeline 64", || pipelined::rows(options, &servers))?);
    rows.extend(section("server/limits, pipeline 1", || single::rows(options, &servers))?);
    drop(servers);
    rows.extend(section("server/limits, denied", || crowded::rows(options))?);
    Ok(rows)
}
