//! The recipes of `docs/limits.md`: what one types, and what the document says comes back.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::has;
use crate::running::{Running, serve};

/// What may have passed between two commands.
const PASSED: u64 = 20;

/// A line that is typed in a terminal, and what it prints.
struct Step {
    typed: String,
    prints: String,
}

/// The steps of all console blocks.
fn steps(document: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_console = false;
    for line in document.lines() {
        if line.starts_with("```") {
            is_console = line == "```console";
        } else if !is_console {
        } else if let Some(typed) = line.strip_prefix("$ ") {
            steps.push(Step { typed: typed.to_owned(), prints: String::new() });
        } else {
            let step = steps.last_mut().expect("a block begins with what is typed");
            step.prints += line;
            step.prints += "\n";
        }
    }
    steps
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What is printed when a line is typed: what goes to standard output, then the messages.
fn printed(server: &Running, typed: &str) -> String {
    let mut words = typed.split(' ');
    let mut command = match words.next() {
        Some("lately") => Command::new(env!("CARGO_BIN_EXE_lately")),
        Some("redis-cli") => {
            assert_eq!((words.next(), words.next()), (Some("-p"), Some("7379")), "{typed}");
            let mut command = Command::new("redis-cli");
            // As on a terminal.
            command.args(["--no-raw", "-p", server.port()]);
            command
        }
        _ => panic!("a recipe is for lately or redis-cli: {typed}"),
    };
    command.args(words).current_dir(root()).env("LATELY_SERVER", &server.resp);
    let Output { stdout, stderr, .. } = command.output().expect(typed);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    // redis-cli ends an error with an empty line.
    (text(stdout).trim_end().to_owned() + "\n" + &text(stderr)).trim_end().to_owned() + "\n"
}

/// Whether two texts are the same but for the time that passed: so many seconds, in numbers that are large enough
/// to be times, and a thousand times that in milliseconds.
fn is_same_but_for_time(expected: &str, printed: &str) -> bool {
    let parts = |text: &str| -> Vec<String> {
        text.split_inclusive(|c: char| !c.is_ascii_digit()).map(str::to_owned).collect()
    };
    let (expected, printed) = (parts(expected), parts(printed));
    let is_same = |expected: &str, printed: &str| {
        let split = |part: &str| {
            let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
            (digits.parse::<u64>().ok(), part[digits.len()..].to_owned())
        };
        let ((expected, after), (printed, printed_after)) = (split(expected), split(printed));
        let is_near = match (expected, printed) {
            (Some(expected), Some(printed)) => {
                let passed = match expected {
                    ..1_000 => 0,
                    1_000..30_000 => PASSED,
                    _ => PASSED * 1_000,
                };
                expected.abs_diff(printed) <= passed
            }
            (expected, printed) => expected == printed,
        };
        is_near && after == printed_after
    };
    expected.len() == printed.len() && expected.iter().zip(&printed).all(|(a, b)| is_same(a, b))
}

#[test]
fn the_recipes_give_the_replies_they_show() {
    if !has("redis-cli") {
        return;
    }
    let server = serve();
    let document = std::fs::read_to_string(root().join("docs/limits.md")).expect("the document");
    let steps = steps(&document);
    assert!(steps.len() > 20, "{}", steps.len());
    for Step { typed, prints } in steps {
        let printed = printed(&server, &typed);
        assert!(is_same_but_for_time(&prints, &printed), "{typed}\n{prints}is in truth\n{printed}");
    }
}

#[test]
fn only_time_is_let_pass() {
    let check = |printed: &str, expected: bool| {
        let shown = "1) (integer) 0\n2) (integer) 500\n3) (integer) 3600\n4) (integer) 60000\n";
        assert_eq!(is_same_but_for_time(shown, printed), expected, "{printed}");
    };
    check("1) (integer) 0\n2) (integer) 500\n3) (integer) 3600\n4) (integer) 60000\n", true);
    check("1) (integer) 0\n2) (integer) 500\n3) (integer) 3581\n4) (integer) 40001\n", true);
    check("1) (integer) 0\n2) (integer) 499\n3) (integer) 3600\n4) (integer) 60000\n", false);
    check("1) (integer) 0\n2) (integer) 500\n3) (integer) 3579\n4) (integer) 60000\n", false);
    check("1) (integer) 0\n2) (integer) 500\n3) (integer) -3600\n4) (integer) 60000\n", false);
    check("1) (integer) 0\n2) (integer) 500\n3) (integer) 3600\n4) (integer) 39999\n", false);
    check("1) (integer) 0\n2) (integer) 500\n3) (integer) 3600\n", false);
}
