//! The protocols: each translates requests of its clients for the service, and responses of the service into replies.

#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod grpc;
pub(crate) mod http;
#[cfg(test)]
mod permissions;
pub(crate) mod resp;
