//! Every promise in the documents names the test that holds it, as ``(test: `name`)``, and that test exists.

use std::collections::HashSet;

use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let functions: HashSet<&str> = tree.with_extension("rs").flat_map(|file| functions(&file.text)).collect();
    let mut problems = Vec::new();
    for file in tree.with_extension("md") {
        for name in promised(&file.text) {
            // A path may lead to it: `store::late_hits_count`.
            let function = name.rsplit("::").next().unwrap_or(name);
            if !functions.contains(function) {
                problems.push(format!("{}: names the test `{name}`; there is no such function", file.path));
            }
        }
    }
    problems
}

/// The names of all functions.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| !c.is_alphanumeric() && c != '_';
    text.lines().filter_map(move |line| {
        let code = line.trim_start();
        let at = if code.starts_with("fn ") { 3 } else { code.find(" fn ")? + 4 };
        if code.starts_with("//") { None } else { code[at..].split(ends).next() }
    })
}

/// What stands in backticks between `(test:` or `(tests:` and the next `)`, also over the end of a line.
fn promised(text: &str) -> impl Iterator<Item = &str> {
    ["(test:", "(tests:"].into_iter().flat_map(move |opening| {
        let inside = text.split(opening).skip(1).filter_map(|rest| rest.split(')').next());
        inside.flat_map(|list| list.split('`').skip(1).step_by(2))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_without_its_test_is_found() {
        let code =
            "//! What.\n#[test]\nfn hits_add_up() {}\npub(crate) async fn wide<T>() {}\n// fn gone() {}\n";
        let check = |text: &str, expected: &[&str]| {
            let problems = check(&Tree::of(&[("a.rs", code), ("a.md", text)]));
            let expected: Vec<_> = expected
                .iter()
                .map(|name| format!("a.md: names the test `{name}`; there is no such function"))
                .collect();
            assert_eq!(problems, expected, "{text}");
        };
        check("Hits add up (test: `hits_add_up`).", &[]);
        check("Both (tests: `hits_add_up`,\n`core::wide`).", &[]);
        check("Over a line (test:\n`lost`).", &["lost"]);
        check("Gone (test: `gone`), near (test: `hits_add`).", &["gone", "hits_add"]);
        check("Both (tests: `wide`, `lost`).", &["lost"]);
        check("The `gone` is no promise (here: `gone`).", &[]);
    }
}
