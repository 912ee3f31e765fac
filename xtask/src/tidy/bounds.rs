//! Checks `docs/reference/bounds.md`: each constant in the first column of its tables exists.

use super::tree::Tree;

const PAGE: &str = "docs/reference/bounds.md";

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let page = tree.get(PAGE).map_or("", |file| &file.text);
    let rows = page.lines().enumerate().filter(|(_, line)| line.starts_with("| "));
    let mut problems = Vec::new();
    for (index, row) in rows {
        let first_column = row[2..].split(" | ").next().unwrap_or_default();
        let named = first_column.split('`').skip(1).step_by(2).filter(|name| is_constant(name));
        for name in named.filter(|name| !is_declared(tree, name)) {
            problems.push(format!("{PAGE}:{}: there is no constant {name}", index + 1));
        }
    }
    problems
}

fn is_constant(name: &str) -> bool {
    name.contains('_') && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

fn is_declared(tree: &Tree, name: &str) -> bool {
    let declaration = format!("const {name}:");
    tree.with_extension("rs").any(|file| file.text.contains(&declaration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_that_does_not_exist_is_found() {
        let check = |row: &str, expected: &[&str]| {
            let tree = Tree::of(&[
                ("a/src/limits.rs", "pub const MAX_KEYS: u64 = 1;\n"),
                (PAGE, &format!("{row}\n")),
            ]);
            let expected: Vec<_> =
                expected.iter().map(|name| format!("{PAGE}:1: there is no constant {name}")).collect();
            assert_eq!(super::check(&tree), expected, "{row}");
        };
        check("| `MAX_KEYS` | 1 | others are refused |", &[]);
        check("| `MAX_KEYS`, `MAX_KEY` | 1 | others are refused |", &["MAX_KEY"]);
        check("| `max_clients` | `OTHER_BOUND` | others are refused |", &[]);
        check("See `OTHER_BOUND`.", &[]);
    }
}
