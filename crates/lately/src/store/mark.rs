//! The position of a source.

use std::sync::Arc;

/// The name of a source. It is in several places.
pub(super) type Name = Arc<[u8]>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) position: u64,
    /// The value of `Sources::heard` when the source last changed.
    pub(super) heard: u64,
}

/// What a new position replaced.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Before {
    pub(super) mark: Option<Mark>,
    /// The sources that were forgotten to make room.
    pub(super) forgotten: Vec<(Name, Mark)>,
}
