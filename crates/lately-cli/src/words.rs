//! The texts of numbers, spans and times in a report.

use lately::{Span, Timestamp};

use crate::table;

/// `12,345`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 line`, `2,000 lines`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// `5 minutes`, `90 seconds`.
pub(crate) fn span(span: Span) -> String {
    const UNITS: [(i64, &str); 5] =
        [(86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"), (1, "millisecond")];
    let millis = span.as_millis();
    let unit = UNITS.into_iter().find(|(unit_ms, _)| millis % unit_ms == 0);
    let (unit_ms, name) = unit.unwrap_or((1, "millisecond"));
    counted(millis.unsigned_abs() / unit_ms.unsigned_abs(), name)
}

/// `minute`, `5 minutes`: the text after "hits per".
pub(crate) fn per(span: Span) -> String {
    let text = self::span(span);
    text.strip_prefix("1 ").map(str::to_owned).unwrap_or(text)
}

/// A time in UTC, such as `2015-05-17 22:00:00`.
pub(crate) fn time(at: Timestamp) -> String {
    table::utc(at).replace('T', " ").replace('Z', "")
}

/// A time in UTC in a layout of strftime. Times beyond the calendar are Unix seconds.
pub(crate) fn time_as(at: Timestamp, layout: &str) -> String {
    let time = jiff::Timestamp::from_millisecond(at.as_millis());
    time.map_or_else(|_| at.to_string(), |time| time.strftime(layout).to_string())
}

/// The start of a text, if it has more characters than this.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use lately::{milliseconds, minutes, seconds};

    use super::*;

    #[test]
    fn numbers_have_groups() {
        let check = |number, expected: &str| assert_eq!(grouped(number), expected);
        check(0, "0");
        check(999, "999");
        check(1_000, "1,000");
        check(1_234_567, "1,234,567");
        check(u64::MAX, "18,446,744,073,709,551,615");
        assert_eq!((counted(1, "line"), counted(2_000, "key")), ("1 line".into(), "2,000 keys".into()));
    }

    #[test]
    fn spans_are_in_words() {
        let check = |of, expected: (&str, &str)| assert_eq!((&span(of)[..], &per(of)[..]), expected);
        check(minutes(5), ("5 minutes", "5 minutes"));
        check(minutes(1), ("1 minute", "minute"));
        check(seconds(90), ("90 seconds", "90 seconds"));
        check(milliseconds(250), ("250 milliseconds", "250 milliseconds"));
        check(minutes(1_440), ("1 day", "day"));
    }

    #[test]
    fn times_are_short() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        assert_eq!(time(at("1431900000.25")), "2015-05-17 22:00:00.25");
        assert_eq!(time_as(at("1431900000"), "%H:%M"), "22:00");
        assert_eq!(time_as(Timestamp::MAX, "%H:%M"), "253402300799.999");
    }

    #[test]
    fn long_texts_are_shortened() {
        let check = |text: &str, most, expected: &str| assert_eq!(shortened(text, most), expected);
        check("abc", 3, "abc");
        check("abcd", 3, "ab…");
        check("käse🧀", 5, "käse🧀");
        check("käse🧀x", 5, "käse…");
    }
}
