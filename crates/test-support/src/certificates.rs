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

    /// Makes `NAME.pem` and `NAME-key.pem`, a certificate for 127.0.0.1 that the authority signs. It is valid from now for this many
    /// days; if there are fewer than 0, it is expired.
    ///
    /// # Panics
    /// `openssl` fails.
    pub fn sign(&self, name: &str, days: i32) {
        let file = |suffix: &str| self.file(&format!("{name}{suffix}")).to_string_lossy().into_owned();
        let (key, request, extensions) = (file("-key.pem"), file(".csr"), file(".cnf"));
        std::fs::write(&extensions, "subjectAltName=IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n")
            .expect("room");
        let new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"];
        let subject = format!("/CN={name}");
        let files = ["-subj", &subject, "-keyout", &key, "-out", &request];
        openssl(&[&["req"], &new_key[..], &files].concat());
        let authority = [self.file("ca.pem"), self.file("ca-key.pem")];
        let [authority, authority_key] = authority.each_ref().map(|path| path.to_string_lossy());
        let (days, made) = (days.to_string(), file(".pem"));
        let signed = ["-CA", &authority, "-CAkey", &authority_key, "-days", &days, "-extfile", &extensions];
        openssl(&[&["x509", "-req", "-in", &request, "-out", &made], &signed[..]].concat());
    }

    /// `ca.pem`, `cert.pem` or `key.pem`, or what [`Certificates::sign`] made.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn request(more: &[&str]) {
    let new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"];
    openssl(&[&new[..], more].concat());
}

fn openssl(args: &[&str]) {
    let made = Command::new("openssl").args(args).stdin(Stdio::null()).output().expect("openssl");
    assert!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
}
