//! A connection between nodes, with TLS or without.

use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes both ways.
pub(super) trait Bytes: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Bytes for S {}

/// A connection.
pub(super) type Stream = Pin<Box<dyn Bytes>>;
