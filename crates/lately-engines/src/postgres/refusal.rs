//! Converts errors of PostgreSQL.

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use super::address::Address;
use crate::EngineError;

/// What a failure means for the connection.
pub(super) enum Failure {
    /// It cannot be used any more.
    Lost(EngineError),
    /// There is no partition for a count, or no table.
    Missing(EngineError),
    Refused(EngineError),
}

impl Failure {
    pub(super) fn into_error(self) -> EngineError {
        let (Failure::Lost(error) | Failure::Missing(error) | Failure::Refused(error)) = self;
        error
    }

    pub(super) fn of(error: &Error, address: &Address) -> Failure {
        let server = address.server.clone();
        let Some(refusal) = error.as_db_error() else {
            return Failure::Lost(EngineError::Away(format!("{server}: {}", words(error))));
        };
        let user = address.user.clone();
        let answer = || EngineError::Refused { server: server.clone(), answer: refusal.message().to_owned() };
        let code = refusal.code();
        if [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION].contains(code) {
            let why = "the user or the password is wrong, or pg_hba.conf does not let this user in";
            return Failure::Lost(EngineError::Login { server, user, why });
        }
        if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            let (what, remedy) = permission(refusal, address);
            return Failure::Refused(EngineError::Permission { server, user, what, remedy });
        }
        if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
            return Failure::Lost(EngineError::ReadOnly { server });
        }
        if [SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY].contains(code) {
            return Failure::Refused(answer());
        }
        let missing = [SqlState::CHECK_VIOLATION, SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME];
        if missing.contains(code) {
            return Failure::Missing(answer());
        }
        // The server stops or starts, or has too many clients; or its connection failed.
        let is_lost = ["57P", "08", "53300"].iter().any(|class| code.code().starts_with(class));
        if is_lost {
            return Failure::Lost(EngineError::Away(format!("{server}: {}", refusal.message())));
        }
        Failure::Refused(answer())
    }
}

/// What the user may not do, and the command that allows it.
fn permission(refusal: &DbError, address: &Address) -> (String, String) {
    let (user, message) = (&address.user, refusal.message());
    let what = message
        .strip_prefix("permission denied for ")
        .map_or_else(|| format!("do this ({message})"), |what| format!("use the {what}"));
    let database = address.config.get_dbname().unwrap_or_default();
    let remedy = if message.contains(" database ") {
        format!("GRANT CREATE ON DATABASE \"{database}\" TO \"{user}\"")
    } else {
        format!("ALTER SCHEMA lately OWNER TO \"{user}\", and its tables, or let the nodes have one user")
    };
    (what, remedy)
}

/// The text of an error with its cause.
fn words(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
