//! Certificates for servers on this machine.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A certificate for 127.0.0.1 with its key, and the authority that signed it, as files.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Makes them with `openssl`.
    ///
    /// # Panics
    /// `openssl` fails.
    #[must_use]
    pub fn make() -> Certificates {
        let certificates = Certificates { folder: tempfile::tempdir().expect("a folder") };
        let file = |name| certificates.file(name).to_string_lossy().into_owned();
        let (authority, authority_key) = (file("ca.pem"), file("ca-key.pem"));
        let of_authority = ["-subj", "/CN=test authority", "-keyout", &authority_key, "-out", &authority];
        request(&of_authority);
        let signed = ["-CA", &authority, "-CAkey", &authority_key, "-subj", "/CN=test"];
        let names = ["subjectAltName=IP:127.0.0.1", "basicConstraints=critical,CA:FALSE"];
        let (key, certificate) = (file("key.pem"), file("cert.pem"));
        let files = ["-addext", names[0], "-addext", names[1], "-keyout", &key, "-out", &certificate];
        request(&[&signed[..], &files].concat());
        certificates
    }

    /// `ca.pem`, `cert.pem` or `key.pem`.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn request(more: &[&str]) {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]);
    let made = command.args(more).stdin(Stdio::null()).output().expect("openssl");
    assert!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
}
