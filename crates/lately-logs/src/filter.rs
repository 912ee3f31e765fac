//! Conditions on the fields of a line: `status=5xx`, `path~^/api/`.

use std::fmt;
use std::str::FromStr;

use regex::bytes::Regex;

use crate::error::SetupError;
use crate::format::{cause, expression};
use lately_keys::address::{Network, canonical, is_address};

/// A condition on one field. A line without the field meets only conditions with a `!`.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The text as given.
    text: String,
    field: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Is(Vec<u8>),
    IsNot(Vec<u8>),
    /// The value is in a network: `ip=10.0.0.0/8`.
    In(Network),
    NotIn(Network),
    Matches(Regex),
    MatchesNot(Regex),
    AtLeast(f64),
    Below(f64),
}

/// If one operator is the start of another, the longer one comes first.
const OPERATORS: [&str; 6] = ["!=", "!~", ">=", "=", "~", "<"];

impl Filter {
    /// The name of the field.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Whether it uses a regular expression.
    #[must_use]
    pub fn is_expression(&self) -> bool {
        matches!(self.test, Test::Matches(_) | Test::MatchesNot(_))
    }

    pub(crate) fn holds(&self, value: Option<&[u8]>) -> bool {
        let Some(value) = value else {
            return matches!(self.test, Test::IsNot(_) | Test::NotIn(_) | Test::MatchesNot(_));
        };
        let number = || std::str::from_utf8(value).ok().and_then(|value| value.trim().parse::<f64>().ok());
        match &self.test {
            Test::Is(expected) => is(value, expected),
            Test::IsNot(expected) => !is(value, expected),
            Test::In(network) => network.contains(value),
            Test::NotIn(network) => !network.contains(value),
            Test::Matches(regex) => regex.is_match(value),
            Test::MatchesNot(regex) => !regex.is_match(value),
            Test::AtLeast(least) => number().is_some_and(|number| number >= *least),
            Test::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// The text of the condition.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether a value equals the expected one, or is of its class: 503 is `5xx`.
fn is(value: &[u8], expected: &[u8]) -> bool {
    match (value, expected) {
        ([class, b'0'..=b'9', b'0'..=b'9'], [expected, b'x' | b'X', b'x' | b'X']) => class == expected,
        _ => value == expected,
    }
}

/// Whether a field has the status of a response, judging by its name: `status`, `sc-status`, `response_code`,
/// `res.statusCode`.
fn is_status(field: &str) -> bool {
    let field = field.to_ascii_lowercase();
    ["status", "status_code", "statuscode", "response_code"].iter().any(|name| field.ends_with(name))
}

/// Whether a value looks like a class of status but is none: digits and an x, but not `1xx` to `5xx`.
fn is_bad_class(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    let is_meant = value.contains('x')
        && value.contains(|digit: char| digit.is_ascii_digit())
        && value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'x');
    is_meant && !matches!(value.as_bytes(), [b'1'..=b'5', b'x', b'x'])
}

impl FromStr for Filter {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Filter, SetupError> {
        let error = |cause: String| SetupError::Filter { text: text.into(), cause };
        let none = || error("it has no operator".into());
        let at = text.find(['!', '=', '~', '>', '<']).ok_or_else(none)?;
        let (field, rest) = text.split_at(at);
        let operator = OPERATORS.into_iter().find(|operator| rest.starts_with(operator)).ok_or_else(none)?;
        let value = &rest[operator.len()..];
        if matches!(operator, "=" | "!=" | "<") && value.starts_with('=') {
            return Err(error(format!("'{operator}=' is no operator")));
        }
        let network = || match value.split_once('/') {
            Some((address, bits)) if is_address(address.as_bytes()) => match value.parse::<Network>() {
                Ok(network) => Ok(Some(network)),
                // Any other text after an address may be a path.
                Err(_) if !bits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(None),
                Err(_) => Err(error(format!(
                    "'{value}' is no network: IPv4 has at most 32 bits and IPv6 128, as in 10.0.0.0/8"
                ))),
            },
            _ => Ok(None),
        };
        if matches!(operator, "=" | "!=") && is_status(field) && is_bad_class(value) {
            return Err(error(format!(
                "'{value}' is no class of status: give one from 1xx to 5xx, or a number such as 404"
            )));
        }
        let expected = || canonical(value.as_bytes()).into_owned();
        if field.is_empty() {
            return Err(error("it has no field".into()));
        }
        let regex = || expression(value).map_err(|problem| error(cause(&problem)));
        let number = || {
            let number = value.parse().ok().filter(|number: &f64| number.is_finite());
            number.ok_or_else(|| error(format!("'{value}' is no number")))
        };
        let test = match operator {
            "!=" => network()?.map_or_else(|| Test::IsNot(expected()), Test::NotIn),
            "!~" => Test::MatchesNot(regex()?),
            ">=" => Test::AtLeast(number()?),
            "~" => Test::Matches(regex()?),
            "<" => Test::Below(number()?),
            _ => network()?.map_or_else(|| Test::Is(expected()), Test::In),
        };
        Ok(Filter { text: text.into(), field: field.into(), test })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_hold_or_do_not() {
        let check = |filter: &str, value: Option<&str>, expected: bool| {
            let parsed: Filter = filter.parse().expect(filter);
            assert_eq!(parsed.holds(value.map(str::as_bytes)), expected, "{filter} {value:?}");
            assert_eq!(parsed.to_string(), filter);
            assert_eq!(parsed.is_expression(), filter.contains('~'), "{filter}");
        };
        check("status=503", Some("503"), true);
        check("status=5xx", Some("503"), true);
        check("status=5xx", Some("5xx"), true);
        check("status=5xx", Some("404"), false);
        check("status=5xx", Some("50"), false);
        check("status!=5xx", Some("503"), false);
        check("status!=5xx", None, true);
        check("status=5xx", None, false);
        check("path~^/api/", Some("/api/a"), true);
        check("path~^/api/", None, false);
        check("path!~^/api/", Some("/api/a"), false);
        check("path!~^/api/", None, true);
        check("bytes>=100", Some("100"), true);
        check("bytes>=100", Some("99.5"), false);
        check("bytes>=100", Some("-"), false);
        check("bytes<100", Some("99.5"), true);
        check("bytes<100", Some("100"), false);
        check("bytes<100", None, false);
        check("q=a=b", Some("a=b"), true);
        check("status=5XX", Some("503"), true);
        check("ip=203.0.113.0/24", Some("203.0.113.7"), true);
        check("ip=203.0.113.0/24", Some("::ffff:203.0.113.7"), true);
        check("ip=203.0.113.0/24", Some("203.0.114.7"), false);
        check("ip!=203.0.113.0/24", Some("203.0.113.7"), false);
        check("ip!=203.0.113.0/24", None, true);
        check("ip=2001:DB8::1", Some("2001:db8::1"), true);
        check("path=/api/24", Some("/api/24"), true);
        check("user=", Some(""), true);
        check("model=6xx", Some("6xx"), true);
        check("status=ok", Some("ok"), true);
        check("status=xx", Some("xx"), true);
        check("url=192.0.2.1/a", Some("192.0.2.1/a"), true);
    }

    #[test]
    fn invalid_conditions_are_refused() {
        for bad in [
            "",
            "status",
            "=5",
            "!5",
            "a!5",
            "a>5",
            "a>=x",
            "a<",
            "a<nan",
            "a~(",
            "~x",
            "status=6xx",
            "status!=0XX",
            "status=50x",
            "sc-status=5x",
            "res.statusCode=x99",
            "ip=10.0.0.0/40",
            "ip!=::1/129",
            "url=10.0.0.0/33",
        ] {
            assert!(matches!(bad.parse::<Filter>(), Err(SetupError::Filter { .. })), "{bad}");
        }
    }
}
