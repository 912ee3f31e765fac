//! What response headers tell a client about a limit, by draft-ietf-httpapi-ratelimit-headers. Only the texts: no crate of
//! HTTP is needed for them.

/// The type of a problem document (RFC 9457) about a request that a limit denied.
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The largest integer of a structured field (RFC 9651, 3.3.1).
const MOST: u64 = 999_999_999_999_999;

/// One limit in `RateLimit-Policy` and `RateLimit`. Larger counts than a structured field can have are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaItem<'n> {
    /// The name of the limit: letters, digits and other printable ASCII without `"` and `\`.
    pub name: &'n str,
    /// The most hits in any window.
    pub max: u64,
    /// Length of the window. `w` is in seconds and left out when the window is no whole number of them.
    pub window_ms: i64,
    /// Hits that are left.
    pub remaining: u64,
    /// The time until more are left. `t` is left out without it.
    pub more_after_ms: Option<i64>,
}

impl QuotaItem<'_> {
    /// Appends the item of `RateLimit-Policy`: `"login";q=5;w=60`.
    pub fn add_policy(&self, field: &mut String) {
        self.add_name(field);
        add(field, ";q=", self.max.min(MOST));
        if self.window_ms % 1_000 == 0 {
            add(field, ";w=", self.window_ms / 1_000);
        }
    }

    /// Appends the item of `RateLimit`: `"login";r=3;t=13`.
    pub fn add_remaining(&self, field: &mut String) {
        self.add_name(field);
        add(field, ";r=", self.remaining.min(MOST));
        if let Some(more_after_ms) = self.more_after_ms {
            add(field, ";t=", whole_seconds(more_after_ms));
        }
    }

    fn add_name(&self, field: &mut String) {
        field.extend(["\"", self.name, "\""]);
    }
}

fn add(field: &mut String, name: &str, number: impl itoa::Integer) {
    field.extend([name, itoa::Buffer::new().format(number)]);
}

/// A count of hits as a structured field can have it.
#[must_use]
pub fn count_in_header(count: u64) -> u64 {
    count.min(MOST)
}

/// The seconds of `Retry-After`: rounded up, and at least one, so that a client that waits so long is not too early.
#[must_use]
pub fn whole_seconds(ms: i64) -> i64 {
    ms.saturating_add(999).div_euclid(1_000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_written_as_items_of_structured_fields() {
        let check = |item: QuotaItem<'_>, policy: &str, remaining: &str| {
            let (mut policies, mut left) = (String::new(), String::new());
            item.add_policy(&mut policies);
            item.add_remaining(&mut left);
            assert_eq!((policies.as_str(), left.as_str()), (policy, remaining));
        };
        let item =
            QuotaItem { name: "login", max: 5, window_ms: 60_000, remaining: 3, more_after_ms: Some(12_001) };
        check(item, "\"login\";q=5;w=60", "\"login\";r=3;t=13");
        check(QuotaItem { more_after_ms: None, ..item }, "\"login\";q=5;w=60", "\"login\";r=3");
        check(QuotaItem { window_ms: 1_500, ..item }, "\"login\";q=5", "\"login\";r=3;t=13");
        check(
            QuotaItem { max: u64::MAX, remaining: MOST + 1, ..item },
            "\"login\";q=999999999999999;w=60",
            "\"login\";r=999999999999999;t=13",
        );
    }

    #[test]
    fn seconds_are_rounded_up() {
        let check = |ms, expected| assert_eq!(whole_seconds(ms), expected, "{ms} ms");
        check(0, 1);
        check(1, 1);
        check(1_000, 1);
        check(1_001, 2);
        check(i64::MAX, i64::MAX / 1_000);
    }
}
