//! The figures of `docs/guide/limits.md` and of its picture: each kind of limit decides one trace.

mod fixed;
mod limiter;
mod replay;
mod trace;

use std::fmt::Write;
use std::fs;
use std::path::Path;

use replay::Replay;
use trace::LENGTH_MS;

/// The title of a column, and the period whose admitted requests it counts.
const COLUMNS: [(&str, i64, i64); 4] = [
    ("admitted, 0 to 45 s", 0, LENGTH_MS),
    ("at the edges, 9 to 13 s", 9_000, 13_000),
    ("a new start, 25 to 35 s", 25_000, 35_000),
    ("in the long run, 35 to 45 s", 35_000, LENGTH_MS),
];

/// A row for each kind of limit.
pub(crate) fn table(replays: &[Replay]) -> String {
    let mut table = "| | most in any 10 s |".to_owned();
    for (title, ..) in COLUMNS {
        table += &format!(" {title} |");
    }
    table += "\n|---|---:|---:|---:|---:|---:|\n";
    let mut row = |name: &str, most: &str, count: &dyn Fn(i64, i64) -> usize| {
        write!(table, "| {name} | {most} |").expect("text takes it");
        for (_, from_ms, until_ms) in COLUMNS {
            write!(table, " {} |", count(from_ms, until_ms)).expect("text takes it");
        }
        table.push('\n');
    };
    if let Some(replay) = replays.first() {
        let requested = |from_ms, until_ms| {
            replay.requests.iter().filter(|request| (from_ms..until_ms).contains(&request.at_ms)).count()
        };
        row("requests", "", &requested);
    }
    for replay in replays {
        let Replay { name, how, .. } = replay;
        let admitted = |from_ms, until_ms| replay.admitted_between(from_ms, until_ms);
        row(&format!("{name}: `{how}`"), &format!("**{}**", replay.most()), &admitted);
    }
    table
}

#[test]
fn the_limits_page_and_picture_have_the_computed_figures() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let [page, picture] =
        ["limits.md", "limits.svg"].map(|name| fs::read_to_string(docs.join(name)).expect(name));
    let replays = Replay::all();
    let table = table(&replays);
    assert!(page.contains(&table), "the page does not have this table:\n{table}");
    // From top to bottom, the picture gives the most requests that each kind admits in any window.
    let shown: Vec<usize> = picture
        .split("at most <tspan")
        .skip(1)
        .map(|text| text.split(['>', '<']).nth(1).and_then(|most| most.parse().ok()).expect("a number"))
        .collect();
    assert_eq!(shown, replays.each_ref().map(Replay::most));
    // It also has a mark for each request of each kind.
    let marks = picture.matches("<circle").count();
    assert_eq!(marks, replays.iter().map(|replay| replay.requests.len()).sum::<usize>() + 2);
}
