//! Counts that several nodes share: what travels between them, and how it is merged.
//!
//! A node counts its own hits only. What it tells others are absolute counts: for each key and [`Cell`] of time, the hits
//! that one [`Origin`] has counted in it so far. Merging takes the greater number of each origin, and a total is the sum
//! over the origins. So a message may be lost, repeated or late, and the next one still makes the counts right. This is
//! the state-based counter of Shapiro, Preguiça, Baquero and Zawirski, "A comprehensive study of Convergent and Commutative
//! Replicated Data Types" (2011), with one counter for each cell.
//!
//! Deleting a key does not remove a count, which could come back with the next message. It adds a mark: of this cell of
//! this origin, this number of hits is deleted. Marks merge by the greater number, too. Hits that the origin counts later,
//! or that the deleting node had not heard of, are more than the mark, and stay.
//!
//! [`Levels`] are the widths of the cells. [`Store::take_unsent`](crate::Store::take_unsent) gives the counts of a node that
//! are to be sent, [`Store::merge`](crate::Store::merge) and [`Store::learn`](crate::Store::learn) take those of others.

mod cells;
mod changes;
mod level_table;
mod levels;
mod origin;
#[cfg(test)]
mod outbox;
#[cfg(test)]
mod tests;
mod watermarks;

pub(crate) use cells::{Cells, OriginId};
pub use changes::{Cell, Changes, KeyChanges, Tally};
pub use level_table::{LevelSets, LevelTable};
pub use levels::{Level, Levels, LevelsId, PaneWidths};
pub use origin::{NoOrigin, Origin};
pub use watermarks::Merged;
pub(crate) use watermarks::Watermarks;
