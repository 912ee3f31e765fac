//! Keys of the config that are part of the plan and not of this version: refused by name, so that
//! nobody believes they do something.

use toml::de::{DeTable, DeValue};

use super::error::Problem;

/// Tables and their keys; no keys means the whole table.
const UNBUILT: [(&str, &[&str]); 5] = [
    ("alert", &[]),
    ("cluster", &[]),
    ("user", &[]),
    ("server", &["password_file", "tls", "trusted_proxies", "deny"]),
    ("class", &["dedupe", "unique"]),
];

/// Refuses the first key that is not built yet.
pub(super) fn refuse(document: &DeTable<'_>) -> Result<(), Problem> {
    for (table, keys) in UNBUILT {
        let Some((name, value)) = document.get_key_value(table) else { continue };
        if keys.is_empty() {
            return Err(problem(name.span(), table));
        }
        let tables: Vec<&DeTable<'_>> = match value.get_ref() {
            DeValue::Table(table) => vec![table],
            DeValue::Array(array) => array
                .iter()
                .filter_map(|item| match item.get_ref() {
                    DeValue::Table(table) => Some(table),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        };
        for key in keys {
            if let Some((name, _)) = tables.iter().find_map(|table| table.get_key_value(*key)) {
                return Err(problem(name.span(), &format!("{table}.{key}")));
            }
        }
    }
    Ok(())
}

fn problem(at: std::ops::Range<usize>, name: &str) -> Problem {
    Problem { at, message: format!("'{name}' is not supported by this version: remove it") }
}
