//! Cache lines that threads on different cores do not share.

/// A value on its own cache line, so that threads that write different values do not slow each other down. 128 bytes,
/// because processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct CacheLine<T>(pub(crate) T);
