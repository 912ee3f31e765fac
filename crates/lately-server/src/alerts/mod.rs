//! Alerts: rules over the total of the keys that match a pattern, when they fire, and how that is reported.
//!
//! This is the part without I/O, without a clock and without the store: `service/alerts.rs` counts the totals and asks.

pub(crate) mod baseline;
mod replay;
mod rule;
mod state;
mod watched;

pub use replay::{AlertReplay, Fired};
pub use rule::{AlertRule, Condition};
pub use state::{Change, State};
pub use watched::{Reading, Watched};

use lately::{Settings, SettingsError, Span, seconds};

use crate::limits::{ALERT_TOTAL_KEPT, LEAST_ALERT_WINDOW};

/// The settings of totals: panes as narrow as the shortest window. They take hits that are ahead of the clock by `max_skew`.
pub(crate) fn total_settings(max_skew: Span) -> Result<Settings, SettingsError> {
    let builder = Settings::builder().resolution(LEAST_ALERT_WINDOW).window(seconds(10));
    builder.retain(ALERT_TOTAL_KEPT).max_skew(max_skew).hidden(true).build()
}
