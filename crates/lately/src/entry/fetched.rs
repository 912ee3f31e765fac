//! How far a prefetch has come.

/// How much of a key's heap memory was prefetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fetched {
    /// The key has no heap memory.
    Nothing,
    All,
    /// The first allocation. It may point to more: when it has arrived, call again for the next level.
    First,
}
