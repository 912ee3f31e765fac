//! Checks documents: the length of the main ones, and that links lead to an existing file and heading.

use super::tree::{File, Tree};
use crate::limits::{ARCHITECTURE_LINES, README_LINES, README_WORDS};

pub(super) fn check(file: &File, tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    let count = file.text.lines().count();
    let limit = match file.path.as_str() {
        "README.md" => README_LINES,
        "ARCHITECTURE.md" => ARCHITECTURE_LINES,
        _ => usize::MAX,
    };
    if count > limit {
        problems.push(format!("{}: {count} lines; {limit} are the limit", file.path));
    }
    let words = file.text.split_whitespace().count();
    if file.path == "README.md" && words > README_WORDS {
        problems.push(format!("{}: {words} words; {README_WORDS} are the limit", file.path));
    }
    if file.path == "CHANGELOG.md"
        && !file.text.lines().any(|line| line.starts_with('#') && line.contains("Unreleased"))
    {
        problems.push("CHANGELOG.md: has no `Unreleased` heading for the next change".to_owned());
    }
    for (line, target) in links(&file.text) {
        let path = local_path(&file.path, target);
        if let Some(path) = path.as_ref().filter(|path| !tree.has(path)) {
            problems.push(format!(
                "{}:{line}: the link leads to {path}, which is not in the repository",
                file.path
            ));
        }
        let Some((before, anchor)) = target.split_once('#') else { continue };
        let page = if before.is_empty() { Some(file) } else { path.and_then(|path| tree.get(&path)) };
        if page.is_some_and(|page| !anchors(&page.text).any(|heading| heading == anchor)) {
            problems.push(format!(
                "{}:{line}: the link leads to #{anchor}, which is no heading there",
                file.path
            ));
        }
    }
    problems
}

/// The targets of `[text](target)` with their lines, outside of code.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            for (at, _) in line.match_indices("](") {
                let in_span = line[..at].matches('`').count() % 2 == 1;
                let rest = &line[at + 2..];
                // A title may follow the target: `(a.md "Title")`.
                if let Some(target) = rest.split([')', ' ']).next().filter(|_| !in_span) {
                    links.push((index + 1, target));
                }
            }
        }
    }
    links
}

/// The anchors of the headings: lower case, a hyphen for each space, without punctuation.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// The path, from the root, that a link in the file at `from` leads to. `None` if it leads outside.
fn local_path(from: &str, target: &str) -> Option<String> {
    let path = target.split('#').next().unwrap_or(target);
    if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
        return None;
    }
    let mut parts: Vec<_> = from.split('/').collect();
    parts.pop();
    if path.starts_with('/') {
        parts.clear();
    }
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_some() => {}
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let tree = Tree::of(&[("docs/design.md", ""), ("README.md", "")]);
        check(&File { path: path.to_owned(), text: text.to_owned() }, &tree)
    }

    #[test]
    fn the_main_documents_have_a_length() {
        let check = |path: &str, limit: usize| {
            assert!(problems(path, &"x\n".repeat(limit)).is_empty());
            let expected = format!("{path}: {} lines; {limit} are the limit", limit + 1);
            assert_eq!(problems(path, &"x\n".repeat(limit + 1)), [expected]);
        };
        check("README.md", README_LINES);
        check("ARCHITECTURE.md", ARCHITECTURE_LINES);
        assert!(problems("docs/README.md", &"x\n".repeat(README_LINES + 1)).is_empty());
        assert!(problems("README.md", &"x ".repeat(README_WORDS)).is_empty());
        let expected = format!("README.md: {} words; {README_WORDS} are the limit", README_WORDS + 1);
        assert_eq!(problems("README.md", &"x ".repeat(README_WORDS + 1)), [expected]);
        assert!(problems("ARCHITECTURE.md", &"x ".repeat(README_WORDS + 1)).is_empty());
    }

    #[test]
    fn a_changelog_is_open_for_the_next_change() {
        assert!(problems("CHANGELOG.md", "# Changes\n\n## [Unreleased]\n").is_empty());
        assert_eq!(problems("CHANGELOG.md", "# Changes\n\nUnreleased\n\n## 1.0\n").len(), 1);
    }

    #[test]
    fn links_lead_to_files_that_are_there() {
        let check = |path: &str, text: &str, expected: &[&str]| {
            let expected: Vec<_> = expected
                .iter()
                .map(|target| format!("{path}:1: the link leads to {target}, which is not in the repository"))
                .collect();
            assert_eq!(problems(path, text), expected, "{text}");
        };
        check("README.md", "[a](docs/design.md) [b](docs/design.md \"Title\") [c](docs/)", &[]);
        check("README.md", "[a](https://example.com/x.md#part) [c](mailto:a@example.com)", &[]);
        check("README.md", "![a](docs/design.md) and [b](docs/gone.md)", &["docs/gone.md"]);
        check("docs/design.md", "[a](../README.md) [b](design.md) [c](/README.md)", &[]);
        check("docs/design.md", "[a](README.md)", &["docs/README.md"]);
        check("docs/design.md", "[a](../../README.md)", &["../README.md"]);
        check("README.md", "`[a](gone.md)`", &[]);
        check("README.md", "```\n[a](gone.md)\n```", &[]);
    }
    #[test]
    fn links_lead_to_headings_that_are_there() {
        let page = "# A `key`'s hits, 7 d\n\n[top](#a-keys-hits-7-d)\n";
        let check = |text: &str, expected: &[&str]| {
            let tree = Tree::of(&[("docs/design.md", page)]);
            let problems = super::check(&File { path: "docs/a.md".to_owned(), text: text.to_owned() }, &tree);
            let expected: Vec<_> = expected
                .iter()
                .map(|anchor| format!("docs/a.md:1: the link leads to #{anchor}, which is no heading there"))
                .collect();
            assert_eq!(problems, expected, "{text}");
        };
        check("[a](design.md#a-keys-hits-7-d) [b](#here)\n\n## Here\n", &[]);
        check("[a](design.md#a-keys-hit) [b](#there)\n\n## Here\n", &["a-keys-hit", "there"]);
    }
}
