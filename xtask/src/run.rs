//! Runs other programs, and reports their failures.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The result of a verb.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a verb failed, as a sentence that names the step.
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The workspace's folder. Cargo sets the crate's folder when it runs us. The path at compile time could be
/// another clone's.
pub(crate) fn workspace_root() -> Outcome<PathBuf> {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .and_then(|folder| Path::new(&folder).parent().map(Path::to_path_buf))
        .ok_or_else(|| Failure::new("CARGO_MANIFEST_DIR is not set; run this as `cargo xtask`"))
}

/// The features of packages, and of all that is tested.
pub(crate) const FEATURES: &str = "lately-cli/kafka";

/// The cargo that runs us, with the workspace as working directory.
pub(crate) fn cargo(root: &Path) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(root);
    command
}

/// Runs a command to its end, with our output streams. `step` is the name of the step in an error.
pub(crate) fn run(command: &mut Command, step: &str) -> Outcome {
    let status = status(command, step)?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("{step}: {} ended with {status}", words(command))))
    }
}

/// Runs a command to its end, with our output streams. Returns its exit status.
pub(crate) fn status(command: &mut Command, step: &str) -> Outcome<ExitStatus> {
    command.stdin(Stdio::null()).status().map_err(|error| not_started(command, step, &error))
}

/// Runs a command to its end. Returns its standard output.
pub(crate) fn output(command: &mut Command, step: &str) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| not_started(command, step, &error))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        return Err(Failure::new(format!(
            "{step}: {} ended with {status}: {}",
            words(command),
            stderr.trim()
        )));
    }
    String::from_utf8(output.stdout).map_err(|_| Failure::new(format!("{step}: output is not UTF-8")))
}

/// Whether a command can be run and succeeds. Its output is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// The path of `program` on the PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

/// PATH with `folder` in front.
pub(crate) fn path_with(folder: &Path) -> Outcome<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).map_err(|error| Failure::new(format!("{}: {error}", folder.display())))
}

fn not_started(command: &Command, step: &str, error: &std::io::Error) -> Failure {
    Failure::new(format!("{step}: {} did not start: {error}", words(command)))
}

fn words(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    format!("`{}`", words.join(" "))
}
