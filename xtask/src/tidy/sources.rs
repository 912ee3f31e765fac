//! Checks Rust files: their first line, banned words, and that main.rs is short.

use super::tree::File;
use crate::limits::MAIN_LINES;

/// Words that no line of code may contain, and what to do instead. Split, so that this file does not contain
/// them either.
const BANNED: [(&str, &str); 6] = [
    (concat!("#[", "ignore"), "repair the test or remove it"),
    (
        concat!("should", "_panic"),
        "make it an `Err` and compare that, or catch the panic and compare its message",
    ),
    (concat!("todo", "!("), "write it or leave it out"),
    (concat!("thread::", "sleep"), "wait for the event, not for a while"),
    (concat!("#[", "allow("), "use `#[expect(…, reason = \"…\")]`"),
    (concat!("#![", "allow("), "use `#![expect(…, reason = \"…\")]`"),
];

/// The word for code without the compiler's guarantees, and the one file that may have it.
const UNSAFE: &str = concat!("unsafe", " ");
const UNSAFE_FILE: &str = "crates/lately/src/machine.rs";

pub(super) fn check(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    let path = &file.path;
    if !file.text.starts_with("//!") {
        problems.push(format!("{path}: starts without `//!`; say first what the file is and why"));
    }
    if path.ends_with("src/main.rs") {
        let count = file.text.lines().count();
        if count >= MAIN_LINES {
            problems.push(format!("{path}: {count} lines; main.rs has fewer than {MAIN_LINES}"));
        }
    }
    for (index, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        if line.contains(UNSAFE) && path != UNSAFE_FILE {
            problems.push(format!("{path}:{}: `unsafe` outside {UNSAFE_FILE}", index + 1));
        }
        for (banned, instead) in BANNED {
            if line.contains(banned) {
                problems.push(format!("{path}:{}: `{banned}`: {instead}", index + 1));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        check(&File { path: path.to_owned(), text: text.to_owned() })
    }

    #[test]
    fn a_file_starts_with_its_purpose() {
        assert!(problems("a.rs", "//! What.\n").is_empty());
        assert!(problems("a.rs", "use std::fmt;\n")[0].starts_with("a.rs: starts without `//!`"));
        assert_eq!(problems("a.rs", "").len(), 1);
    }

    #[test]
    fn a_main_is_short() {
        let code = |lines: usize| "//! What.\n".to_owned() + &"x\n".repeat(lines - 1);
        assert!(problems("a/src/main.rs", &code(MAIN_LINES - 1)).is_empty());
        assert_eq!(
            problems("a/src/main.rs", &code(MAIN_LINES)),
            ["a/src/main.rs: 100 lines; main.rs has fewer than 100"]
        );
        assert!(problems("a/src/domain.rs", &code(MAIN_LINES)).is_empty());
    }

    #[test]
    fn unsafe_code_has_one_place() {
        let code = format!("//! What.\n{UNSAFE}{{}}\n");
        assert_eq!(problems("a.rs", &code), [format!("a.rs:2: `unsafe` outside {UNSAFE_FILE}")]);
        assert!(problems(UNSAFE_FILE, &code).is_empty());
    }

    #[test]
    fn each_banned_text_is_found_in_code_and_not_in_comments() {
        for (banned, instead) in BANNED {
            let code = format!("//! What.\n\n    {banned}x\n");
            assert_eq!(problems("a.rs", &code), [format!("a.rs:3: `{banned}`: {instead}")]);
            assert!(problems("a.rs", &format!("//! What.\n    // no {banned}\n")).is_empty());
        }
    }
}
