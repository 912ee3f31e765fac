//! Checks `docs/guarantees.md`, the one page that names tests: each name in a last column of its tables must
//! be an existing test.

use std::collections::HashSet;

use super::tree::Tree;

const PAGE: &str = "docs/guarantees.md";

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let tests: HashSet<&str> = tree.with_extension("rs").flat_map(|file| tests(&file.text)).collect();
    let mut problems = Vec::new();
    let page = tree.get(PAGE).map_or("", |file| &file.text);
    for (index, row) in page.lines().enumerate().filter(|(_, line)| line.starts_with("| ")) {
        let named = named(row);
        let is_head = row == HEAD || row == BOUNDS_HEAD;
        if named.is_empty() && !is_head {
            problems.push(format!("{PAGE}:{}: a promise without a test", index + 1));
        }
        for name in named.iter().filter(|name| !tests.contains(*name)) {
            problems.push(format!("{PAGE}:{}: names the test `{name}`; there is no such test", index + 1));
        }
    }
    for file in tree.with_extension("md") {
        for (index, line) in file.text.lines().enumerate() {
            if MARKS.iter().any(|mark| line.contains(mark)) {
                problems.push(format!("{}:{}: names a test: its place is {PAGE}", file.path, index + 1));
            }
        }
    }
    problems
}

const HEAD: &str = "| promise | tests |";
const BOUNDS_HEAD: &str = "| bound | tests |";
const MARKS: [&str; 2] = ["(test:", "(tests:"];

/// The functions with a `#[test]` among their attributes, or a similar one such as `#[tokio::test]`.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    text.lines().filter_map(move |line| {
        let code = line.trim_start();
        if code.starts_with("#[") {
            is_test |= code.starts_with("#[test") || code.contains("::test");
            return None;
        }
        if code.is_empty() || code.starts_with("//") {
            return None;
        }
        let name = function(code).filter(|_| is_test);
        is_test = false;
        name
    })
}

/// The name of the function that starts in a line.
fn function(code: &str) -> Option<&str> {
    let at = if code.starts_with("fn ") { 3 } else { code.find(" fn ")? + 4 };
    code[at..].split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// The words in backticks in the last column of a row.
fn named(row: &str) -> Vec<&str> {
    let columns = row.trim_end().trim_end_matches('|').rsplit_once(" | ");
    columns.map_or_else(Vec::new, |(_, last)| last.split('`').skip(1).step_by(2).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! What.\n#[test]\nfn hits_add_up() {}\n#[tokio::test]\n#[expect(x, reason = \"y\")]\nasync fn wide() {}\n\n// fn gone() {}\nfn helper() {}\n";

    fn problems(page: &str, other: &str) -> Vec<String> {
        check(&Tree::of(&[("a.rs", CODE), (PAGE, page), ("docs/a.md", other)]))
    }

    #[test]
    fn a_promise_without_its_test_is_found() {
        let check = |cell: &str, expected: &[&str]| {
            let problems = problems(&format!("{HEAD}\n|---|---|\n| A `key` counts | {cell} |\n"), "");
            let expected: Vec<_> = expected
                .iter()
                .map(|name| format!("{PAGE}:3: names the test `{name}`; there is no such test"))
                .collect();
            assert_eq!(problems, expected, "{cell}");
        };
        check("`hits_add_up`", &[]);
        check("`hits_add_up`, `wide`", &[]);
        check("`hits_add_up`, `lost`", &["lost"]);
        check("`gone`, `hits_add`", &["gone", "hits_add"]);
        check("`helper`", &["helper"]);
        let none = problems(&format!("{HEAD}\n|---|---|\n| A `key` counts | review |\n"), "");
        assert_eq!(none, [format!("{PAGE}:3: a promise without a test")]);
    }

    #[test]
    fn a_test_that_another_page_names_is_found() {
        let expected = [format!("docs/a.md:2: names a test: its place is {PAGE}")];
        assert_eq!(problems("", "Hits\nadd up (test: `hits_add_up`).\n"), expected);
        assert_eq!(problems("", "Hits\nadd up (tests:\n`hits_add_up`).\n"), expected);
        assert!(problems("", "The `hits_add_up` is no promise (here: `x`).\n").is_empty());
    }
}
