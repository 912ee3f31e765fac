//! Errors: facts, and a sentence for an operator.

use std::error::Error;
use std::fmt;

use crate::limits::{
    MAX_EXACT_PANES, MAX_ID_BYTES, MAX_KEY_BYTES, MAX_LIMITS, MAX_MEMBER_BYTES, MAX_SERIES_POINTS, MAX_TOTAL,
    PRECISION_RANGE,
};
use crate::time::{Span, Timestamp};

/// A text that is not a time or not a span.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TimeError {
    /// The text is not a time.
    Timestamp {
        /// The text.
        text: String,
    },
    /// The text is not a span.
    Span {
        /// The text.
        text: String,
    },
}

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeError::Timestamp { text } => match finer_seconds(text) {
                Some((unit, seconds)) => {
                    write!(f, "invalid time '{text}': it looks like {unit}: give Unix seconds, {seconds}")
                }
                None => write!(
                    f,
                    "invalid time '{text}': give Unix seconds from 0 to 253402300799, such as 1700000000 or 1700000000.25"
                ),
            },
            TimeError::Span { text } => write!(
                f,
                "invalid duration '{text}': give whole seconds or a number with ms, s, m, h, d or w, such as 300, 5m or 250ms, from 1ms to 1000000000s"
            ),
        }
    }
}

impl Error for TimeError {}

/// Lockouts that cannot be.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LockoutError {
    /// The factor is not a number, or below 1.
    Factor {
        /// What was given.
        text: String,
    },
    /// The longest lockout is shorter than the first.
    Longest {
        /// The first.
        first: Span,
        /// The longest.
        longest: Span,
    },
}

impl fmt::Display for LockoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockoutError::Factor { text } => {
                write!(f, "invalid factor '{text}': give a number from 1 on, such as 2 or 1.5")
            }
            LockoutError::Longest { first, longest } => write!(
                f,
                "the longest lockout, {longest}, is shorter than the first, {first}: give a longer one"
            ),
        }
    }
}

impl Error for LockoutError {}

/// If a number is too large for seconds: the unit that it probably has, and the time it means in that unit.
fn finer_seconds(text: &str) -> Option<(&'static str, Timestamp)> {
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    let number = whole.parse().ok().filter(|_| whole.bytes().all(|byte| byte.is_ascii_digit()))?;
    if Timestamp::from_seconds(number).is_some() {
        return None;
    }
    let units = [("milliseconds", 1), ("microseconds", 1_000), ("nanoseconds", 1_000_000)];
    units.into_iter().find_map(|(unit, per_millisecond)| {
        let millis = i64::try_from(number / per_millisecond).ok()?;
        Some((unit, Timestamp::from_millis(millis)?))
    })
}

/// A hit that was refused. It changed nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HitError {
    /// The key is empty or longer than [`MAX_KEY_BYTES`].
    KeyLength {
        /// Length of the key in bytes.
        bytes: usize,
    },
    /// The server keeps this key for itself, such as the total of an alert. A store on its own never returns this.
    Reserved {
        /// Which keys are, and what to do.
        hint: &'static str,
    },
    /// The id is empty or longer than [`MAX_ID_BYTES`].
    IdLength {
        /// Length of the id in bytes.
        bytes: usize,
    },
    /// The hit has an id, and the class of the key has no span within which ids count once.
    NoDedupe,
    /// The member is empty or longer than [`MAX_MEMBER_BYTES`].
    MemberLength {
        /// Length of the member in bytes.
        bytes: usize,
    },
    /// The class of the key does not count distinct members.
    NoMembers,
    /// The hit is older than the class keeps.
    Late {
        /// Time of the hit.
        at: Timestamp,
        /// The oldest time that is kept.
        oldest: Timestamp,
    },
    /// The hit is further ahead of the clock than the class allows.
    Future {
        /// Time of the hit.
        at: Timestamp,
        /// The latest time that is accepted.
        latest: Timestamp,
        /// How far ahead of the clock a hit may be, by its class.
        max_skew: Span,
    },
    /// The key would have more than [`MAX_TOTAL`] hits within its retention.
    Overflow {
        /// The hits of the key within its retention.
        total: u64,
        /// The weight of the refused hit.
        weight: u64,
    },
    /// A pane of a shared counter would exceed the capacity of its word.
    PaneFull {
        /// The hits of the pane.
        hits: u64,
        /// The weight of the refused hit.
        weight: u64,
        /// The capacity of the pane.
        most: u64,
    },
    /// The store is at its memory ceiling, and it found no key that may be evicted.
    OutOfMemory {
        /// The ceiling in bytes.
        ceiling_bytes: u64,
        /// Bytes under the ceiling that are not of keys: [charges](crate::Store::charge), sources, counts of other nodes.
        other_bytes: u64,
    },
}

impl fmt::Display for HitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HitError::KeyLength { bytes } => {
                write!(f, "invalid key of {bytes} bytes: a key has 1 to {MAX_KEY_BYTES} bytes")
            }
            HitError::Reserved { hint } => write!(f, "the key is reserved: {hint}"),
            HitError::IdLength { bytes } => {
                write!(f, "invalid id of {bytes} bytes: an id has 1 to {MAX_ID_BYTES} bytes")
            }
            HitError::NoDedupe => {
                write!(f, "hits of this key have no ids: its class has no `dedupe`, such as dedupe = \"10m\"")
            }
            HitError::MemberLength { bytes } => {
                write!(f, "invalid member of {bytes} bytes: a member has 1 to {MAX_MEMBER_BYTES} bytes")
            }
            HitError::NoMembers => {
                write!(f, "hits of this key have no members: its class has no `unique = true`")
            }
            HitError::Late { at, oldest } => {
                write!(f, "hit at {at} is older than what is kept, which begins at {oldest}")
            }
            HitError::Future { at, latest, max_skew } => {
                write!(
                    f,
                    "hit at {at} is too far ahead of the clock, the latest time taken is {latest}: max_skew is {max_skew}"
                )
            }
            HitError::Overflow { total, weight } => {
                write!(f, "{weight} more hits would overflow: the key has {total} of at most {MAX_TOTAL}")
            }
            HitError::PaneFull { hits, weight, most } => {
                write!(f, "{weight} more hits would overflow: the pane has {hits} of at most {most}")
            }
            HitError::OutOfMemory { ceiling_bytes, other_bytes } => {
                write!(
                    f,
                    "the memory ceiling of {ceiling_bytes} bytes is reached, and no key may be evicted: "
                )?;
                let others = "connections, sources, the journal and other nodes take";
                match other_bytes {
                    // The rest is too little for keys.
                    _ if *other_bytes >= ceiling_bytes - ceiling_bytes / 8 => {
                        write!(f, "{others} {other_bytes} bytes")
                    }
                    0 => write!(f, "their limits are in force"),
                    _ => write!(f, "their limits are in force, and {others} {other_bytes} bytes"),
                }
            }
        }
    }
}

impl Error for HitError {}

/// A request that could not be decided. It changed nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LimitError {
    /// The hits of the request could not be counted.
    Hit(HitError),
    /// The window reaches further back than hits are kept.
    Window {
        /// The window asked for.
        window: Span,
        /// How far back hits are kept.
        retain: Span,
    },
    /// The window of a time in the past reaches further back than hits are kept.
    WindowThen {
        /// The window asked for.
        window: Span,
        /// When it ends.
        at: Timestamp,
        /// The longest that may be asked for then, if any.
        most: Option<Span>,
    },
    /// One limit of a request that has several could not be decided.
    Each {
        /// The index of the limit, from 0.
        index: usize,
        /// The error.
        error: Box<LimitError>,
    },
    /// More limits than a request may have.
    Limits {
        /// The number of limits in the request.
        given: usize,
    },
}

impl From<HitError> for LimitError {
    fn from(error: HitError) -> LimitError {
        LimitError::Hit(error)
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitError::Hit(error) => error.fmt(f),
            LimitError::Window { window, retain } => {
                write!(
                    f,
                    "invalid window {window}: hits of this key are kept for {retain} (`retain`), a limit can ask for no more"
                )
            }
            LimitError::WindowThen { window, at, most } => {
                write!(
                    f,
                    "invalid window {window} at {at}: it reaches further back than hits of this key are kept (`retain`), "
                )?;
                match most {
                    Some(most) => write!(f, "a limit can ask for {most} then"),
                    None => write!(f, "a limit can ask for none then"),
                }
            }
            LimitError::Each { index, error } => write!(f, "limit {}: {error}", index + 1),
            LimitError::Limits { given } => {
                write!(f, "{given} limits are too many: a request has at most {MAX_LIMITS}")
            }
        }
    }
}

impl Error for LimitError {}

/// A read that cannot be answered.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum QueryError {
    /// The step of a series is not a whole number of panes.
    Step {
        /// The step asked for.
        step: Span,
        /// The class's resolution.
        resolution: Span,
    },
    /// The series would have too many points.
    Points {
        /// Points asked for.
        points: i64,
    },
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueryError::Step { step, resolution } => {
                write!(f, "invalid step {step}: give a multiple of the key's resolution, {resolution}")
            }
            QueryError::Points { points } => {
                write!(
                    f,
                    "{points} points are too many: a series has at most {MAX_SERIES_POINTS}; give a wider step"
                )
            }
        }
    }
}

impl Error for QueryError {}

/// Settings that contradict each other or a bound.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum SettingsError {
    /// The resolution is no rung of the ladder from 1 ms to 1 d.
    Resolution {
        /// What was given.
        given: Span,
    },
    /// The precision is out of range.
    Precision {
        /// What was given.
        given: f64,
    },
    /// The exact span leaves no room beside the default window for late hits and reads.
    ExactTooShort {
        /// What was given.
        exact: Span,
        /// The shortest that would do.
        least: Span,
    },
    /// The exact span has too many panes.
    ExactTooLong {
        /// What was given.
        exact: Span,
        /// The longest that would do.
        most: Span,
    },
    /// The retention is shorter than something it has to hold.
    RetainTooShort {
        /// What was given.
        retain: Span,
        /// What it has to hold: `resolution`, `window` or `exact`.
        what: &'static str,
        /// How long that is.
        least: Span,
    },
    /// More classes than a store takes.
    Classes {
        /// The most it takes.
        most: usize,
    },
    /// No stripes, or more than a shared counter takes.
    Stripes {
        /// What was given.
        given: usize,
        /// The most it takes.
        most: usize,
    },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::Resolution { given } => write!(
                f,
                "resolution {given} is none of 1ms 2ms 10ms 50ms 100ms 500ms 1s 2s 10s 30s 1m 5m 10m 30m 1h 2h 6h 12h 1d"
            ),
            SettingsError::Precision { given } => write!(
                f,
                "precision {given} is out of range: give {} to {}",
                PRECISION_RANGE.start(),
                PRECISION_RANGE.end()
            ),
            SettingsError::ExactTooShort { exact, least } => {
                write!(f, "exact {exact} is too short for the window: give at least {least}")
            }
            SettingsError::ExactTooLong { exact, most } => {
                write!(
                    f,
                    "exact {exact} has more than {MAX_EXACT_PANES} panes: give at most {most}, or a coarser resolution"
                )
            }
            SettingsError::RetainTooShort { retain, what, least } => {
                write!(f, "retain {retain} is shorter than {what}: give at least {least}")
            }
            SettingsError::Classes { most } => write!(f, "too many classes: at most {most}"),
            SettingsError::Stripes { given, most } => {
                write!(f, "{given} stripes are out of range: give 1 to {most}")
            }
        }
    }
}

impl Error for SettingsError {}

/// Why encoded keys or changes cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Malformed {
    /// The bytes are no change.
    Delta,
    /// The bytes are no key with its hits.
    Entry,
    /// Reading them met a bug of this version.
    Bug,
}

/// A message of another node that cannot be merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MergeError {
    /// A key is empty or too long.
    KeyLength {
        /// Its length.
        bytes: usize,
    },
    /// A cell is not one, or its counts are more than a key can have.
    Cell {
        /// Its first millisecond.
        start_ms: i64,
        /// Its width in milliseconds.
        width_ms: i64,
    },
    /// The message begins after its end.
    Sequence {
        /// The number it begins after.
        after: u64,
        /// The number it ends with.
        until: u64,
    },
    /// There are too many origins.
    Origins {
        /// The most there may be.
        most: usize,
    },
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeError::KeyLength { bytes } => {
                write!(f, "a key of {bytes} bytes: it must have 1 to {MAX_KEY_BYTES}")
            }
            MergeError::Cell { start_ms, width_ms } => {
                write!(f, "no cell: {width_ms} ms from {start_ms}, or its counts are out of range")
            }
            MergeError::Sequence { after, until } => {
                write!(f, "a message that begins after {after} and ends with {until}")
            }
            MergeError::Origins { most } => write!(f, "more than {most} origins"),
        }
    }
}

impl Error for MergeError {}

/// A key that could not be read. Other keys were.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// The key.
    pub key: Box<[u8]>,
    /// Why.
    pub why: Malformed,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Delta => "not a delta of this version",
            Malformed::Entry => "not a key with its hits of this version",
            Malformed::Bug => "what this version cannot read because of a bug",
        })
    }
}

impl Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_in_a_finer_unit_is_recognized() {
        let check = |text: &str, expected: &str| {
            let error = text.parse::<Timestamp>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("invalid time '{text}': {expected}")), "{error}");
        };
        check("1795612808000", "it looks like milliseconds: give Unix seconds, 1795612808");
        check("1795612808250", "it looks like milliseconds: give Unix seconds, 1795612808.25");
        check("1795612808250.5", "it looks like milliseconds: give Unix seconds, 1795612808.25");
        check("253402300800", "it looks like milliseconds: give Unix seconds, 253402300.8");
        check("1795612808250123", "it looks like microseconds: give Unix seconds, 1795612808.25");
        check("1795612808250123456", "it looks like nanoseconds: give Unix seconds, 1795612808.25");
        for text in ["", "-1", "+1", "1.", "noon", "99999999999999999999", "2026-11-25", "1e12"] {
            check(text, "give Unix seconds from 0 to 253402300799");
        }
    }
}
