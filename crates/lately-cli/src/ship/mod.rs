//! What `lately ship` is made of: files that are read batch by batch, the logs they belong to through rotations, and the
//! server they are sent to.

pub(crate) mod head;
pub(crate) mod link;
pub(crate) mod log;
pub(crate) mod name;
pub(crate) mod part;
pub(crate) mod rotated;
pub(crate) mod sender;
pub(crate) mod state;
