//! `[otlp]`: where metrics and spans are sent.

use std::time::Duration;

use hyper::Uri;
use serde::Deserialize;
use toml::Spanned;

use super::alert::url_of;
use super::error::Problem;
use super::value::{Length, shown};
use crate::limits::{DEFAULT_METRICS_EVERY, METRICS_EVERY};

/// The receivers of OTLP. One of them is there.
#[derive(Clone, PartialEq, Debug)]
pub struct Otlp {
    /// Gets all metrics.
    pub metrics: Option<Uri>,
    /// How often it gets them.
    pub every: Duration,
    /// Gets the spans of requests.
    pub traces: Option<Uri>,
    /// The share of requests with spans, of those whose clients have no trace: 0 to 1.
    pub sample: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: [otlp]")]
pub(super) struct OtlpConfig {
    metrics: Option<Spanned<String>>,
    every: Option<Spanned<Length>>,
    traces: Option<Spanned<String>>,
    sample: Option<Spanned<toml::Value>>,
}

pub(super) fn settle(section: Option<Spanned<OtlpConfig>>) -> Result<Option<Otlp>, Problem> {
    let Some(section) = section else { return Ok(None) };
    let (at, OtlpConfig { metrics, every, traces, sample }) = (section.span(), section.into_inner());
    let problem = |at, message: &str| Problem { at, message: message.to_owned() };
    match (&metrics, &traces, &every, &sample) {
        (None, None, ..) => {
            return Err(problem(
                at,
                "[otlp] names no receiver: add metrics = \"http://HOST:4318/v1/metrics\", traces = \"http://HOST:4318/v1/traces\", or both",
            ));
        }
        (None, _, Some(every), _) => {
            return Err(problem(every.span(), "every goes with metrics: give the URL that gets them"));
        }
        (_, None, _, Some(sample)) => {
            return Err(problem(sample.span(), "sample goes with traces: give the URL that gets them"));
        }
        _ => {}
    }
    let every = every.map_or(Ok(DEFAULT_METRICS_EVERY), |every| {
        let length = u64::try_from(every.get_ref().0.as_millis()).map(Duration::from_millis);
        length.ok().filter(|length| METRICS_EVERY.contains(length)).ok_or_else(|| {
            let (least, most) = (METRICS_EVERY.start().as_secs(), METRICS_EVERY.end().as_secs() / 3_600);
            problem(
                every.span(),
                &format!("every of {} is out of range: give {least}s to {most}h", every.get_ref().0),
            )
        })
    })?;
    let sample = sample.map_or(Ok(0.0), |sample| {
        let share = match sample.get_ref() {
            toml::Value::Float(share) => Some(*share),
            toml::Value::Integer(0) => Some(0.0),
            toml::Value::Integer(1) => Some(1.0),
            _ => None,
        };
        share.filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| {
            let given = shown(sample.get_ref());
            problem(
                sample.span(),
                &format!("invalid sample {given}: give a number without quotes, 0 to 1, such as 0.01"),
            )
        })
    })?;
    let url = |url: Option<Spanned<String>>, name| {
        url.map(|url| url_of(&url, name, &format!("http://127.0.0.1:4318/v1/{name}"))).transpose()
    };
    Ok(Some(Otlp { metrics: url(metrics, "metrics")?, every, traces: url(traces, "traces")?, sample }))
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use crate::limits::MAX_ALERT_URL_BYTES;

    fn parse(text: &str) -> Result<Option<Otlp>, String> {
        Config::parse(&format!("[otlp]\n{text}")).map(|config| config.otlp).map_err(|problem| problem.message)
    }

    #[test]
    fn receivers_are_as_the_file_says() {
        let metrics = "metrics = \"http://a:4318/v1/metrics\"\n";
        let traces = "traces = \"https://b/v1/traces\"\n";
        let check = |text: &str, expected: (bool, u64, bool, f64)| {
            let otlp = parse(text).expect(text).expect(text);
            let found = (otlp.metrics.is_some(), otlp.every.as_secs(), otlp.traces.is_some(), otlp.sample);
            assert_eq!(found, expected, "{text}");
        };
        check(metrics, (true, 60, false, 0.0));
        check(traces, (false, 60, true, 0.0));
        check(&format!("{metrics}{traces}every = \"5s\"\nsample = 0.25"), (true, 5, true, 0.25));
        check(&format!("{metrics}every = \"1s\""), (true, 1, false, 0.0));
        check(&format!("{metrics}every = \"1h\""), (true, 3_600, false, 0.0));
        check(&format!("{traces}sample = 1"), (false, 60, true, 1.0));
        check(&format!("{traces}sample = 0"), (false, 60, true, 0.0));
        assert_eq!(Config::parse("").expect("valid").otlp, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |text: &str, expected: &str| {
            let message = parse(text).expect_err(text);
            assert!(message.contains(expected), "{text}: {message}");
        };
        check("", "[otlp] names no receiver: add metrics = \"http://HOST:4318/v1/metrics\"");
        check(
            "metrics = \"a:4318\"",
            "invalid metrics 'a:4318': give a URL, such as http://127.0.0.1:4318/v1/metrics",
        );
        check("traces = \"ftp://a\"", "such as http://127.0.0.1:4318/v1/traces");
        check("traces = \"http://u:p@a/\"", "a URL with a password is not possible");
        let long = format!("http://{}/", "a".repeat(MAX_ALERT_URL_BYTES));
        check(&format!("metrics = \"{long}\""), "metrics has ");
        let metrics = "metrics = \"http://a/v1/metrics\"\n";
        check(&format!("{metrics}every = \"999ms\""), "every of 999ms is out of range: give 1s to 1h");
        check(&format!("{metrics}every = 3601"), "every of 3601s is out of range: give 1s to 1h");
        check(&format!("{metrics}sample = 0.1"), "sample goes with traces");
        let traces = "traces = \"http://a/v1/traces\"\n";
        check(&format!("{traces}every = \"1m\""), "every goes with metrics");
        for wrong in ["-0.1", "1.1", "2", "\"0.1\"", "nan", "[]"] {
            check(&format!("{traces}sample = {wrong}"), "give a number without quotes, 0 to 1");
        }
        check(&format!("{traces}endpoint = 1"), "endpoint");
    }
}
