//! The figures of `docs/guide/limits.md` and of its picture: one trace, decided by each kind of limit.

mod fixed;
mod limiter;
mod replay;
mod trace;

use std::fmt::Write;
use std::fs;
use std::path::Path;

use replay::Replay;
use trace::LENGTH_MS;

/// What a column counts, of those that were admitted from one time until before another.
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
fn the_page_about_limits_and_its_picture_have_the_figures_of_the_code() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let [page, picture] =
        ["limits.md", "limits.svg"].map(|name| fs::read_to_string(docs.join(name)).expect(name));
    let replays = Replay::all();
    let table = table(&replays);
    assert!(page.contains(&table), "the page is to have this table:\n{table}");
    // The picture says of each kind the most that it admits in any window, from top to bottom.
    let shown: Vec<usize> = picture
        .split("at most <tspan")
        .skip(1)
        .map(|text| text.split(['>', '<']).nth(1).and_then(|most| most.parse().ok()).expect("a number"))
        .collect();
    assert_eq!(shown, replays.each_ref().map(Replay::most));
    // And it has a mark for each request that each admitted or denied.
    let marks = picture.matches("<circle").count();
    assert_eq!(marks, replays.iter().map(|replay| replay.requests.len()).sum::<usize>() + 2);
}
