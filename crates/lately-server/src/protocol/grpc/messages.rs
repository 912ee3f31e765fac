//! The messages, as `cargo xtask proto` made them of the files in `proto`.

/// The descriptions of all messages and services, for reflection.
pub(super) const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

#[expect(unreachable_pub, reason = "it is generated")]
mod generated {
    include!("generated/packages.rs");
}

pub(super) use generated::envoy::extensions::common::ratelimit::v3 as descriptor;
pub(super) use generated::envoy::service::ratelimit::v3 as envoy;
pub(super) use generated::grpc::health::v1 as health;
pub(super) use generated::lately::v1 as lately;
