//! A connection to one server.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, RedisResult, Value};

use super::address::{Host, Servers};
use super::refusal::{Attempt, is_lost, refusal};
use super::slots::text;
use crate::EngineError;
use crate::limits::ENGINE_TIMEOUT;

/// A connection to one server. The client library never reconnects by itself, and repeats no command.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    connection: MultiplexedConnection,
    server: Host,
    user: Option<String>,
    has_password: bool,
}

/// The deployment that a server belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Single,
    Cluster,
    Sentinel,
}

/// An error of a server, or one of the connection.
pub(super) enum Failure {
    /// The connection cannot be used any more.
    Lost(EngineError),
    Refused(EngineError),
}

impl Failure {
    pub(super) fn into_error(self) -> EngineError {
        let (Failure::Lost(error) | Failure::Refused(error)) = self;
        error
    }
}

impl Connection {
    /// Connects and logs in.
    pub(super) async fn open(
        servers: &Servers,
        server: &Host,
        login: &RedisConnectionInfo,
    ) -> Result<Connection, EngineError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ENGINE_TIMEOUT))
            .set_response_timeout(Some(ENGINE_TIMEOUT));
        let user = login.username().map(str::to_owned);
        let has_password = login.password().is_some();
        let connect = async {
            servers.client(server, login)?.get_multiplexed_async_connection_with_config(&config).await
        };
        let connection = connect.await.map_err(|error| {
            let attempt = Attempt { server, user: user.as_deref(), has_password, command: "SELECT" };
            refusal(&error, &attempt)
        })?;
        Ok(Connection { connection, server: server.clone(), user, has_password })
    }

    pub(super) fn server(&self) -> &Host {
        &self.server
    }

    /// The error of a command.
    pub(super) fn refusal(&self, error: &redis::RedisError, command: &str) -> EngineError {
        let Connection { server, user, has_password, .. } = self;
        refusal(error, &Attempt { server, user: user.as_deref(), has_password: *has_password, command })
    }

    /// Sends commands together. Returns the answers in order, with errors of the server among them.
    pub(super) async fn run(&mut self, commands: &Pipeline) -> Result<Vec<RedisResult<Value>>, EngineError> {
        let answers = commands.query_async(&mut self.connection).await;
        answers.map_err(|error| self.refusal(&error, "a command"))
    }

    /// Sends one command, with this name in errors.
    pub(super) async fn query(&mut self, name: &str, command: &Cmd) -> Result<Value, Failure> {
        command.query_async(&mut self.connection).await.map_err(|error| {
            let refusal = self.refusal(&error, name);
            if is_lost(&error) { Failure::Lost(refusal) } else { Failure::Refused(refusal) }
        })
    }

    /// The deployment that the server belongs to. Every user may run this command.
    pub(super) async fn mode(&mut self) -> Result<Mode, Failure> {
        let answer = match self.query("HELLO", &redis::cmd("HELLO")).await {
            Ok(answer) => answer,
            // A proxy may not know the command.
            Err(Failure::Refused(EngineError::Refused { .. })) => return Ok(Mode::Single),
            Err(failure) => return Err(failure),
        };
        let Value::Array(fields) = answer else { return Ok(Mode::Single) };
        let mode = fields.chunks(2).find(|field| text(&field[0]) == Some("mode"));
        Ok(match mode.and_then(|field| text(field.get(1)?)) {
            Some("cluster") => Mode::Cluster,
            Some("sentinel") => Mode::Sentinel,
            _ => Mode::Single,
        })
    }
}
