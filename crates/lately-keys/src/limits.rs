//! Bounds on templates.

/// Fields in a key template.
pub const MAX_KEY_FIELDS: usize = 16;
