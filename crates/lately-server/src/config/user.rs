//! `password_file` in `[server]`, and `[[user]]`: who may log in, and what each user may do.

use std::path::{Path, PathBuf};

use lately::Pattern;
use lately::limits::MAX_KEY_BYTES;
use lately_resp::command::Verb;
use serde::Deserialize;
use toml::Spanned;

use super::error::Problem;
use crate::limits::{MAX_USER_NAME_BYTES, MAX_USER_PATTERNS, MAX_USERS};

/// The user of `AUTH` and of HTTP `Bearer`, which name none.
pub(crate) const DEFAULT_USER: &str = "default";

/// A user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// Its unique name: letters, digits and `_ - . @`.
    pub name: String,
    /// The file with its password, or with an Argon2 hash of it, in the first line.
    pub password_file: PathBuf,
    /// Patterns of the keys that it may use.
    pub keys: Vec<Pattern>,
    /// What it may do with them.
    pub verbs: Vec<Verb>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: [[user]]")]
pub(super) struct UserConfig {
    name: Spanned<String>,
    password_file: Spanned<String>,
    keys: Spanned<Vec<Spanned<String>>>,
    verbs: Spanned<Vec<Spanned<String>>>,
}

/// Checks all users. The user `default` comes first, if `[server]` has its password. It may do everything.
pub(super) fn settle(
    users: Vec<Spanned<UserConfig>>,
    default: Option<&Spanned<String>>,
) -> Result<Vec<User>, Problem> {
    if let Some(user) = users.get(MAX_USERS) {
        return Err(Problem {
            at: user.span(),
            message: format!("too many users: a config has at most {MAX_USERS}"),
        });
    }
    let mut settled = Vec::new();
    if let Some(file) = default {
        settled.push(User {
            name: DEFAULT_USER.to_owned(),
            password_file: path(file)?,
            keys: vec![Pattern::new(b"*")],
            verbs: Verb::ALL.to_vec(),
        });
    }
    for user in users {
        let UserConfig { name, password_file, keys, verbs } = user.into_inner();
        let problem = |message: String| Err(Problem { at: name.span(), message });
        if !is_name(name.get_ref()) {
            return problem(format!(
                "invalid name '{}': give 1 to {MAX_USER_NAME_BYTES} letters, digits, or any of _ - . @",
                name.get_ref()
            ));
        }
        if let Some(other) = settled.iter().find(|other: &&User| other.name == *name.get_ref()) {
            let name = &other.name;
            return problem(if default.is_some() && name == DEFAULT_USER {
                "the user default has its password_file in [server]: remove one of them".to_owned()
            } else {
                format!("a second user is named '{name}': give each its own name")
            });
        }
        settled.push(User {
            password_file: path(&password_file)?,
            keys: patterns(&keys)?,
            verbs: verbs_of(&verbs)?,
            name: name.into_inner(),
        });
    }
    Ok(settled)
}

/// A path of a file, which is not empty.
pub(super) fn path(text: &Spanned<String>) -> Result<PathBuf, Problem> {
    let problem = |message: String| Problem { at: text.span(), message };
    if text.get_ref().is_empty() {
        return Err(problem("the path is empty: name a file".to_owned()));
    }
    if text.get_ref().starts_with(['~', '$']) {
        let message = format!(
            "invalid path '{}': ~ and $ are a shell's to replace, and none reads this: write the whole path",
            text.get_ref()
        );
        return Err(problem(message));
    }
    Ok(Path::new(text.get_ref()).to_owned())
}

fn patterns(keys: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<Pattern>, Problem> {
    if keys.get_ref().is_empty() {
        let message = "keys is empty: name a pattern, such as \"*\" for all keys".to_owned();
        return Err(Problem { at: keys.span(), message });
    }
    if let Some(pattern) = keys.get_ref().get(MAX_USER_PATTERNS) {
        let message = format!("too many keys: a user has at most {MAX_USER_PATTERNS} patterns");
        return Err(Problem { at: pattern.span(), message });
    }
    let pattern = |pattern: &Spanned<String>| {
        let text = pattern.get_ref().as_bytes();
        if (1..=MAX_KEY_BYTES).contains(&text.len()) {
            return Ok(Pattern::new(text));
        }
        let message =
            format!("invalid pattern of {} bytes: a pattern has 1 to {MAX_KEY_BYTES} bytes", text.len());
        Err(Problem { at: pattern.span(), message })
    };
    keys.get_ref().iter().map(pattern).collect()
}

fn verbs_of(verbs: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<Verb>, Problem> {
    const KNOWN: &str = "give some of read, hit, limit, delete, admin";
    if verbs.get_ref().is_empty() {
        return Err(Problem { at: verbs.span(), message: format!("verbs is empty: {KNOWN}") });
    }
    let mut known = Vec::new();
    for verb in verbs.get_ref() {
        let text = verb.get_ref();
        let problem = |message: String| Err(Problem { at: verb.span(), message });
        let Some(&found) = Verb::ALL.iter().find(|known| known.name() == text) else {
            return problem(format!("unknown verb '{text}': {KNOWN}"));
        };
        if known.contains(&found) {
            return problem(format!("the verb '{text}' is given twice: remove one"));
        }
        known.push(found);
    }
    Ok(known)
}

/// A colon would end the name in HTTP `Basic`.
fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@".contains(&byte);
    (1..=MAX_USER_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_allowed)
}
