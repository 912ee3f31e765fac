//! Sliding-window hit counters: how many hits came lately, for every key and any window.

mod error;
mod ladder;
pub mod limits;
mod settings;
mod time;

pub use error::{HitError, QueryError, SettingsError, TimeError};
pub use ladder::{Ladder, RUNGS_MS};
pub use settings::{DEFAULT_WINDOW, Settings, SettingsBuilder};
pub use time::{Span, Timestamp, days, hours, milliseconds, minutes, seconds};
