//! HTTP: counting, health, metrics, dumps.

mod counts;
mod dumps;
mod guard;
mod listener;
pub(crate) mod metrics;
mod pace;
mod places;
mod problem;

pub(crate) use listener::{all, serve, watching};
