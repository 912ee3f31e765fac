//! Parses any text as a time and as a span, compares that with a long division, and checks that printed values parse
//! back.
//!
//! The fuzz target `times` includes this file; the property test at its end is the same without a fuzzer.

use lately::{Span, Timestamp};

/// Checks the bytes as a text, as indices of the characters of times, and as a number of milliseconds.
///
/// # Panics
/// If a check fails.
pub(crate) fn check(bytes: &[u8]) {
    const CHARACTERS: &[u8] = b"0123456789012345678900055.msmhdw";
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_text(text);
    }
    let text: String =
        bytes.iter().map(|&byte| char::from(CHARACTERS[usize::from(byte) % CHARACTERS.len()])).collect();
    check_text(&text);
    let number = bytes.first_chunk().map_or(0, |&bytes| i64::from_le_bytes(bytes));
    let spans = [Span::from_millis(number), Span::from_millis(number.rem_euclid(Span::MAX.as_millis()) + 1)];
    spans.into_iter().flatten().for_each(prints_back);
    let latest_ms = Timestamp::MAX.as_millis();
    let times = [Timestamp::from_millis(number), Timestamp::from_millis(number.rem_euclid(latest_ms + 1))];
    times.into_iter().flatten().for_each(prints_back);
}

fn check_text(text: &str) {
    let span = text.parse::<Span>().ok();
    let time = text.parse::<Timestamp>().ok();
    if let Ok(expected) = span_ms(text) {
        assert_eq!(span.map(Span::as_millis), expected, "{text:?} as a span");
    }
    if let Ok(expected) = time_ms(text) {
        assert_eq!(time.map(Timestamp::as_millis), expected, "{text:?} as a time");
    }
    span.into_iter().for_each(prints_back);
    time.into_iter().for_each(prints_back);
}

fn prints_back<T: Copy + PartialEq + std::fmt::Debug + std::fmt::Display + std::str::FromStr>(value: T) {
    let text = value.to_string();
    assert_eq!(text.parse::<T>().ok(), Some(value), "printed {text:?}");
}

/// The text has more digits than this check can compute with.
struct TooManyDigits;

/// The milliseconds of `text` as a span; none if it is not valid.
fn span_ms(text: &str) -> Result<Option<i64>, TooManyDigits> {
    const UNITS_MS: [(&str, i128); 6] =
        [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];
    let unit = UNITS_MS.iter().find_map(|(name, ms)| Some((text.strip_suffix(name)?, *ms)));
    let (number, unit_ms) = match unit {
        None if text.contains('.') => return Ok(None),
        None => (text, 1_000),
        Some(unit) => unit,
    };
    let Some((digits, scale)) = decimal(number)? else { return Ok(None) };
    let millis = digits * unit_ms / scale;
    let whole = millis * scale == digits * unit_ms;
    Ok(i64::try_from(millis).ok().filter(|millis| whole && (1..=Span::MAX.as_millis()).contains(millis)))
}

/// The milliseconds of `text` as a time; none if it is not valid.
fn time_ms(text: &str) -> Result<Option<i64>, TooManyDigits> {
    let Some((digits, scale)) = decimal(text)? else { return Ok(None) };
    Ok(i64::try_from(digits * 1_000 / scale).ok().filter(|&millis| millis <= Timestamp::MAX.as_millis()))
}

/// A decimal number as a fraction: `12.5` is 125 and 10.
fn decimal(text: &str) -> Result<Option<(i128, i128)>, TooManyDigits> {
    const MOST_DIGITS: usize = 28;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let all = [whole, fraction].concat();
    if whole.is_empty() || fraction.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    if all.len() > MOST_DIGITS {
        return Err(TooManyDigits);
    }
    let scale = fraction.bytes().fold(1, |scale, _| scale * 10);
    Ok(all.parse().ok().map(|digits| (digits, scale)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_048))]

        #[test]
        fn any_text_parses_as_its_definition(bytes in prop::collection::vec(any::<u8>(), 0..30)) {
            check(&bytes);
        }
    }
}
