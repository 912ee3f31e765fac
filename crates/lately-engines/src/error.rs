//! The errors of engines.

/// Why an engine failed.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum EngineError {
    /// The address is invalid.
    #[error("invalid URL '{url}': {why}")]
    Url {
        /// The address, without its password.
        url: String,
        /// The problem.
        why: String,
    },
    /// The engine cannot be reached, or did not answer in time.
    #[error("{0}")]
    Away(String),
    /// The engine refused the user or the password.
    #[error("{server} refuses user '{user}': {why}")]
    Login {
        /// The host and the port.
        server: String,
        /// The user.
        user: String,
        /// The problem.
        why: &'static str,
    },
    /// The user lacks a permission.
    #[error("user '{user}' may not {what} on {server}: {remedy}")]
    Permission {
        /// The host and the port.
        server: String,
        /// The user.
        user: String,
        /// The refused operation, such as "run ZADD".
        what: String,
        /// The command that gives the permission.
        remedy: String,
    },
    /// The memory of the engine is full, and it evicts nothing.
    #[error("{server} is out of memory: raise its maxmemory")]
    Full {
        /// The host and the port.
        server: String,
    },
    /// The server is a replica.
    #[error("{server} is a replica and takes no writes")]
    ReadOnly {
        /// The host and the port.
        server: String,
    },
    /// Servers of a cluster are missing.
    #[error("the Redis Cluster does not serve all of its slots: {0}")]
    ClusterDown(String),
    /// The server refuses writes while it cannot save them.
    #[error("{server} takes no writes, because it cannot save its data: see its log")]
    Unsaved {
        /// The host and the port.
        server: String,
    },
    /// The server refuses writes while it has too few replicas.
    #[error("{server} takes no writes, because too few replicas follow it")]
    TooFewReplicas {
        /// The host and the port.
        server: String,
    },
    /// The server refused for another reason.
    #[error("{server} answered: {answer}")]
    Refused {
        /// The host and the port.
        server: String,
        /// The text of the error.
        answer: String,
    },
    /// A name of ours in the engine has content that is not ours.
    #[error("'{name}' holds what no node wrote: {what}")]
    Foreign {
        /// The name in the engine.
        name: String,
        /// The content.
        what: String,
    },
    /// The counts of all nodes of a mesh take more memory than they may.
    #[error("the counts of all nodes fill their part of the memory ceiling: raise ceiling in [memory]")]
    NoRoom,
    /// A file of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] crate::PeerTlsError),
}
