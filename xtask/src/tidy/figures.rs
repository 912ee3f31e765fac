//! Checks that the tables of documents have the figures of the benchmark.

use super::tree::Tree;
use crate::bench::DOCUMENT;
use crate::figures::{DOCUMENTS, filled};

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let text = |path| tree.get(path).map_or("", |file| &file.text);
    let check = |(path, tables)| match filled(text(path), tables, text(DOCUMENT)) {
        Ok(filled) if filled == text(path) => None,
        Ok(_) => Some(format!("{path}: has other figures than {DOCUMENT}: run `cargo xtask figures`")),
        Err(problem) => Some(format!("{path}: {problem}")),
    };
    DOCUMENTS.into_iter().filter_map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_without_its_figures_is_found() {
        let problems = check(&Tree::of(&[("README.md", "# Lately\n"), (DOCUMENT, "{}")]));
        assert_eq!(problems.len(), DOCUMENTS.len());
        assert!(problems[0].starts_with("README.md: has no table headed | 50 connections"), "{problems:?}");
    }
}
