//! The names of the files: `log-` or `checkpoint-`, and a number.

use std::io;

use crate::disk::Disk;

/// The file that reserves room for the next checkpoint.
pub(crate) const RESERVE: &str = "reserve";

/// The digits of a number, padded so that names sort like their numbers.
const DIGITS: usize = 10;

/// No folder has had that many.
const MAX_SEGMENT: u64 = 1 << 60;

const LOG: &str = "log-";
const CHECKPOINT: &str = "checkpoint-";
const PART: &str = ".part";

/// The name of a segment of the log.
pub(crate) fn log(segment: u64) -> String {
    format!("{LOG}{segment:0DIGITS$}")
}

/// The name of the checkpoint that this segment of the log follows.
pub(crate) fn checkpoint(segment: u64) -> String {
    format!("{CHECKPOINT}{segment:0DIGITS$}")
}

/// The name of an unfinished checkpoint.
pub(crate) fn unfinished(segment: u64) -> String {
    checkpoint(segment) + PART
}

/// The journal's files in a folder.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    /// Numbers, in ascending order.
    pub(crate) logs: Vec<u64>,
    pub(crate) checkpoints: Vec<u64>,
    /// Names of unused files.
    pub(crate) unfinished: Vec<String>,
}

/// Picks the journal's files by their names.
pub(crate) fn sort(names: impl IntoIterator<Item = String>) -> Files {
    let mut files = Files::default();
    for name in names {
        // Only names with exactly this form, and numbers that can be incremented.
        let number = |prefix: &str| {
            let number =
                name.strip_prefix(prefix)?.parse::<u64>().ok().filter(|&number| number < MAX_SEGMENT)?;
            (name == format!("{prefix}{number:0DIGITS$}")).then_some(number)
        };
        if let Some(segment) = number(LOG) {
            files.logs.push(segment);
        } else if let Some(segment) = number(CHECKPOINT) {
            files.checkpoints.push(segment);
        } else if name.starts_with(CHECKPOINT) && name.ends_with(PART) {
            files.unfinished.push(name);
        }
    }
    files.logs.sort_unstable();
    files.checkpoints.sort_unstable();
    files
}

/// A file of another program, in a folder without files of a journal. Files that a file system puts into its
/// own root do not count.
pub(crate) fn foreign(names: Vec<String>) -> Option<String> {
    const OF_THE_SYSTEM: [&str; 3] = [".", "..", "lost+found"];
    let Files { logs, checkpoints, unfinished } = sort(names.iter().cloned());
    let has_own = names.iter().any(|name| name == RESERVE);
    if has_own || !logs.is_empty() || !checkpoints.is_empty() || !unfinished.is_empty() {
        return None;
    }
    names.into_iter().filter(|name| !OF_THE_SYSTEM.contains(&name.as_str())).min()
}

/// Removes the files that the checkpoint before this segment replaces.
pub(crate) fn remove_before<D: Disk>(disk: &D, segment: u64) -> io::Result<()> {
    let files = sort(disk.list()?);
    let checkpoints = files.checkpoints.into_iter().filter(|&older| older < segment).map(checkpoint);
    let logs = files.logs.into_iter().filter(|&older| older < segment).map(log);
    // The oldest first, so that the rest has no gap.
    checkpoints.chain(logs).try_for_each(|name| disk.remove(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_our_files_is_foreign() {
        let check = |names: &[&str], expected: Option<&str>| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(foreign(names).as_deref(), expected);
        };
        check(&[], None);
        check(&[".", "..", "lost+found"], None);
        check(&[".", "..", "src", "Cargo.toml"], Some("Cargo.toml"));
        check(&["log-1"], Some("log-1"));
        for own in ["log-0000000001", "checkpoint-0000000002", "checkpoint-0000000002.part", RESERVE] {
            check(&["notes", own], None);
        }
    }

    #[test]
    fn file_names_parse_back_to_numbers() {
        let names = [
            log(2),
            log(10),
            log(1),
            checkpoint(9),
            unfinished(10),
            "lock".into(),
            RESERVE.into(),
            "log-+1".into(),
            "log-1".into(),
            log(u64::MAX),
        ];
        let files = sort(names);
        let wanted = Files {
            logs: vec![1, 2, 10],
            checkpoints: vec![9],
            unfinished: vec!["checkpoint-0000000010.part".into()],
        };
        assert_eq!(files, wanted);
    }
}
