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
    /// It refused the user or the password.
    #[error("{server} refuses user '{user}': {why}")]
    Login {
        /// The host and the port.
        server: String,
        /// The user.
        user: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The user lacks a permission.
    #[error("user '{user}' may not {what} on {server}: {remedy}")]
    Permission {
        /// The host and the port.
        server: String,
        /// The user.
        user: String,
        /// What was tried, such as "run ZADD".
        what: String,
        /// What gives the permission.
        remedy: String,
    },
    /// Its memory is full, and it evicts nothing.
    #[error("{server} is out of memory: raise its maxmemory")]
    Full {
        /// The host and the port.
        server: String,
    },
    /// It is a replica.
    #[error("{server} is a replica and takes no writes")]
    ReadOnly {
        /// The host and the port.
        server: String,
    },
    /// Servers of a cluster are missing.
    #[error("the Redis Cluster does not serve all of its slots: {0}")]
    ClusterDown(String),
    /// It takes no writes while it cannot save them.
    #[error("{server} takes no writes, because it cannot save its data: see its log")]
    Unsaved {
        /// The host and the port.
        server: String,
    },
    /// It takes no writes while too few replicas follow it.
    #[error("{server} takes no writes, because too few replicas follow it")]
    TooFewReplicas {
        /// The host and the port.
        server: String,
    },
    /// It refused for another reason.
    #[error("{server} answered: {answer}")]
    Refused {
        /// The host and the port.
        server: String,
        /// Its words.
        answer: String,
    },
    /// It has something under a name of ours that is not ours.
    #[error("'{name}' holds what no node wrote: {what}")]
    Foreign {
        /// The name in the engine.
        name: String,
        /// What is there.
        what: String,
    },
}
