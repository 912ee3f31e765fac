//! gRPC: the rate limit service of Envoy, counting and limits of Lately, health and reflection.

mod envoy;
mod health;
mod lately;
mod login;
mod messages;
mod methods;
mod ratelimit;
mod status;

pub(crate) use methods::routes;
#[cfg(test)]
pub(crate) use ratelimit::is_over;
