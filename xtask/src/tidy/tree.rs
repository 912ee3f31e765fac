//! The text files that git has, or would have after `git add --all`.

use std::path::Path;
use std::process::Command;

use crate::run::{self, Failure, Outcome};

/// A file with its path from the root, parts separated by `/`.
pub(super) struct File {
    pub(super) path: String,
    pub(super) text: String,
}

impl File {
    /// The last part of the path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// All text files; a binary one has no place in it but its path.
pub(super) struct Tree {
    files: Vec<File>,
    binary: Vec<String>,
}

impl Tree {
    pub(super) fn read(root: &Path) -> Outcome<Self> {
        // Untracked files count: a forgotten one should fail before it is committed.
        let mut command = Command::new("git");
        command.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = run::output(&mut command, "tidy: listing the files")?;
        let mut tree = Self { files: Vec::new(), binary: Vec::new() };
        for path in listed.split_terminator('\0') {
            let on_disk = root.join(path);
            if !on_disk.is_file() {
                continue; // deleted, but not yet in git
            }
            let bytes = std::fs::read(&on_disk)
                .map_err(|error| Failure::new(format!("tidy: {}: {error}", on_disk.display())))?;
            match String::from_utf8(bytes) {
                Ok(text) => tree.files.push(File { path: path.to_owned(), text }),
                Err(_) => tree.binary.push(path.to_owned()),
            }
        }
        Ok(tree)
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() })
            .collect();
        Self { files, binary: Vec::new() }
    }

    pub(super) fn files(&self) -> &[File] {
        &self.files
    }

    pub(super) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(super) fn with_extension<'a>(&'a self, extension: &'a str) -> impl Iterator<Item = &'a File> {
        self.files
            .iter()
            .filter(move |file| file.name().rsplit_once('.').is_some_and(|(_, last)| last == extension))
    }

    /// Whether there is a file at `path`, or a folder with one in it.
    pub(super) fn has(&self, path: &str) -> bool {
        let is_it = |known: &str| {
            known
                .strip_prefix(path)
                .is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with('/'))
        };
        self.files.iter().any(|file| is_it(&file.path)) || self.binary.iter().any(|known| is_it(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_there_when_a_file_is_in_it() {
        let tree = Tree::of(&[("docs/design.md", "")]);
        let check = |path: &str, expected: bool| assert_eq!(tree.has(path), expected, "{path}");
        check("docs/design.md", true);
        check("docs", true);
        check("", true);
        check("doc", false);
        check("docs/design.m", false);
    }

    #[test]
    fn an_extension_is_what_follows_the_last_dot() {
        let tree = Tree::of(&[("a/lib.rs", ""), ("b.rs/readme", ""), ("c.rs.txt", "")]);
        let paths: Vec<_> = tree.with_extension("rs").map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a/lib.rs"]);
    }
}
