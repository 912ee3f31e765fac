//! Helpers that run the binary.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) use test_support::{has, installed, skip};

use test_support::Rng;

/// The output and the exit code of a run.
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
    // A closed pipe is no failure: the program may refuse its arguments and exit before it reads.
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
pub(crate) fn test_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(name)
}

/// An access log in the combined format.
pub(crate) struct AccessLog {
    pub(crate) path: String,
    _folder: Option<tempfile::TempDir>,
}

/// A real log, from `LATELY_TEST_LOG` or from the folder beside the repository; otherwise a generated log.
pub(crate) fn access_log() -> AccessLog {
    let real_log = || {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/apache_access.log");
        path.is_file().then(|| path.display().to_string())
    };
    if let Some(path) = std::env::var("LATELY_TEST_LOG").ok().or_else(real_log) {
        return AccessLog { path, _folder: None };
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    std::fs::write(&path, generated_log()).expect("a file");
    AccessLog { path: path.into_os_string().into_string().expect("text"), _folder: Some(folder) }
}

/// Two days of May 2015. A few clients and paths have most of the requests, requests come in bursts, and some lines are
/// late or do not parse.
fn generated_log() -> String {
    const LINES: u64 = 12_000;
    let mut rng = Rng::new(1_431_857_103);
    let skewed = |rng: &mut Rng, most: u64| {
        let reach = rng.below(most);
        rng.below(reach + 1)
    };
    let mut at: i64 = 1_431_857_103;
    let mut log = String::new();
    for line in 0..LINES {
        if rng.once_in(8) {
            at += i64::try_from(rng.below(240)).expect("little");
        }
        let late = if rng.once_in(5) { i64::try_from(rng.below(20)).expect("little") } else { 0 };
        let time =
            jiff::Timestamp::from_second(at - late).expect("a time").strftime("%d/%b/%Y:%H:%M:%S +0000");
        let (a, b) = (skewed(&mut rng, 90), skewed(&mut rng, 5));
        let page = skewed(&mut rng, 60);
        let query = if rng.once_in(4) { format!("?q={line}") } else { String::new() };
        let status = [200, 200, 200, 304, 404, 500][usize::try_from(rng.below(6)).expect("little")];
        log += &match rng.below(100) {
            0 => "no line of this format\n".to_owned(),
            1 => format!("10.0.{b}.{a} - - [{time}] \"-\" 408 -\n"),
            _ => format!(
                "10.0.{b}.{a} - - [{time}] \"GET /page/{page}{query} HTTP/1.1\" {status} {line} \"-\" \"a \\\"b\\\" c\"\n"
            ),
        };
    }
    log
}

/// Runs a Python program of `tests/it`.
pub(crate) fn python(program: &str, args: &[&str]) -> Run {
    let output = Command::new("python3").arg(test_file(program)).args(args).output().expect("python3 runs");
    Run {
        out: String::from_utf8(output.stdout).expect("data is UTF-8"),
        err: String::from_utf8(output.stderr).expect("messages are UTF-8"),
        code: output.status.code(),
    }
}
