//! Habits of Rust files: what they start with, how long they are, what they do not contain.

use super::tree::File;
use crate::limits::{MAIN_LINES, SOURCE_LINES};

/// What no line of code contains, and what to do instead. Split, so that this file does not contain them either.
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

/// The word for code the compiler does not vouch for, and the one file that has it.
const UNSAFE: &str = concat!("unsafe", " ");
const UNSAFE_FILE: &str = "crates/lately/src/machine.rs";

pub(super) fn check(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    let path = &file.path;
    if !file.text.starts_with("//!") {
        problems.push(format!("{path}: starts without `//!`; say first what the file is and why"));
    }
    let count = lines_before_tests(&file.text);
    if count > SOURCE_LINES {
        problems.push(format!(
            "{path}: {count} lines before its tests; {SOURCE_LINES} are the limit, so split it"
        ));
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

/// Lines up to a test module that is written out in the file; all of them when there is none.
fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<_> = text.lines().collect();
    let begins =
        |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{');
    lines.windows(2).position(begins).unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        check(&File { path: path.to_owned(), text: text.to_owned() })
    }

    #[test]
    fn a_file_says_first_what_it_is() {
        assert!(problems("a.rs", "//! What.\n").is_empty());
        assert!(problems("a.rs", "use std::fmt;\n")[0].starts_with("a.rs: starts without `//!`"));
        assert_eq!(problems("a.rs", "").len(), 1);
    }

    #[test]
    fn length_is_counted_up_to_the_tests() {
        let code = |lines: usize| "//! What.\n".to_owned() + &"x\n".repeat(lines - 1);
        assert!(problems("a.rs", &code(SOURCE_LINES)).is_empty());
        let expected = ["a.rs: 501 lines before its tests; 500 are the limit, so split it"];
        assert_eq!(problems("a.rs", &code(SOURCE_LINES + 1)), expected);
        let tests = "#[cfg(test)]\nmod tests {\n}\n";
        assert!(problems("a.rs", &(code(SOURCE_LINES) + tests)).is_empty());
        // A test-only import or a test module in another file ends nothing.
        let early = "//! What.\n#[cfg(test)]\nuse a::b;\n#[cfg(test)]\nmod model;\n".to_owned();
        assert_eq!(problems("a.rs", &(early + &code(SOURCE_LINES))).len(), 1);
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
