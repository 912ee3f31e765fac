//! How far a history was sent: a file in the data folder.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use lately::Timestamp;

use crate::service::lines;

const WITHOUT: &str = "the history goes on from the pane of the start";

/// The end of the newest pane that the receiver has. Without a data folder it is in memory only.
#[derive(Debug)]
pub(super) struct Position {
    path: Option<PathBuf>,
}

impl Position {
    pub(super) fn new(folder: Option<PathBuf>, name: &str) -> Position {
        Position { path: folder.map(|folder| folder.join(format!("history-{name}"))) }
    }

    /// `None` if nothing was sent yet.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub(super) fn read(&self) -> io::Result<Option<Timestamp>> {
        let Some(path) = &self.path else { return Ok(None) };
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?,
        };
        let (times, _) = lines::read(path, &bytes, WITHOUT, |text| {
            Timestamp::from_millis(text.split(' ').next()?.parse().ok()?)
        })?;
        match times.last() {
            Some(time) => Ok(Some(*time)),
            None => Err(io::Error::other(format!("{}: it is empty: remove it; {WITHOUT}", path.display()))),
        }
    }

    /// Replaces the file. It has the new position when this returns, and the old one if it fails or the machine stops before.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(&self, sent_to: Timestamp) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let folder = path.parent().unwrap_or(path);
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(lines::line(&sent_to.as_millis().to_string()).as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_kept_in_the_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let position = Position::new(Some(folder.path().to_owned()), "a");
        let at = |ms: i64| Timestamp::from_millis(ms).expect("a time");
        assert_eq!(position.read().expect("none"), None);
        for ms in [1_700_000_000_000, 1_700_000_060_000] {
            position.write(at(ms)).expect("room");
            assert_eq!(position.read().expect("it is there"), Some(at(ms)));
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
        let path = folder.path().join("history-a");
        for damaged in ["", "1700000060000", "1700000060001 12345678\n"] {
            std::fs::write(&path, damaged).expect("room");
            let error = position.read().expect_err(damaged).to_string();
            assert!(error.contains("history-a") && error.contains("remove it"), "{error}");
        }
        let nowhere = Position::new(None, "a");
        nowhere.write(at(1)).expect("nothing to write");
        assert_eq!(nowhere.read().expect("nothing to read"), None);
        let gone = Position::new(Some(folder.path().join("gone")), "a");
        assert!(gone.write(at(1)).expect_err("no folder").to_string().contains("history-a"));
    }
}
