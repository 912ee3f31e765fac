//! The live view of `lately top`, in parts that do not know each other: what follows logs, what counts their lines, what
//! the keys of the keyboard change, and what is drawn.

pub(crate) mod claims;
pub(crate) mod controls;
pub(crate) mod event;
pub(crate) mod follower;
pub(crate) mod hits;
pub(crate) mod screen;
pub(crate) mod source;
pub(crate) mod view;
