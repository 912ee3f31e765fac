//! Measures Lately and its rivals. `cargo xtask bench` runs it. Only this crate depends on the rivals.

mod clock;
mod compare;
mod folder;
mod jobs;
mod library;
mod logs;
mod memory;
mod options;
mod output;
mod report;
mod rounds;
mod row;
mod server;
mod table;

use std::io::Error;
use std::process::ExitCode;

use clap::Parser;

use crate::options::Options;
use crate::row::Row;

fn main() -> ExitCode {
    if let Some(code) = memory::run_as_child() {
        return code;
    }
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            output::message(format_args!("lately-bench: {error}"));
            ExitCode::from(2)
        }
    }
}

/// Whether every figure meets its bound.
fn run(options: &Options) -> Result<bool, Error> {
    if let Some(way) = options.nothing {
        server::nothing::serve(way)?;
        return Ok(true);
    }
    if let Some([before, now]) = options.compare.as_deref() {
        return compare::run(options, before, now);
    }
    let setting = report::Setting::now();
    let mut rows = library::rows(options);
    rows.extend(memory::rows(options));
    rows.extend(server::rows(options));
    rows.extend(logs::rows(options));
    if rows.is_empty() {
        let (only, sections) = (options.only.as_deref().unwrap_or_default(), options.sections());
        return Err(Error::other(format!("no section has `{only}` in its name; there are {sections}")));
    }
    output::data(&table::render(&rows))?;
    output::data(&format!("\n{}\n{}", table::summary(&rows), table::missed(&rows)))?;
    if let Some(path) = &options.write {
        std::fs::write(path, report::document(&rows, &setting, "cargo xtask bench")?)?;
        output::message(format_args!("lately-bench: written to {}", path.display()));
    }
    Ok(rows.iter().all(Row::holds))
}
