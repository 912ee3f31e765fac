//! `cargo xtask tidy`: checks the conventions of this repository that no lint covers.
//!
//! A check is a function from the text of files to problems, so its tests need no repository.

mod architecture;
mod bounds;
mod crates;
mod documents;
mod figures;
mod lockfile;
mod paths;
mod promises;
mod sources;
mod test_modules;
mod tree;

use std::path::Path;

use crate::run::{Failure, Outcome};
use crate::say;
use tree::Tree;

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
    problems.extend(architecture::check(&tree));
    problems.extend(bounds::check(&tree));
    problems.extend(promises::check(&tree));
    problems.extend(figures::check(&tree));
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
