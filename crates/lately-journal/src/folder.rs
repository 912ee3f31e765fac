//! A folder of the file system. It is kept open, so renaming it does no harm.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FallocateFlags, Mode, OFlags};
use rustix::fs::{fallocate, fchmod, fstatvfs, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::disk::{Disk, DiskFile};
use crate::error::JournalError;
use crate::names;

/// Only the owner may enter the folder, and read and write its files.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// All users but the owner.
const OTHERS: u32 = 0o077;

/// A folder that one process uses at a time. It is created for its owner only, and so are its files. If other
/// users may read an existing file, that right is removed when the file is opened for writing.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The open folder. It holds the lock.
    folder: File,
    may_write: bool,
}

impl Folder {
    /// Opens a folder. Creates it if it does not exist.
    ///
    /// # Errors
    /// [`JournalError::InUse`] if another process uses it, [`JournalError::Foreign`] if it has only files of
    /// other programs, [`JournalError::NoFolder`] or [`JournalError::Disk`] if it cannot be used.
    pub fn open(path: &Path) -> Result<Folder, JournalError> {
        let no_folder = |why| JournalError::NoFolder { path: path.to_owned(), why };
        if path.as_os_str().is_empty() {
            return Err(no_folder("it has no name"));
        }
        if path.exists() && !path.is_dir() {
            return Err(no_folder("it is a file"));
        }
        make(path).map_err(failed("make the folder", path))?;
        let folder = File::open(path).map_err(failed("open", path))?;
        is_free(folder.try_lock(), path)?;
        let folder = Folder { path: path.to_owned(), folder, may_write: true };
        match names::foreign(folder.list().map_err(failed("list", path))?) {
            Some(file) => Err(JournalError::Foreign { path: path.to_owned(), file }),
            None => Ok(folder),
        }
    }

    /// Opens a data folder for reading only. Nothing in it is changed, and it need not be writable.
    ///
    /// # Errors
    /// Those of [`Folder::open`].
    pub fn open_read_only(path: &Path) -> Result<Folder, JournalError> {
        let no_folder = |why| JournalError::NoFolder { path: path.to_owned(), why };
        let metadata = fs::metadata(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => no_folder("there is no such folder"),
            _ => failed("open", path)(error),
        })?;
        if !metadata.is_dir() {
            return Err(no_folder("it is a file"));
        }
        let folder = File::open(path).map_err(failed("open", path))?;
        is_free(folder.try_lock_shared(), path)?;
        let folder = Folder { path: path.to_owned(), folder, may_write: false };
        let files = names::sort(folder.list().map_err(failed("list", path))?);
        if files.logs.is_empty() && files.checkpoints.is_empty() {
            return Err(no_folder("there are no counts in it"));
        }
        Ok(folder)
    }

    /// The mode of the folder, if other users may enter or list it. The mode is not changed, because the
    /// folder may have other uses.
    #[must_use]
    pub fn mode_for_others(&self) -> Option<u32> {
        let mode = self.folder.metadata().ok()?.permissions().mode() & 0o7777;
        (mode & OTHERS != 0).then_some(mode)
    }

    fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        // Do not block on a pipe of that name.
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(openat(&self.folder, name, flags, Mode::from_raw_mode(FILE_MODE))?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        if self.may_write && metadata.permissions().mode() & OTHERS != 0 {
            // This fails for a user who is not the owner, who may be allowed to write all the same.
            let _ = fchmod(&file, Mode::from_raw_mode(FILE_MODE));
        }
        Ok(file)
    }
}

/// Creates a folder for its owner only. Parent folders get the default mode.
fn make(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    match fs::DirBuilder::new().mode(FOLDER_MODE).create(path) {
        Err(_) if path.is_dir() => Ok(()),
        made => made,
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError + use<> {
    let path = path.to_owned();
    move |error| JournalError::Disk { what, path, error }
}

fn is_free(locked: Result<(), TryLockError>, path: &Path) -> Result<(), JournalError> {
    locked.map_err(|error| match error {
        TryLockError::WouldBlock => JournalError::InUse { path: path.to_owned() },
        TryLockError::Error(error) => failed("lock", path)(error),
    })
}

impl Disk for Folder {
    type File = File;

    fn list(&self) -> io::Result<Vec<String>> {
        let names = Dir::read_from(&self.folder)?
            .map(|entry| Ok(entry?.file_name().to_str().ok().map(str::to_owned)));
        names.filter_map(Result::transpose).collect()
    }

    fn create(&self, name: &str) -> io::Result<File> {
        self.file(name, OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        self.file(name, if self.may_write { OFlags::RDWR } else { OFlags::RDONLY })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.folder, from, &self.folder, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.folder, name, AtFlags::empty())?)
    }

    fn sync(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn room(&self) -> io::Result<u64> {
        let disk = fstatvfs(&self.folder)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn reserve(&self, name: &str, bytes: u64) -> io::Result<()> {
        // Keep the room that the file has: others write meanwhile.
        let file = self.file(name, OFlags::CREATE | OFlags::RDWR)?;
        let before = file.size()?;
        if bytes <= before {
            return file.truncate(bytes);
        }
        // A file system may take all remaining room before it reports that this is too little, while others
        // need it.
        let taken = self.room().and_then(|room| match room < bytes - before {
            true => Err(Errno::NOSPC.into()),
            false => fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(io::Error::from),
        });
        taken.inspect_err(|_| if before > 0 { drop(file.truncate(before)) } else { drop(self.remove(name)) })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl DiskFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_bytes(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < into.len() {
            match FileExt::read_at(self, &mut into[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }

    fn sync(&self) -> io::Result<()> {
        // The length is synced with the data. Times do not matter.
        self.sync_data()
    }

    #[cfg(target_os = "linux")]
    fn release(&self, bytes: Range<u64>) {
        use std::num::NonZeroU64;

        use rustix::fs::{Advice, fadvise};
        // Pages that are only partly in the range stay: the last one will get more bytes.
        if let Some(len) = NonZeroU64::new(bytes.end.saturating_sub(bytes.start)) {
            let _ = fadvise(self, bytes.start, Some(len), Advice::DontNeed);
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn release(&self, _bytes: Range<u64>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_owner() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("deep").join("data");
        let folder = Folder::open(&path).expect("made");
        let error = Folder::open(&path).expect_err("it is taken");
        assert!(matches!(error, JournalError::InUse { .. }), "{error}");
        drop(folder);
        // It is the same folder under any name, and without one.
        let other = root.path().join("other");
        let folder = Folder::open(&path).expect("it is free again");
        fs::rename(&path, &other).expect("renamed");
        assert!(Folder::open(&other).is_err());
        folder.create("a").expect("made");
        Folder::open(&path).expect("another folder");
        assert!(other.join("a").exists() && !path.join("a").exists());
        std::os::unix::fs::symlink(&other, root.path().join("link")).expect("a link");
        assert!(Folder::open(&root.path().join("link")).is_err());
    }

    #[test]
    fn files_are_readable_by_their_owner_only() {
        let root = tempfile::tempdir().expect("a folder");
        let mode = |path: &str| {
            fs::metadata(root.path().join(path)).expect("it is there").permissions().mode() & 0o777
        };
        let set_mode = |path: &str, mode| {
            fs::set_permissions(root.path().join(path), fs::Permissions::from_mode(mode)).expect("set");
        };
        let path = root.path().join("deep/data");
        let folder = Folder::open(&path).expect("made");
        folder.create("log-1").expect("made");
        folder.reserve("spare", 1 << 10).expect("there is room");
        assert_eq!(
            [mode("deep/data"), mode("deep/data/log-1"), mode("deep/data/spare")],
            [0o700, 0o600, 0o600]
        );
        assert_eq!(folder.mode_for_others(), None);
        drop(folder);
        // With the modes of an earlier version. A look changes nothing.
        set_mode("deep/data", 0o755);
        set_mode("deep/data/log-1", 0o644);
        fs::write(path.join("log-0000000001"), "").expect("written");
        set_mode("deep/data/log-0000000001", 0o640);
        let folder = Folder::open_read_only(&path).expect("it is there");
        folder.open("log-1").expect("it is there");
        assert_eq!(mode("deep/data/log-1"), 0o644);
        drop(folder);
        let folder = Folder::open(&path).expect("it is there");
        folder.open("log-1").expect("it is there");
        folder.create("log-0000000001").expect("made");
        assert_eq!([mode("deep/data/log-1"), mode("deep/data/log-0000000001")], [0o600, 0o600]);
        assert_eq!((mode("deep/data"), folder.mode_for_others()), (0o755, Some(0o755)));
    }

    #[test]
    fn irregular_files_are_refused() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(root.path()).expect("made");
        std::os::unix::fs::symlink("/dev/zero", root.path().join("log-1")).expect("a link");
        let error = folder.open("log-1").expect_err("it is a device");
        assert_eq!(error.to_string(), "it is no regular file");
    }

    #[test]
    fn a_folder_with_other_files_is_refused_and_left_alone() {
        let root = tempfile::tempdir().expect("a folder");
        fs::write(root.path().join("notes"), "").expect("written");
        let error = Folder::open(root.path()).expect_err("it is not ours").to_string();
        assert!(
            error.ends_with(" is no folder of counts: it has other files in it, such as notes"),
            "{error}"
        );
        assert_eq!(fs::read_dir(root.path()).expect("a folder").count(), 1);
        // A data folder may have other files, too.
        fs::write(root.path().join(names::log(1)), "").expect("written");
        Folder::open(root.path()).expect("it is ours");
    }

    #[test]
    fn paths_that_are_no_folder_are_refused() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("file");
        fs::write(&path, "").expect("written");
        let error = Folder::open(&path).expect_err("it is a file").to_string();
        assert!(error.ends_with("/file\" is no folder of counts: it is a file"), "{error}");
        let error = Folder::open(Path::new("")).expect_err("it has no name").to_string();
        assert_eq!(error, "\"\" is no folder of counts: it has no name");
        let look =
            |name: &str| Folder::open_read_only(&root.path().join(name)).expect_err("refused").to_string();
        assert!(look("file").ends_with("it is a file"));
        assert!(look("none").ends_with("there is no such folder"));
        assert!(look("").ends_with("there are no counts in it"));
        let names = fs::read_dir(root.path()).expect("a folder").count();
        assert_eq!(names, 1, "a look leaves nothing behind");
    }

    #[test]
    fn a_file_is_read_and_written_anywhere() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(root.path()).expect("made");
        let file = folder.create("a").expect("made");
        file.write_bytes(b"hello", 0).expect("written");
        file.write_bytes(b"p!", 3).expect("written");
        let mut bytes = [0; 9];
        let read = file.read_bytes(&mut bytes, 1).expect("read");
        assert_eq!(&bytes[..read], b"elp!");
        file.truncate(2).expect("cut");
        assert_eq!(file.size().expect("a size"), 2);
        file.sync().expect("synced");
        file.release(0..2);
        file.release(2..2);
        assert_eq!(file.read_bytes(&mut bytes, 0).expect("read"), 2);
        assert_eq!(&bytes[..2], b"he");
        folder.rename("a", "b").expect("renamed");
        folder.sync().expect("synced");
        let mut names = folder.list().expect("listed");
        names.sort();
        names.retain(|name| !name.starts_with('.'));
        assert_eq!(names, ["b"]);
        folder.remove("b").expect("removed");
        folder.reserve("c", 1 << 20).expect("there is room");
        assert_eq!(folder.open("c").expect("it is there").size().expect("a size"), 1 << 20);
        let room = folder.room().expect("known");
        assert!(folder.reserve("d", 2 * room).is_err() && folder.open("d").is_err());
        assert!(folder.reserve("c", 2 * room).is_err());
        assert_eq!(folder.open("c").expect("it is there").size().expect("a size"), 1 << 20);
        folder.reserve("c", 1 << 10).expect("less");
        assert_eq!(folder.open("c").expect("it is there").size().expect("a size"), 1 << 10);
        assert_eq!(folder.open("b").expect_err("it went").kind(), ErrorKind::NotFound);
    }
}
