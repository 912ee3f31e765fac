//! HTTP: counting, limits, health, metrics, dumps.

mod alerts;
mod cluster;
mod counts;
mod decisions;
mod dumps;
mod events;
mod guard;
mod heads;
mod keys;
mod listener;
mod login;
mod long_body;
pub(crate) mod metrics;
mod named_limits;
pub(crate) mod ndjson;
mod openapi;
mod pace;
mod page;
mod places;
mod problem;
mod query;
mod quota;
mod requests;
mod routes;
mod series;
mod session;
mod status;
mod stream;
mod top;
mod traced;

pub(in crate::protocol) use listener::Link;
pub(crate) use listener::{Routes, Speaks, serve};
pub(in crate::protocol) use login::{credentials, no_key};
pub(in crate::protocol) use requests::{Requests, most_calls};
pub(crate) use routes::{all, watching};
pub(in crate::protocol) use traced::{naming_routes, traced};
