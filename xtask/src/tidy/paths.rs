//! Checks that nothing in the repository names a path of one machine, or a registry's host.

use super::tree::File;

/// Split, so that this file does not contain them.
const BANNED: [(&str, &str); 7] = [
    (concat!("/wo", "rk/"), "a path on someone's machine"),
    (concat!("/tmp", "/wt"), "a path on someone's machine"),
    (concat!("/ro", "ot/"), "a path on someone's machine"),
    (concat!("/Us", "ers/"), "a path on someone's machine"),
    (concat!("registry.", "npmjs"), "a registry's host: clients know theirs"),
    (concat!("python", "hosted"), "a registry's host: clients know theirs"),
    (concat!("static.", "crates.io"), "a registry's host: clients know theirs"),
];

pub(super) fn check(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for (banned, why) in BANNED {
            if contains_at_start(line, banned) {
                problems.push(format!("{}:{}: `{banned}` is {why}", file.path, index + 1));
            }
        }
    }
    problems
}

/// Whether `line` has `banned` where an absolute path may start, not at the end of a longer path.
fn contains_at_start(line: &str, banned: &str) -> bool {
    line.match_indices(banned).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !banned.starts_with('/')
            || before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '_' | '-' | '.' | '}'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_and_hosts_are_found_and_relative_paths_are_not() {
        let check = |text: String, expected: usize| {
            let file = File { path: "a.md".to_owned(), text };
            assert_eq!(check(&file).len(), expected, "{}", file.text);
        };
        for (banned, _) in BANNED {
            check(format!("see {banned}main"), 1);
            check(format!("`{banned}`"), 1);
        }
        check(format!("docs{}main", BANNED[0].0), 0);
        check(format!("..{}main", BANNED[0].0), 0);
        check("docs/design.md".to_owned(), 0);
    }
}
