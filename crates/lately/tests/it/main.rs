//! The crate through its public face: against the exact model, and from many threads.

mod examples;
mod limits;
mod model;
mod shared;
mod subject;
mod threads;
mod time_text;
mod trace;
