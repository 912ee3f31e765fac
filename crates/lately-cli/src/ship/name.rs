//! The name by which the server knows a file. It depends on what the file begins with, and not on the file's own name: so it stays
//! when the file is renamed, copied or compressed, and is another when a file is written anew.

use std::fmt::Write;
use std::path::Path;

use memchr::memchr;
use sha2::{Digest, Sha256};

use crate::limits::{SHIP_HEAD_BYTES, SHIP_HEAD_DIGITS};

/// What tells files of one folder and machine from others.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    machine: String,
}

impl Names {
    pub(crate) fn new(machine: String) -> Names {
        Names { machine }
    }

    /// The name of a file in a folder. `first` are its first bytes, as many as there are up to [`SHIP_HEAD_BYTES`]; `is_whole` when no
    /// more will come. `None` while there are too few to tell it from other files.
    pub(crate) fn of(&self, folder: &Path, first: &[u8], is_whole: bool) -> Option<String> {
        let head = head(first, is_whole)?;
        let mut hash = Sha256::new();
        for text in [self.machine.as_bytes(), folder.as_os_str().as_encoded_bytes()] {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        hash.update(head);
        let mut name = String::from("ship:");
        hash.finalize().iter().take(16).for_each(|byte| _ = write!(name, "{byte:02x}"));
        Some(name)
    }
}

/// The bytes up to the end of the first line that has a time, as far as digits tell; a header, such as that of a W3C log, is the same in
/// many files.
fn head(first: &[u8], is_whole: bool) -> Option<&[u8]> {
    let first = &first[..first.len().min(SHIP_HEAD_BYTES)];
    let mut start = 0;
    while let Some(at) = memchr(b'\n', &first[start..]) {
        let line = &first[start..start + at];
        start += at + 1;
        if line.iter().filter(|byte| byte.is_ascii_digit()).count() >= SHIP_HEAD_DIGITS {
            return Some(&first[..start]);
        }
    }
    (first.len() == SHIP_HEAD_BYTES || (is_whole && !first.is_empty())).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_by_its_first_line_with_a_time() {
        let names = Names::new("host".to_owned());
        let name = |first: &str, is_whole| names.of(Path::new("/var/log"), first.as_bytes(), is_whole);
        let first = name("10.0.0.1 [12/Mar/2024:09:00:04]\n", false);
        assert!(
            first.as_ref().is_some_and(|name| name.len() == 37 && name.starts_with("ship:")),
            "{first:?}"
        );
        assert_eq!(name("10.0.0.1 [12/Mar/2024:09:00:04]\nmore\n", false), first);
        assert_ne!(name("10.0.0.1 [12/Mar/2024:09:00:05]\n", false), first);
        // Too little is there to tell it from others.
        for short in [
            "",
            "10.0.0.1 [12/Mar/2024:09:00:04]",
            "#Version: 1.0\n",
            "#Version: 1.0\n#Fields: a b\n2024-03-1",
        ] {
            assert_eq!(name(short, false), None, "{short}");
        }
        assert_eq!(name("", true), None);
        assert!(name("started\n", true).is_some());
        let header = "#Version: 1.0\n#Fields: a b\n";
        let named = |time: &str| name(&format!("{header}{time}\n"), false);
        assert_ne!(named("2024-03-12 09:00:04"), named("2024-03-12 09:00:05"));
        let long = "x".repeat(SHIP_HEAD_BYTES);
        assert!(name(&long[1..], false).is_none() && name(&long, false).is_some());
        assert_eq!(name(&long, false), name(&format!("{long}more"), false));
    }

    #[test]
    fn machines_and_folders_have_names_of_their_own() {
        let line = b"10.0.0.1 [12/Mar/2024:09:00:04]\n";
        let name =
            |machine: &str, folder: &str| Names::new(machine.to_owned()).of(Path::new(folder), line, false);
        assert_ne!(name("a", "/var/log"), name("b", "/var/log"));
        assert_ne!(name("a", "/var/log"), name("a", "/var/log/nginx"));
        assert_ne!(name("a/", "var"), name("a", "/var"));
        assert_eq!(name("a", "/var/log"), name("a", "/var/log"));
    }
}
