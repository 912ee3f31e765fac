//! Checks `ARCHITECTURE.md`: the table of functions that a hit goes through, and the files it names.

use super::tree::Tree;
use crate::limits::HIT_FUNCTIONS;

const PAGE: &str = "ARCHITECTURE.md";
const HEAD: &str = "| function | file in `crates/` |";

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let Some(page) = tree.get(PAGE) else { return Vec::new() };
    let mut problems = Vec::new();
    let lines = || page.text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let rows = lines().skip_while(|(_, line)| !line.starts_with(HEAD)).skip(2);
    let mut count = 0;
    for (number, row) in rows.take_while(|(_, line)| line.starts_with('|')) {
        count += 1;
        let mut named = row.split('`').skip(1).step_by(2);
        let (function, file) = (named.next().unwrap_or_default(), named.next().unwrap_or_default());
        if !tree.get(&format!("crates/{file}")).is_some_and(|file| has_function(&file.text, function)) {
            problems.push(format!("{PAGE}:{number}: `{function}` is not in {file}"));
        }
    }
    if !(1..=HIT_FUNCTIONS).contains(&count) {
        problems
            .push(format!("{PAGE}: a hit goes through {count} functions; 1 to {HIT_FUNCTIONS} may be named"));
    }
    for (number, line) in lines() {
        let named = line.split('`').skip(1).step_by(2);
        for name in named.filter(|name| is_file_name(name) && !has_file(tree, name)) {
            problems.push(format!("{PAGE}:{number}: there is no file {name}"));
        }
    }
    problems
}

/// Whether the text has an `impl` of the type in `Type::name`, and after it a function of that name.
fn has_function(text: &str, function: &str) -> bool {
    let Some((of, name)) = function.split_once("::") else { return false };
    let is_impl = |line: &&str| {
        let words = || line.split(|c: char| !c.is_alphanumeric() && c != '_');
        line.starts_with("impl") && words().any(|word| word == of)
    };
    let head = format!("fn {name}");
    let is_head = |line: &str| {
        let rest = line.find(&head).map(|at| &line[at + head.len()..]);
        rest.is_some_and(|rest| rest.starts_with(['(', '<']))
    };
    let mut after = text.lines().skip_while(|line| !is_impl(line));
    after.any(is_head)
}

fn is_file_name(name: &str) -> bool {
    name.ends_with(".rs")
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.'))
}

/// Whether the path of a file is `name` or ends with it.
fn has_file(tree: &Tree, name: &str) -> bool {
    tree.files().iter().any(|file| {
        file.path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "impl Other {\n    fn early() {}\n}\nimpl<'a> Entry<'a> {\n    pub fn hit_now(&mut self) {}\n    fn read<T>() {}\n}\n";

    fn problems(rows: &str, rest: &str) -> Vec<String> {
        let page = format!("{HEAD} does |\n|---|---|---|\n{rows}\n{rest}\n");
        check(&Tree::of(&[("crates/a/src/entry.rs", CODE), (PAGE, &page)]))
    }

    #[test]
    fn a_function_that_is_not_in_its_file_is_found() {
        let check = |function: &str, file: &str, is_there: bool| {
            let found = problems(&format!("| `{function}` | `{file}` | adds |\n"), "");
            assert_eq!(found.is_empty(), is_there, "{function} in {file}: {found:?}");
        };
        check("Entry::hit_now", "a/src/entry.rs", true);
        check("Entry::read", "a/src/entry.rs", true);
        check("Entry::hit", "a/src/entry.rs", false);
        check("Entry::early", "a/src/entry.rs", false);
        check("Shard::hit_now", "a/src/entry.rs", false);
        check("Entry::hit_now", "a/src/other.rs", false);
        check("hit_now", "a/src/entry.rs", false);
    }

    #[test]
    fn a_hit_goes_through_few_functions() {
        let row = "| `Entry::hit_now` | `a/src/entry.rs` | adds |\n";
        assert!(problems(&row.repeat(HIT_FUNCTIONS), "").is_empty());
        let expected = format!(
            "{PAGE}: a hit goes through {} functions; 1 to {HIT_FUNCTIONS} may be named",
            HIT_FUNCTIONS + 1
        );
        assert_eq!(problems(&row.repeat(HIT_FUNCTIONS + 1), ""), [expected]);
        assert_eq!(problems("", "").len(), 1);
    }

    #[test]
    fn a_file_that_is_not_there_is_found() {
        let row = "| `Entry::hit_now` | `a/src/entry.rs` | adds |\n";
        assert!(problems(row, "See `entry.rs`, `src/entry.rs` and `*.rs`.").is_empty());
        let expected = |name: &str| [format!("{PAGE}:5: there is no file {name}")];
        assert_eq!(problems(row, "See `list.rs`."), expected("list.rs"));
        assert_eq!(problems(row, "See `try.rs`."), expected("try.rs"));
    }
}
