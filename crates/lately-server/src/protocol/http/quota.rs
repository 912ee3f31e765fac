//! The headers that tell a client what is left of a limit, and when to come again.

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use lately::{Retry, Span};
use lately_keys::quota::{QuotaItem, count_in_header, whole_seconds};

use crate::config::RateLimitHeaders;
use crate::service::Decided;

/// The name of a limit that has none in the config.
const UNNAMED: &str = "default";

/// The usual length of a header.
const ITEM_BYTES: usize = 64;

/// A limit as clients see it.
pub(super) struct Quota<'d> {
    name: Option<&'d str>,
    decided: &'d Decided,
}

impl Quota<'_> {
    pub(super) fn new<'d>(name: Option<&'d str>, decided: &'d Decided) -> Quota<'d> {
        Quota { name, decided }
    }

    /// The name in headers and answers.
    pub(super) fn name(&self) -> &str {
        self.name.unwrap_or(UNNAMED)
    }

    /// Adds the headers of this style, and `Retry-After` to a denial.
    pub(super) fn add_to(&self, headers: &mut HeaderMap, style: RateLimitHeaders) {
        let Decided { decision, window, more_after } = self.decided;
        let [max, remaining] = [decision.max, decision.left()].map(count_in_header);
        let name = self.name();
        let window_ms = window.as_millis();
        // `Retry-After` is never earlier than the other headers: both have the same time.
        let retry_ms = match decision.retry {
            Retry::After(wait) => Some(wait.as_millis()),
            Retry::Now | Retry::Never => None,
        };
        let more_after_ms = retry_ms.or(more_after.map(Span::as_millis));
        let more_s = more_after_ms.map_or(0, whole_seconds);
        let w = || if window_ms % 1_000 == 0 { format!(";w={}", window_ms / 1_000) } else { String::new() };
        let mut add = |header: &'static str, value: &str| {
            let value = HeaderValue::from_str(value).expect("names of limits and digits are text");
            headers.insert(HeaderName::from_static(header), value);
        };
        match style {
            RateLimitHeaders::Current => {
                let item = QuotaItem { name, max, window_ms, remaining, more_after_ms };
                let mut field = String::with_capacity(ITEM_BYTES);
                item.add_policy(&mut field);
                add("ratelimit-policy", &field);
                field.clear();
                item.add_remaining(&mut field);
                add("ratelimit", &field);
            }
            RateLimitHeaders::Draft06 => {
                add("ratelimit-limit", &max.to_string());
                add("ratelimit-policy", &format!("{max}{}", w()));
                add("ratelimit-remaining", &remaining.to_string());
                add("ratelimit-reset", &more_s.to_string());
            }
            RateLimitHeaders::XDraft03 => {
                let named = self.name.map_or(String::new(), |name| format!(";name=\"{name}\""));
                add("x-ratelimit-limit", &format!("{max}, {max}{}{named}", w()));
                add("x-ratelimit-remaining", &remaining.to_string());
                add("x-ratelimit-reset", &more_s.to_string());
            }
            RateLimitHeaders::Off => {}
        }
        if let Some(retry_ms) = retry_ms {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(retry_ms)));
        }
    }
}

#[cfg(test)]
mod tests {
    use lately::{Decision, milliseconds, seconds};

    use super::*;

    fn headers(style: RateLimitHeaders, name: Option<&str>, decided: &Decided) -> Vec<String> {
        let mut headers = HeaderMap::new();
        Quota::new(name, decided).add_to(&mut headers, style);
        let text = |value: &HeaderValue| value.to_str().expect("text").to_owned();
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", text(value))).collect();
        lines.sort();
        lines
    }

    fn decided(remaining: i64, retry: Retry, window: Span, more_after: Option<Span>) -> Decided {
        let decision = Decision { max: 5, remaining, retry, reset_after: Some(seconds(60)) };
        Decided { decision, window, more_after }
    }

    #[test]
    fn each_style_has_its_headers() {
        let some_left = decided(3, Retry::Now, seconds(60), Some(milliseconds(12_001)));
        let none_left = decided(0, Retry::After(milliseconds(1)), seconds(60), Some(milliseconds(1)));
        let check = |style, decided, name, expected: &[&str]| {
            assert_eq!(headers(style, name, decided), expected, "{style}");
        };
        check(
            RateLimitHeaders::Current,
            &some_left,
            Some("login"),
            &["ratelimit-policy: \"login\";q=5;w=60", "ratelimit: \"login\";r=3;t=13"],
        );
        check(
            RateLimitHeaders::Current,
            &none_left,
            None,
            &["ratelimit-policy: \"default\";q=5;w=60", "ratelimit: \"default\";r=0;t=1", "retry-after: 1"],
        );
        check(
            RateLimitHeaders::Draft06,
            &some_left,
            Some("login"),
            &[
                "ratelimit-limit: 5",
                "ratelimit-policy: 5;w=60",
                "ratelimit-remaining: 3",
                "ratelimit-reset: 13",
            ],
        );
        check(
            RateLimitHeaders::XDraft03,
            &none_left,
            Some("login"),
            &[
                "retry-after: 1",
                "x-ratelimit-limit: 5, 5;w=60;name=\"login\"",
                "x-ratelimit-remaining: 0",
                "x-ratelimit-reset: 1",
            ],
        );
        check(RateLimitHeaders::Off, &some_left, None, &[]);
        check(RateLimitHeaders::Off, &none_left, None, &["retry-after: 1"]);
    }

    #[test]
    fn values_that_the_headers_cannot_have_are_left_out() {
        let check = |decided: &Decided, expected: &[&str]| {
            assert_eq!(headers(RateLimitHeaders::Current, None, decided), expected);
        };
        // The window is no whole number of seconds, and nothing was counted.
        check(
            &decided(5, Retry::Now, milliseconds(1_500), None),
            &["ratelimit-policy: \"default\";q=5", "ratelimit: \"default\";r=5"],
        );
        // It costs more than the limit allows at once.
        check(
            &decided(5, Retry::Never, seconds(1), None),
            &["ratelimit-policy: \"default\";q=5;w=1", "ratelimit: \"default\";r=5"],
        );
        let decision = Decision { max: u64::MAX, remaining: i64::MAX, retry: Retry::Now, reset_after: None };
        check(
            &Decided { decision, window: seconds(1), more_after: None },
            &[
                "ratelimit-policy: \"default\";q=999999999999999;w=1",
                "ratelimit: \"default\";r=999999999999999",
            ],
        );
    }
}
