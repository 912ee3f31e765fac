//! Points in time and spans of time, in integer milliseconds.
//!
//! Two newtypes, so that a point is never taken for a span and seconds never for milliseconds. Both
//! are non-negative and bounded ([`Timestamp::MAX`], [`Span::MAX`]), so that differences and sums of
//! them fit an `i64` and nothing here can wrap.

use std::fmt;
use std::str::FromStr;

use crate::error::TimeError;

/// Milliseconds in a second.
pub(crate) const MILLIS_PER_SECOND: i64 = 1_000;

/// The most decimals that whole milliseconds can need: a day and a week have 2^10 of them times an odd
/// number.
const DECIMALS: usize = 10;

/// A point in time: milliseconds since the Unix epoch, from 0 to the end of the year 9999.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(i64);

/// A length of time in milliseconds, from 1 ms to 1,000,000,000 s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span(i64);

impl Timestamp {
    /// The earliest time: the Unix epoch.
    pub const MIN: Timestamp = Timestamp(0);
    /// The latest time: the last millisecond of the year 9999.
    pub const MAX: Timestamp = Timestamp(253_402_300_799_999);

    /// The time `millis` milliseconds after the epoch, or `None` outside `MIN..=MAX`.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Option<Timestamp> {
        if millis < 0 || millis > Timestamp::MAX.0 { None } else { Some(Timestamp(millis)) }
    }

    /// The time `seconds` seconds after the epoch, or `None` when that is past [`Timestamp::MAX`].
    #[must_use]
    pub const fn from_seconds(seconds: u64) -> Option<Timestamp> {
        if seconds > Timestamp::MAX.0.unsigned_abs() / MILLIS_PER_SECOND.unsigned_abs() {
            return None;
        }
        Some(Timestamp(seconds.cast_signed() * MILLIS_PER_SECOND))
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This time and `span` more, at most [`Timestamp::MAX`].
    #[must_use]
    pub const fn saturating_add(self, span: Span) -> Timestamp {
        let sum = self.0 + span.0;
        if sum > Timestamp::MAX.0 { Timestamp::MAX } else { Timestamp(sum) }
    }

    /// This time less `span`, at least the epoch.
    #[must_use]
    pub const fn saturating_sub(self, span: Span) -> Timestamp {
        let difference = self.0 - span.0;
        if difference < 0 { Timestamp::MIN } else { Timestamp(difference) }
    }
}

impl Span {
    /// The shortest span: one millisecond.
    pub const MIN: Span = Span(1);
    /// The longest span: 1,000,000,000 seconds.
    pub const MAX: Span = Span(1_000_000_000_000);

    /// A span of `millis` milliseconds, or `None` outside `MIN..=MAX`.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Option<Span> {
        if millis < Span::MIN.0 || millis > Span::MAX.0 { None } else { Some(Span(millis)) }
    }

    /// A span of `seconds` seconds, or `None` outside 1 to 1,000,000,000.
    #[must_use]
    pub const fn from_seconds(seconds: u64) -> Option<Span> {
        if seconds > 1_000_000_000 {
            return None;
        }
        Span::from_millis(seconds.cast_signed() * MILLIS_PER_SECOND)
    }

    /// The span in milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The span in seconds, as a fraction.
    #[must_use]
    pub fn as_seconds_f64(self) -> f64 {
        // 10^12 is far below 2^53: the conversion is exact.
        self.0 as f64 / MILLIS_PER_SECOND as f64
    }

    const fn of(count: u64, unit_ms: i64) -> Span {
        assert!(count >= 1 && count <= Span::MAX.0.unsigned_abs(), "a span is 1 ms to 1,000,000,000 s");
        match Span::from_millis(count.cast_signed().saturating_mul(unit_ms)) {
            Some(span) => span,
            None => panic!("a span is 1 ms to 1,000,000,000 s"),
        }
    }

    /// Parses the most frequent spans: up to nine digits, and one of the letters `s m h d` or none. `None`
    /// for any other text, even if it is a span.
    #[inline]
    #[must_use]
    pub fn from_short(text: &[u8]) -> Option<Span> {
        let (last, before) = text.split_last()?;
        let (digits, unit_ms) = match last {
            b's' => (before, MILLIS_PER_SECOND),
            b'm' => (before, 60 * MILLIS_PER_SECOND),
            b'h' => (before, 3_600 * MILLIS_PER_SECOND),
            b'd' => (before, 86_400 * MILLIS_PER_SECOND),
            b'0'..=b'9' => (text, MILLIS_PER_SECOND),
            _ => return None,
        };
        if digits.is_empty() || digits.len() > 9 {
            return None;
        }
        let mut number = 0;
        for byte in digits {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            number = number * 10 + i64::from(digit);
        }
        Span::from_millis(number * unit_ms)
    }
}

/// A span of `n` milliseconds. Panics outside 1 ms to 1,000,000,000 s, as do its siblings.
#[must_use]
pub const fn milliseconds(n: u64) -> Span {
    Span::of(n, 1)
}

/// A span of `n` seconds.
#[must_use]
pub const fn seconds(n: u64) -> Span {
    Span::of(n, MILLIS_PER_SECOND)
}

/// A span of `n` minutes.
#[must_use]
pub const fn minutes(n: u64) -> Span {
    Span::of(n, 60 * MILLIS_PER_SECOND)
}

/// A span of `n` hours.
#[must_use]
pub const fn hours(n: u64) -> Span {
    Span::of(n, 3_600 * MILLIS_PER_SECOND)
}

/// A span of `n` days of 24 hours.
#[must_use]
pub const fn days(n: u64) -> Span {
    Span::of(n, 86_400 * MILLIS_PER_SECOND)
}

/// Unix seconds, whole or with decimals: `1700000000`, `1700000000.25`. Digits beyond the millisecond are
/// dropped.
impl FromStr for Timestamp {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Timestamp, TimeError> {
        let error = || TimeError::Timestamp { text: text.into() };
        let (whole, fraction) = split_decimal(text).ok_or_else(error)?;
        let seconds: u64 = whole.parse().map_err(|_| error())?;
        let second = Timestamp::from_seconds(seconds).ok_or_else(error)?;
        let millis = fraction_of(fraction, MILLIS_PER_SECOND).ok_or_else(error)?;
        Timestamp::from_millis(second.0 + millis).ok_or_else(error)
    }
}

/// A number with a unit, `250ms 5m 7d`, or a whole number of seconds. Units: `ms s m h d w`. A number with a
/// unit may have decimals (`1.5h`), but must be whole milliseconds.
impl FromStr for Span {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Span, TimeError> {
        if let Some(span) = Span::from_short(text.as_bytes()) {
            return Ok(span);
        }
        let error = || TimeError::Span { text: text.into() };
        let number_len = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(number_len);
        let unit_ms = match unit {
            "ms" => 1,
            "s" | "" => MILLIS_PER_SECOND,
            "m" => 60 * MILLIS_PER_SECOND,
            "h" => 3_600 * MILLIS_PER_SECOND,
            "d" => 86_400 * MILLIS_PER_SECOND,
            "w" => 604_800 * MILLIS_PER_SECOND,
            _ => return Err(error()),
        };
        let (whole, fraction) = split_decimal(number).ok_or_else(error)?;
        if unit.is_empty() && number.contains('.') {
            return Err(error());
        }
        let whole: i64 = whole.parse().map_err(|_| error())?;
        let part = fraction_of(fraction, unit_ms).ok_or_else(error)?;
        if !fraction_is_whole(fraction, unit_ms) {
            return Err(error());
        }
        let millis = whole.checked_mul(unit_ms).and_then(|ms| ms.checked_add(part));
        millis.and_then(Span::from_millis).ok_or_else(error)
    }
}

/// `dividend / divisor`, rounded up; the divisor is positive.
pub(crate) const fn ceil_div(dividend: i64, divisor: i64) -> i64 {
    let floor = dividend.div_euclid(divisor);
    if floor * divisor == dividend { floor } else { floor + 1 }
}

/// Splits `12.5` into the digits before and after the point. `None` unless both are digits only, and there is
/// a digit before the point, and after it if there is one.
fn split_decimal(text: &str) -> Option<(&str, &str)> {
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        Some(_) => return None,
        None => (text, ""),
    };
    (!whole.is_empty() && digits(whole) && digits(fraction)).then_some((whole, fraction))
}

/// `0.fraction` of `unit`, rounded down, from its first [`DECIMALS`] digits, which is finer than a
/// millisecond of any unit.
fn fraction_of(fraction: &str, unit: i64) -> Option<i64> {
    let digits = &fraction[..fraction.len().min(DECIMALS)];
    if digits.is_empty() {
        return Some(0);
    }
    let value: i64 = digits.parse().ok()?;
    let scale = 10_i64.pow(u32::try_from(digits.len()).ok()?);
    value.checked_mul(unit).map(|product| product / scale)
}

fn fraction_is_whole(fraction: &str, unit: i64) -> bool {
    let digits = fraction.trim_end_matches('0');
    if digits.is_empty() {
        return true;
    }
    if digits.len() > DECIMALS {
        return false;
    }
    // Ten digits of the longest unit, a week, are 6 · 10^18: no overflow.
    let scale = digits.bytes().fold(1_i64, |scale, _| scale * 10);
    digits.parse::<i64>().is_ok_and(|value| (value * unit) % scale == 0)
}

/// Unix seconds, with up to three decimals when the time is not a whole second.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal_seconds(f, self.0)
    }
}

/// The widest unit that divides the span: `5m`, `90s`, `250ms`. The result can be parsed again.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(i64, &str); 5] =
            [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
        for (unit_ms, name) in UNITS {
            if self.0 % unit_ms == 0 {
                return write!(f, "{}{name}", self.0 / unit_ms);
            }
        }
        Ok(())
    }
}

fn write_decimal_seconds(f: &mut fmt::Formatter<'_>, millis: i64) -> fmt::Result {
    let (seconds, rest) = (millis / MILLIS_PER_SECOND, millis % MILLIS_PER_SECOND);
    if rest == 0 {
        return write!(f, "{seconds}");
    }
    let text = format!("{rest:03}");
    write!(f, "{seconds}.{}", text.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_parse() {
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(text.parse::<Timestamp>().ok().map(Timestamp::as_millis), expected, "{text}");
        };
        check("0", Some(0));
        check("1700000000", Some(1_700_000_000_000));
        check("1700000000.25", Some(1_700_000_000_250));
        check("1.0009", Some(1_000));
        check("0.001999999999999", Some(1));
        check("253402300799.999", Some(Timestamp::MAX.as_millis()));
        check("253402300800", None);
        for bad in
            ["", ".", "1.", ".5", "-1", "+1", "1e9", "1 ", " 1", "now", "1.2.3", "99999999999999999999"]
        {
            check(bad, None);
        }
    }

    #[test]
    fn spans_parse() {
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(text.parse::<Span>().ok().map(Span::as_millis), expected, "{text}");
        };
        check("1", Some(1_000));
        check("250ms", Some(250));
        check("5m", Some(300_000));
        check("1.5h", Some(5_400_000));
        check("0.25s", Some(250));
        check("7d", Some(604_800_000));
        check("1w", Some(604_800_000));
        check("1ms", Some(1));
        check("1000000000", Some(1_000_000_000_000));
        check("1000000001", None);
        check("1000000000001ms", None);
        for bad in [
            "",
            "0",
            "0ms",
            "-5m",
            "5 m",
            "m",
            "5M",
            "5min",
            "1.5",
            "1.5ms",
            "1.0001s",
            "5m5s",
            "9223372036854775807w",
        ] {
            check(bad, None);
        }
    }

    /// Symptom: `0.0009765625d`, which is 84,375 ms, was refused. Cause: at most nine decimals were read, and
    /// a day of 2^10 · 84,375 ms has whole milliseconds with ten. Fix: ten are read, the most that any unit has.
    #[test]
    fn the_longest_decimals_that_are_whole_milliseconds_parse() {
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(text.parse::<Span>().ok().map(Span::as_millis), expected, "{text}");
        };
        check("0.0009765625d", Some(84_375));
        check("1.0009765625w", Some(605_390_625));
        check("0.00097656250000w", Some(590_625));
        check("0.9999999999w", None);
        check("0.00097656251d", None);
    }

    #[test]
    fn display_parses_back() {
        for millis in [1, 250, 1_000, 90_000, 300_000, 5_400_000, 604_800_000, 1_000_000_000_000] {
            let span = Span::from_millis(millis).expect("in range");
            assert_eq!(span.to_string().parse::<Span>().as_ref(), Ok(&span));
            let time = Timestamp::from_millis(millis).expect("in range");
            assert_eq!(time.to_string().parse::<Timestamp>().as_ref(), Ok(&time));
        }
        assert_eq!(Timestamp(1_250).to_string(), "1.25");
        assert_eq!(Span(300_000).to_string(), "5m");
    }

    #[test]
    fn arithmetic_stays_in_range() {
        assert_eq!(Timestamp::MAX.saturating_add(Span::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.saturating_sub(Span::MIN), Timestamp::MIN);
        assert_eq!(Span::from_seconds(1_000_000_000), Some(Span::MAX));
        assert_eq!(Span::from_seconds(1_000_000_001), None);
        assert_eq!(Timestamp::from_seconds(u64::MAX), None);
    }
}
