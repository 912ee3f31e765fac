//! The library and its rivals, in nanoseconds.
//!
//! Keys are made and shuffled before anything is timed. Time is passed in: it advances by a millisecond every
//! 1,024 operations, a million hits a second. The rows of the bare machine show how fast the machine is.

mod bare;
mod full;
mod growth;
mod halves;
mod keyed;
pub(crate) mod keys;
mod layer;
mod rivals;
mod scale;
mod shared;
mod subject;
mod unkeyed;

use keyed::{MILLION, Many};
use scale::Scale;

use crate::options::Options;
use crate::output::section;
use crate::row::Row;

/// The rows of the sections that are wanted.
pub(crate) fn rows(options: &Options) -> Vec<Row> {
    let scale = Scale::of(options);
    let mut rows = Vec::new();
    let wants = |section: &str| options.wants(&format!("library/{section}"));
    if wants("un-keyed") {
        rows.extend(section("library/un-keyed", || unkeyed::rows(&scale)));
    }
    if wants("shared") {
        rows.extend(section("library/shared", || shared::rows(&scale)));
    }
    if ["bare", "keyed", "full", "many"].into_iter().any(wants) {
        let (bare, machine) = section("library/bare", || bare::measure(&scale));
        rows.extend(machine);
        if wants("keyed") {
            rows.extend(section("library/keyed", || million().rows(&scale, bare)));
        }
        if wants("full") {
            rows.extend(section("library/full", || full::rows(&scale, bare)));
        }
        if wants("many") {
            rows.extend(section("library/many", || ten_million(&scale).rows(&scale, bare)));
        }
    }
    if wants("growth") {
        rows.extend(section("library/growth", || growth::rows(&scale)));
    }
    if wants("layer") {
        rows.extend(section("library/layer", || layer::rows(&scale)));
    }
    if options.wants_to_compare("library/week") {
        rows.extend(section("library/week", || full::week_rows(&scale)));
    }
    if options.wants_to_compare("library/steady") {
        rows.extend(section("library/steady", || full::steady_rows(&scale)));
    }
    rows
}

fn million() -> Many {
    Many {
        keys: MILLION,
        name: "1 M",
        single: (110.0, 80.0),
        batch: (50.0, 35.0),
        floor: 5.0,
        all_rivals: true,
    }
}

fn ten_million(scale: &Scale) -> Many {
    Many {
        keys: 10 * MILLION,
        name: "10 M",
        single: (210.0, 160.0),
        batch: (65.0, 48.0),
        floor: 17.0,
        all_rivals: scale.is_whole,
    }
}
