//! Bytes per key: the growth of the resident set of a process, without its program, by its keys.
//!
//! Each layout is filled in its own process, which is this program started again, so that none inherits
//! memory of another. The allocator is the default one. A store has a few thousand keys before the measured
//! ones: the fixed cost of its 1,024 shards, and of each shard's first keys, is a separate row and does not
//! count for the keys. Nor do the remainders of any filling: a key's cost is that of the keys after the first
//! quarter, which has its own process. All keys get their hits at the same pace, so that their entries grow
//! at the same time and cannot reuse each other's memory. That is the most expensive case.

mod counters;
mod fill;
mod layout;
mod process;

use std::process::ExitCode;

use crate::jobs::{Job, side_by_side};
use crate::options::Options;
use crate::output::section;
use crate::row::{Must, Row};
use crate::table::number;

use fill::BASE_KEYS;
use layout::{Keeper, LAYOUTS, Layout};
use process::Filled;

pub(crate) use process::{bytes_of_a_counter, resident_of};

/// Fills a layout and prints its bytes per key, if this process was started to do that.
pub(crate) fn run_as_child() -> Option<ExitCode> {
    process::run_as_child()
}

/// The rows, if they are wanted.
pub(crate) fn rows(options: &Options) -> Vec<Row> {
    let wanted = LAYOUTS.iter().filter(|layout| options.wants(&format!("memory/{}", layout.name)));
    let fillings: Vec<Filling> = wanted.flat_map(|layout| Filling::all(layout, options)).collect();
    if fillings.is_empty() {
        return Vec::new();
    }
    // The longest are last in the table, and start first.
    let jobs = fillings.iter().rev().map(|filling| -> Job<'_, Found> { Box::new(|| filling.measure()) });
    let mut found = section("memory", || side_by_side(jobs.collect()));
    found.reverse();
    let mut rows = Vec::new();
    let of = |filling: &Filling| filling.keeper == Keeper::Store;
    rows.extend(found.iter().zip(&fillings).find(|(_, filling)| of(filling)).map(|(found, _)| empty(found)));
    let mut left = fillings.iter().zip(&found).peekable();
    while let Some((filling, found)) = left.next() {
        let mut others = Vec::new();
        while let Some((other, found)) = left.next_if(|(other, _)| !of(other)) {
            others.push(format!("{} {}", other.keeper.name(), figure_text(found)));
        }
        rows.push(row(filling, found, &others));
    }
    rows
}

type Found = Result<Cost, String>;

/// The measured cost of a keeper.
#[derive(Clone, Copy)]
struct Cost {
    bytes_per_key: f64,
    /// The bytes per key that the keeper accounts for itself.
    accounted: f64,
    filled: Filled,
}

/// The first keys cause fixed costs. This share of all keys does not count.
const FIRST: u32 = 4;

/// A layout in a keeper.
struct Filling {
    layout: &'static Layout,
    keys: u32,
    keeper: Keeper,
}

impl Filling {
    /// Ours, then the rivals.
    fn all(layout: &'static Layout, options: &Options) -> impl Iterator<Item = Filling> {
        let keys = options.pick(layout.keys, layout.quick_keys);
        let keepers = [Keeper::Store].into_iter().chain(layout.rivals.iter().copied());
        keepers.map(move |keeper| Filling { layout, keys, keeper })
    }

    fn measure(&self) -> Found {
        let of = |keys| process::measure(self.layout, keys, self.keeper);
        let (first, all) = (of(self.keys / FIRST)?, of(self.keys)?);
        Ok(Cost {
            bytes_per_key: (all.grown - first.grown) / f64::from(self.keys - self.keys / FIRST),
            accounted: all.accounted / f64::from(self.keys),
            filled: all,
        })
    }
}

fn row(filling: &Filling, found: &Found, others: &[String]) -> Row {
    let Filling { layout, keys, .. } = filling;
    let (most, aim) = layout.must;
    let name = format!("bytes per key, {keys} keys, {}", layout.name);
    let value = found.as_ref().map_or(f64::NAN, |cost| cost.bytes_per_key);
    let ours = match found {
        Ok(cost) => format!("accounted for {}", number(cost.accounted)),
        Err(error) => error.clone(),
    };
    let note = [&[ours], others, &[layout.note.to_owned()]].concat();
    let note: Vec<String> = note.into_iter().filter(|part| !part.is_empty()).collect();
    Row::new("memory", name, value, "bytes", Must::AtMost(most, aim)).note(note.join("; "))
}

/// The costs that the figures of keys do not include.
fn empty(found: &Found) -> Row {
    let row = |value: f64| Row::new("memory", "an empty store", value, "KiB", Must::Nothing);
    match found {
        Ok(Cost { filled, .. }) => row(filled.empty / 1_024.0).note(format!(
            "with {BASE_KEYS} keys of a hit, which are in each store before the keys that are measured: {}",
            number(filled.base / 1_024.0)
        )),
        Err(error) => row(f64::NAN).note(error.clone()),
    }
}

fn figure_text(found: &Found) -> String {
    found.as_ref().map_or_else(String::clone, |cost| number(cost.bytes_per_key))
}
