//! Reports skipped tests, which lack a program that they need. libtest counts them as passed; here they are
//! shown and counted as skips.
//!
//! A skipped test appends a line to a file before it returns: its name, a tab and the reason.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use crate::run::{Failure, Outcome};

/// The variable with the path of that file.
pub(crate) const VARIABLE: &str = "LATELY_TEST_SKIPS";

/// A test that was skipped.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Skip {
    /// Its name in libtest.
    pub(crate) test: String,
    pub(crate) why: String,
}

/// The tests that were skipped so far.
pub(crate) struct Skips {
    file: PathBuf,
    found: Vec<Skip>,
    /// The skips of the current test binary.
    in_binary: u64,
}

impl Skips {
    /// None yet.
    pub(crate) fn new(root: &Path) -> Outcome<Self> {
        let file = root.join("target/skipped-tests");
        let made = std::fs::create_dir_all(root.join("target")).and_then(|()| std::fs::write(&file, ""));
        made.map_err(|error| Failure::new(format!("test: {}: {error}", file.display())))?;
        Ok(Self { file, found: Vec::new(), in_binary: 0 })
    }

    /// The file that tests append to.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// All skips, in the order in which the tests ended.
    pub(crate) fn into_found(self) -> Vec<Skip> {
        self.found
    }

    /// Copies the output of `cargo test`, with skips shown as such.
    pub(crate) fn copy(&mut self, from: impl Read, to: &mut impl Write) -> io::Result<()> {
        let (mut from, mut line) = (BufReader::new(from), Vec::new());
        while from.read_until(b'\n', &mut line)? > 0 {
            let file = &self.file;
            let skipped = || std::fs::read_to_string(file).unwrap_or_default();
            let text = String::from_utf8_lossy(&line).into_owned();
            if let Some(skip) = skip_of(text.trim_end(), skipped) {
                writeln!(to, "test {} ... skipped: {}", skip.test, skip.why)?;
                self.in_binary += 1;
                self.found.push(skip);
            } else if let Some(result) = result_of(text.trim_end(), self.in_binary) {
                writeln!(to, "{result}")?;
                self.in_binary = 0;
            } else {
                to.write_all(&line)?;
            }
            line.clear();
        }
        to.flush()
    }
}

/// The skip that a line of libtest shows: a passed test that has recorded a skip.
fn skip_of(line: &str, skipped: impl FnOnce() -> String) -> Option<Skip> {
    let test = line.strip_prefix("test ")?.strip_suffix(" ... ok")?;
    let skipped = skipped();
    let (_, why) =
        skipped.lines().filter_map(|line| line.split_once('\t')).find(|(name, _)| *name == test)?;
    Some(Skip { test: test.to_owned(), why: why.to_owned() })
}

/// The result line of a test binary, with its skips counted as skips and not as passes.
fn result_of(line: &str, skips: u64) -> Option<String> {
    let (before, after) = line.strip_prefix("test result: ")?.split_once(" passed; ")?;
    let (verdict, passed) = before.rsplit_once(' ')?;
    let passed = passed.parse::<u64>().ok()?.checked_sub(skips)?;
    Some(format!("test result: {verdict} {passed} passed; {skips} skipped; {after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_are_shown_and_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut skips = Skips::new(folder.path()).ok().expect("a file");
        std::fs::write(skips.file(), "x::b\tno strace here\nd\tno disk to fill: mount: only root may\n")
            .expect("a file");
        let printed = "\nrunning 4 tests\ntest a ... ok\ntest x::b ... ok\ntest y::b ... ok\ntest c ... FAILED\n\n\
            test result: FAILED. 3 passed; 1 failed; 0 ignored\n\nrunning 2 tests\ntest d ... ok\ntest e ... ok\n\
            test result: ok. 2 passed; 0 failed; 0 ignored\n\nrunning 1 test\ntest e ... ok\n\
            test result: ok. 1 passed; 0 failed; 0 ignored\nno newline";
        let mut shown = Vec::new();
        skips.copy(printed.as_bytes(), &mut shown).expect("copied");
        let expected = "\nrunning 4 tests\ntest a ... ok\ntest x::b ... skipped: no strace here\ntest y::b ... ok\n\
            test c ... FAILED\n\ntest result: FAILED. 2 passed; 1 skipped; 1 failed; 0 ignored\n\nrunning 2 tests\n\
            test d ... skipped: no disk to fill: mount: only root may\ntest e ... ok\n\
            test result: ok. 1 passed; 1 skipped; 0 failed; 0 ignored\n\nrunning 1 test\ntest e ... ok\n\
            test result: ok. 1 passed; 0 skipped; 0 failed; 0 ignored\nno newline";
        assert_eq!(String::from_utf8(shown).expect("text"), expected);
        let skip = |test: &str, why: &str| Skip { test: test.to_owned(), why: why.to_owned() };
        let found = [skip("x::b", "no strace here"), skip("d", "no disk to fill: mount: only root may")];
        assert_eq!(skips.into_found(), found);
    }
}
