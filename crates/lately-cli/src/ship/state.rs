//! A file with the positions that the server confirmed, for the case that the server forgets them.

use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::CliError;
use crate::limits::{MAX_POSITION, MAX_SHIP_POSITIONS};
use crate::new_file::NewFile;
use crate::table::printable_path;

/// Positions by source, in a file if there is one.
pub(crate) struct State {
    path: Option<PathBuf>,
    /// Ordered by the last change, the newest last.
    positions: VecDeque<(String, u64)>,
    is_saved: bool,
    /// Locked while it is open, so that no other process writes the positions.
    lock: Option<File>,
}

impl State {
    /// Reads the positions from a file. A missing file has none.
    pub(crate) fn open(path: Option<&Path>) -> Result<State, CliError> {
        let positions = VecDeque::new();
        let mut state = State { path: path.map(Path::to_owned), positions, is_saved: true, lock: None };
        let Some(path) = path else { return Ok(state) };
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(failed(path, "it is no plain file"));
        }
        state.lock = Some(lock(path)?);
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(state),
            Err(error) => return Err(failed(path, error)),
        };
        for line in text.split_inclusive('\n') {
            // A line without a line end may have an incomplete number.
            let entry = line.strip_suffix('\n').and_then(|line| line.split_once(' '));
            let entry = entry.and_then(|(source, position)| Some((source, position.parse().ok()?)));
            let (source, position) =
                entry.filter(|(_, position)| *position <= MAX_POSITION).ok_or_else(|| {
                    failed(path, format!("'{}' is no source and its position", line.trim_end()))
                })?;
            state.positions.push_back((source.to_owned(), position));
        }
        Ok(state)
    }

    /// Whether there is a file.
    pub(crate) fn is_kept(&self) -> bool {
        self.path.is_some()
    }

    /// The position of a source, if it is kept.
    pub(crate) fn get(&self, source: &str) -> Option<u64> {
        self.positions.iter().rev().find(|(known, _)| known == source).map(|(_, position)| *position)
    }

    /// Records a position. If there are too many, the oldest is dropped.
    pub(crate) fn set(&mut self, source: &str, position: u64) {
        if self.path.is_none() || self.get(source) == Some(position) {
            return;
        }
        self.positions.retain(|(known, _)| known != source);
        self.positions.push_back((source.to_owned(), position));
        if self.positions.len() > MAX_SHIP_POSITIONS {
            self.positions.pop_front();
        }
        self.is_saved = false;
    }

    /// Drops the position of a source.
    pub(crate) fn remove(&mut self, source: &str) {
        let before = self.positions.len();
        self.positions.retain(|(known, _)| known != source);
        self.is_saved &= self.positions.len() == before;
    }

    /// Saves the positions atomically, if they have changed.
    pub(crate) fn save(&mut self) -> Result<(), CliError> {
        let Some(path) = self.path.as_ref().filter(|_| !self.is_saved) else { return Ok(()) };
        let mut file = NewFile::create(path, 0o600)?;
        let lines: String =
            self.positions.iter().map(|(source, position)| format!("{source} {position}\n")).collect();
        file.file().write_all(lines.as_bytes()).map_err(|error| failed(path, error))?;
        file.finish()?;
        self.is_saved = true;
        Ok(())
    }
}

/// Locks a second file, because the file of positions is replaced at each save.
fn lock(path: &Path) -> Result<File, CliError> {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.write(true).create(true).truncate(false).open(Path::new(&lock));
    let file = file.map_err(|error| failed(Path::new(&lock), error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(failed(path, "another lately ship has it")),
        Err(TryLockError::Error(error)) => Err(failed(Path::new(&lock), error)),
    }
}

fn failed(path: &Path, cause: impl std::fmt::Display) -> CliError {
    CliError::new(
        printable_path(path),
        cause,
        "it is the file of --state; without it the server alone knows the positions",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let mut state = State::open(Some(&path)).expect("nothing yet");
        (0..=MAX_SHIP_POSITIONS as u64).for_each(|number| state.set(&format!("s{number}"), number));
        state.set("s1", 7);
        state.save().expect("room");
        drop(state);
        let state = State::open(Some(&path)).expect("what was written");
        assert_eq!(["s0", "s1", "s2"].map(|source| state.get(source)), [None, Some(7), Some(2)]);
        let error = |path: &Path| State::open(Some(path)).err().expect("it is refused").to_string();
        assert!(error(&path).contains("another lately ship has it"), "{}", error(&path));
        drop(state);
        for (text, named) in [
            ("s1 seven\n", "'s1 seven'"),
            ("s1 7\ns2 12", "'s2 12'"),
            ("s1 9223372036854775808\n", "'s1 9223372036854775808'"),
            ("s1 -1\n", "'s1 -1'"),
        ] {
            fs::write(&path, text).expect("room");
            assert!(
                error(&path).contains(&format!("{named} is no source and its position")),
                "{}",
                error(&path)
            );
        }
        fs::write(&path, "s1 9223372036854775807\n").expect("room");
        let most = State::open(Some(&path)).expect("it is one");
        assert_eq!(most.get("s1"), Some(MAX_POSITION));
        assert!(error(folder.path()).contains("no plain file"));
        let mut none = State::open(None).expect("no file");
        none.set("s", 1);
        none.save().expect("nothing to write");
        assert_eq!(none.get("s"), None);
    }
}
