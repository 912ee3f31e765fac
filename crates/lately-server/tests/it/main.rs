//! Tests of the server over real sockets on free ports, with a manual clock.

mod alerts;
mod auth;
mod backpressure;
mod batches;
mod bind;
mod bounds;
mod clock;
mod cluster_clocks;
mod common;
mod grpc;
mod http;
mod http_bounds;
mod interfaces;
mod ratelimit;
mod short_frames;
mod stop;
mod talk;
mod timeouts;
mod tls;
mod top;
mod users;
