//! HTTP: counting, health, metrics, dumps.

mod cluster;
mod counts;
mod dumps;
mod guard;
mod heads;
mod listener;
mod login;
mod long_body;
pub(crate) mod metrics;
mod pace;
mod places;
mod problem;
mod routes;
mod stream;

pub(crate) use listener::serve;
pub(crate) use routes::{all, watching};
