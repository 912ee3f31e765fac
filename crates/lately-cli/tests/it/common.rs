//! Running the binary.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a run left behind.
pub(crate) struct Run {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: Option<i32>,
}

/// Runs `lately` with nothing on standard input.
pub(crate) fn lately(args: &[&str]) -> Run {
    lately_reading(args, b"")
}

/// Runs `lately` with `input` on standard input.
pub(crate) fn lately_reading(args: &[&str], input: &[u8]) -> Run {
    let mut child = command(args).stdin(Stdio::piped()).spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // It may refuse its arguments and go before it reads: a closed pipe is no failure here.
    let writer = std::thread::spawn(move || _ = stdin.write_all(&input));
    let output = child.wait_with_output().expect("the binary ends");
    writer.join().expect("the writer ends");
    Run {
        out: String::from_utf8(output.stdout).expect("data is UTF-8"),
        err: String::from_utf8(output.stderr).expect("messages are UTF-8"),
        code: output.status.code(),
    }
}

/// `lately` with its outputs in pipes.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lately"));
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The path of a file in `tests/data`.
pub(crate) fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    path.into_os_string().into_string().expect("the checkout has a readable path")
}

/// The path of a file in `tests/it`.
pub(crate) fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(name)
}

/// A real access log, in the combined format: `LATELY_TEST_LOG`, or beside the repository.
pub(crate) fn real_log() -> Option<String> {
    let beside = || {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/apache_access.log");
        path.is_file().then(|| path.display().to_string())
    };
    std::env::var("LATELY_TEST_LOG").ok().or_else(beside)
}

/// What a Python program of `tests/it` makes of these arguments.
pub(crate) fn python(program: &str, args: &[&str]) -> Run {
    let output = Command::new("python3").arg(beside(program)).args(args).output().expect("python3 runs");
    Run {
        out: String::from_utf8(output.stdout).expect("data is UTF-8"),
        err: String::from_utf8(output.stderr).expect("messages are UTF-8"),
        code: output.status.code(),
    }
}

/// Says on standard error that a test has nothing to test.
pub(crate) fn skip(test: &str, why: &str) {
    writeln!(std::io::stderr(), "skipped {test}: {why}").expect("standard error is open");
}
