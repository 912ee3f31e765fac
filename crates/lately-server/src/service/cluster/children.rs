//! The names of the nodes below this one in a tree, in a file of the data folder. After a start, the node waits until it has read what each of them
//! knows, before it sends hits again that nobody else seems to have.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use lately::Origin;

use crate::service::lines;

/// The file in the data folder: a name on each line.
const FILE: &str = "children";
const WITHOUT: &str = "hits that only a node below this one knows may count twice";

/// The names of before.
///
/// # Errors
/// The file cannot be read, or has a line that is damaged.
pub(super) fn load(folder: &Path) -> io::Result<Vec<String>> {
    let path = folder.join(FILE);
    let bytes = match std::fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        bytes => bytes?,
    };
    let name = |text: &str| Origin::new(text, 0).map(|_| text.to_owned());
    lines::read(&path, &bytes, WITHOUT, name).map(|(names, _)| names)
}

/// Replaces them.
///
/// # Errors
/// The folder does not work. The file is as before.
pub(super) fn keep(folder: &Path, names: &[&str]) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    names.iter().try_for_each(|name| file.write_all(lines::line(name).as_bytes()))?;
    file.as_file().sync_all()?;
    file.persist(folder.join(FILE))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_kept_in_the_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(load(folder.path()).expect("none").is_empty());
        keep(folder.path(), &["edge-1", "edge-2"]).expect("room");
        assert_eq!(load(folder.path()).expect("whole"), ["edge-1", "edge-2"]);
        keep(folder.path(), &["edge-2"]).expect("room");
        assert_eq!(load(folder.path()).expect("whole"), ["edge-2"]);
        std::fs::write(folder.path().join(FILE), "no name\n").expect("room");
        let error = load(folder.path()).expect_err("damaged").to_string();
        assert!(
            error.ends_with("without it, hits that only a node below this one knows may count twice"),
            "{error}"
        );
    }
}
