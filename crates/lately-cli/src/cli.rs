//! The command line: one variant per subcommand.

use clap::{Parser, Subcommand};

use crate::commands::{
    backtest, bench, check, cluster, completions, count, dump, health, hit, hits, limit, man, produce,
    restore, route, serve, ship, top,
};

/// Count hits in sliding windows and decide rate limits: a server, its client, and a tool for logs.
///
/// Standard output is data only; messages go to standard error. Exit code 0: done. 1: a negative answer, such as
/// denied. 2: an error.
#[derive(Parser)]
#[command(name = "lately", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Serve(serve::Serve),
    Count(count::Count),
    Backtest(backtest::BacktestArgs),
    Top(top::Top),
    Ship(ship::Ship),
    Produce(produce::Produce),
    Hit(hit::Hit),
    Hits(hits::Hits),
    Limit(limit::Limit),
    Bench(bench::Bench),
    Cluster(cluster::Cluster),
    Route(route::Route),
    Dump(dump::Dump),
    Restore(restore::Restore),
    Check(check::Check),
    Health(health::Health),
    Completions(completions::Completions),
    Man(man::Man),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
