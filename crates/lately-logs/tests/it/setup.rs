//! Any text as a format, a key, a condition and a time: it is refused or works, and never panics.
//!
//! The fuzz target `logs_setup` includes this file; the property test at its end is the same without a fuzzer.

use lately::Timestamp;
use lately::limits::MAX_KEY_BYTES;
use lately_logs::limits::EARLIEST_NUMBER;
use lately_logs::{Filter, Format, LineParser, Options, Parsed, Template, TimeFormat, Times, Zone, time};

/// What formats start with; a byte chooses one.
const PREFIXES: [&str; 4] = ["nginx:", "apache:", "regex:", ""];

/// Later numbers may be milliseconds: 2100.
const LATEST_SECONDS: Timestamp = match Timestamp::from_seconds(4_102_444_800) {
    Some(at) => at,
    None => Timestamp::MAX,
};

/// Takes a byte and six lines: format, key, condition, zone, layout of times, and a time. All that follows are lines of a
/// log.
///
/// # Panics
/// When something does not hold.
pub(crate) fn check(bytes: &[u8]) {
    let [prefix, rest @ ..] = bytes else { return };
    let text = String::from_utf8_lossy(rest);
    let mut lines = text.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    let format = format!("{}{}", PREFIXES[usize::from(*prefix) % PREFIXES.len()], next()).parse::<Format>();
    let (key, filter) = (next(), next());
    let (zone, layout, at) = (next(), next(), next());
    let (template, condition) = (key.parse::<Template>(), filter.parse::<Filter>());
    if let Ok(template) = &template {
        assert_eq!(template.to_string(), key);
    }
    if let Ok(condition) = &condition {
        assert_eq!(condition.to_string(), filter);
    }
    let now = Timestamp::from_seconds(1_710_234_000).expect("2024");
    let times = Times {
        now,
        written: None,
        zone: zone.parse::<Zone>().ok(),
        format: layout.parse::<TimeFormat>().ok(),
    };
    if let Ok(at) = time(at, &times) {
        assert!((0..=Timestamp::MAX.as_millis()).contains(&at.as_millis()));
        // A time that Lately writes is that time again.
        if (EARLIEST_NUMBER..LATEST_SECONDS).contains(&at) {
            let written = Times { now: at, format: None, ..times.clone() };
            assert_eq!(time(&at.to_string(), &written), Ok(at));
        }
    }
    let Ok(format) = format else { return };
    let options = Options {
        format: Some(format.clone()),
        key: template.unwrap_or_default(),
        filters: condition.into_iter().collect(),
        times,
        ..Options::default()
    };
    let Ok(mut parser) = LineParser::new(&format, &options) else { return };
    for line in lines {
        if let Ok(Parsed::Hit(record)) = parser.parse(line.as_bytes()) {
            assert!((1..=MAX_KEY_BYTES).contains(&record.key.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Of which formats, keys, conditions, times and lines are made.
    const PIECES: [&str; 32] = [
        "$remote_addr",
        " ",
        "$time_local",
        "[",
        "]",
        "$request",
        "\"",
        "%h",
        "%t",
        "%r",
        "%{X-A}i",
        "%>s",
        "(?<time>.*)",
        "(?<ip>\\S+)",
        "\n",
        "\n",
        "{ip}",
        "{ip/24/64}",
        "*",
        "status",
        "=",
        "~",
        "!~",
        ">=",
        "5xx",
        "UTC",
        "+02:00",
        "%Y-%m-%d",
        "%H:%M:%S",
        "1.2.3.4",
        "17/May/2015:10:05:03 +0000",
        "2015-05-17T10:05:03Z",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_024))]

        #[test]
        fn any_set_up_is_refused_or_works(
            prefix in any::<u8>(),
            pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..30),
            junk in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            check(&[&[prefix][..], pieces.concat().as_bytes(), &junk].concat());
        }
    }
}
