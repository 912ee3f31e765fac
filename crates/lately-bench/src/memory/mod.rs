//! Bytes per key: how much the resident set of a process grows when keys are filled in, its program left out.
//!
//! Each layout is filled in a process of its own, this program started again, so that none begins
//! with what another left behind. The allocator is the default one. A store has a few thousand keys
//! before others are measured in it: its 1,024 shards, and what each takes with its first keys, are a
//! row of their own and count as nobody's. Nor does what any filling leaves behind, however short: a
//! key costs what those added that came after the first quarter, which has a process of its own. All keys get their hits at the same pace, so that their
//! entries grow at the same moment and what one gives back no other needs: the dearest case.

mod counters;
mod fill;
mod layout;
mod process;

use std::process::ExitCode;

use crate::jobs::{Job, side_by_side};
use crate::options::Options;
use crate::row::{Must, Row};
use crate::say::section;
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
    // The longest come last: they start first.
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
            others.push(format!("{} {}", other.keeper.name(), told(found)));
        }
        rows.push(row(filling, found, &others));
    }
    rows
}

type Found = Result<Cost, String>;

/// What a keeper was found to take.
#[derive(Clone, Copy)]
struct Cost {
    bytes_per_key: f64,
    /// What the keeper accounts for itself, each.
    accounted: f64,
    filled: Filled,
}

/// The first keys bring what is there once: they are this share of all, and do not count.
const FIRST: u32 = 4;

/// A layout that one keeper is filled with.
struct Filling {
    layout: &'static Layout,
    keys: u32,
    keeper: Keeper,
}

impl Filling {
    /// Ours, then those beside it.
    fn all(layout: &'static Layout, options: &Options) -> impl Iterator<Item = Filling> {
        let keys = options.pick(layout.keys, layout.quick_keys);
        let keepers = [Keeper::Store].into_iter().chain(layout.beside.iter().copied());
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
    let beside = [&[ours], others, &[layout.note.to_owned()]].concat();
    let beside: Vec<String> = beside.into_iter().filter(|part| !part.is_empty()).collect();
    Row::new("memory", name, value, "bytes", Must::AtMost(most, aim)).beside(beside.join("; "))
}

/// What the figures of the keys leave out.
fn empty(found: &Found) -> Row {
    let row = |value: f64| Row::new("memory", "an empty store", value, "KiB", Must::Nothing);
    match found {
        Ok(Cost { filled, .. }) => row(filled.empty / 1_024.0).beside(format!(
            "with {BASE_KEYS} keys of a hit, which are in each store before the keys that are measured: {}",
            number(filled.base / 1_024.0)
        )),
        Err(error) => row(f64::NAN).beside(error.clone()),
    }
}

fn told(found: &Found) -> String {
    found.as_ref().map_or_else(String::clone, |cost| number(cost.bytes_per_key))
}
