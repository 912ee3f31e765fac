//! Tests of the layer with axum and hyper over real sockets, and with a real Lately server.

mod addresses;
mod answers;
mod bounds;
mod cancelled;
mod common;
mod hyper;
mod keys;
mod lockouts;
mod server;
mod several;
mod shadow;
