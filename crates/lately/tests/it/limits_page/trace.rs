//! The trace: the requests of one client that knows when windows end.

use lately::Timestamp;

/// The start of the trace, on an edge of the 10 s windows that are aligned to the clock.
const START_MS: i64 = 1_700_000_000_000;

/// The length of the trace.
pub(crate) const LENGTH_MS: i64 = 45_000;

/// Requests at a fixed interval, from `from_ms` until before `until_ms`.
struct Part {
    from_ms: i64,
    until_ms: i64,
    every_ms: usize,
}

/// The first request opens a window. Many requests come around its end, which is at 10 s by the clock and at 12 s by
/// the first request. After a pause, requests come steadily at twice the limit.
const PARTS: [Part; 3] = [
    Part { from_ms: 2_000, until_ms: 2_001, every_ms: 1_000 },
    Part { from_ms: 9_000, until_ms: 13_000, every_ms: 100 },
    Part { from_ms: 25_000, until_ms: LENGTH_MS, every_ms: 500 },
];

/// The times of the requests, in milliseconds from the start of the trace.
pub(crate) fn requests() -> impl Iterator<Item = i64> {
    PARTS.iter().flat_map(|part| (part.from_ms..part.until_ms).step_by(part.every_ms))
}

/// The time `after_ms` after the start of the trace.
pub(crate) fn time(after_ms: i64) -> Timestamp {
    Timestamp::from_millis(START_MS + after_ms).expect("a time of this century")
}
