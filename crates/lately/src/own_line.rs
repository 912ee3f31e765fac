//! Cache lines that threads on different cores do not share.

/// What is written by one thread at a time starts on a line of its own: 128 bytes, because
/// processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct OwnLine<T>(pub(crate) T);
