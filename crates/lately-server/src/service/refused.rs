//! Why a change was not made.

use thiserror::Error;

/// Why a change was not made, or not acknowledged.
#[derive(Clone, Debug, Error)]
pub(crate) enum Refused {
    /// The journal has failed.
    #[error(transparent)]
    Journal(#[from] lately_journal::Refused),
    /// Nothing was given to the brokers of Kafka.
    #[error("the hit cannot be written to Kafka, and does not count: {0}")]
    Unwritten(String),
    /// The brokers of Kafka did not acknowledge hits.
    #[error("the brokers of Kafka did not acknowledge the hit, and it may count or not: {0}")]
    Unacknowledged(String),
    /// This node never does that.
    #[error("{0}")]
    Never(&'static str),
}

impl Refused {
    /// Why the journal cannot be written.
    pub(crate) fn journal(why: String) -> Refused {
        Refused::Journal(lately_journal::Refused { why })
    }

    /// The first word of the error, by which clients distinguish errors.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Refused::Never(_) => "ERR",
            _ => "MISCONF",
        }
    }
}
