//! What goes wrong with an engine.

/// Why an engine did not do what was asked.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum EngineError {
    /// The address is not one of an engine.
    #[error("invalid URL '{url}': {why}")]
    Url {
        /// The address, without its password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// It cannot be reached, or did not answer in time.
    #[error("{0}")]
    Away(String),
    /// It refused.
    #[error("it answered: {0}")]
    Refused(String),
    /// It has something under a name of ours that is not ours.
    #[error("'{name}' holds what no node wrote: {what}")]
    Foreign {
        /// The name in the engine.
        name: String,
        /// What is there.
        what: String,
    },
}
