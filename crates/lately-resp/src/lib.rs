//! The Redis protocol, versions 2 and 3, without I/O: bytes in, typed commands out; typed replies in,
//! bytes out.
//!
//! A server calls [`parse_request`] on its read buffer, or [`Requests::parse`] for all requests in it. Then
//! it calls [`Command::parse`] on the arguments, and writes the reply with an [`Encoder`]. Commands borrow
//! from the read buffer and from an [`Args`] or [`Requests`], which is reused for the next read.

mod args;
pub mod command;
mod decimal;
mod error;
mod frame;
mod inline;
mod integer;
pub mod limits;
mod reply;
mod request;
mod requests;
mod short_array;
mod template;

pub use args::{ArgList, Args};
pub use command::Command;
pub use error::{CommandError, ProtocolError, texts};
pub use frame::{Parsed, parse_request};
pub use integer::parse_integer;
pub use limits::Limits;
pub use reply::{Encoder, Protocol};
pub use request::write_request;
pub use requests::{End, Progress, Requests, Selected};
