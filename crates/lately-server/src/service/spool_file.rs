//! A temporary file without a name that holds a dump while it is checked. The system removes it however the process ends.

use std::env;
use std::fs::{File, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::fstatvfs;

use crate::limits::{SPOOL_CHECK_BYTES, SPOOL_LEAVES_SHARE};

/// The file. Writing fails with `StorageFull` before the disk is full: [`SPOOL_LEAVES_SHARE`] stays free.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    file: File,
    /// Free bytes that must remain.
    leaves_bytes: u64,
    /// Bytes that may be written before the free disk is checked again.
    unchecked_bytes: u64,
}

impl SpoolFile {
    /// Creates a file in a folder, with mode 0600.
    pub(crate) fn create(folder: &Path) -> io::Result<SpoolFile> {
        let file = tempfile::tempfile_in(folder)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        let leaves_bytes = room(&file)? / SPOOL_LEAVES_SHARE;
        Ok(SpoolFile { file, leaves_bytes, unchecked_bytes: 0 })
    }
}

/// The folder for such files: the data folder, or its nearest existing parent. Without a data folder, the temporary
/// folder of the system.
pub(crate) fn spool_folder(counts: Option<&Path>) -> PathBuf {
    let Some(counts) = counts else { return env::temp_dir() };
    let nearest = counts.ancestors().find(|folder| folder.is_dir());
    nearest.unwrap_or(Path::new(".")).to_owned()
}

/// Free bytes on the disk of a file.
fn room(file: &File) -> io::Result<u64> {
    let disk = fstatvfs(file)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

impl Read for SpoolFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.file.read(into)
    }
}

impl Seek for SpoolFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Write for SpoolFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len() as u64;
        if self.unchecked_bytes < len {
            self.unchecked_bytes = len.max(SPOOL_CHECK_BYTES);
            if room(&self.file)? < self.leaves_bytes.saturating_add(self.unchecked_bytes) {
                return Err(io::Error::new(io::ErrorKind::StorageFull, "the disk has no room"));
            }
        }
        let written = self.file.write(bytes)?;
        self.unchecked_bytes -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_file_is_nameless_and_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut file = SpoolFile::create(folder.path()).expect("made");
        file.write_all(b"hello").expect("written");
        file.seek(SeekFrom::Start(1)).expect("it is a file");
        let mut read = [0; 4];
        file.read_exact(&mut read).expect("read");
        assert_eq!(&read, b"ello");
        assert_eq!(file.file.metadata().expect("known").permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
        let none = SpoolFile::create(&folder.path().join("none")).expect_err("there is no such folder");
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_spool_file_is_on_the_disk_of_the_data_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(spool_folder(Some(folder.path())), folder.path());
        assert_eq!(spool_folder(Some(&folder.path().join("not/yet"))), folder.path());
        assert_eq!(spool_folder(Some(Path::new("not-yet"))), Path::new("."));
        assert_eq!(spool_folder(None), env::temp_dir());
    }

    #[test]
    fn a_spool_file_leaves_free_space() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut file = SpoolFile::create(folder.path()).expect("made");
        assert!(file.leaves_bytes > 0);
        file.write_all(&[7; 100]).expect("there is room");
        // This stands for other writes to the disk.
        file.leaves_bytes = u64::MAX;
        let rest = vec![7; usize::try_from(SPOOL_CHECK_BYTES).expect("small")];
        file.write_all(&rest[100..]).expect("the free space is not checked yet");
        let full = file.write_all(b"x").expect_err("there is no room");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }
}
