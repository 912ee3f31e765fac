//! Converts errors of servers.

use redis::{ErrorKind, RedisError};

use super::address::Host;
use crate::EngineError;

/// The attempt that failed: the server, the user and the command.
pub(super) struct Attempt<'a> {
    pub(super) server: &'a Host,
    /// The user of the connection, and whether there is a password.
    pub(super) user: Option<&'a str>,
    pub(super) has_password: bool,
    /// The name of the command.
    pub(super) command: &'a str,
}

/// Whether the connection cannot be used any more.
pub(super) fn is_lost(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_timeout()
        || error.is_connection_dropped()
        || error.is_connection_refusal()
        || matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse)
}

/// The error of a server for a command.
pub(super) fn refusal(error: &RedisError, attempt: &Attempt<'_>) -> EngineError {
    let server = attempt.server.to_string();
    let user = attempt.user.unwrap_or("default").to_owned();
    let words = words(error);
    let login = |why| EngineError::Login { server: server.clone(), user: user.clone(), why };
    let code = error.code().unwrap_or_default();
    match code {
        "NOAUTH" => login("it wants a password: redis://USER:PASSWORD@HOST:PORT"),
        "WRONGPASS" => login("the user or the password is wrong, or the user is off"),
        "NOPERM" => {
            let command = attempt.command.to_uppercase();
            let is_about_keys = words.contains(" key");
            let (what, permission) = if is_about_keys {
                (format!("use the keys of {command}"), "~lately:*".to_owned())
            } else {
                (format!("run {command}"), format!("+{}", attempt.command.to_lowercase().replace(' ', "|")))
            };
            let remedy = format!("ACL SETUSER {user} {permission}");
            EngineError::Permission { server, user, what, remedy }
        }
        "OOM" => EngineError::Full { server },
        "READONLY" => EngineError::ReadOnly { server },
        "CLUSTERDOWN" => EngineError::ClusterDown(format!("{server} says so")),
        "MISCONF" => EngineError::Unsaved { server },
        "NOREPLICAS" => EngineError::TooFewReplicas { server },
        "LOADING" => EngineError::Away(format!("{server} is loading its data")),
        "MASTERDOWN" => EngineError::Away(format!("{server} is a replica and has lost its master")),
        _ if matches!(error.kind(), ErrorKind::AuthenticationFailed) => login(if attempt.has_password {
            "the user or the password is wrong, or the server wants none"
        } else {
            "it wants a password: redis://USER:PASSWORD@HOST:PORT"
        }),
        _ if is_lost(error) => EngineError::Away(format!("{server}: {words}")),
        "" => EngineError::Refused { server, answer: words },
        _ => EngineError::Refused { server, answer: format!("{code} {words}") },
    }
}

/// The text of an error, without the quotes that the client puts around it.
fn words(error: &RedisError) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}
