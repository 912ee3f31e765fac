//! What the journal needs of a disk: a folder of files. Tests put one in its place that fails.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// A folder of files.
pub trait Disk: Send + Sync {
    /// One of its files.
    type File: DiskFile;

    /// The names of the files.
    ///
    /// # Errors
    /// As the system says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes an empty file, in place of one of that name.
    ///
    /// # Errors
    /// As the system says.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file that is there, to read and to write.
    ///
    /// # Errors
    /// As the system says.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Gives a file another name, in place of one of that name.
    ///
    /// # Errors
    /// As the system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As the system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns when the names of the files would survive a loss of power.
    ///
    /// # Errors
    /// As the system says.
    fn sync(&self) -> io::Result<()>;

    /// Bytes that files can take up still.
    ///
    /// # Errors
    /// As the system says.
    fn room(&self) -> io::Result<u64>;

    /// Has a file take up so many bytes; what they are is no matter. It is made if there is none.
    ///
    /// # Errors
    /// As the system says. It takes up what it did then.
    fn reserve(&self, name: &str, bytes: u64) -> io::Result<()>;

    /// Where a file is, to tell an operator.
    fn path(&self, name: &str) -> PathBuf;
}

/// A file.
pub trait DiskFile: Send + Sync {
    /// Its length in bytes.
    ///
    /// # Errors
    /// As the system says.
    fn size(&self) -> io::Result<u64>;

    /// Reads from `offset` on until `into` is full or the file ends; gives how many bytes.
    ///
    /// # Errors
    /// As the system says.
    fn read_bytes(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all bytes from `offset` on. After an error some of them may have been.
    ///
    /// # Errors
    /// As the system says.
    fn write_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts the file.
    ///
    /// # Errors
    /// As the system says.
    fn truncate(&self, size: u64) -> io::Result<()>;

    /// Returns when all that was written would survive a loss of power.
    ///
    /// # Errors
    /// As the system says. What was written before is in doubt then, also when a later call succeeds.
    fn sync(&self) -> io::Result<()>;

    /// Says that nobody reads these bytes soon, all of them synced: the memory that the system keeps them in may go. It
    /// is a wish.
    fn release(&self, bytes: Range<u64>);
}
