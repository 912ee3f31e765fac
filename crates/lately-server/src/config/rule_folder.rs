//! The folder of `--ratelimit-config`: rules of envoyproxy/ratelimit.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lately_ratelimit::limits::MAX_RULES_BYTES;
use lately_ratelimit::{Rules, RulesError};
use thiserror::Error;

use crate::limits::MAX_RULE_FILES;

/// A folder, its files, and their rules.
#[derive(Clone, Debug)]
pub struct RuleFolder {
    pub(crate) path: PathBuf,
    pub(crate) files: RuleFiles,
    pub(crate) rules: Arc<Rules>,
}

/// The paths and the contents of files, in the order of their names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RuleFiles(Vec<(String, String)>);

/// Why a folder of rules cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RuleFolderError {
    /// The folder or a file cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The folder or the file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The folder has no rules.
    #[error("{}: it has no files *.yaml", path.display())]
    NoFiles {
        /// The folder.
        path: PathBuf,
    },
    /// The folder has too many files.
    #[error("{}: too many files: at most {MAX_RULE_FILES} of *.yaml", path.display())]
    TooManyFiles {
        /// The folder.
        path: PathBuf,
    },
    /// The files are too long.
    #[error("{}: too long: the files together have at most {MAX_RULES_BYTES} bytes", path.display())]
    TooLong {
        /// The file that is too much.
        path: PathBuf,
    },
    /// A file is not a regular one, or not text.
    #[error("{}: not a text file in UTF-8", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// A mistake, or something that is not supported.
    #[error(transparent)]
    Invalid(#[from] RulesError),
}

impl RuleFolder {
    /// Reads all files of a folder whose names end with `.yaml` or `.yml` and do not start with a dot. Links are followed.
    ///
    /// # Errors
    /// [`RuleFolderError`]: the first problem.
    pub fn load(path: &Path) -> Result<RuleFolder, RuleFolderError> {
        RuleFolder::of(path.into(), RuleFiles::read(path)?)
    }

    pub(crate) fn of(path: PathBuf, files: RuleFiles) -> Result<RuleFolder, RuleFolderError> {
        let rules = Arc::new(Rules::parse(&files.0)?);
        Ok(RuleFolder { path, files, rules })
    }

    /// The number of domains.
    #[must_use]
    pub fn domains(&self) -> usize {
        self.rules.domains()
    }

    /// The number of rules.
    #[must_use]
    pub fn rules(&self) -> usize {
        self.rules.all().len()
    }
}

/// The number of domains and of rules.
impl fmt::Display for RuleFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        write!(f, "{}, {}", count(self.domains(), "domain"), count(self.rules(), "rule"))
    }
}

impl RuleFiles {
    pub(crate) fn read(folder: &Path) -> Result<RuleFiles, RuleFolderError> {
        let unreadable = |error| RuleFolderError::Unreadable { path: folder.into(), error };
        let mut paths = Vec::new();
        for entry in folder.read_dir().map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
            if is_hidden || !is_yaml {
                continue;
            }
            if paths.len() == MAX_RULE_FILES {
                return Err(RuleFolderError::TooManyFiles { path: folder.into() });
            }
            paths.push(path);
        }
        if paths.is_empty() {
            return Err(RuleFolderError::NoFiles { path: folder.into() });
        }
        paths.sort_unstable();
        let mut left_bytes = MAX_RULES_BYTES;
        let files = paths.into_iter().map(|path| {
            let text = read_text(&path, left_bytes)?;
            left_bytes -= text.len();
            Ok((path.display().to_string(), text))
        });
        Ok(RuleFiles(files.collect::<Result<_, RuleFolderError>>()?))
    }
}

fn read_text(path: &Path, most_bytes: usize) -> Result<String, RuleFolderError> {
    let unreadable = |error| RuleFolderError::Unreadable { path: path.into(), error };
    // Opening a pipe blocks until it has a writer, which may never come.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(RuleFolderError::NotText { path: path.into() });
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(most_bytes as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > most_bytes {
        return Err(RuleFolderError::TooLong { path: path.into() });
    }
    String::from_utf8(bytes).map_err(|_| RuleFolderError::NotText { path: path.into() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_yaml_files_are_read_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        let load = || {
            let loaded = RuleFolder::load(path).map(|folder| folder.to_string());
            loaded.map_err(|error| error.to_string().replace(&path.display().to_string(), "D"))
        };
        assert_eq!(load(), Err("D: it has no files *.yaml".to_owned()));
        fs::write(path.join("b.yaml"), "domain: b").expect("room");
        fs::write(path.join("a.yml"), "domain: a").expect("room");
        for ignored in ["notes.txt", ".hidden.yaml", "yaml"] {
            fs::write(path.join(ignored), "]").expect("room");
        }
        assert_eq!(load(), Ok("2 domains, 0 rules".to_owned()));
        fs::write(path.join("c.yaml"), "domain: a").expect("room");
        let second = "D/c.yaml:1:9: a second file for the domain 'a': the first is D/a.yml";
        assert_eq!(load(), Err(second.to_owned()));
        fs::write(path.join("c.yaml"), b"\xff").expect("room");
        assert_eq!(load(), Err("D/c.yaml: not a text file in UTF-8".to_owned()));
        fs::remove_file(path.join("c.yaml")).expect("it is there");
        fs::create_dir(path.join("c.yaml")).expect("room");
        assert_eq!(load(), Err("D/c.yaml: not a text file in UTF-8".to_owned()));
        let gone = RuleFolder::load(&path.join("gone")).expect_err("it is not there").to_string();
        assert!(gone.ends_with("/gone: No such file or directory (os error 2)"), "{gone}");
    }

    #[test]
    fn files_are_bounded_in_number_and_length() {
        let folder = tempfile::tempdir().expect("a folder");
        let load = || RuleFolder::load(folder.path()).map_err(|error| error.to_string());
        for number in 0..MAX_RULE_FILES {
            let file = folder.path().join(format!("{number}.yaml"));
            fs::write(file, format!("domain: d{number}")).expect("room");
        }
        assert_eq!(load().map(|folder| folder.to_string()), Ok("256 domains, 0 rules".to_owned()));
        fs::write(folder.path().join("more.yaml"), "domain: more").expect("room");
        assert!(load().is_err_and(|error| error.ends_with(": too many files: at most 256 of *.yaml")));

        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("long.yaml");
        let text = |bytes| "domain: long".to_owned() + &" ".repeat(bytes - 12);
        fs::write(&file, text(MAX_RULES_BYTES)).expect("room");
        assert!(RuleFolder::load(folder.path()).is_ok());
        fs::write(&file, text(MAX_RULES_BYTES + 1)).expect("room");
        let error = RuleFolder::load(folder.path()).expect_err("too long").to_string();
        assert!(
            error.ends_with("long.yaml: too long: the files together have at most 8388608 bytes"),
            "{error}"
        );
    }
}
