//! `cargo xtask tidy`: the habits of this repository that no lint knows, as checks with a message each.
//!
//! A check is a function from the text of files to problems, so its own tests need no repository.

mod crates;
mod documents;
mod lockfile;
mod paths;
mod promises;
mod sources;
mod test_modules;
mod tree;

use std::path::Path;

use crate::figures;
use crate::run::{Failure, Outcome};
use crate::say;
use tree::Tree;

/// Documents with other figures than the benchmark wrote.
fn check_figures(tree: &Tree) -> Vec<String> {
    let text = |path| tree.get(path).map_or("", |file| &file.text);
    let check = |(path, tables)| match figures::filled(text(path), tables, text(figures::SOURCE)) {
        Ok(filled) if filled == text(path) => None,
        Ok(_) => {
            Some(format!("{path}: has other figures than {}: run `cargo xtask figures`", figures::SOURCE))
        }
        Err(problem) => Some(format!("{path}: {problem}")),
    };
    figures::DOCUMENTS.into_iter().filter_map(check).collect()
}

pub(crate) fn run(root: &Path) -> Outcome {
    say::step("tidy");
    let tree = Tree::read(root)?;
    let mut problems = Vec::new();
    for file in tree.files() {
        problems.extend(paths::check(file));
    }
    for file in tree.with_extension("rs") {
        problems.extend(sources::check(file));
    }
    for file in tree.with_extension("md") {
        problems.extend(documents::check(file, &tree));
    }
    problems.extend(promises::check(&tree));
    problems.extend(check_figures(&tree));
    problems.extend(test_modules::check(&tree));
    problems.extend(crates::check_names(&tree));
    problems.extend(crates::check_dependencies(root)?);
    if let Some(file) = tree.get("Cargo.lock") {
        problems.extend(lockfile::check(&file.text));
    }
    if problems.is_empty() {
        return Ok(());
    }
    let count = problems.len();
    Err(Failure::new(format!("tidy: {count} to repair:\n  {}", problems.join("\n  "))))
}
