//! What a client may ask of the counts, whatever protocol it speaks: protocols translate, this decides and counts.
//!
//! A [`Batch`] has the requests that the store is given together. Others are functions of the [`Engine`], here and in
//! `keys.rs`. What takes long is read in slices: a series, the walks of `walk.rs`.

mod batch;
mod effect;
mod keys;
mod walk;

pub(crate) use batch::{Batch, NamedRequest, Response};
pub(crate) use walk::{CoolestWalk, ScanWalk, coolest_of};
