//! The server as its clients see it: real sockets on free ports, and a clock that stands.

mod backpressure;
mod batches;
mod bind;
mod bounds;
mod clock;
mod common;
mod doors;
mod http;
mod http_bounds;
mod stop;
mod talk;
mod timeouts;
