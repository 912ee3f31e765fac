//! Bounds on keys.

/// Fields in a key template.
pub const MAX_KEY_FIELDS: usize = 16;

/// Bytes at the end of a key in which an address is looked for.
pub const MAX_ADDRESS_BYTES: usize = 64;
