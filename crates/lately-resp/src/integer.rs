//! Integers as Redis reads them: an optional minus and digits, without a plus, spaces or leading zeros.

/// The integer that `text` is, or `None` when it is none or does not fit.
#[inline]
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    // Most are: all that have so many digits fit.
    if let [b'1'..=b'9', ..] = text
        && text.len() <= 18
    {
        let mut value = 0;
        for byte in text {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            value = value * 10 + i64::from(digit);
        }
        return Some(value);
    }
    parse_any(text)
}

fn parse_any(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    let mut value: i64 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Summed below zero, because i64::MIN has no positive twin.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
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
        fn the_usual_way_says_what_the_other_does(text in "-?[0-9]{0,20}[0-9x]?") {
            proptest::prop_assert_eq!(parse_integer(text.as_bytes()), parse_any(text.as_bytes()));
        }
    }
}
