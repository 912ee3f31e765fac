//! Keys that are made of fields of a log line or of a request: templates of keys, the addresses in them, keys that are
//! exempt from limits, and what clients read about the limit of a key. It does no I/O and knows neither logs nor protocols.

pub mod address;
mod error;
mod escape;
mod exempt;
mod forwarded;
pub mod limits;
pub mod quota;
mod template;

pub use address::{Network, Prefix};
pub use error::KeyError;
pub use escape::push_escaped;
pub use exempt::Exempt;
pub use forwarded::client_address;
pub use template::{Part, Template};
