//! The names of files for the server. A name depends on the start of the file and on the options that decide which
//! hits are counted, not on the file name. It stays the same when the file is renamed, copied or compressed. It
//! changes when the file is rewritten, or when other keys are counted.

use std::fmt::Write;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::ship::head::Head;

/// Names for the files of one machine and one set of keys.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    machine: String,
    /// The options that decide for which keys a line counts.
    counted: Vec<String>,
}

impl Names {
    pub(crate) fn new(machine: String, counted: Vec<String>) -> Names {
        Names { machine, counted }
    }

    /// The name of a file in a folder. `None` while the file is too short to be distinguished from others; with `is_whole`, no more
    /// will come.
    pub(crate) fn of(&self, folder: &Path, head: &Head, is_whole: bool) -> Option<String> {
        head.bytes(is_whole).map(|bytes| self.name(b"file", folder, bytes))
    }

    /// The name of the mark of a log, by its folder and file name.
    pub(crate) fn of_log(&self, folder: &Path, file_name: &[u8]) -> String {
        self.name(b"log", folder, file_name)
    }

    fn name(&self, kind: &[u8], folder: &Path, what: &[u8]) -> String {
        let mut hash = Sha256::new();
        let counted = self.counted.iter().map(String::as_bytes);
        for text in [kind, self.machine.as_bytes(), folder.as_os_str().as_encoded_bytes(), what]
            .into_iter()
            .chain(counted)
        {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        let mut name = String::from("ship:");
        hash.finalize().iter().take(16).for_each(|byte| _ = write!(name, "{byte:02x}"));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        Head::read(text.as_bytes(), false).expect("it is there")
    }

    #[test]
    fn a_file_is_named_by_its_first_line_with_a_time() {
        let names = Names::new("host".to_owned(), vec!["ip".to_owned()]);
        let name = |first: &str| names.of(Path::new("/var/log"), &head(first), false);
        let first = name("10.0.0.1 [12/Mar/2024:09:00:04]\n");
        assert!(
            first.as_ref().is_some_and(|name| name.len() == 37 && name.starts_with("ship:")),
            "{first:?}"
        );
        assert_eq!(name("10.0.0.1 [12/Mar/2024:09:00:04]\nmore\n"), first);
        assert_ne!(name("10.0.0.1 [12/Mar/2024:09:00:05]\n"), first);
        assert_eq!(name("starting\n"), None);
        let long = |time: &str| name(&format!("{}{time}\n", "# a banner of many lines\n".repeat(1_000)));
        assert_ne!(long("2024-03-12 09:00:04"), long("2024-03-12 09:00:05"));
    }

    #[test]
    fn each_machine_folder_and_key_has_its_own_name() {
        let head = head("10.0.0.1 [12/Mar/2024:09:00:04]\n");
        let name = |machine: &str, folder: &str, counted: &[&str]| {
            let counted = counted.iter().map(|text| (*text).to_owned()).collect();
            Names::new(machine.to_owned(), counted).of(Path::new(folder), &head, false)
        };
        let of_a = name("a", "/var/log", &["", "ip"]);
        assert_eq!(of_a, name("a", "/var/log", &["", "ip"]));
        assert_ne!(of_a, name("b", "/var/log", &["", "ip"]));
        assert_ne!(of_a, name("a", "/var/log/nginx", &["", "ip"]));
        assert_ne!(name("a/", "var", &[]), name("a", "/var", &[]));
        for other in [&["web:", "ip"][..], &["", "path"], &["", "ip", "status=5xx"], &["ip", ""]] {
            assert_ne!(of_a, name("a", "/var/log", other), "{other:?}");
        }
    }
}
