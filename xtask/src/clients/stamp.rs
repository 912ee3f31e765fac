//! A record of a folder's ingredients, to decide whether it must be made again.

use std::path::{Path, PathBuf};

use super::folder::at;
use crate::run::Outcome;

/// The stamp of a folder that is made from `ingredients`: manifests, and the versions of the tools that read
/// them.
pub(super) struct Stamp {
    path: PathBuf,
    ingredients: String,
}

impl Stamp {
    pub(super) fn new(folder: &Path, ingredients: &[&str]) -> Self {
        Self { path: folder.join(".made-from"), ingredients: ingredients.join("\n") }
    }

    /// Whether the folder was completed from exactly these ingredients.
    pub(super) fn is_current(&self) -> bool {
        std::fs::read_to_string(&self.path).is_ok_and(|written| written == self.ingredients)
    }

    /// Must be called when the folder is complete.
    pub(super) fn write(&self) -> Outcome {
        std::fs::write(&self.path, &self.ingredients).map_err(|error| at(&self.path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_current_until_an_ingredient_changes() {
        let folder = tempfile::tempdir().unwrap();
        let stamp = Stamp::new(folder.path(), &["redis==1", "3.11"]);
        assert!(!stamp.is_current());
        stamp.write().ok().unwrap();
        assert!(stamp.is_current());
        assert!(!Stamp::new(folder.path(), &["redis==2", "3.11"]).is_current());
        assert!(!Stamp::new(folder.path(), &["redis==1", "3.12"]).is_current());
    }
}
