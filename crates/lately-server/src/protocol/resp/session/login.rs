//! Logging in. The connection waits while a password is verified, and other clients have their turn.

use std::sync::Arc;

use lately_resp::{Command, texts};

use super::Session;
use super::questions::Waiting;
use crate::config::DEFAULT_USER;
use crate::limits::LOGIN_TIMEOUT;
use crate::service::access::Principal;
use crate::service::login::{Login, LoginError};

/// The user and the password of a command that logs in.
fn login_of<'a>(command: &Command<'a>) -> Option<(&'a [u8], &'a [u8])> {
    match *command {
        Command::Auth { user, password } => Some((user.unwrap_or(DEFAULT_USER.as_bytes()), password)),
        Command::Hello(hello) => hello.auth,
        _ => None,
    }
}

/// Whether the command logs in. Inside a transaction it is refused, because `EXEC` does not wait.
pub(super) fn logs_in(command: &Command<'_>) -> bool {
    login_of(command).is_some()
}

impl Session {
    /// Whether a command waits until its password is verified. The login begins then.
    #[inline]
    pub(super) fn waits_for_login(&mut self, command: &Command<'_>) -> bool {
        match login_of(command) {
            Some((user, password)) if self.login.is_none() && self.transaction.is_none() => {
                self.begin_login(user, password)
            }
            _ => false,
        }
    }

    fn begin_login(&mut self, user: &[u8], password: &[u8]) -> bool {
        if self.service.users.get().is_open() {
            return false;
        }
        let login = self.service.begin_login(user, password, &self.caller);
        let waits = if let Login::Waits(pending) = &login {
            self.waiting = Waiting::For(Arc::clone(pending.wait()), LOGIN_TIMEOUT);
            true
        } else {
            false
        };
        self.login = Some(login);
        waits
    }

    /// The client has closed its side of the connection. A login that would wait for a delay ends.
    pub(crate) fn client_left(&self) {
        if let Some(Login::Waits(pending)) = &self.login {
            pending.client_left();
        }
    }

    /// Logs in, after [`Session::waits_for_login`] and the wait. Without users there is only the user `default`, with any
    /// password.
    pub(super) fn log_in(&mut self, user: &[u8]) -> Result<(), &'static str> {
        self.waiting = Waiting::No;
        let outcome = match self.login.take() {
            Some(Login::Decided(outcome)) => outcome,
            Some(Login::Waits(pending)) => pending.outcome(),
            None if user == DEFAULT_USER.as_bytes() && self.service.users.get().is_open() => return Ok(()),
            None => Err(LoginError::Wrong),
        };
        let user = outcome.map_err(|error| match error {
            LoginError::Wrong => texts::WRONGPASS,
            LoginError::Busy => texts::BUSY_LOGIN,
        })?;
        self.client.change(|about| about.user = Some(user.name.clone()));
        // The users may have been replaced meanwhile.
        self.principal = self.service.users.renewed(&Principal::User(user));
        Ok(())
    }

    /// Takes the permissions that the user has now, if the users were replaced.
    #[inline]
    pub(super) fn renew_principal(&mut self) {
        let version = self.service.users.version();
        if version != self.users_version {
            self.users_version = version;
            self.principal = self.service.users.renewed(&self.principal);
            let user = self.principal.user().map(|user| user.name.clone());
            self.client.change(|about| about.user = user);
        }
    }
}
