//! The parts of `lately ship`: files that are read batch by batch, logs with their rotated files, and the connection to the
//! server.

pub(crate) mod head;
pub(crate) mod link;
pub(crate) mod log;
pub(crate) mod name;
pub(crate) mod part;
pub(crate) mod rotated;
pub(crate) mod sender;
pub(crate) mod state;
