//! Cache lines that threads on different cores do not share.

/// A value on cache lines of its own: 128 bytes, because
/// processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct CacheLine<T>(pub(crate) T);
