//! The origins whose hits are in the store of this node. With a data folder they are in a file there: after a start, the counts
//! that this node sent before are its own, not those of another node.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lately::{Origin, Timestamp};

use crate::service::lines;

/// The file in the data folder: an origin on each line.
const FILE: &str = "origins";
const WITHOUT: &str = "what this node sent before counts twice until it leaves the retention";

/// Origins, and where they are written.
#[derive(Default, Debug)]
pub(super) struct Origins {
    list: Vec<Origin>,
    path: Option<PathBuf>,
}

impl Origins {
    /// Reads those of a data folder; without one, there are none yet.
    ///
    /// # Errors
    /// The file cannot be read, or has a line that is damaged.
    pub(super) fn load(folder: Option<&Path>) -> io::Result<Origins> {
        let Some(folder) = folder else { return Ok(Origins::default()) };
        let path = folder.join(FILE);
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            bytes => bytes?,
        };
        // Nothing was sent under the origin of a line without its end.
        let (list, whole_bytes) = lines::read(&path, &bytes, WITHOUT, |text| text.parse().ok())?;
        if whole_bytes < bytes.len() as u64 {
            OpenOptions::new().write(true).open(&path)?.set_len(whole_bytes)?;
        }
        Ok(Origins { list, path: Some(path) })
    }

    /// Whether an origin is one of them.
    pub(super) fn contains(&self, origin: &Origin) -> bool {
        self.list.contains(origin)
    }

    /// A new origin of a node, and the only one: the hits of the others are in the store no more.
    ///
    /// # Errors
    /// The file cannot be written. It has the others still; a later start takes their hits for those of the store.
    pub(super) fn begin_anew(&mut self, node: &str, now: Timestamp) -> (Origin, io::Result<()>) {
        let origin = self.next(node, now);
        self.list = vec![origin.clone()];
        let written = self.path.as_ref().map_or(Ok(()), |path| {
            let folder = path.parent().unwrap_or(path);
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(lines::line(&origin.to_string()).as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            File::open(folder)?.sync_all()
        });
        (origin, written)
    }

    fn next(&self, node: &str, now: Timestamp) -> Origin {
        let last = self.list.iter().map(Origin::incarnation).max().unwrap_or(0);
        let incarnation = u64::try_from(now.as_millis()).unwrap_or(0).max(last + 1);
        Origin::new(node, incarnation).expect("the config was checked")
    }

    /// Whether there was one before the last.
    pub(super) fn has_former(&self) -> bool {
        self.list.len() > 1
    }

    /// A new origin of a node, written to the folder before it is used.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add(&mut self, node: &str, now: Timestamp) -> io::Result<Origin> {
        let origin = self.next(node, now);
        if let Some(path) = &self.path {
            let mut file: File = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
            file.write_all(lines::line(&origin.to_string()).as_bytes())?;
            file.sync_all()?;
            File::open(path.parent().unwrap_or(path))?.sync_all()?;
        }
        self.list.push(origin.clone());
        Ok(origin)
    }
}

/// The node that a data folder was of, if it was one's and can be read.
pub(crate) fn former_node(folder: &Path) -> Option<String> {
    let origins = Origins::load(Some(folder)).ok()?;
    origins.list.last().map(|origin| origin.node().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_kept_in_the_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let now = Timestamp::from_millis(1_700_000_000_000).expect("a time");
        let mut origins = Origins::load(Some(folder.path())).expect("none");
        assert_eq!(former_node(folder.path()), None);
        let first = origins.add("a", now).expect("room");
        assert_eq!(former_node(folder.path()).as_deref(), Some("a"));
        let second = origins.add("a", now).expect("room");
        assert_eq!((first.incarnation(), second.incarnation()), (1_700_000_000_000, 1_700_000_000_001));
        // A crash in the middle of a line.
        let path = folder.path().join(FILE);
        let mut file = OpenOptions::new().append(true).open(&path).expect("it is there");
        file.write_all(b"a.17000").expect("room");
        let mut origins = Origins::load(Some(folder.path())).expect("good lines");
        assert!(origins.contains(&first) && origins.contains(&second));
        let third = origins.add("a", Timestamp::MIN).expect("room");
        let again = Origins::load(Some(folder.path())).expect("good lines");
        assert!([&first, &second, &third].iter().all(|origin| again.contains(origin)));
        let mut origins = again;
        let (fourth, written) = origins.begin_anew("a", Timestamp::MIN);
        written.expect("room");
        let again = Origins::load(Some(folder.path())).expect("a good line");
        assert!(again.contains(&fourth) && !again.contains(&third) && !again.has_former());
        assert!(fourth.incarnation() > third.incarnation());
        std::fs::write(&path, "no origin\n").expect("room");
        assert!(Origins::load(Some(folder.path())).is_err());
    }
}
