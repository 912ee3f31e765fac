//! `[[alert]]`: rules over the hits of the keys that match a pattern.

use std::collections::BTreeSet;
use std::path::PathBuf;

use hyper::Uri;
use lately::limits::MAX_TOTAL;
use lately::{Pattern, Span};
use serde::Deserialize;
use toml::Spanned;

use super::error::Problem;
use super::user::path;
use super::value::{Delay, Length, Match, shown};
use crate::alerts::{AlertRule, Condition};
use crate::limits::{
    DEFAULT_LEAST_SPIKE, LEAST_ALERT_WINDOW, LONGEST_ALERT_WINDOW, LONGEST_SPIKE_WINDOW,
    MAX_ALERT_PATTERN_BYTES, MAX_ALERT_URL_BYTES, MAX_ALERTS, MAX_LIMIT_NAME_BYTES,
};

/// A rule, and who is notified of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Alert {
    /// The rule.
    pub rule: AlertRule,
    /// Gets a request when the alert starts or ends.
    pub webhook: Option<Webhook>,
    /// An Alertmanager of Prometheus.
    pub alertmanager: Option<Uri>,
}

/// A receiver of requests after Standard Webhooks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Webhook {
    /// Where it is.
    pub url: String,
    /// The file of the secret that signs requests. `None`: they have no signature.
    pub secret_file: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: [[alert]]")]
pub(super) struct AlertConfig {
    name: Spanned<String>,
    #[serde(rename = "match")]
    pattern: Spanned<Match>,
    above: Option<Spanned<toml::Value>>,
    below: Option<Spanned<toml::Value>>,
    spike: Option<Spanned<toml::Value>>,
    least: Option<Spanned<toml::Value>>,
    window: Spanned<Length>,
    #[serde(rename = "for")]
    hold: Option<Delay>,
    keep_firing: Option<Delay>,
    cooldown: Option<Delay>,
    webhook: Option<Spanned<String>>,
    webhook_secret_file: Option<Spanned<String>>,
    alertmanager: Option<Spanned<String>>,
}

/// Checks all rules. The problem points at the first wrong one.
pub(super) fn settle(alerts: Vec<Spanned<AlertConfig>>) -> Result<Vec<Alert>, Problem> {
    if let Some(alert) = alerts.get(MAX_ALERTS) {
        let message = format!("too many alerts: a config has at most {MAX_ALERTS}");
        return Err(Problem { at: alert.span(), message });
    }
    let mut names = BTreeSet::new();
    alerts.into_iter().map(|alert| settle_one(alert, &mut names)).collect()
}

fn settle_one(alert: Spanned<AlertConfig>, names: &mut BTreeSet<String>) -> Result<Alert, Problem> {
    let header = alert.span();
    let alert = alert.into_inner();
    let (name, name_at) = (alert.name.get_ref().clone(), alert.name.span());
    if !is_name(&name) {
        let message = format!(
            "invalid name '{name}': give 1 to {MAX_LIMIT_NAME_BYTES} letters, digits, or any of _ - ."
        );
        return Err(Problem { at: name_at, message });
    }
    if !names.insert(name.clone()) {
        let message = format!("a second alert is named '{name}': give each its own name");
        return Err(Problem { at: name_at, message });
    }
    let pattern = alert.pattern.get_ref().0.as_bytes();
    if pattern.len() > MAX_ALERT_PATTERN_BYTES {
        let message = format!(
            "match has {} bytes: the pattern of an alert has at most {MAX_ALERT_PATTERN_BYTES}",
            pattern.len()
        );
        return Err(Problem { at: alert.pattern.span(), message });
    }
    let condition = condition_of(&alert, header)?;
    let window = window_of(&alert.window, condition)?;
    let delay = |delay: Option<Delay>| delay.and_then(|delay| delay.0);
    let rule = AlertRule {
        name,
        pattern: Pattern::new(pattern),
        condition,
        window,
        hold: delay(alert.hold),
        keep_firing: delay(alert.keep_firing),
        cooldown: delay(alert.cooldown),
    };
    let webhook = match (&alert.webhook, &alert.webhook_secret_file) {
        (Some(url), secret_file) => Some(Webhook {
            url: url_of(url, "webhook", EXAMPLE)?.to_string(),
            secret_file: secret_file.as_ref().map(path).transpose()?,
        }),
        (None, None) => None,
        (None, Some(file)) => {
            let message = "webhook_secret_file goes with webhook: give the URL that gets requests".to_owned();
            return Err(Problem { at: file.span(), message });
        }
    };
    let alertmanager =
        alert.alertmanager.as_ref().map(|url| url_of(url, "alertmanager", EXAMPLE)).transpose()?;
    if let Some(url) = &alert.alertmanager
        && alertmanager.as_ref().is_some_and(|uri| uri.path().trim_end_matches('/').ends_with(ALERTS_PATH))
    {
        let text = url.get_ref();
        let message = format!("invalid alertmanager '{text}': leave out {ALERTS_PATH}: the server adds it");
        return Err(Problem { at: url.span(), message });
    }
    Ok(Alert { rule, webhook, alertmanager })
}

/// A colon would end the name of a field in `INFO`.
pub(super) fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=MAX_LIMIT_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_allowed)
}

/// The condition: exactly one of `above`, `below` and `spike`.
fn condition_of(alert: &AlertConfig, header: std::ops::Range<usize>) -> Result<Condition, Problem> {
    let AlertConfig { above, below, spike, least, .. } = alert;
    if let (None, Some(least)) = (spike, least) {
        let message = "least goes with spike: the hits from which on there can be a spike".to_owned();
        return Err(Problem { at: least.span(), message });
    }
    match (above, below, spike) {
        (Some(above), None, None) => hits_of(above, "above", 0).map(Condition::Above),
        (None, Some(below), None) => hits_of(below, "below", 1).map(Condition::Below),
        (None, None, Some(spike)) => {
            let factor = match spike.get_ref() {
                toml::Value::Float(factor) => Some(*factor),
                toml::Value::Integer(factor) => i32::try_from(*factor).ok().map(f64::from),
                _ => None,
            };
            let Some(factor) = factor.filter(|factor| *factor > 1.0 && *factor <= 1e9) else {
                let message = format!(
                    "invalid spike {}: give a number without quotes, above 1, such as 5.0",
                    shown(spike.get_ref())
                );
                return Err(Problem { at: spike.span(), message });
            };
            let least = least.as_ref().map(|least| hits_of(least, "least", 1)).transpose()?;
            Ok(Condition::Spike { factor, least: least.unwrap_or(DEFAULT_LEAST_SPIKE) })
        }
        (None, None, None) => {
            let message =
                "the alert has no condition: give above, below or spike, such as above = 10_000".to_owned();
            Err(Problem { at: header, message })
        }
        (first, second, third) => {
            let second = if first.is_some() { second.as_ref().or(third.as_ref()) } else { third.as_ref() };
            let at = second.map_or(header, Spanned::span);
            let message = "an alert has one condition: give above, below or spike, and an [[alert]] for each"
                .to_owned();
            Err(Problem { at, message })
        }
    }
}

fn hits_of(value: &Spanned<toml::Value>, name: &str, least: u64) -> Result<u64, Problem> {
    let hits = value.get_ref().as_integer().and_then(|hits| u64::try_from(hits).ok());
    hits.filter(|hits| (least..=MAX_TOTAL).contains(hits)).ok_or_else(|| {
        let given = shown(value.get_ref());
        let message =
            format!("invalid {name} {given}: give a whole number of hits, {least} or more, without quotes");
        Problem { at: value.span(), message }
    })
}

fn window_of(window: &Spanned<Length>, condition: Condition) -> Result<Span, Problem> {
    let (span, at) = (window.get_ref().0, window.span());
    let most = if matches!(condition, Condition::Spike { .. }) {
        LONGEST_SPIKE_WINDOW
    } else {
        LONGEST_ALERT_WINDOW
    };
    if (LEAST_ALERT_WINDOW..=most).contains(&span) {
        return Ok(span);
    }
    let what = condition.name();
    let message = format!("window {span} is not possible with {what}: give {LEAST_ALERT_WINDOW} to {most}");
    Err(Problem { at, message })
}

const EXAMPLE: &str = "http://127.0.0.1:9093/";

/// A URL of a receiver, with an example of a right one.
/// Where Alertmanager takes alerts, below its address.
pub(crate) const ALERTS_PATH: &str = "/api/v2/alerts";

pub(super) fn url_of(url: &Spanned<String>, name: &str, example: &str) -> Result<Uri, Problem> {
    let (text, at) = (url.get_ref(), url.span());
    let problem =
        |right: &str| Problem { at: at.clone(), message: format!("invalid {name} '{text}': {right}") };
    let right = format!("give a URL, such as {example}");
    if text.len() > MAX_ALERT_URL_BYTES {
        let message = format!("{name} has {} bytes: it has at most {MAX_ALERT_URL_BYTES}", text.len());
        return Err(Problem { at, message });
    }
    let uri: Uri = text.parse().map_err(|_| problem(&right))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return Err(problem(&right));
    }
    let Some(authority) = uri.authority().filter(|authority| !authority.as_str().contains('@')) else {
        return Err(problem("a URL with a password is not possible: leave out what is before the @"));
    };
    let has_port = authority.as_str().len() > authority.host().len();
    if has_port && authority.port_u16().is_none_or(|port| port == 0) {
        return Err(problem("a port is 1 to 65535"));
    }
    Ok(uri)
}

#[cfg(test)]
mod tests {
    use lately::{minutes, seconds};

    use super::super::Config;
    use super::*;

    fn alert(more: &str) -> String {
        format!("[[alert]]\nname = \"a\"\nmatch = \"endpoint:*\"\nwindow = \"10s\"\n{more}\n")
    }

    #[test]
    fn an_alert_has_all_that_the_file_says() {
        let more = "above = 10_000\nfor = \"3s\"\nkeep_firing = 5\ncooldown = \"1m\"\nwebhook = \"https://example.org/hook\"\n\
            webhook_secret_file = \"/run/secret\"\nalertmanager = \"http://127.0.0.1:9093\"";
        let config = Config::parse(&alert(more)).expect("valid");
        let [Alert { rule, webhook, alertmanager }] = &config.alerts[..] else {
            panic!("{:?}", config.alerts)
        };
        let expected = AlertRule {
            name: "a".to_owned(),
            pattern: Pattern::new(b"endpoint:*"),
            condition: Condition::Above(10_000),
            window: seconds(10),
            hold: Some(seconds(3)),
            keep_firing: Some(seconds(5)),
            cooldown: Some(minutes(1)),
        };
        assert_eq!(*rule, expected);
        let hook =
            Webhook { url: "https://example.org/hook".to_owned(), secret_file: Some("/run/secret".into()) };
        assert_eq!(*webhook, Some(hook));
        assert_eq!(alertmanager.as_ref().map(ToString::to_string).as_deref(), Some("http://127.0.0.1:9093/"));
        let condition = |more: &str| Config::parse(&alert(more)).expect(more).alerts[0].rule.condition;
        assert_eq!(condition("below = 1\nfor = 0"), Condition::Below(1));
        assert_eq!(condition("above = 0"), Condition::Above(0));
        assert_eq!(condition("spike = 5"), Condition::Spike { factor: 5.0, least: DEFAULT_LEAST_SPIKE });
        assert_eq!(condition("spike = 1.5\nleast = 100"), Condition::Spike { factor: 1.5, least: 100 });
    }

    #[test]
    fn a_wrong_value_is_named_with_the_right_one() {
        let check = |text: &str, expected: &str| {
            let message = Config::parse(text).expect_err(text).message;
            assert_eq!(message, expected, "{text}");
        };
        let of = |more: &str, expected: &str| check(&alert(more), expected);
        of("", "the alert has no condition: give above, below or spike, such as above = 10_000");
        let one = "an alert has one condition: give above, below or spike, and an [[alert]] for each";
        of("above = 1\nbelow = 1", one);
        of("below = 1\nspike = 2", one);
        of(
            "above = \"many\"",
            "invalid above \"many\": give a whole number of hits, 0 or more, without quotes",
        );
        of("above = -1", "invalid above -1: give a whole number of hits, 0 or more, without quotes");
        of("below = 0", "invalid below 0: give a whole number of hits, 1 or more, without quotes");
        of("below = 1.5", "invalid below 1.5: give a whole number of hits, 1 or more, without quotes");
        for factor in ["1", "1.0", "nan", "inf", "-3", "\"5\""] {
            let shown = match factor {
                "nan" => "NaN",
                other => other,
            };
            of(
                &format!("spike = {factor}"),
                &format!("invalid spike {shown}: give a number without quotes, above 1, such as 5.0"),
            );
        }
        of("above = 1\nleast = 5", "least goes with spike: the hits from which on there can be a spike");
        of("spike = 2\nleast = 0", "invalid least 0: give a whole number of hits, 1 or more, without quotes");
        of(
            "above = 1\nfor = \"fast\"",
            "invalid duration 'fast': give whole seconds or a number with ms, s, m, h, d or w, such as 300, 5m or 250ms, from 1ms to 1000000000s, or 0 for none",
        );
        of(
            "above = 1\nwebhook_secret_file = \"f\"",
            "webhook_secret_file goes with webhook: give the URL that gets requests",
        );
        of(
            "above = 1\nalertmanager = \"http://a:9093/api/v2/alerts\"",
            "invalid alertmanager 'http://a:9093/api/v2/alerts': leave out /api/v2/alerts: the server adds it",
        );
        let large = "99999999999999999999";
        of(
            &format!("above = {large}"),
            &format!("invalid number {large}: it is too large: no number is above 9223372036854775807"),
        );
        for url in ["", "/hook", "ftp://a/", "127.0.0.1:9000", "http:///x"] {
            of(
                &format!("above = 1\nwebhook = \"{url}\""),
                &format!("invalid webhook '{url}': give a URL, such as http://127.0.0.1:9093/"),
            );
        }
        for url in ["http://h:99999/a", "https://[::1]:0/", "http://h:/"] {
            of(
                &format!("above = 1\nwebhook = \"{url}\""),
                &format!("invalid webhook '{url}': a port is 1 to 65535"),
            );
        }
        of(
            "above = 1\nalertmanager = \"http://u:p@h/\"",
            "invalid alertmanager 'http://u:p@h/': a URL with a password is not possible: leave out what is before the @",
        );
        let window = |window: &str, more: &str| alert(more).replace("10s", window);
        check(&window("99ms", "above = 1"), "window 99ms is not possible with above: give 100ms to 7d");
        check(&window("8d", "below = 1"), "window 8d is not possible with below: give 100ms to 7d");
        check(&window("7h", "spike = 2"), "window 7h is not possible with spike: give 100ms to 6h");
        check(&alert("above = 1").repeat(2), "a second alert is named 'a': give each its own name");
        let named = |name: &str| alert("above = 1").replace("\"a\"", &format!("\"{name}\""));
        for name in ["", "a:b", "a b", &"n".repeat(MAX_LIMIT_NAME_BYTES + 1)] {
            check(
                &named(name),
                &format!(
                    "invalid name '{name}': give 1 to {MAX_LIMIT_NAME_BYTES} letters, digits, or any of _ - ."
                ),
            );
        }
        let pattern = |bytes: usize| alert("above = 1").replace("endpoint:*", &"k".repeat(bytes));
        assert!(Config::parse(&pattern(MAX_ALERT_PATTERN_BYTES)).is_ok());
        check(
            &pattern(MAX_ALERT_PATTERN_BYTES + 1),
            "match has 513 bytes: the pattern of an alert has at most 512",
        );
        let url =
            |bytes: usize| alert(&format!("above = 1\nwebhook = \"http://a/{}\"", "u".repeat(bytes - 9)));
        assert!(Config::parse(&url(MAX_ALERT_URL_BYTES)).is_ok());
        check(&url(MAX_ALERT_URL_BYTES + 1), "webhook has 2049 bytes: it has at most 2048");
        let many = |count: usize| (0..count).map(|index| named(&format!("a{index}"))).collect::<String>();
        assert!(Config::parse(&many(MAX_ALERTS)).is_ok());
        check(&many(MAX_ALERTS + 1), "too many alerts: a config has at most 64");
        check("[alert]\nname = \"a\"", "write [[alert]], with two brackets: there may be several");
    }
}
