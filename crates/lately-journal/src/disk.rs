//! The disk as the journal uses it: a folder of files. Tests use one that fails.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// A folder of files.
pub trait Disk: Send + Sync {
    /// A file in it.
    type File: DiskFile;

    /// The names of the files.
    ///
    /// # Errors
    /// Errors of the system.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates an empty file. Replaces an existing one.
    ///
    /// # Errors
    /// Errors of the system.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// Errors of the system.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Renames a file. Replaces an existing one.
    ///
    /// # Errors
    /// Errors of the system.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Errors of the system.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names of the files durable: they survive a loss of power afterwards.
    ///
    /// # Errors
    /// Errors of the system.
    fn sync(&self) -> io::Result<()>;

    /// The free room for files, in bytes.
    ///
    /// # Errors
    /// Errors of the system.
    fn room(&self) -> io::Result<u64>;

    /// Makes a file take up this many bytes, with any content. Creates it if it does not exist.
    ///
    /// # Errors
    /// Errors of the system. The file keeps its size then.
    fn reserve(&self, name: &str, bytes: u64) -> io::Result<()>;

    /// The path of a file, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// A file.
pub trait DiskFile: Send + Sync {
    /// The length in bytes.
    ///
    /// # Errors
    /// Errors of the system.
    fn size(&self) -> io::Result<u64>;

    /// Reads from `offset` on until `into` is full or the file ends. Returns the number of bytes.
    ///
    /// # Errors
    /// Errors of the system.
    fn read_bytes(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all bytes from `offset` on. After an error some of them may be written.
    ///
    /// # Errors
    /// Errors of the system.
    fn write_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts the file to `size` bytes.
    ///
    /// # Errors
    /// Errors of the system.
    fn truncate(&self, size: u64) -> io::Result<()>;

    /// Makes everything durable that was written before: it survives a loss of power afterwards.
    ///
    /// # Errors
    /// Errors of the system. Everything that was written before is then in doubt, even if a later call
    /// succeeds.
    fn sync(&self) -> io::Result<()>;

    /// A hint that these bytes, which are synced, will not be read soon, so the system need not keep them in
    /// memory.
    fn release(&self, bytes: Range<u64>);
}
