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
    /// The brokers of Kafka have the hits of a batch, whose other changes failed.
    #[error(
        "the hits of this batch were given to Kafka and may count or not, its other changes were not made: {0}"
    )]
    Partly(String),
    /// This node never does that.
    #[error("{0}")]
    Never(&'static str),
}

impl Refused {
    /// Why the journal cannot be written.
    pub(crate) fn journal(why: String) -> Refused {
        Refused::Journal(lately_journal::Refused { why })
    }

    /// Why a batch failed whose hits the brokers of Kafka have already, or not: whoever sends these again may double
    /// them.
    pub(super) fn after_giving(self, given: bool) -> Refused {
        if given { Refused::Partly(self.to_string()) } else { self }
    }

    /// The first word of the error, by which clients distinguish errors.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Refused::Never(_) => "ERR",
            _ => "MISCONF",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_that_were_given_to_brokers_may_count() {
        let text = |given| Refused::journal("no space".to_owned()).after_giving(given).to_string();
        assert!(!text(false).contains("may count"), "{}", text(false));
        assert!(text(true).contains("may count or not") && text(true).contains("no space"), "{}", text(true));
    }
}
