//! Event times as logs write them.
//!
//! Lines of a log mostly repeat the second, or at least the day, of the line before. So the reader
//! remembers both and an access-log date costs a comparison, or six digits.

use jiff::civil;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::Offset;
use lately::Timestamp;

/// Length of `17/May/2015:10:05:03 +0000`.
pub(crate) const LOG_DATE_LEN: usize = 26;

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Numbers below the first are in the unit whose power of ten, in milliseconds, is the second.
const UNITS: [(u128, i32); 3] = [(10_u128.pow(11), 3), (10_u128.pow(14), 0), (10_u128.pow(17), -3)];
const NANOSECONDS: i32 = -6;

static RFC_3339: DateTimeParser = DateTimeParser::new();

/// Reads times, and remembers the last access-log date.
#[derive(Clone, Debug)]
pub(crate) struct TimeReader {
    date: [u8; LOG_DATE_LEN],
    date_at: Option<Timestamp>,
    /// Start of the day of `date`, in its zone, in milliseconds since the epoch.
    day_start_ms: Option<i64>,
}

impl TimeReader {
    pub(crate) fn new() -> TimeReader {
        TimeReader { date: [0; LOG_DATE_LEN], date_at: None, day_start_ms: None }
    }

    /// The access-log date, `17/May/2015:10:05:03 +0000`. A leap second is the second before it.
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

    /// A number ([`number`]), an access-log date, or RFC 3339 with its zone.
    pub(crate) fn text(&mut self, text: &[u8]) -> Option<Timestamp> {
        if let Ok(date) = text.try_into()
            && text[2] == b'/'
        {
            return self.log_date(date);
        }
        if text.get(4) == Some(&b'-') {
            let millis = RFC_3339.parse_timestamp(text).ok()?.as_millisecond();
            return Timestamp::from_millis(millis);
        }
        number(text)
    }
}

/// A time as it stands in logs: an access-log date, RFC 3339 with its zone, or Unix seconds.
#[must_use]
pub fn time(text: &str) -> Option<Timestamp> {
    TimeReader::new().text(text.as_bytes())
}

fn day_start_ms(date: &[u8; LOG_DATE_LEN]) -> Option<i64> {
    if date[2] != b'/' || date[6] != b'/' {
        return None;
    }
    let month = MONTHS.iter().position(|month| month[..] == date[3..6])?;
    let year = i16::try_from(digits(&date[7..11])?).ok()?;
    let month = i8::try_from(month + 1).ok()?;
    let day = i8::try_from(digits(&date[..2])?).ok()?;
    let day = civil::Date::new(year, month, day).ok()?.at(0, 0, 0, 0);
    Some(zone(&date[20..])?.to_timestamp(day).ok()?.as_millisecond())
}

/// ` +0130`: a space, then hours and minutes east of Greenwich.
fn zone(text: &[u8]) -> Option<Offset> {
    let (hours, minutes) = (digits(&text[2..4])?, digits(&text[4..6])?);
    let east = match &text[..2] {
        b" +" => 1,
        b" -" => -1,
        _ => return None,
    };
    if hours > 23 || minutes > 59 {
        return None;
    }
    Offset::from_seconds(east * (hours * 3_600 + minutes * 60)).ok()
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

/// A number of Unix seconds, whole, with decimals or with an exponent. By its size it is taken for
/// milliseconds from 10^11 on (as seconds, the year 5138), microseconds from 10^14 and nanoseconds
/// from 10^17. What is finer than a millisecond is cut off.
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

/// `mantissa` × 10^`exponent`, rounded down; `None` when that is more than fits.
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

    fn millis(text: &str) -> Option<i64> {
        TimeReader::new().text(text.as_bytes()).map(Timestamp::as_millis)
    }

    #[test]
    fn times_parse() {
        let check = |text: &str, expected: i64| assert_eq!(millis(text), Some(expected), "{text}");
        check("17/May/2015:10:05:03 +0000", 1_431_857_103_000);
        check("17/May/2015:12:35:03 +0230", 1_431_857_103_000);
        check("17/May/2015:02:05:03 -0800", 1_431_857_103_000);
        check("29/Feb/2016:23:59:60 +0000", 1_456_790_399_000);
        check("01/Jan/1970:00:00:00 +0000", 0);
        check("2015-05-17T10:05:03Z", 1_431_857_103_000);
        check("2015-05-17t10:05:03.25z", 1_431_857_103_250);
        check("2015-05-17 12:05:03.123456+02:00", 1_431_857_103_123);
        check("1431857103", 1_431_857_103_000);
        check("1431857103.0409", 1_431_857_103_040);
        check("1.431857103125e+9", 1_431_857_103_125);
        check("14318571030E-1", 1_431_857_103_000);
        check("1431857103123", 1_431_857_103_123);
        check("1431857103123.9", 1_431_857_103_123);
        check("1431857103123456", 1_431_857_103_123);
        check("1431857103123456789", 1_431_857_103_123);
        check("99999999999", 99_999_999_999_000);
        check("100000000000", 100_000_000_000);
        check("0", 0);
        check("0e999999", 0);
        check("1e-999999", 0);
    }

    #[test]
    fn what_is_no_time_is_refused() {
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
            "1e999999",
            "1e40",
            "340282366920938463463374607431768211456",
            "32/May/2015:10:05:03 +0000",
            "29/Feb/2015:10:05:03 +0000",
            "17/MAY/2015:10:05:03 +0000",
            "17/May/2015:24:05:03 +0000",
            "17/May/2015:10:60:03 +0000",
            "17/May/2015:10:05:61 +0000",
            "17/May/2015:10:05:03 *0000",
            "17/May/2015:10:05:03 +2400",
            "17/May/2015:10:05:03 +0060",
            "17/May/2015 10:05:03 +0000",
            "31/Dec/1969:23:59:59 +0000",
            "17/May/2015:10:05:03",
            "2015-05-17T10:05:03",
            "2015-05-17",
            "2015-02-29T10:05:03Z",
            "1969-12-31T23:59:59Z",
        ] {
            assert_eq!(millis(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_remembered_changes_no_answer() {
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
        let mut reader = TimeReader::new();
        for date in dates {
            let fresh = TimeReader::new().text(date.as_bytes());
            assert_eq!(reader.text(date.as_bytes()), fresh, "{date}");
        }
    }
}
