//! Files that the config names: passwords, certificates and keys.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use thiserror::Error;
use zeroize::Zeroizing;

use crate::limits::MAX_NAMED_FILE_BYTES;

/// Why a file that the config names cannot be used.
#[derive(Debug, Error)]
#[error("{}: {why}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it. The text has nothing of its content.
    pub why: String,
}

impl FileError {
    pub(crate) fn new(path: &Path, why: impl std::fmt::Display) -> FileError {
        FileError { path: path.to_owned(), why: why.to_string() }
    }
}

/// The content of a file. It is erased from memory when it is dropped.
pub(crate) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, FileError> {
    let fail = |error: std::io::Error| FileError::new(path, error);
    // Opening a pipe blocks until it has a writer, which may never come.
    let metadata = path.metadata().map_err(fail)?;
    if !metadata.is_file() {
        return Err(FileError::new(path, "not a regular file"));
    }
    if metadata.len() > MAX_NAMED_FILE_BYTES {
        return Err(FileError::new(path, format!("too long: it has at most {MAX_NAMED_FILE_BYTES} bytes")));
    }
    // Reserved in one piece: a buffer that grows leaves copies behind.
    let room = usize::try_from(MAX_NAMED_FILE_BYTES).unwrap_or(usize::MAX);
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    File::open(path)
        .and_then(|file| file.take(MAX_NAMED_FILE_BYTES).read_to_end(&mut bytes))
        .map_err(fail)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_has_a_bound() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("p");
        let most = usize::try_from(MAX_NAMED_FILE_BYTES).expect("little");
        std::fs::write(&path, vec![b'x'; most]).expect("room");
        assert_eq!(read(&path).map(|bytes| bytes.len()).ok(), Some(most));
        std::fs::write(&path, vec![b'x'; most + 1]).expect("room");
        let error = read(&path).expect_err("too long").to_string();
        assert!(error.ends_with("/p: too long: it has at most 262144 bytes"), "{error}");
        let error = read(folder.path()).expect_err("a folder").to_string();
        assert!(error.ends_with(": not a regular file"), "{error}");
    }
}
