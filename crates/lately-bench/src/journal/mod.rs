//! What a journal could stand on: plain files, a log-structured tree, a tree of pages.
//!
//! What is written are batches, as one turn of an event loop reads them: one thread appends them in order. The
//! writer is a process of its own and is killed at the end, so that what is recovered is what a kill leaves.

mod batches;
mod carrier;
mod disk;
mod file;
mod fjall;
mod redb;
mod round;
mod writer;

use std::process::ExitCode;

use carrier::Kind;
use round::{Round, syncs_a_second};
use writer::TAIL;

use crate::options::Options;
use crate::rounds::{Contender, interleave, median, median_ratio};
use crate::row::{Must, Row};
use crate::say::section;
use crate::table::number;

const TABLE: &str = "journal";
const SECTION: &str = "journal/carriers";

/// Batches of a round: as many that what is kept in memory first is written out, and more than one journal of
/// fjall is filled. And those of a round in which each is synced.
const BATCHES: u64 = 50_000;
const QUICK_BATCHES: u64 = 10_000;
const SYNCED: u64 = 200;
const QUICK_SYNCED: u64 = 50;

/// Those that differ where each batch is synced.
const SYNCING: [Kind; 3] = [Kind::File, Kind::Fjall, Kind::Redb];

/// Writes a journal until it is killed, if this process was started to do that.
pub(crate) fn run_as_child() -> Option<ExitCode> {
    writer::run_as_child()
}

/// The rows, if they are wanted.
pub(crate) fn rows(options: &Options) -> Vec<Row> {
    if !options.wants_to_compare(SECTION) {
        return Vec::new();
    }
    section(SECTION, || {
        let batches = options.pick(BATCHES, QUICK_BATCHES);
        let contender = |kind: Kind| Contender::new(kind.name(), move || Round::of(kind, batches));
        let rounds = interleave(&mut Kind::ALL.map(contender), options.rounds());
        let synced = options.pick(SYNCED, QUICK_SYNCED);
        let contender = |kind: Kind| Contender::new(kind.name(), move || syncs_a_second(kind, synced));
        let syncs = interleave(&mut SYNCING.map(contender), options.rounds());
        let mut rows: Vec<Row> = figures(&rounds).into_iter().flatten().collect();
        rows.extend(SYNCING.iter().zip(&syncs).map(|(kind, figures)| {
            let value = median(figures);
            let beside = format!(
                "{} µs each; ÷ file {}",
                number(1e6 / value),
                number(median_ratio(figures, &syncs[0]))
            );
            row("one sync a batch", kind.name(), value, "syncs/s").beside(beside)
        }));
        rows
    })
}

fn row(what: &str, carrier: &str, value: f64, unit: &'static str) -> Row {
    Row::new(TABLE, format!("{what}: {carrier}"), value, unit, Must::Nothing)
}

/// What the rounds of all carriers found, a figure after the other.
fn figures(rounds: &[Vec<Round>]) -> [Vec<Row>; 6] {
    let medians: Vec<Round> = rounds.iter().map(|rounds| Round::median(rounds)).collect();
    let all = |row: &dyn Fn(&'static str, &Round) -> Row| {
        Kind::ALL.iter().zip(&medians).map(|(kind, round)| row(kind.name(), round)).collect::<Vec<Row>>()
    };
    [
        all(&|name, round| {
            row("a sync every 500 ms", name, round.batches_a_second / 1e3, "k batches/s")
                .beside(format!("without the time of the syncs {}", number(round.appends_a_second / 1e3)))
        }),
        all(&|name, round| {
            row("CPU per batch", name, round.cpu_us, "µs").beside(format!(
                "all threads; {} MiB resident; {} bytes written per byte",
                number(round.resident_bytes / f64::from(1 << 20)),
                number(round.written)
            ))
        }),
        all(&|name, round| {
            row("left by a kill", name, round.tail, "batches")
                .beside(format!("of {} after the last sync; all before it were there", number(TAIL as f64)))
        }),
        all(&|name, round| {
            row("recovery", name, round.recovered / 1e6, "MB/s").beside("opened after the kill, all read")
        }),
        all(&|name, round| row("on disk per byte", name, round.disk, "bytes")),
        all(&|name, round| {
            row("on disk per byte, older half cut", name, round.cut, "bytes")
                .beside(format!("cut in {} ms", number(round.cut_ms)))
        }),
    ]
}
