//! Listeners: sockets on the outside, the engine inside.

mod connection;
pub(crate) mod http;
pub(crate) mod resp;
