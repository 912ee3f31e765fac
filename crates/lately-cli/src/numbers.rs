//! Parses numbers of the command line.

use std::str::FromStr;
use std::time::Duration;

use lately::limits::MAX_TOTAL;

/// A number of hits, as many as a key can have.
pub(crate) fn hits(text: &str) -> Result<u64, String> {
    let hits = text.parse().ok().filter(|hits| *hits <= MAX_TOTAL);
    hits.ok_or_else(|| format!("give a whole number of hits, 0 to {MAX_TOTAL}"))
}

/// A number of hits, or below 0 of hits to give back.
pub(crate) fn cost(text: &str) -> Result<i64, String> {
    let hits = text.parse().ok().filter(|hits: &i64| *hits > i64::MIN);
    hits.ok_or_else(|| format!("give a whole number of hits, 0 to {MAX_TOTAL}, or below 0 to give hits back"))
}

/// A number whose bounds are checked later.
pub(crate) fn whole<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| "give a whole number")
}

/// A number, with a fraction or without, whose bounds are checked later.
pub(crate) fn fraction(text: &str) -> Result<f64, &'static str> {
    text.parse().map_err(|_| "give a number, such as 1 or 0.99")
}

/// A time whose bounds are checked later.
pub(crate) fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or("give a number of seconds, such as 5 or 0.5")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_number_names_a_valid_form() {
        let most = MAX_TOTAL.to_string();
        assert_eq!((hits("0"), hits(&most)), (Ok(0), Ok(MAX_TOTAL)));
        for text in ["", "x", "-1", "1.5", "1e3", &(MAX_TOTAL + 1).to_string(), "99999999999999999999"] {
            assert_eq!(hits(text), Err(format!("give a whole number of hits, 0 to {most}")), "{text}");
        }
        assert_eq!((whole::<u64>("7"), whole::<u64>("-7")), (Ok(7), Err("give a whole number")));
        assert_eq!((fraction("0.99"), fraction("x")), (Ok(0.99), Err("give a number, such as 1 or 0.99")));
        assert_eq!(
            (seconds("5"), seconds("0.5")),
            (Ok(Duration::from_secs(5)), Ok(Duration::from_millis(500)))
        );
        for text in ["", "x", "-1", "NaN", "inf", "1e300", "5s"] {
            assert_eq!(seconds(text), Err("give a number of seconds, such as 5 or 0.5"), "{text}");
        }
    }
}
