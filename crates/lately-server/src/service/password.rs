//! Passwords: what the server keeps of them, and how it checks one.
//!
//! It keeps an Argon2 hash, which takes some twenty milliseconds and 19 MiB to check. Once a password was found right, a
//! keyed hash of it is kept, too, so that the next login with it costs a microsecond. The key is random and lives in
//! this process only.

use std::path::Path;
use std::sync::{PoisonError, RwLock};

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Argon2, Params};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::config::FileError;
use crate::limits::{MAX_ARGON2_KIB, MAX_ARGON2_PASSES, MAX_PASSWORD_BYTES};

/// How an Argon2 hash in a password file begins.
const HASH: &[u8] = b"$argon2";

/// The random key of a server's fast hashes.
pub(crate) struct Keyed {
    key: hmac::Key,
    /// Compared when there is no tag, so that this takes the same time.
    none: hmac::Tag,
}

impl Keyed {
    pub(crate) fn new() -> Keyed {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.expect("the system gives random bytes");
        Keyed { none: hmac::sign(&key, b""), key }
    }

    pub(crate) fn tag(&self, bytes: &[u8]) -> hmac::Tag {
        hmac::sign(&self.key, bytes)
    }

    /// A number that nobody can compute without the key.
    pub(super) fn number(&self, bytes: &[u8]) -> u64 {
        let first = self.tag(bytes).as_ref().first_chunk().copied();
        u64::from_le_bytes(first.expect("a tag has 32 bytes"))
    }

    /// Whether there is a tag, and it is of these bytes. Takes the same time for any answer.
    pub(super) fn is_of(&self, tag: Option<&hmac::Tag>, bytes: &[u8]) -> bool {
        let is_of = hmac::verify(&self.key, bytes, tag.unwrap_or(&self.none).as_ref()).is_ok();
        is_of & tag.is_some()
    }
}

/// What is kept of a password.
pub(crate) struct Password {
    hash: PasswordHash,
    /// The keyed hash, once the password was found right.
    known: RwLock<Option<hmac::Tag>>,
}

/// Nothing of it is printed.
impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

impl Password {
    /// Makes it from the content of a password file. A password is hashed, which takes long.
    ///
    /// # Errors
    /// What is wrong with the file, without anything of its content.
    pub(crate) fn of_file(path: &Path, content: &[u8]) -> Result<Password, FileError> {
        let line = first_line(content);
        let hash = if line.is_empty() {
            Err("the first line is empty: it has to have the password".to_owned())
        } else if is_other_hash(line) {
            Err(format!("the first line is a hash of a kind that cannot be checked: {HASH_HINT}"))
        } else if line.starts_with(HASH) {
            given_hash(line)
        } else if line.len() > MAX_PASSWORD_BYTES {
            Err(format!("the password is too long: it has at most {MAX_PASSWORD_BYTES} bytes"))
        } else {
            hash_of(line)
        };
        let hash = hash.map_err(|why| FileError::new(path, why))?;
        Ok(Password { hash, known: RwLock::default() })
    }

    /// One that no text is the password of.
    #[cfg(test)]
    pub(crate) fn of_nobody() -> Password {
        let mut random = [0; 32];
        SystemRandom::new().fill(&mut random).expect("the system gives random bytes");
        Password { hash: hash_of(&random).expect("valid"), known: RwLock::default() }
    }

    /// The parameters of its hash, on which the time of a verification depends.
    pub(super) fn cost(&self) -> String {
        let PasswordHash { algorithm, version, params, .. } = &self.hash;
        format!("{algorithm} {version:?} {params}")
    }

    /// Whether this is known to be the password. It may be the right one all the same.
    pub(crate) fn is_known(&self, text: &[u8], keyed: &Keyed) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        keyed.is_of(known.as_ref(), text)
    }

    /// Whether this is the password. Takes long.
    fn matches(&self, text: &[u8]) -> bool {
        text.len() <= MAX_PASSWORD_BYTES && Argon2::default().verify_password(text, &self.hash).is_ok()
    }

    /// Takes as long as a verification, and has no result.
    pub(super) fn pretend(&self, text: &[u8]) {
        std::hint::black_box(self.matches(text));
    }

    /// Whether this is the password. Takes long. Afterwards it is known.
    pub(crate) fn verify(&self, text: &[u8], keyed: &Keyed) -> bool {
        let is_right = self.matches(text);
        if is_right {
            *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(keyed.tag(text));
        }
        is_right
    }
}

/// The first line of a file, without its end, and without the mark with which some editors begin a file.
pub(crate) fn first_line(content: &[u8]) -> &[u8] {
    let content = content.strip_prefix("\u{feff}".as_bytes()).unwrap_or(content);
    let line = content.split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn hash_of(password: &[u8]) -> Result<PasswordHash, String> {
    let mut salt = [0; 16];
    SystemRandom::new().fill(&mut salt).map_err(|_| "the system gives no random bytes".to_owned())?;
    let hash = Argon2::default().hash_password_with_salt(password, &salt);
    hash.map_err(|error| error.to_string())
}

/// The hash that a file has in place of a password, if it can be checked within the bounds.
fn given_hash(line: &[u8]) -> Result<PasswordHash, String> {
    let text = std::str::from_utf8(line).map_err(|_| invalid_hash())?;
    let hash = PasswordHash::new(text).map_err(|_| invalid_hash())?;
    let params = Params::try_from(&hash).map_err(|_| invalid_hash())?;
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err(invalid_hash());
    }
    if params.m_cost() > MAX_ARGON2_KIB {
        return Err(format!("the hash takes too much memory to check: m is at most {MAX_ARGON2_KIB}"));
    }
    if params.t_cost().saturating_mul(params.p_cost()) > MAX_ARGON2_PASSES {
        return Err(format!("the hash takes too long to check: t times p is at most {MAX_ARGON2_PASSES}"));
    }
    Ok(hash)
}

const HASH_HINT: &str = "give the line that argon2 -e prints, $argon2id$v=19$…, or the password itself";

fn invalid_hash() -> String {
    format!("the hash is invalid: {HASH_HINT}")
}

/// Whether a line looks like a hash of crypt(3), htpasswd, an LDAP server or SCRAM, alone or after the name of a user. Taken for a
/// password, it would be one that nobody knows, and whoever has read the file could log in with it.
fn is_other_hash(line: &[u8]) -> bool {
    /// How those begin, after `$` or `{`.
    const OF_CRYPT: [&str; 25] = [
        "1$", "2$", "2a$", "2b$", "2x$", "2y$", "3$", "5$", "6$", "7$", "8$", "9$", "y$", "gy$", "sm3$",
        "apr1$", "p$", "h$", "s$", "md5$", "md5,", "sha1$", "scrypt$", "pbkdf2$", "pbkdf2-",
    ];
    const OF_LDAP: [&str; 17] = [
        "sha}",
        "sha256}",
        "sha384}",
        "sha512}",
        "ssha}",
        "ssha256}",
        "ssha384}",
        "ssha512}",
        "md5}",
        "smd5}",
        "crypt}",
        "bcrypt}",
        "blf-crypt}",
        "pbkdf2",
        "argon2",
        "scrypt",
        "scram-",
    ];
    const OF_SCRAM: [&str; 1] = ["cram-sha-"];
    /// A short text that begins so is a password, and so is one of several words.
    const LEAST_BYTES: usize = 20;
    let is_hash = |text: &[u8]| {
        let begins: &[&str] = match text.first() {
            Some(b'$') => &OF_CRYPT,
            Some(b'{') if text.contains(&b'}') => &OF_LDAP,
            Some(b'S') => &OF_SCRAM,
            _ => return false,
        };
        let lower = text[1..].to_ascii_lowercase();
        !text.contains(&b' ')
            && begins
                .iter()
                .any(|begin| lower.starts_with(begin.as_bytes()) && lower.len() >= begin.len() + LEAST_BYTES)
    };
    let after_name = line.iter().position(|byte| *byte == b':').map(|colon| &line[colon + 1..]);
    // After the name of a user, an Argon2 hash is no hash of this file, either.
    is_hash(line) || after_name.is_some_and(|text| is_hash(text) || text.starts_with(HASH))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_file(content: &str) -> Result<Password, String> {
        Password::of_file(Path::new("p"), content.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_has_a_password_or_its_hash() {
        let keyed = Keyed::new();
        // A test vector of the reference implementation of Argon2.
        let hash = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
        for (content, right) in [
            ("secret", "secret"),
            ("secret\n", "secret"),
            ("secret\r\nnot this\n", "secret"),
            ("\u{feff}secret\n", "secret"),
            // They only resemble hashes.
            ("$1$ter", "$1$ter"),
            ("{shamrock}-correct-horse-battery", "{shamrock}-correct-horse-battery"),
            ("$5$ for lunch today please!", "$5$ for lunch today please!"),
            ("web:secret", "web:secret"),
            (" a b \n", " a b "),
            (hash, "password"),
        ] {
            let password = of_file(content).expect(content);
            assert!(!password.is_known(right.as_bytes(), &keyed));
            assert!(!password.verify(b"wrong", &keyed) && !password.verify(b"", &keyed));
            assert!(!password.is_known(b"wrong", &keyed));
            assert!(password.verify(right.as_bytes(), &keyed), "{content}");
            assert!(password.is_known(right.as_bytes(), &keyed));
            assert!(
                !password.is_known(b"wrong", &keyed) && !password.is_known(right.as_bytes(), &Keyed::new())
            );
        }
        assert!(!Password::of_nobody().verify(b"", &keyed));
    }

    #[test]
    fn a_bad_file_is_refused_without_its_content() {
        let check = |content: &str, expected: &str| {
            let error = of_file(content).expect_err(expected);
            assert!(error.starts_with(&format!("p: {expected}")) && !error.contains("secret"), "{error}");
        };
        check("", "the first line is empty");
        check("\nsecret", "the first line is empty");
        check("$argon2id$secret", "the hash is invalid");
        for begin in [
            "$2y$05$",
            "web:$2b$12$",
            "web:$apr1$",
            "$6$",
            "$y$j9T$",
            "$P$B",
            "{SSHA}",
            "{ssha512}",
            "web:{SHA}",
            "web:{CRYPT}$6$",
            "{ARGON2}$argon2id$",
            "$pbkdf2-sha256$",
            "SCRAM-SHA-256$4096:",
            "{BLF-CRYPT}$2y$",
            "web:$argon2id$v=19$",
        ] {
            let other = &format!("{begin}secretsecretsecret0123");
            check(
                other,
                "the first line is a hash of a kind that cannot be checked: give the line that argon2",
            );
        }
        check("$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ", "the hash is invalid");
        let hash = |params: &str| {
            format!("$argon2id$v=19${params}$c2FsdHNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4")
        };
        check(&hash("m=262145,t=1,p=1"), "the hash takes too much memory");
        check(&hash("m=1024,t=17,p=1"), "the hash takes too long");
        check(&hash("m=1024,t=4294967295,p=2"), "the hash takes too long");
        assert!(of_file(&hash("m=262144,t=8,p=2")).is_ok());
        assert!(of_file(&"s".repeat(MAX_PASSWORD_BYTES)).is_ok());
        check(&"s".repeat(MAX_PASSWORD_BYTES + 1), "the password is too long");
    }
}
