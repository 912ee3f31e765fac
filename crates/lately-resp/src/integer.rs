//! Integers as Redis parses them: an optional minus and digits, without a plus, spaces or leading zeros.

/// Digits of the largest integers. A number of that many digits fits in a word without a sign.
const MAX_DIGITS: usize = 19;

/// Parses an integer. `None` if `text` is not one or does not fit.
#[inline]
#[must_use]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= MAX_DIGITS => {}
        _ => return None,
    }
    let mut value = 0_u64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    if is_negative { 0_i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(parse_integer(text.as_bytes()), expected, "{text}");
        };
        check("0", Some(0));
        check("7", Some(7));
        check("-12", Some(-12));
        check("9223372036854775807", Some(i64::MAX));
        check("9223372036854775808", None);
        check("-9223372036854775808", Some(i64::MIN));
        check("-9223372036854775809", None);
        for bad in ["", "-", "-0", "+1", "01", "-01", " 1", "1 ", "1.5", "1e3", "x", "1x", "0x1"] {
            check(bad, None);
        }
    }

    proptest::proptest! {
        #[test]
        fn only_canonical_integers_parse(text in "-?[0-9]{0,20}[0-9x]?") {
            let integer = text.parse::<i64>().ok().filter(|integer| integer.to_string() == text);
            proptest::prop_assert_eq!(parse_integer(text.as_bytes()), integer);
        }
    }
}
