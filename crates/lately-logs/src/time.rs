//! Event times as logs write them.
//!
//! Consecutive lines of a log mostly have the same second, or at least the same day. The reader caches both, so an
//! access-log date costs a comparison, or six digits.

use std::str::FromStr;

use jiff::civil;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::{Offset, TimeZone};
use lately::{Span, Timestamp};

use crate::error::{Malformed, SetupError};
use crate::limits::{EARLIEST_NUMBER, FUTURE};

/// Length of `17/May/2015:10:05:03 +0000`.
pub(crate) const LOG_DATE_LEN: usize = 26;

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

const WEEKDAYS: [&[u8; 3]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];

/// The units of numbers by size: numbers below the first have the unit of this power of ten, in milliseconds.
const UNITS: [(u128, i32); 3] = [(10_u128.pow(11), 3), (10_u128.pow(14), 0), (10_u128.pow(17), -3)];
const NANOSECONDS: i32 = -6;

/// How to parse times that are ambiguous by themselves.
#[derive(Clone, Debug)]
pub struct Times {
    /// The current time. A number that is more than a day later is not a time.
    pub now: Timestamp,
    /// The time of the last write to the log. A time without a year gets the year that puts it nearest before this.
    /// Default: `now`.
    pub written: Option<Timestamp>,
    /// The zone of times without one. If it is not given, such times do not parse.
    pub zone: Option<Zone>,
    /// The only layout of times. `None`: all known layouts are tried.
    pub format: Option<TimeFormat>,
}

impl Default for Times {
    /// For a reader that accepts every number from 1990 on as a time.
    fn default() -> Times {
        Times { now: Timestamp::MAX, written: None, zone: None, format: None }
    }
}

/// A time zone: an IANA name (`Europe/Berlin`), `UTC`, or an offset (`+02:00`, `+0200`, `+02`).
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

impl FromStr for Zone {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Zone, SetupError> {
        if matches!(text, "UTC" | "utc" | "GMT") {
            return Ok(Zone(TimeZone::UTC));
        }
        if let Some((seconds, b"")) = offset(text.as_bytes()) {
            return Offset::from_seconds(seconds)
                .map(|offset| Zone(TimeZone::fixed(offset)))
                .map_err(|_| SetupError::Zone { text: text.into() });
        }
        TimeZone::get(text).map(Zone).map_err(|_| SetupError::Zone { text: text.into() })
    }
}

/// A layout of times in the directives of strptime: `%Y%m%d%H%M%S`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeFormat(String);

impl FromStr for TimeFormat {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<TimeFormat, SetupError> {
        let error = |cause: &str| SetupError::TimeFormat { text: text.into(), cause: cause.into() };
        let sample = civil::date(2024, 3, 12).at(9, 0, 1, 0).to_zoned(TimeZone::UTC);
        let sample = sample.map_err(|_| error("no time has it"))?;
        let written =
            BrokenDownTime::from(&sample).to_string(text).map_err(|cause| error(&cause.to_string()))?;
        let read = BrokenDownTime::parse(text, &written).map_err(|cause| error(&cause.to_string()))?;
        if read.to_timestamp().is_err() && read.to_date().is_err() {
            return Err(error("it has no year, month and day"));
        }
        Ok(TimeFormat(text.into()))
    }
}

/// A time as written: a calendar date and time of day and, if there is one, the offset in seconds east of Greenwich.
struct Written {
    at: civil::DateTime,
    east_seconds: Option<i32>,
}

/// Parses times, and caches the last access-log date.
#[derive(Clone, Debug)]
pub(crate) struct TimeReader {
    times: Times,
    latest_number: Timestamp,
    date: [u8; LOG_DATE_LEN],
    date_at: Option<Timestamp>,
    /// Start of the day of `date`, in its zone, in milliseconds since the epoch.
    day_start_ms: Option<i64>,
}

impl TimeReader {
    pub(crate) fn new(times: &Times) -> TimeReader {
        TimeReader {
            latest_number: times.now.saturating_add(FUTURE),
            times: times.clone(),
            date: [0; LOG_DATE_LEN],
            date_at: None,
            day_start_ms: None,
        }
    }

    /// Advances the reader's clock.
    pub(crate) fn set_now(&mut self, now: Timestamp) {
        self.times.now = now;
        self.latest_number = now.saturating_add(FUTURE);
    }

    /// Parses an access-log date, `17/May/2015:10:05:03 +0000`. A leap second becomes the second before it.
    pub(crate) fn log_date(&mut self, date: &[u8; LOG_DATE_LEN]) -> Option<Timestamp> {
        if *date == self.date {
            return self.date_at;
        }
        if date[..11] != self.date[..11] || date[20..] != self.date[20..] {
            self.day_start_ms = day_start_ms(date);
        }
        self.date = *date;
        self.date_at = self
            .day_start_ms
            .zip(time_of_day_ms(&date[11..20]))
            .and_then(|(day_ms, time_ms)| Timestamp::from_millis(day_ms + time_ms));
        self.date_at
    }

    /// Parses a time in any known layout, or in the given one.
    pub(crate) fn text(&mut self, text: &[u8]) -> Result<Timestamp, Malformed> {
        if let Some(format) = &self.times.format {
            return self.formatted(format, text);
        }
        if let Ok(date) = text.try_into()
            && text[2] == b'/'
        {
            return self.log_date(date).ok_or(Malformed::Time);
        }
        let text = text.trim_ascii();
        let text = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(text);
        match written(text) {
            Some(written) => self.placed(&written),
            None => match yearless(text) {
                Some((month, day, time)) => self.in_its_year(month, day, time),
                None => self.number(text),
            },
        }
    }

    /// A number of seconds, milliseconds, microseconds or nanoseconds from 1990 to a day from now. Other numbers are
    /// latencies, ids or the digits of a date.
    pub(crate) fn number(&self, text: &[u8]) -> Result<Timestamp, Malformed> {
        if !text.first().is_some_and(u8::is_ascii_digit) || decimal(text).is_none() {
            return Err(Malformed::Time);
        }
        number(text).filter(|at| (EARLIEST_NUMBER..=self.latest_number).contains(at)).ok_or(Malformed::Number)
    }

    /// The instant of a time on the calendar.
    fn placed(&self, written: &Written) -> Result<Timestamp, Malformed> {
        let instant = match written.east_seconds {
            Some(seconds) => Offset::from_seconds(seconds).and_then(|offset| offset.to_timestamp(written.at)),
            None => {
                let zone = self.times.zone.as_ref().ok_or(Malformed::Zone)?;
                zone.0.to_ambiguous_timestamp(written.at).compatible()
            }
        };
        let millis = instant.map_err(|_| Malformed::Time)?.as_millisecond();
        Timestamp::from_millis(millis).ok_or(Malformed::Time)
    }

    /// The time in the year that puts it nearest before the last write to the log, or at most a day after it.
    fn in_its_year(&self, month: i8, day: i8, time: civil::Time) -> Result<Timestamp, Malformed> {
        let latest = self.times.written.unwrap_or(self.times.now).saturating_add(FUTURE);
        let zoned = jiff::Timestamp::from_millisecond(latest.as_millis()).unwrap_or(jiff::Timestamp::MAX);
        let year = zoned.to_zoned(TimeZone::UTC).year();
        let mut problem = Malformed::Time;
        // The last 29th of February may be years ago.
        for year in (year.saturating_sub(8)..=year.saturating_add(1)).rev() {
            let Ok(date) = civil::Date::new(year, month, day) else { continue };
            match self.placed(&Written { at: date.to_datetime(time), east_seconds: None }) {
                Ok(at) if at <= latest => return Ok(at),
                Ok(_) => {}
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }

    fn formatted(&self, format: &TimeFormat, text: &[u8]) -> Result<Timestamp, Malformed> {
        let read = BrokenDownTime::parse(&format.0, text).map_err(|_| Malformed::Time)?;
        if let Ok(instant) = read.to_timestamp() {
            return Timestamp::from_millis(instant.as_millisecond()).ok_or(Malformed::Time);
        }
        let date = read.to_date().map_err(|_| Malformed::Time)?;
        let time = read.to_time().unwrap_or(civil::Time::midnight());
        let east_seconds = read.offset().map(Offset::seconds);
        self.placed(&Written { at: date.to_datetime(time), east_seconds })
    }
}

/// Parses a time as in logs, or a duration such as `2h ago`, which is relative to `times.now`.
///
/// # Errors
/// The text is not a time, or has no zone and `times` has none.
pub fn time(text: &str, times: &Times) -> Result<Timestamp, Malformed> {
    let span = text.strip_suffix(" ago").unwrap_or(text).trim();
    let has_unit = span.ends_with(|last: char| last.is_ascii_alphabetic());
    if has_unit && let Ok(span) = span.parse::<Span>() {
        return Ok(times.now.saturating_sub(span));
    }
    TimeReader::new(times).text(text.as_bytes())
}

fn day_start_ms(date: &[u8; LOG_DATE_LEN]) -> Option<i64> {
    if date[2] != b'/' || date[6] != b'/' {
        return None;
    }
    let year = i16::try_from(digits(&date[7..11])?).ok()?;
    let day = i8::try_from(digits(&date[..2])?).ok()?;
    let day = civil::Date::new(year, month(&date[3..6])?, day).ok()?.at(0, 0, 0, 0);
    Some(zone(&date[20..])?.to_timestamp(day).ok()?.as_millisecond())
}

/// ` +0130`: a space, then hours and minutes east of Greenwich.
fn zone(text: &[u8]) -> Option<Offset> {
    match offset(text.strip_prefix(b" ")?)? {
        (seconds, b"") => Offset::from_seconds(seconds).ok(),
        _ => None,
    }
}

/// `:10:05:03`.
fn time_of_day_ms(text: &[u8]) -> Option<i64> {
    if text[0] != b':' || text[3] != b':' || text[6] != b':' {
        return None;
    }
    let (hour, minute, second) = (digits(&text[1..3])?, digits(&text[4..6])?, digits(&text[7..9])?);
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(i64::from(hour * 3_600 + minute * 60 + second.min(59)) * 1_000)
}

fn digits(text: &[u8]) -> Option<i32> {
    text.iter().try_fold(0_i32, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| i32::from(byte - b'0'))?;
        Some(value * 10 + digit)
    })
}

fn month(name: &[u8]) -> Option<i8> {
    (1..).zip(MONTHS).find(|(_, month)| month[..] == *name).map(|(number, _)| number)
}

/// `+02:00`, `+0200`, `+02` or `Z`, and the rest.
fn offset(text: &[u8]) -> Option<(i32, &[u8])> {
    let east = match text.first()? {
        b'+' => 1,
        b'-' => -1,
        b'Z' | b'z' => return Some((0, &text[1..])),
        _ => return None,
    };
    let (hours, rest) = number_of(&text[1..], 2)?;
    let (minutes, rest) = match rest.strip_prefix(b":") {
        Some(rest) => number_of(rest, 2)?,
        None => number_of(rest, 2).unwrap_or((0, rest)),
    };
    (hours <= 23 && minutes <= 59).then_some((east * (hours * 3_600 + minutes * 60), rest))
}

/// The number in the first `width` digits, and the rest.
fn number_of(text: &[u8], width: usize) -> Option<(i32, &[u8])> {
    let (number, rest) = text.split_at_checked(width)?;
    Some((digits(number)?, rest))
}

/// A day of the month: two digits, or one digit with or without a blank before it.
fn day_of(text: &[u8]) -> Option<(i8, &[u8])> {
    let text = text.trim_ascii_start();
    let (day, rest) = number_of(text, 2).or_else(|| number_of(text, 1))?;
    Some((i8::try_from(day).ok()?, rest))
}

/// The time of day, `10:05:03.25` or `100503,25`, and the rest. A leap second becomes the second before it.
fn time_of(text: &[u8]) -> Option<(civil::Time, &[u8])> {
    let (hour, rest) = number_of(text, 2)?;
    let colon = rest.first() == Some(&b':');
    let part = |rest: &'_ [u8]| -> Option<(i32, usize)> {
        let rest = if colon { rest.strip_prefix(b":")? } else { rest };
        number_of(rest, 2).map(|(number, _)| (number, 2 + usize::from(colon)))
    };
    let (minute, taken) = part(rest)?;
    let rest = &rest[taken..];
    let (second, taken) = part(rest)?;
    let mut rest = &rest[taken..];
    let (mut nanoseconds, mut scale) = (0, 100_000_000);
    if let [b'.' | b',', after @ ..] = rest
        && after.first().is_some_and(u8::is_ascii_digit)
    {
        rest = after;
        while let Some((digit, after)) = rest.split_first()
            && digit.is_ascii_digit()
        {
            nanoseconds += i32::from(digit - b'0') * scale;
            scale /= 10;
            rest = after;
        }
    }
    let small = |number: i32| i8::try_from(number).ok();
    if second > 60 {
        return None;
    }
    let time = civil::Time::new(small(hour)?, small(minute)?, small(second.min(59))?, nanoseconds).ok()?;
    Some((time, rest))
}

/// A zone at the end of a time: nothing, an offset, `UTC` or `GMT`. A name in brackets may follow.
fn zone_at_end(text: &[u8]) -> Option<Option<i32>> {
    let text = text.trim_ascii();
    match text {
        b"" => return Some(None),
        b"UTC" | b"GMT" => return Some(Some(0)),
        _ => {}
    }
    let (seconds, rest) = offset(text)?;
    let is_name = |rest: &[u8]| rest.starts_with(b"[") && rest.ends_with(b"]");
    (rest.is_empty() || is_name(rest) || matches!(rest, b" UTC" | b" GMT")).then_some(Some(seconds))
}

/// A time with a date, in any of the layouts that have a year.
fn written(text: &[u8]) -> Option<Written> {
    let after_weekday = match text {
        [a, b, c, rest @ ..] if WEEKDAYS.contains(&&[*a, *b, *c]) => {
            rest.strip_prefix(b",").unwrap_or(rest).trim_ascii_start()
        }
        _ => text,
    };
    calendar(after_weekday).or_else(|| by_day(after_weekday)).or_else(|| by_month(after_weekday))
}

/// `2015-05-17T10:05:03`, `2015/05/17 10:05:03`, `20150517T100503`.
fn calendar(text: &[u8]) -> Option<Written> {
    let (year, rest) = number_of(text, 4)?;
    let (month, day, rest_of_day) = match rest {
        [separator @ (b'-' | b'/'), rest @ ..] => {
            let (month, rest) = number_of(rest, 2)?;
            let (day, rest) = number_of(rest.strip_prefix(&[*separator])?, 2)?;
            (month, day, rest)
        }
        _ => {
            let (month, rest) = number_of(rest, 2)?;
            let (day, rest) = number_of(rest, 2)?;
            // Without the letter it could be any number.
            (month, day, rest.first().filter(|byte| byte.eq_ignore_ascii_case(&b'T')).map(|_| rest)?)
        }
    };
    let time = match rest_of_day {
        [b'T' | b't' | b'_' | b':', time @ ..] => time,
        [b' ', ..] => rest_of_day.trim_ascii_start(),
        _ => return None,
    };
    let (time, zone) = time_of(time)?;
    at(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?, time, zone)
}

/// `17/May/2015:10:05:03 +0000`, `17 May 2015 10:05:03 +0000`, `17-May-2015 10:05:03`.
fn by_day(text: &[u8]) -> Option<Written> {
    let (day, rest) = day_of(text)?;
    let [separator @ (b'/' | b' ' | b'-'), a, b, c, again, rest @ ..] = rest else { return None };
    let month = month(&[*a, *b, *c]).filter(|_| separator == again)?;
    let (year, rest) = number_of(rest, 4)?;
    let (time, zone) = time_of(rest.strip_prefix(b":").or_else(|| rest.strip_prefix(b" "))?)?;
    at(year, month, day, time, zone)
}

/// `May 17 10:05:03.25 2015`, as C writes it, and `May 17 2015 10:05:03`.
fn by_month(text: &[u8]) -> Option<Written> {
    let (name, rest) = text.split_at_checked(3)?;
    let month = month(name)?;
    let (day, rest) = day_of(rest.strip_prefix(b" ")?)?;
    let rest = rest.strip_prefix(b",").unwrap_or(rest).strip_prefix(b" ")?;
    if let Some((time, rest)) = time_of(rest) {
        let (year, zone) = number_of(rest.strip_prefix(b" ")?, 4)?;
        return at(year, month, day, time, zone);
    }
    let (year, rest) = number_of(rest, 4)?;
    let (time, zone) = time_of(rest.strip_prefix(b" ")?)?;
    at(year, month, day, time, zone)
}

/// `May 17 10:05:03`, as syslog writes it.
fn yearless(text: &[u8]) -> Option<(i8, i8, civil::Time)> {
    let (name, rest) = text.split_at_checked(3)?;
    let month = month(name)?;
    let (day, rest) = day_of(rest.strip_prefix(b" ")?)?;
    match time_of(rest.strip_prefix(b" ")?)? {
        (time, b"") => Some((month, day, time)),
        _ => None,
    }
}

fn at(year: i32, month: i8, day: i8, time: civil::Time, zone: &[u8]) -> Option<Written> {
    let date = civil::Date::new(i16::try_from(year).ok()?, month, day).ok()?;
    Some(Written { at: date.to_datetime(time), east_seconds: zone_at_end(zone)? })
}

/// A number of Unix seconds: whole, with decimals or with an exponent. Numbers from 10^11 on (as seconds, the year
/// 5138) are milliseconds, from 10^14 on microseconds, and from 10^17 on nanoseconds. Fractions of a millisecond are
/// cut off.
pub(crate) fn number(text: &[u8]) -> Option<Timestamp> {
    let (mantissa, exponent) = decimal(text)?;
    let whole = scaled(mantissa, exponent)?;
    let unit = UNITS.iter().find(|(below, _)| whole < *below);
    let unit_exponent = unit.map_or(NANOSECONDS, |(_, unit_exponent)| *unit_exponent);
    let millis = scaled(mantissa, exponent.checked_add(unit_exponent)?)?;
    i64::try_from(millis).ok().and_then(Timestamp::from_millis)
}

/// `12.5e3` as (125, 2): a mantissa of at most 38 digits and a power of ten.
fn decimal(text: &[u8]) -> Option<(u128, i32)> {
    let (mut mantissa, mut exponent) = (0_u128, 0_i32);
    let (mut digits, mut in_fraction) = (0, false);
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'0'..=b'9' => {
                mantissa = mantissa.checked_mul(10)?.checked_add(u128::from(byte - b'0'))?;
                exponent -= i32::from(in_fraction);
                digits += 1;
            }
            b'.' if !in_fraction && digits > 0 => (in_fraction, digits) = (true, 0),
            b'e' | b'E' if digits > 0 => {
                let power = std::str::from_utf8(&text[at + 1..]).ok()?;
                return Some((mantissa, exponent.checked_add(power.parse().ok()?)?));
            }
            _ => return None,
        }
        at += 1;
    }
    (digits > 0).then_some((mantissa, exponent))
}

/// `mantissa` × 10^`exponent`, rounded down. `None` if it overflows.
fn scaled(mantissa: u128, exponent: i32) -> Option<u128> {
    match 10_u128.checked_pow(exponent.unsigned_abs()) {
        Some(power) if exponent < 0 => Some(mantissa / power),
        Some(power) => mantissa.checked_mul(power),
        None if exponent < 0 || mantissa == 0 => Some(0),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader in November 2026, without other options.
    fn reader() -> TimeReader {
        TimeReader::new(&Times { now: time_at(1_795_000_000), ..Times::default() })
    }

    fn time_at(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(seconds).expect("in range")
    }

    fn millis(text: &str) -> Result<i64, Malformed> {
        reader().text(text.as_bytes()).map(Timestamp::as_millis)
    }

    #[test]
    fn times_parse() {
        let check = |text: &str, expected: i64| assert_eq!(millis(text), Ok(expected), "{text}");
        check("17/May/2015:10:05:03 +0000", 1_431_857_103_000);
        check("17/May/2015:12:35:03 +0230", 1_431_857_103_000);
        check("17/May/2015:02:05:03 -0800", 1_431_857_103_000);
        check("17/May/2015:10:05:03.125 +0000", 1_431_857_103_125);
        check("[17/May/2015:10:05:03 +0000]", 1_431_857_103_000);
        check("29/Feb/2016:23:59:60 +0000", 1_456_790_399_000);
        check("01/Jan/1970:00:00:00 +0000", 0);
        check("2015-05-17T10:05:03Z", 1_431_857_103_000);
        check("2015-05-17t10:05:03.25z", 1_431_857_103_250);
        check("2015-05-17 12:05:03.123456+02:00", 1_431_857_103_123);
        check("2015-05-17 12:05:03,123 +0200", 1_431_857_103_123);
        check("2015-05-17 12:05:03 +02", 1_431_857_103_000);
        check("2015-05-17T12:05:03+02:00[Europe/Berlin]", 1_431_857_103_000);
        check("2015-05-17 10:05:03 UTC", 1_431_857_103_000);
        check("2015-05-17 10:05:03.5 +0000 UTC", 1_431_857_103_500);
        check("2015/05/17 10:05:03 Z", 1_431_857_103_000);
        check("20150517T100503Z", 1_431_857_103_000);
        check("20150517T120503.25+0200", 1_431_857_103_250);
        check("Sun, 17 May 2015 10:05:03 +0000", 1_431_857_103_000);
        check("Sun, 17 May 2015 10:05:03 GMT", 1_431_857_103_000);
        check("7 May 2015 10:05:03 +0000", 1_430_993_103_000);
        check("Sun May 17 10:05:03.125 2015 +0000", 1_431_857_103_125);
        check("1431857103", 1_431_857_103_000);
        check("1431857103.0409", 1_431_857_103_040);
        check("1.431857103125e+9", 1_431_857_103_125);
        check("14318571030E-1", 1_431_857_103_000);
        check("1431857103123", 1_431_857_103_123);
        check("1431857103123.9", 1_431_857_103_123);
        check("1431857103123456", 1_431_857_103_123);
        check("1431857103123456789", 1_431_857_103_123);
    }

    /// Symptom: `20240312094422` was the year 2611, `081110` and a latency of 0.037 s were 1970.
    /// Cause: every number was a time. Fix: one that is before 1990 or more than a day ahead is none.
    #[test]
    fn numbers_that_cannot_be_times_are_none() {
        let check = |text: &str, expected| assert_eq!(millis(text), expected, "{text}");
        check("631152000", Ok(631_152_000_000));
        check("631151999.999", Err(Malformed::Number));
        check("1795086400", Ok(1_795_086_400_000));
        check("1795086400.001", Err(Malformed::Number));
        check("1795086400001", Err(Malformed::Number));
        for text in ["20240312094422", "081110", "0.037", "0", "1e-999999", "0e999999", "99999999999", "1e40"]
        {
            check(text, Err(Malformed::Number));
        }
    }

    #[test]
    fn a_time_without_a_zone_is_an_error() {
        for text in [
            "17/May/2015:10:05:03",
            "17/May/2015:10:05:03.123",
            "2015-05-17T10:05:03",
            "2015-05-17 10:05:03,123",
            "2015/05/17 10:05:03",
            "20150517T100503",
            "Sun May 17 10:05:03 2015",
            "May 17 10:05:03",
            "May  7 10:05:03.25",
        ] {
            assert_eq!(millis(text), Err(Malformed::Zone), "{text}");
        }
    }

    #[test]
    fn a_zone_can_be_given() {
        let check = |zone: &str, text: &str, expected: i64| {
            let zone = Some(zone.parse().expect("a zone"));
            let mut reader = TimeReader::new(&Times { zone, ..reader().times });
            let millis = reader.text(text.as_bytes()).map(Timestamp::as_millis);
            assert_eq!(millis, Ok(expected), "{zone:?} {text}", zone = reader.times.zone);
        };
        check("UTC", "2015-05-17T10:05:03", 1_431_857_103_000);
        check("+02:00", "2015-05-17T12:05:03.5", 1_431_857_103_500);
        check("-0800", "17/May/2015:02:05:03", 1_431_857_103_000);
        check("Europe/Berlin", "Sun May 17 12:05:03 2015", 1_431_857_103_000);
        check("Europe/Berlin", "2015-01-17 11:05:03", 1_421_489_103_000);
        // A zone in the log goes before it.
        check("+05:00", "2015-05-17T10:05:03Z", 1_431_857_103_000);
        // In autumn an hour comes twice: the first; in spring one is left out: as if it were not.
        check("Europe/Berlin", "2015-10-25 02:30:00", 1_445_733_000_000);
        check("Europe/Berlin", "2015-03-29 02:30:00", 1_427_592_600_000);
        for bad in ["Mars/Base", "+25", "2h", "", "CET+1"] {
            assert!(bad.parse::<Zone>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_time_without_a_year_is_in_that_which_puts_it_before_the_file() {
        let check = |written: u64, text: &str, expected: &str| {
            let zone = Some("UTC".parse().expect("a zone"));
            let times = Times { written: Some(time_at(written)), zone, ..Times::default() };
            let at = TimeReader::new(&times).text(text.as_bytes());
            assert_eq!(at, time(expected, &Times::default()), "{text} before {written}");
        };
        // Written on 2024-03-12 at 09:00.
        check(1_710_234_000, "Mar 12 08:59:59", "2024-03-12T08:59:59Z");
        check(1_710_234_000, "Mar 13 08:59:59", "2024-03-13T08:59:59Z");
        check(1_710_234_000, "Mar 14 08:59:59", "2023-03-14T08:59:59Z");
        check(1_710_234_000, "Dec 31 23:59:59", "2023-12-31T23:59:59Z");
        check(1_710_234_000, "Feb 29 00:00:00", "2024-02-29T00:00:00Z");
        // On 2024-12-31 in the last second: the clock of the sender is ahead.
        check(1_735_689_599, "Jan  1 00:00:01", "2025-01-01T00:00:01Z");
        check(1_700_000_000, "Feb 29 00:00:00", "2020-02-29T00:00:00Z");
    }

    #[test]
    fn a_layout_can_be_given() {
        let check = |format: &str, text: &str, expected: Result<i64, Malformed>| {
            let format = Some(format.parse().expect(format));
            let mut reader = TimeReader::new(&Times { format, ..reader().times });
            let found = reader.text(text.as_bytes()).map(Timestamp::as_millis);
            assert_eq!(found, expected, "{text}");
        };
        check("%Y%m%d%H%M%S%z", "20150517100503+0000", Ok(1_431_857_103_000));
        check("%Y%m%d%H%M%S", "20150517100503", Err(Malformed::Zone));
        check("%d.%m.%Y %H:%M:%S%.f %:z", "17.05.2015 10:05:03.25 +00:00", Ok(1_431_857_103_250));
        check("%s", "1431857103", Ok(1_431_857_103_000));
        check("%Y-%m-%d", "2015-05-17T10:05:03Z", Err(Malformed::Time));
        for bad in ["%H:%M", "%!", "now", "%"] {
            assert!(matches!(bad.parse::<TimeFormat>(), Err(SetupError::TimeFormat { .. })), "{bad}");
        }
    }

    #[test]
    fn times_of_the_command_line() {
        let times = reader().times;
        let check = |text: &str, expected| assert_eq!(time(text, &times), expected, "{text}");
        check("2h ago", Ok(time_at(1_794_992_800)));
        check("90s", Ok(time_at(1_794_999_910)));
        check("2015-05-17T10:05:03Z", Ok(time_at(1_431_857_103)));
        check("1431857103", Ok(time_at(1_431_857_103)));
        check("2015-05-17T10:05:03", Err(Malformed::Zone));
        check("yesterday", Err(Malformed::Time));
    }

    #[test]
    fn invalid_times_are_refused() {
        for bad in [
            "",
            "-1",
            "+1",
            "1.",
            ".5",
            "1.2.3",
            "1e",
            "1e1.5",
            "e5",
            "now",
            "32/May/2015:10:05:03 +0000",
            "29/Feb/2015:10:05:03 +0000",
            "17/MAY/2015:10:05:03 +0000",
            "17/May/2015:24:05:03 +0000",
            "17/May/2015:10:60:03 +0000",
            "17/May/2015:10:05:61 +0000",
            "17/May/2015:10:05:03 *0000",
            "17/May/2015:10:05:03 +2400",
            "17/May/2015:10:05:03 +0060",
            "31/Dec/1969:23:59:59 +0000",
            "2015-05-17",
            "2015-02-29T10:05:03Z",
            "2015-05-17T10:05:03 CEST",
            "2015-05-17T10:05:03Zx",
            "1969-12-31T23:59:59Z",
            "May 32 10:05:03",
            "Feb 30 10:05:03",
        ] {
            assert_eq!(millis(bad), Err(Malformed::Time), "{bad}");
        }
    }

    #[test]
    fn cached_times_parse_the_same() {
        let dates = [
            "17/May/2015:10:05:03 +0000",
            "17/May/2015:10:05:03 +0000",
            "17/May/2015:10:05:04 +0000",
            "17/May/2015:10:05:04 +0100",
            "17/May/2015:10:75:04 +0100",
            "17/May/2015:10:75:04 +0100",
            "17/May/2015:10:05:04 +0100",
            "18/Mai/2015:10:05:04 +0100",
            "18/Mai/2015:10:05:05 +0100",
            "18/May/2015:10:05:05 +0100",
        ];
        let mut kept = reader();
        for date in dates {
            assert_eq!(kept.text(date.as_bytes()), reader().text(date.as_bytes()), "{date}");
        }
    }
}
