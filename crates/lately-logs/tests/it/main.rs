//! The crate through its public face, on any bytes.

mod log;
