//! The Redis protocol: connections in event loops, and sessions.

mod batch;
mod commit_group;
mod connection;
mod connections;
mod event_loop;
mod listener;
mod pending_replies;
mod session;
mod stream;
mod tls_session;

pub(crate) use listener::Resp;
