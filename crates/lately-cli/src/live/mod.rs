//! The live view of `lately top`, in independent parts: they follow logs, count lines, ask a server, handle the
//! keyboard, and draw.

pub(crate) mod alert;
pub(crate) mod busiest;
pub(crate) mod claims;
pub(crate) mod controls;
pub(crate) mod decisions;
pub(crate) mod event;
pub(crate) mod follower;
pub(crate) mod hits;
pub(crate) mod screen;
pub(crate) mod source;
pub(crate) mod view;
