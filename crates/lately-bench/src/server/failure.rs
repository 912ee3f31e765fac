//! The reason why a section could not be measured.

use std::fmt;

#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(sentence: impl Into<String>) -> Failure {
        Failure(sentence.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure(error.to_string())
    }
}

impl From<redis::RedisError> for Failure {
    fn from(error: redis::RedisError) -> Failure {
        Failure(error.to_string())
    }
}

impl From<lately_load::LoadError> for Failure {
    fn from(error: lately_load::LoadError) -> Failure {
        Failure(error.to_string())
    }
}

impl From<lately_engines::EngineError> for Failure {
    fn from(error: lately_engines::EngineError) -> Failure {
        Failure(error.to_string())
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        // The cause says more than the kind.
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        Failure(format!("PostgreSQL: {error}{}", cause.unwrap_or_default()))
    }
}
