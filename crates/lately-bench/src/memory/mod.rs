//! Bytes per key: how much the resident set of a process grows when keys are filled in.
//!
//! Each layout is filled in a process of its own, this program started again, so that none begins
//! with what another left behind. The allocator is the default one. An empty store is there before,
//! so that its shards do not count as keys.

mod fill;
mod layout;
mod process;

use std::process::ExitCode;

use crate::options::Options;
use crate::row::{Must, Row};
use crate::say::section;

use layout::{Keeper, LAYOUTS, Layout};

/// Fills a layout and prints its bytes per key, if this process was started to do that.
pub(crate) fn run_as_child() -> Option<ExitCode> {
    process::run_as_child()
}

/// The rows, if they are wanted.
pub(crate) fn rows(options: &Options) -> Vec<Row> {
    let wanted: Vec<&Layout> =
        LAYOUTS.iter().filter(|layout| options.wants(&format!("memory/{}", layout.name))).collect();
    // Memory can be measured on both cores at once, unlike time. The last layout takes as long as the others.
    let middle = wanted.len().saturating_sub(1);
    let (most, last) = wanted.split_at(middle);
    let of = |layouts: &[&Layout]| -> Vec<Row> {
        let row = |layout: &&Layout| {
            let keys = options.pick(layout.keys, layout.quick_keys);
            section(&format!("memory/{}", layout.name), || row(layout, keys))
        };
        layouts.iter().map(row).collect()
    };
    std::thread::scope(|scope| {
        let last = scope.spawn(|| of(last));
        let mut rows = of(most);
        rows.extend(last.join().expect("a failure is a row"));
        rows
    })
}

fn row(layout: &Layout, keys: u32) -> Row {
    let name = format!("bytes per key, {keys} keys, {}", layout.name);
    let (most, aim) = layout.must;
    let must = Must::AtMost(most, aim);
    match process::measure(layout, keys, Keeper::Store) {
        Ok(bytes) => Row::new("memory", name, bytes, "bytes", must).beside(beside(layout, keys)),
        Err(error) => Row::new("memory", name, f64::NAN, "bytes", must).beside(error),
    }
}

fn beside(layout: &Layout, keys: u32) -> String {
    let figure = |&keeper: &Keeper| match process::measure(layout, keys, keeper) {
        Ok(bytes) => format!("{} {bytes:.0}", keeper.name()),
        Err(error) => format!("{}: {error}", keeper.name()),
    };
    let figures: Vec<String> = layout.beside.iter().map(figure).collect();
    figures.join(", ")
}
