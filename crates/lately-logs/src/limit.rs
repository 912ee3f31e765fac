//! A limit on the command line, such as `100/1m`.

use std::str::FromStr;

use lately::Span;
use lately::limits::MAX_TOTAL;

use crate::error::SetupError;

/// A limit on the requests in any window: `100/1m`, `5/60`, `10/250ms`, `5/s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The most requests; 0 allows none.
    pub max: u64,
    /// The length of the window.
    pub window: Span,
}

impl FromStr for Limit {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Limit, SetupError> {
        let error = |wrong| SetupError::Limit { text: text.into(), wrong };
        let (max, window) =
            text.split_once('/').ok_or_else(|| error("give MAX/WINDOW, such as 100/1m".to_owned()))?;
        let is_digits = max.bytes().all(|byte| byte.is_ascii_digit());
        let number = max.parse().ok().filter(|&max| is_digits && max <= MAX_TOTAL);
        let max = number.ok_or_else(|| {
            error(format!("invalid MAX '{max}': give a whole number from 0 to {MAX_TOTAL}, as in 100/1m"))
        })?;
        // A unit without a number is one of it.
        let is_unit = window.bytes().next().is_some_and(|first| first.is_ascii_alphabetic());
        let one = if is_unit { format!("1{window}") } else { window.to_owned() };
        let window = one
            .parse()
            .or_else(|_| window.parse())
            .map_err(|why: lately::TimeError| error(format!("WINDOW: {why}")))?;
        Ok(Limit { max, window })
    }
}

#[cfg(test)]
mod tests {
    use lately::{milliseconds, minutes};

    use super::*;

    #[test]
    fn limits_parse() {
        let check = |text: &str, max: u64, window: Span| {
            assert_eq!(text.parse(), Ok(Limit { max, window }), "{text}");
        };
        check("100/1m", 100, minutes(1));
        check("5/60", 5, minutes(1));
        for unit in ["ms", "s", "m", "h", "d", "w"] {
            check(&format!("5/{unit}"), 5, format!("1{unit}").parse().expect(unit));
        }
        check("10/250ms", 10, milliseconds(250));
        check("0/1.5h", 0, minutes(90));
        check("9223372036854775807/1ms", MAX_TOTAL, milliseconds(1));
    }

    #[test]
    fn invalid_limits_are_refused() {
        for bad in [
            "",
            "/",
            "100",
            "100/",
            "/1m",
            "+5/1m",
            "-5/1m",
            "5 /1m",
            "1.5/1m",
            "many/1m",
            "5/1min",
            "5/min",
            "5/S",
            "5/sec",
            "5/e3",
            "5/0",
            "5/1m/2",
            "1m/5m",
            "9223372036854775808/1m",
        ] {
            let error = bad.parse::<Limit>().expect_err(bad).to_string();
            assert!(error.starts_with(&format!("invalid limit '{bad}': ")), "{error}");
        }
        let check = |bad: &str, wrong: &str| {
            let error = bad.parse::<Limit>().expect_err(bad).to_string();
            assert!(error.starts_with(&format!("invalid limit '{bad}': {wrong}")), "{error}");
        };
        check("5", "give MAX/WINDOW, such as 100/1m");
        check("5/0", "WINDOW: invalid duration '0': give ");
        check("5/", "WINDOW: invalid duration '': give ");
        check("5/min", "WINDOW: invalid duration 'min': give ");
        check("x/1m", "invalid MAX 'x': give a whole number from 0 to 9223372036854775807, as in 100/1m");
        check("1m/5", "invalid MAX '1m': give a whole number from 0 to 9223372036854775807, as in 100/1m");
    }
}
