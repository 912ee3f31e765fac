//! The trace: the requests of one client, which knows where windows end.

use lately::Timestamp;

/// Where the trace begins: on an edge of the windows of 10 s that are aligned to the clock.
const START_MS: i64 = 1_700_000_000_000;

/// How long the picture is.
pub(crate) const LENGTH_MS: i64 = 45_000;

/// Requests as often as this, from one time until before another.
struct Part {
    from_ms: i64,
    until_ms: i64,
    every_ms: usize,
}

/// One that opens a window; many while it ends, by the clock at 10 s and by the first request at 12 s; and, after a
/// rest, twice as many as the limit has, steadily.
const PARTS: [Part; 3] = [
    Part { from_ms: 2_000, until_ms: 2_001, every_ms: 1_000 },
    Part { from_ms: 9_000, until_ms: 13_000, every_ms: 100 },
    Part { from_ms: 25_000, until_ms: LENGTH_MS, every_ms: 500 },
];

/// When the requests come, in milliseconds from where the trace begins.
pub(crate) fn requests() -> impl Iterator<Item = i64> {
    PARTS.iter().flat_map(|part| (part.from_ms..part.until_ms).step_by(part.every_ms))
}

/// The time so many milliseconds after the trace begins.
pub(crate) fn time(after_ms: i64) -> Timestamp {
    Timestamp::from_millis(START_MS + after_ms).expect("a time of this century")
}
