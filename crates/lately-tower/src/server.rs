//! A Lately server that decides for several processes.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use lately::{Retry, Span, Timestamp};
use redis::aio::ConnectionLike;
use redis::{Cmd, RedisError, RedisResult, Value};

use crate::decider::{Asked, Quota};
use crate::limits::{DEFAULT_SERVER_TIMEOUT, SERVER_PAUSE};

/// What becomes of requests while the server is away or refuses to decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Away {
    /// They are let through.
    Allow,
    /// They get the status 503.
    Deny,
    /// This process decides, by the same limits. It goes on from the requests that it let through itself, and the server
    /// does not learn of those that it lets through now.
    Local,
}

/// Why the server did not decide.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// The connection failed, or the server returned an error.
    Redis(RedisError),
    /// It did not answer in time.
    Timeout,
    /// This is no answer to `MLIMIT`: it is no Lately server.
    Answer,
    /// It could not be reached less than a second ago.
    Away,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::Redis(error) => write!(f, "the Lately server: {error}"),
            ServerError::Timeout => f.write_str("the Lately server did not answer in time"),
            ServerError::Answer => {
                f.write_str("the server's answer is none to MLIMIT: is it a Lately server?")
            }
            ServerError::Away => f.write_str("the Lately server is away"),
        }
    }
}

impl Error for ServerError {}

/// Any connection of the `redis` crate.
trait Connection: Send + Sync {
    fn query(&self, command: Cmd) -> Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Connection for C {
    fn query(&self, command: Cmd) -> Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>> {
        let mut connection = self.clone();
        Box::pin(async move { command.query_async(&mut connection).await })
    }
}

/// The server, and what to do without it.
pub(crate) struct Server {
    connection: Box<dyn Connection>,
    pub(crate) away: Away,
    timeout: Duration,
    /// Until when it is not asked, in milliseconds; 0 while it answers.
    paused_until_ms: AtomicI64,
}

impl Server {
    pub(crate) fn new(connection: impl ConnectionLike + Clone + Send + Sync + 'static, away: Away) -> Server {
        let timeout = DEFAULT_SERVER_TIMEOUT;
        Server { connection: Box::new(connection), away, timeout, paused_until_ms: AtomicI64::new(0) }
    }

    pub(crate) fn with_timeout(self, timeout: Duration) -> Server {
        Server { timeout, ..self }
    }

    /// Whether a request may ask it. While it is away one request in each pause may, so that only that one waits.
    pub(crate) fn may_be_asked(&self, now: Timestamp) -> bool {
        let until_ms = self.paused_until_ms.load(Relaxed);
        if until_ms == 0 {
            return true;
        }
        let next_ms = now.saturating_add(SERVER_PAUSE).as_millis();
        now.as_millis() >= until_ms
            && self.paused_until_ms.compare_exchange(until_ms, next_ms, Relaxed, Relaxed).is_ok()
    }

    /// Decides by several limits, all or nothing.
    pub(crate) async fn decide<'r>(
        &self,
        asked: &[Asked<'r>],
        now: Timestamp,
    ) -> Result<Vec<Quota<'r>>, ServerError> {
        let mut command = redis::cmd("MLIMIT");
        for Asked { rule, key } in asked {
            command.arg(key).arg(rule.max).arg(ms(rule.window));
        }
        let answer = self.query(command, now).await?;
        let mut quotas = quotas(asked, &answer).ok_or(ServerError::Answer)?;
        for (Asked { key, .. }, quota) in asked.iter().zip(&mut quotas) {
            let Some(lockout) = quota.rule.starts().filter(|_| quota.is_denial()) else { continue };
            // `MLIMIT` starts no lockouts. A limit of 0 denies, whatever has left the window meanwhile. With its short window,
            // all is free again when the lockout ends.
            let mut command = redis::cmd("LIMIT");
            command.arg(key).arg(0).arg("1ms").arg("LOCKOUT").arg(ms(lockout.first()));
            command
                .arg("FACTOR")
                .arg(lockout.factor().get().to_string())
                .arg("MAX")
                .arg(ms(lockout.longest()));
            let answer = self.query(command, now).await?;
            let locked = numbers(&answer).and_then(|numbers| Span::from_millis(numbers[4]));
            let locked = locked.ok_or(ServerError::Answer)?;
            if let Retry::After(wait) = &mut quota.retry {
                *wait = locked.max(*wait);
            }
        }
        Ok(quotas)
    }

    async fn query(&self, command: Cmd, now: Timestamp) -> Result<Value, ServerError> {
        let answer = match tokio::time::timeout(self.timeout, self.connection.query(command)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                // Other errors are the server's: it is there.
                if error.is_io_error() {
                    self.pause(now);
                }
                return Err(ServerError::Redis(error));
            }
            Err(_) => {
                self.pause(now);
                return Err(ServerError::Timeout);
            }
        };
        if self.paused_until_ms.load(Relaxed) != 0 {
            self.paused_until_ms.store(0, Relaxed);
        }
        Ok(answer)
    }

    fn pause(&self, now: Timestamp) {
        self.paused_until_ms.store(now.saturating_add(SERVER_PAUSE).as_millis(), Relaxed);
    }
}

/// A span as an argument of a command.
fn ms(span: Span) -> String {
    format!("{}ms", span.as_millis())
}

/// Reads the answer of `LIMIT`.
fn numbers(answer: &Value) -> Option<[i64; 5]> {
    let Value::Array(numbers) = answer else { return None };
    match numbers[..] {
        [
            Value::Int(allowed),
            Value::Int(max),
            Value::Int(remaining),
            Value::Int(retry_ms),
            Value::Int(reset_ms),
        ] => Some([allowed, max, remaining, retry_ms, reset_ms]),
        _ => None,
    }
}

/// Reads the answer of `MLIMIT`: 1 or 0, then five integers for each limit.
fn quotas<'r>(asked: &[Asked<'r>], answer: &Value) -> Option<Vec<Quota<'r>>> {
    let Value::Array(answer) = answer else { return None };
    let [Value::Int(_), decisions @ ..] = &answer[..] else { return None };
    if decisions.len() != asked.len() {
        return None;
    }
    let quota = |(asked, decision): (&Asked<'r>, &Value)| {
        let [allowed, _, remaining, retry_ms, _] = numbers(decision)?;
        let retry = match allowed {
            1 => Retry::Now,
            _ => Span::from_millis(retry_ms).map_or(Retry::Never, Retry::After),
        };
        let remaining = u64::try_from(remaining).unwrap_or(0);
        Some(Quota { rule: asked.rule, remaining, retry, more_after: None })
    };
    asked.iter().zip(decisions).map(quota).collect()
}
