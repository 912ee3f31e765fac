//! gRPC: the rate limit service of Envoy, counting and limits of Lately, health and reflection.

mod envoy;
mod health;
mod lately;
mod login;
mod messages;
mod methods;
mod status;

pub(crate) use methods::router;
