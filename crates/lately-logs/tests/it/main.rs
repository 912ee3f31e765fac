//! The crate through its public face, on any bytes.

mod formats;
mod log;
mod setup;
