//! `cargo xtask figures`: fills the tables in documents for readers from the output of the benchmark.
//!
//! `figures/` has the tables, with names in braces instead of figures. `{row}` is the value of a row, which
//! may be named by the start of its name. `{row @ words}` is the number next to these words in the row's
//! note. `{row @ first > words}` searches for the words behind others.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::bench::DOCUMENT as SOURCE;
use crate::run::{Failure, Outcome};
use crate::say;

/// The documents with figures, and their tables.
pub(crate) const DOCUMENTS: [(&str, &str); 4] = [
    ("README.md", include_str!("../figures/readme.md")),
    ("docs/benchmarks.md", include_str!("../figures/benchmarks.md")),
    ("docs/guide/logs.md", include_str!("../figures/logs.md")),
    ("docs/decisions/counters.md", include_str!("../figures/counters.md")),
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

/// A document with its tables filled from the output of the benchmark, or an error.
pub(crate) fn filled(document: &str, tables: &str, source: &str) -> Result<String, String> {
    let source = serde_json::from_str(source).map_err(|error| format!("{SOURCE}: {error}"))?;
    let rows = Rows::of(&source);
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

/// A row of the benchmark.
struct Figure<'a> {
    value: Option<f64>,
    note: &'a str,
}

/// The rows of the benchmark, by name.
struct Rows<'a>(BTreeMap<&'a str, Figure<'a>>);

impl<'a> Rows<'a> {
    fn of(source: &'a Value) -> Rows<'a> {
        let rows = source["rows"].as_array().into_iter().flatten();
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        Rows(
            rows.map(|row| {
                (text(&row["name"]), Figure { value: row["value"].as_f64(), note: text(&row["beside"]) })
            })
            .collect(),
        )
    }

    /// The row with this name, or the only one whose name starts with it.
    fn get(&self, name: &str) -> Result<&Figure<'a>, String> {
        if let Some(figure) = self.0.get(name) {
            return Ok(figure);
        }
        let begun: Vec<_> = self.0.iter().filter(|(row, _)| row.starts_with(name)).collect();
        match begun[..] {
            [(_, figure)] => Ok(figure),
            [] => Err(format!("{SOURCE} has no row {name:?}")),
            _ => Err(format!("{SOURCE} has several rows that begin with {name:?}")),
        }
    }

    /// Replaces the names in braces by figures.
    fn fill(&self, text: &str) -> Result<String, String> {
        let mut parts = text.split('{');
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (wanted, rest) =
                part.split_once('}').ok_or_else(|| format!("{part:?} has no closing brace"))?;
            if let Some((name, words)) = wanted.split_once(" @ ") {
                filled.push_str(self.number_in_note(name, words)?);
            } else {
                filled.push_str(&self.get(wanted)?.value.map_or_else(|| "none".to_owned(), grouped));
            }
            filled.push_str(rest);
        }
        Ok(filled)
    }

    fn number_in_note(&self, name: &str, words: &str) -> Result<&'a str, String> {
        number_at(self.get(name)?.note, words)
            .ok_or_else(|| format!("{SOURCE} has no number at {words:?} beside {name:?}"))
    }
}

/// A number with commas between thousands.
fn grouped(value: f64) -> String {
    let plain = value.to_string();
    let (whole, fraction) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// The number behind these words, or, if there is none, before them.
fn number_at<'t>(text: &'t str, words: &str) -> Option<&'t str> {
    let (text, words) = match words.split_once(" > ") {
        Some((first, words)) => (text.split_once(first)?.1, words),
        None => (text, words),
    };
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

    const ROWS: &str = r#"{"rows":[
        {"name":"hit, 1 M keys","value":129,"beside":"governor 243, u64 keys 24, governor 3.5; 1,813 bytes"},
        {"name":"hit, 10 M keys","value":38355.0},
        {"name":"read","value":1.5,"beside":"bare 2"},
        {"name":"none","value":null}
    ]}"#;

    fn filled_with(table: &str) -> Result<String, String> {
        filled("Text.\n\n| a | b |\n|---|---|\n| old | old |\n\nMore.\n", table, ROWS)
    }

    #[test]
    fn tables_get_the_figures_of_the_rows() {
        let table =
            "| a | b |\n|---|---|\n| {hit, 1 M keys} / {hit, 10 M} | {read}, {read @ bare}, {none} |\n";
        let wanted = "Text.\n\n| a | b |\n|---|---|\n| 129 / 38,355 | 1.5, 2, none |\n\nMore.\n";
        assert_eq!(filled_with(table).as_deref(), Ok(wanted));
        let table = "| a | b |\n| {hit, 1 M keys @ governor} | {hit, 1 M keys @ bytes} |";
        assert_eq!(filled_with(table).expect("both are there").lines().nth(3), Some("| 243 | 1,813 |"));
        let table = "| a | b |\n| {hit, 1 M keys @ u64 keys > governor} | |";
        assert_eq!(filled_with(table).expect("it is there").lines().nth(3), Some("| 3.5 | |"));
    }

    #[test]
    fn a_figure_that_is_not_there_is_an_error() {
        let error =
            |cell: &str| filled_with(&format!("| a | b |\n| {cell} | |")).expect_err("it is not there");
        assert!(error("{write}").ends_with("has no row \"write\""));
        assert!(error("{hit}").contains("several rows"));
        assert!(error("{read @ governor}").contains("no number at \"governor\""));
        assert!(error("{read").contains("no closing brace"));
        assert!(filled_with("| c |\n| {read} |").expect_err("no such table").contains("headed | c |"));
    }
}
