//! Alerts: rules over the total of the keys that match a pattern, when they fire, and how that is reported.
//!
//! This is the part without I/O, without a clock and without the store: `service/alerts.rs` counts the totals and asks.

pub(crate) mod baseline;
pub(crate) mod notice;
mod rule;
mod state;
mod watched;

pub use rule::{AlertRule, Condition};
pub use state::{Change, State};
pub use watched::{Reading, Watched};
