//! `cargo xtask figures`: the tables of figures in README.md and docs/tradeoffs.md, filled from docs/benchmarks.md.
//!
//! `figures/` has the tables with names in braces in place of figures: `{row}` is the value of a row, which may be named by
//! how its name begins; `{row +}` with its unit; `{row @ words}` the number beside it that stands next to these words. A
//! value that misses what it must be is bold, one that holds by ratio is marked `(r)`. A line `{missed}` is for all rows
//! that miss and that the table does not name, a line each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::bench::DOCUMENT as SOURCE;
use crate::run::{Failure, Outcome};
use crate::say;

/// The documents that have some, and their tables.
pub(crate) const DOCUMENTS: [(&str, &str); 2] = [
    ("README.md", include_str!("../figures/readme.md")),
    ("docs/tradeoffs.md", include_str!("../figures/tradeoffs.md")),
];

pub(crate) fn run(root: &Path) -> Outcome {
    say::step("figures");
    let failed = |path: &Path, error| Failure::new(format!("figures: {}: {error}", path.display()));
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| failed(path, error.to_string()));
    let source = read(&root.join(SOURCE))?;
    for (name, tables) in DOCUMENTS {
        let path = root.join(name);
        let filled = filled(&read(&path)?, tables, &source).map_err(|problem| failed(&path, problem))?;
        fs::write(&path, filled).map_err(|error| failed(&path, error.to_string()))?;
    }
    say::passed("figures");
    Ok(())
}

/// A document with its tables filled from what the benchmark wrote; or what is wrong.
pub(crate) fn filled(document: &str, tables: &str, source: &str) -> Result<String, String> {
    let rows = Rows::of(source);
    let mut document = document.to_owned();
    for table in tables.trim_end().split("\n\n") {
        let head = table.lines().next().unwrap_or_default();
        let start =
            document.find(&format!("{head}\n")).ok_or_else(|| format!("has no table headed {head}"))?;
        let len = document[start..].find("\n\n").unwrap_or(document[start..].trim_end().len());
        document.replace_range(start..start + len, &rows.fill(table)?);
    }
    Ok(document)
}

/// The verdict of the benchmark on a figure that is not what it must be.
const MISSED: &str = "MISSED";

/// What the benchmark says of a figure.
struct Figure<'a> {
    value: &'a str,
    must: &'a str,
    verdict: &'a str,
    beside: &'a str,
}

/// The rows of the benchmark's tables, by name.
struct Rows<'a>(BTreeMap<&'a str, Figure<'a>>);

impl<'a> Rows<'a> {
    fn of(source: &'a str) -> Rows<'a> {
        let cells = |line: &'a str| {
            let cells: Vec<&str> =
                line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
            let &[name, value, must, _aim, verdict, beside] = &cells[..] else { return None };
            Some((name, Figure { value, must, verdict, beside }))
        };
        Rows(source.lines().filter_map(cells).collect())
    }

    /// The row of a name, or the only one whose name begins so.
    fn get(&self, name: &str) -> Result<(&'a str, &Figure<'a>), String> {
        if let Some((name, figure)) = self.0.get_key_value(name) {
            return Ok((name, figure));
        }
        let begun: Vec<_> = self.0.iter().filter(|(row, _)| row.starts_with(name)).collect();
        match begun[..] {
            [(name, figure)] => Ok((name, figure)),
            [] => Err(format!("{SOURCE} has no row {name:?}")),
            _ => Err(format!("{SOURCE} has several rows that begin with {name:?}")),
        }
    }

    /// Text with figures in place of what is in braces.
    fn fill(&self, text: &str) -> Result<String, String> {
        let mut parts = text.split('{');
        let mut filled = parts.next().unwrap_or_default().to_owned();
        let mut named = Vec::new();
        for part in parts {
            let (wanted, rest) =
                part.split_once('}').ok_or_else(|| format!("{part:?} has no closing brace"))?;
            if wanted == "missed" {
                filled.push_str("{missed}");
            } else if let Some((name, words)) = wanted.split_once(" @ ") {
                filled.push_str(self.beside(name, words)?);
            } else {
                let (name, has_unit) = wanted.strip_suffix(" +").map_or((wanted, false), |name| (name, true));
                let (name, figure) = self.get(name)?;
                named.push(name);
                filled.push_str(&figure.shown(has_unit));
            }
            filled.push_str(rest);
        }
        // Only now is it known what the text names.
        Ok(filled.replace("\n{missed}", &self.missed(&named)))
    }

    fn beside(&self, name: &str, words: &str) -> Result<&'a str, String> {
        let (_, figure) = self.get(name)?;
        number_at(figure.beside, words)
            .ok_or_else(|| format!("{SOURCE} has no number at {words:?} beside {name:?}"))
    }

    /// For each row that misses and is not among these the end of a line, and a line.
    fn missed(&self, named: &[&str]) -> String {
        let missed = self.0.iter().filter(|(name, row)| row.verdict == MISSED && !named.contains(name));
        missed.map(|(name, row)| format!("\n| {name} | {} | {} |", row.shown(true), row.must)).collect()
    }
}

impl Figure<'_> {
    fn shown(&self, has_unit: bool) -> String {
        let number = self.value.split(' ').next().unwrap_or_default();
        let figure = if has_unit { self.value } else { number };
        match self.verdict {
            MISSED => format!("**{figure}**"),
            "holds by ratio" => format!("{figure} (r)"),
            _ => figure.to_owned(),
        }
    }
}

/// The number behind these words, or, where none is, before them.
fn number_at<'t>(text: &'t str, words: &str) -> Option<&'t str> {
    let number = |word: &'t str| {
        let number = word.trim_end_matches([',', ';', '.']);
        number.starts_with(|first: char| first.is_ascii_digit()).then_some(number)
    };
    text.match_indices(words).find_map(|(at, _)| {
        let behind =
            text[at + words.len()..].strip_prefix(' ').and_then(|rest| number(rest.split(' ').next()?));
        behind.or_else(|| number(text[..at].strip_suffix(' ')?.rsplit(' ').next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "\
| figure | value | must | aim | | beside it |
|---|---:|---:|---:|---|---|
| hit, 1 M keys | 129 ns | ≤ 110 | ≤ 80 | holds by ratio | governor, u64 keys 243, governor 3.5; 1,813 bytes |
| hit, 10 M keys | 251 ns | ≤ 210 | ≤ 160 | MISSED |  |
| read | 1.5 ns |  |  |  | bare 2 |
";

    fn filled_with(table: &str) -> Result<String, String> {
        filled("Text.\n\n| a | b |\n|---|---|\n| old | old |\n\nMore.\n", table, ROWS)
    }

    #[test]
    fn tables_get_the_figures_of_the_rows() {
        let table = "| a | b |\n|---|---|\n| {hit, 1 M keys} / {hit, 10 M +} | {read +}, {read @ bare} |\n";
        let wanted = "Text.\n\n| a | b |\n|---|---|\n| 129 (r) / **251 ns** | 1.5 ns, 2 |\n\nMore.\n";
        assert_eq!(filled_with(table).as_deref(), Ok(wanted));
        let table = "| a | b |\n| {hit, 1 M keys @ governor} | {hit, 1 M keys @ bytes} |";
        assert_eq!(filled_with(table).expect("both are there").lines().nth(3), Some("| 3.5 | 1,813 |"));
    }

    #[test]
    fn what_is_missed_and_not_named_gets_a_line() {
        let lines = |table: &str| filled_with(table).expect("all rows are there").lines().count();
        let table = "| a | b |\n{missed}\n| {read} | |\n";
        let filled = filled_with(table).expect("all rows are there");
        assert_eq!(filled.lines().nth(3), Some("| hit, 10 M keys | **251 ns** | ≤ 210 |"));
        assert_eq!(lines("| a | b |\n{missed}\n| {hit, 10 M +} | |\n"), lines(table) - 1);
        assert_eq!(lines("| a | b |\n{missed}\n| {read @ bare} | |\n"), lines(table));
    }

    #[test]
    fn what_is_not_there_is_told() {
        let error =
            |cell: &str| filled_with(&format!("| a | b |\n| {cell} | |")).expect_err("it is not there");
        assert!(error("{write}").ends_with("has no row \"write\""));
        assert!(error("{hit}").contains("several rows"));
        assert!(error("{read @ governor}").contains("no number at \"governor\""));
        assert!(error("{read").contains("no closing brace"));
        assert!(filled_with("| c |\n| {read} |").expect_err("no such table").contains("headed | c |"));
    }
}
