//! What a folder takes of the disk.

use std::fs;
use std::io::Result;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of a block, as the system counts them.
const BLOCK_BYTES: u64 = 512;

/// Bytes of the disk that the files of a folder and of those in it have: a hole in a file takes none.
pub(super) fn bytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += match metadata.is_dir() {
            true => bytes(&entry.path())?,
            false => metadata.blocks() * BLOCK_BYTES,
        };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_take_nothing() {
        let folder = tempfile::tempdir().expect("a folder for a test");
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).expect("a folder in it");
        let file = fs::File::create(inner.join("hole")).expect("a file in that");
        file.set_len(64 << 20).expect("a hole");
        assert!(bytes(folder.path()).expect("it can be read") < 1 << 20);
        fs::write(inner.join("full"), vec![1; 1 << 20]).expect("disk space");
        assert!(bytes(folder.path()).expect("it can be read") >= 1 << 20);
    }
}
