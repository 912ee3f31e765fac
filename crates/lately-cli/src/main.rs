//! `lately`: how many hits, lately?
//!
//! One file per subcommand in `commands`. The result of a command is its exit code: 0 done, 1 a negative answer, 2 an error.

mod chart;
mod cli;
mod commands;
mod error;
mod http;
mod limits;
mod live;
mod log_args;
mod log_file;
mod logger;
mod login;
mod new_file;
mod numbers;
mod output;
mod pace;
mod progress;
mod report;
mod server;
mod service_manager;
mod ship;
mod storage;
mod table;
#[cfg(feature = "kafka")]
mod topic;
mod usage;
mod words;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};
use error::{CliError, Outcome};

fn main() -> ExitCode {
    let result = match Cli::try_parse() {
        Ok(cli) => run(cli.command),
        Err(error) => usage::report(&error),
    };
    let code = match result {
        Ok(outcome) => outcome.into(),
        Err(CliError::ClosedOutput) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            Outcome::Failed.into()
        }
    };
    output::flush();
    code
}

fn run(command: Command) -> Result<Outcome, CliError> {
    match command {
        Command::Serve(serve) => commands::serve::run(&serve),
        Command::Hit(hit) => commands::hit::run(&hit),
        Command::Hits(hits) => commands::hits::run(&hits),
        Command::Limit(limit) => commands::limit::run(&limit),
        Command::Bench(bench) => commands::bench::run(&bench),
        Command::Cluster(cluster) => commands::cluster::run(&cluster),
        Command::Route(route) => commands::route::run(&route),
        Command::Count(count) => commands::count::run(&count),
        Command::Backtest(backtest) => commands::backtest::run(&backtest),
        Command::Top(top) => commands::top::run(&top),
        Command::Ship(ship) => commands::ship::run(&ship),
        Command::Produce(produce) => commands::produce::run(&produce),
        Command::Dump(dump) => commands::dump::run(&dump),
        Command::Restore(restore) => commands::restore::run(&restore),
        Command::Check(check) => commands::check::run(&check),
        Command::Health(health) => commands::health::run(&health),
        Command::Completions(completions) => commands::completions::run(&completions, Cli::command()),
        Command::Man(man) => commands::man::run(&man, Cli::command()),
    }
}
