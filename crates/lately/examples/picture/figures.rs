//! The figures: a table in a document, between two marks.

use std::fmt::Write;

use crate::replay::Replay;
use crate::trace::LENGTH_MS;

const BEGIN: &str = "<!-- cargo xtask picture writes this -->\n";
const END: &str = "<!-- until here -->\n";

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

/// The document with the table between its marks.
pub(crate) fn put(document: &str, table: &str) -> Result<String, String> {
    let parts = document.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or("the document lacks the marks that figures stand between")?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_replaces_what_stands_between_the_marks() {
        let document = format!("a\n{BEGIN}old\n{END}z\n");
        assert_eq!(put(&document, "new\n"), Ok(format!("a\n{BEGIN}new\n{END}z\n")));
        assert!(put("a\n", "new\n").is_err());
        assert!(put(&format!("{END}{BEGIN}"), "new\n").is_err());
    }
}
