//! The Redis protocol: connections in event loops, and sessions.

mod balance;
mod commit_group;
mod connection;
mod connections;
mod event_loop;
mod listener;
mod load;
mod pending_replies;
mod session;
mod socket_batch;
mod stream;
mod tls_session;

pub(crate) use listener::Resp;
