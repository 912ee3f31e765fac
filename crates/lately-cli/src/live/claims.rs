//! The files that the logs of a view read, so that no file is counted twice. Two paths may lead to one file, and a rotation
//! may rename or copy a file to the name of another log.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::limits::MAX_CLAIMS;
use crate::live::follower::Open;

/// Device and inode number. While a file is open, only paths to it have the same.
pub(crate) type FileId = (u64, u64);

/// The files that the logs of a view read or have read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(Rc<RefCell<Vec<Claim>>>);

/// A file, and the log that reads it.
#[derive(Debug)]
struct Claim {
    id: FileId,
    /// Kept open, so that no other file gets its inode number.
    file: File,
    /// The number of the log.
    by: usize,
    path: PathBuf,
    /// Its first bytes when it was read.
    head: Vec<u8>,
    is_current: bool,
    /// The file and its position, if its log has released it.
    released: Option<Open>,
}

/// Whether a file is a copy of one that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copied {
    No,
    /// It has the same start, but is too short for a decision.
    Perhaps,
    Yes,
}

impl Claims {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Whether the file is read by another log than this one.
    pub(crate) fn is_of_another(&self, by: usize, id: FileId) -> bool {
        self.0.borrow().iter().any(|claim| claim.id == id && claim.by != by)
    }

    /// The log with this number and path reads a file from now on, as its current one or as a copy.
    pub(crate) fn add(
        &self,
        by: usize,
        path: &Path,
        id: FileId,
        file: &File,
        is_current: bool,
    ) -> io::Result<()> {
        let mut claims = self.0.borrow_mut();
        if is_current {
            claims.iter_mut().filter(|claim| claim.by == by).for_each(|claim| claim.is_current = false);
        }
        claims.retain(|claim| claim.id != id);
        if claims.len() >= MAX_CLAIMS
            && let Some(oldest) = claims.iter().position(|claim| !claim.is_current)
        {
            claims.remove(oldest);
        }
        claims.push(Claim {
            id,
            file: file.try_clone()?,
            by,
            path: path.to_owned(),
            head: Vec::new(),
            is_current,
            released: None,
        });
        Ok(())
    }

    /// Closes deleted files, which have no name any more, so that the disk gets their room back.
    pub(crate) fn forget_deleted(&self) {
        self.0.borrow_mut().retain(|claim| claim.file.metadata().is_ok_and(|metadata| metadata.nlink() > 0));
    }

    /// Releases a file that its log gives up, so that another log, which has its name, can continue it.
    pub(crate) fn release(&self, open: Open) {
        let mut claims = self.0.borrow_mut();
        if let Some(claim) = claims.iter_mut().find(|claim| claim.id == open.id()) {
            claim.released = Some(open);
        }
    }

    /// Takes over a released file: this log reads it from its position on.
    pub(crate) fn take_released(&self, by: usize, path: &Path, id: FileId) -> Option<Open> {
        let mut claims = self.0.borrow_mut();
        let open = claims.iter_mut().find(|claim| claim.id == id)?.released.take()?;
        for claim in claims.iter_mut().filter(|claim| claim.by == by || claim.id == id) {
            claim.is_current = claim.id == id;
            if claim.is_current {
                (claim.by, claim.path) = (by, path.to_owned());
            }
        }
        Some(open)
    }

    /// Records the first bytes of a file that were read.
    pub(crate) fn note_head(&self, id: FileId, head: &[u8]) {
        let mut claims = self.0.borrow_mut();
        let claim = claims.iter_mut().find(|claim| claim.id == id && claim.head != head);
        if let Some(claim) = claim {
            claim.head = head.to_vec();
        }
    }

    /// Whether a new file at `path` is a copy of one that another log reads. The name of a copy starts with the name of the log,
    /// as with logrotate. The copy may still be being written.
    pub(crate) fn is_copy(&self, by: usize, path: &Path, file: &File) -> io::Result<Copied> {
        let mut copied = Copied::No;
        let claims = self.0.borrow();
        for claim in claims.iter().filter(|claim| claim.by != by && may_be_rotated(path, &claim.path)) {
            let mut head = vec![0; claim.head.len()];
            let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX).min(head.len());
            file.read_exact_at(&mut head[..length], 0)?;
            if !claim.head.is_empty() && claim.head[..length] == head[..length] {
                copied = if length == head.len() { Copied::Yes } else { Copied::Perhaps };
                if copied == Copied::Yes {
                    break;
                }
            }
        }
        Ok(copied)
    }
}

/// Whether a path is in the folder of a log, with a name that starts with the log's name.
fn may_be_rotated(path: &Path, log: &Path) -> bool {
    let names = path.file_name().zip(log.file_name());
    path.parent() == log.parent()
        && names.is_some_and(|(name, log)| {
            name != log && name.as_encoded_bytes().starts_with(log.as_encoded_bytes())
        })
}
