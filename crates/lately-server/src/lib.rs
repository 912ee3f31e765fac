//! The lately server: listeners over a synchronous engine.

pub mod config;
pub mod limits;
