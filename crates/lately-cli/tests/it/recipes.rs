//! Runs the commands and programs in README.md, the guide and the reference, and compares their output.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{has, installed};
use crate::running::{Running, serve};

/// The pages. The commands and programs of each run against a new server.
const PAGES: [&str; 10] = [
    "README.md",
    "docs/guide/start.md",
    "docs/guide/clients.md",
    "docs/guide/counting.md",
    "docs/guide/limits.md",
    "docs/guide/cluster.md",
    "docs/guide/http.md",
    "docs/guide/migrating.md",
    "docs/reference/commands.md",
    "docs/reference/command-line.md",
];

/// The most seconds that may pass between two commands.
const PASSED: u64 = 20;

/// A command line, and its output.
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

/// The blocks of code in a language, each with its output, which is the block after it.
fn programs<'d>(document: &'d str, language: &str) -> Vec<(&'d str, &'d str)> {
    let begin = format!("```{language}\n");
    let blocks = document.split(&begin).skip(1);
    let code_and_output = |block: &'d str| {
        let (code, rest) = block.split_once("```\n").expect("a block ends");
        let printed = rest.trim_start().strip_prefix("```text\n").expect("what it prints");
        (code, printed.split("```").next().expect("a block ends"))
    };
    blocks.map(code_and_output).collect()
}

/// The Python code of a page as one program, and its output.
fn python(document: &str) -> (String, String) {
    programs(document, "python").into_iter().unzip()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The output of a command line: standard output, then standard error.
fn printed(server: &Running, typed: &str) -> String {
    let mut words = typed.split(' ');
    let mut command = match words.next() {
        Some("curl" | "printf") => {
            let typed = typed.replace("127.0.0.1:7380", &server.http);
            words = "".split(' ');
            words.next();
            let mut command = Command::new("sh");
            command.args(["-c", &typed]);
            command
        }
        Some("lately") => Command::new(env!("CARGO_BIN_EXE_lately")),
        Some("redis-cli") => {
            assert_eq!((words.next(), words.next()), (Some("-p"), Some("7379")), "{typed}");
            let mut command = Command::new("redis-cli");
            // This gives the same output as on a terminal.
            command.args(["--no-raw", "-p", server.port()]);
            command
        }
        _ => panic!("a recipe is for lately, redis-cli or curl: {typed}"),
    };
    command.args(words).current_dir(root()).env("LATELY_SERVER", &server.resp);
    let Output { stdout, stderr, .. } = command.output().expect(typed);
    // The lines of a head in HTTP end with both characters.
    let text = |bytes| String::from_utf8(bytes).expect("text").replace("\r\n", "\n");
    // redis-cli ends an error with an empty line.
    (text(stdout).trim_end().to_owned() + "\n" + &text(stderr)).trim_end().to_owned() + "\n"
}

/// Whether two texts are equal except for the time that passed. Numbers large enough to be times may differ by [`PASSED`]
/// seconds, or by as many in milliseconds.
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

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).expect(name)
}

#[test]
fn documents_show_what_their_commands_print() {
    if !has("redis-cli") || !has("curl") {
        return;
    }
    for name in PAGES {
        let server = serve();
        let steps = steps(&page(name));
        assert!(steps.len() >= 2, "{name}: {}", steps.len());
        for Step { typed, prints } in steps {
            let printed = printed(&server, &typed);
            assert!(
                is_same_but_for_time(&prints, &printed),
                "{name}: {typed}\n{prints}but it prints\n{printed}"
            );
        }
    }
}

#[test]
fn documents_show_what_their_python_prints() {
    let Some(interpreter) = installed("LATELY_TEST_PYTHON") else { return };
    let mut pages = 0;
    for name in PAGES {
        let (program, expected) = python(&page(name));
        if program.is_empty() {
            continue;
        }
        let server = serve();
        let program = program.replace("port=7379", &format!("port={}", server.port()));
        let output = Command::new(&interpreter).args(["-c", &program]).output().expect("Python runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        assert_eq!((text(output.stdout), text(output.stderr)), (expected, String::new()), "{name}");
        pages += 1;
    }
    assert!(pages >= 2, "{pages}");
}

#[test]
fn documents_show_what_their_javascript_prints() {
    let (Some(node), Some(modules)) = (installed("LATELY_TEST_NODE"), installed("LATELY_TEST_NODE_MODULES"))
    else {
        return;
    };
    let page = page("docs/guide/clients.md");
    let programs = programs(&page, "js");
    assert!(programs.len() >= 2, "{}", programs.len());
    let folder = tempfile::tempdir().expect("a folder");
    // Modules are looked up beside the program.
    std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).expect("a link");
    for (code, expected) in programs {
        let server = serve();
        let program = folder.path().join("program.mjs");
        std::fs::write(&program, code.replace("7379", server.port())).expect("room");
        let output = Command::new(&node).arg(&program).output().expect("Node runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        assert_eq!(
            (text(output.stdout), text(output.stderr)),
            (expected.to_owned(), String::new()),
            "{code}"
        );
    }
}

#[test]
fn only_times_may_differ() {
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
