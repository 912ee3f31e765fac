//! Values for which TOML has no type: addresses, durations, sizes.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::num::{IntErrorKind, NonZeroUsize, ParseIntError};
use std::str::FromStr;
use std::time::Duration;

use crate::limits::{MAX_CEILING_BYTES, MAX_EXEMPT, MIN_CEILING_BYTES};
use lately::limits::MAX_TOTAL;
use lately::{Factor, Span};
use lately_keys::Exempt;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// `host:port` with an IP address.
pub(super) struct Address(pub(super) SocketAddr);

/// A duration such as `5m`, at least a millisecond.
#[derive(Clone, Copy)]
pub(super) struct Length(pub(super) Span);

/// A duration such as `5m`, or 0, which is none.
#[derive(Clone, Copy)]
pub(super) struct Delay(pub(super) Option<Span>);

/// A timeout; 0 is never.
pub(super) struct Timeout(pub(super) Option<Duration>);

/// A number of clients, 1 or more.
pub(super) struct Clients(pub(super) NonZeroUsize);

/// The leading bits of an address that count, up to `MOST`.
pub(super) struct Bits<const MOST: u8>(pub(super) u8);

/// The most hits a limit allows; 0 denies all.
pub(super) struct Most(pub(super) u64);

/// A value as the file writes it. Of a table or a date, its type.
pub(super) fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => format!("\"{text}\""),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => format!("{number:?}"),
        toml::Value::Boolean(value) => value.to_string(),
        other => format!("({})", other.type_str()),
    }
}

/// Reads a list of at most `most` texts. `name` is that of the key, and `of` what has it.
pub(super) fn list<'de, T: FromStr<Err: fmt::Display>, D: Deserializer<'de>>(
    deserializer: D,
    (name, of): (&str, &str),
    most: usize,
) -> Result<Vec<T>, D::Error> {
    let values = match toml::Value::deserialize(deserializer)? {
        toml::Value::Array(values) => values,
        other => return Err(de::Error::custom(format!("{name} is a list: write [{}]", shown(&other)))),
    };
    if values.len() > most {
        return Err(de::Error::custom(format!("too many {name}: a {of} has at most {most}")));
    }
    let value = |value: toml::Value| {
        let text: String = value.try_into().map_err(de::Error::custom)?;
        text.parse().map_err(de::Error::custom)
    };
    values.into_iter().map(value).collect()
}

/// A precision, from 0.0001 to 1.
pub(super) struct Precision(pub(super) f64);

/// What a precision has to be.
pub(super) const PRECISION: &str = "give a number without quotes, 0.0001 to 1, such as 0.01";

impl<'de> Deserialize<'de> for Precision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Precision, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        match value {
            toml::Value::Float(number) => Ok(Precision(number)),
            // Only 1 is in range; the check of the settings refuses any other integer.
            toml::Value::Integer(number) => {
                Ok(Precision(f64::from(i32::try_from(number).unwrap_or(i32::MAX))))
            }
            other => Err(de::Error::custom(format!("invalid precision {}: {PRECISION}", shown(&other)))),
        }
    }
}

/// The factor of lockouts.
pub(super) struct LockoutFactor(pub(super) Factor);

impl<'de> Deserialize<'de> for LockoutFactor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LockoutFactor, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        let number = match value {
            toml::Value::Float(number) => Some(number),
            toml::Value::Integer(number) => i32::try_from(number).ok().map(f64::from),
            _ => None,
        };
        number.and_then(Factor::new).map(LockoutFactor).ok_or_else(|| {
            de::Error::custom(format!(
                "invalid lockout_factor {}: give a number without quotes, from 1 on, such as 2 or 1.5",
                shown(&value)
            ))
        })
    }
}

/// The keys that are exempt from a limit.
#[derive(Default)]
pub(super) struct Exemptions(pub(super) Vec<Exempt>);

impl<'de> Deserialize<'de> for Exemptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Exemptions, D::Error> {
        list(deserializer, ("exempt", "limit"), MAX_EXEMPT).map(Exemptions)
    }
}

/// The pattern of a class or an alert.
pub(super) struct Match(pub(super) String);

impl<'de> Deserialize<'de> for Match {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Match, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(pattern) if pattern.is_empty() => {
                Err(de::Error::custom("match is empty, and so is no key: * matches all keys"))
            }
            toml::Value::String(pattern) => Ok(Match(pattern)),
            toml::Value::Array(_) => {
                Err(de::Error::custom("match is one pattern: write a table of its own for each"))
            }
            other => Err(de::Error::custom(format!(
                "invalid match {}: give a pattern in quotes, such as \"ad:*\"",
                shown(&other)
            ))),
        }
    }
}

/// A number of bytes.
pub(super) struct Bytes(pub(super) u64);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        parse_address(text).map(Address)
    }
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Length, String> {
        text.parse().map(Length).map_err(|error: lately::TimeError| error.to_string())
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Delay, String> {
        if text == "0" {
            return Ok(Delay(None));
        }
        let Length(span) = text.parse().map_err(|error| format!("{error}, or 0 for none"))?;
        Ok(Delay(Some(span)))
    }
}

impl FromStr for Timeout {
    type Err = String;

    fn from_str(text: &str) -> Result<Timeout, String> {
        if text == "0" {
            return Ok(Timeout(None));
        }
        let Length(span) = text.parse().map_err(|error| format!("{error}, or 0 for never"))?;
        Ok(Timeout(Some(Duration::from_millis(span.as_millis().unsigned_abs()))))
    }
}

impl FromStr for Clients {
    type Err = String;

    fn from_str(text: &str) -> Result<Clients, String> {
        let parsed: Result<_, ParseIntError> = text.parse();
        parsed.map(Clients).map_err(|error| {
            let right = match error.kind() {
                IntErrorKind::PosOverflow => "no machine has so much memory",
                _ => "give a whole number, 1 or more",
            };
            format!("invalid number of clients '{text}': {right}")
        })
    }
}

impl FromStr for Most {
    type Err = String;

    fn from_str(text: &str) -> Result<Most, String> {
        let most = text.parse().ok().filter(|&most: &u64| most <= MAX_TOTAL);
        most.map(Most)
            .ok_or_else(|| format!("invalid max '{text}': give a whole number from 0 to {MAX_TOTAL}"))
    }
}

impl<const MOST: u8> FromStr for Bits<MOST> {
    type Err = String;

    fn from_str(text: &str) -> Result<Bits<MOST>, String> {
        let bits = text.parse().ok().filter(|&bits: &u8| bits <= MOST);
        bits.map(Bits).ok_or_else(|| {
            format!("invalid length of a prefix '{text}': give a whole number from 0 to {MOST}")
        })
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        const UNITS: [(&str, u64); 10] = [
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("TiB", 1 << 40),
            ("KB", 1_000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
            ("TB", 1_000_000_000_000),
            ("B", 1),
            ("", 1),
        ];
        let (suffix, unit) = UNITS.into_iter().find(|(suffix, _)| text.ends_with(suffix)).unwrap_or(("", 1));
        let number = text[..text.len() - suffix.len()].trim_end();
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        let range = MIN_CEILING_BYTES..=MAX_CEILING_BYTES;
        bytes.filter(|bytes| range.contains(bytes)).map(Bytes).ok_or_else(|| {
            let (least, most) = (MIN_CEILING_BYTES >> 20, MAX_CEILING_BYTES >> 40);
            format!(
                "invalid size '{text}': give a whole number with KiB, MiB, GiB or TiB, such as 512MiB, from {least}MiB to {most}TiB"
            )
        })
    }
}

/// Parses an IP address and a port. `localhost` is 127.0.0.1; other names are not resolved.
///
/// # Errors
/// How to correct it.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    const HOST: &str = "localhost";
    let is_address = |host: &str| host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    // `u16` alone would accept a plus sign.
    let port_of = |text: &str| text.parse::<u16>().ok().filter(|_| !text.starts_with('+'));
    let is_port = |text| port_of(text).is_some();
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let is_local = host.eq_ignore_ascii_case(HOST);
    if is_local && let Some(port) = port_of(port) {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| {
        let right = match text.parse::<IpAddr>() {
            // The last group looks like a port.
            Ok(IpAddr::V6(_)) if is_address(host) && port_of(port).is_some_and(|port| port >= 1_000) => {
                format!("an address of version 6 is in brackets: [{host}]:{port}")
            }
            Ok(IpAddr::V6(_)) => format!("an address of version 6 is in brackets, and has a port: [{text}]:7379"),
            Ok(IpAddr::V4(_)) => format!("give a port, too: {text}:PORT"),
            Err(_) if text.eq_ignore_ascii_case(HOST) => format!("give a port, too: {text}:PORT"),
            Err(_) if is_port(text) || (host.is_empty() && is_port(port)) => {
                format!("give an IP address, too, such as 127.0.0.1:{}", text.trim_start_matches(':'))
            }
            Err(_) if is_local || is_address(host) => "a port is a number from 0 to 65535".to_owned(),
            Err(_) => {
                "give an IP address and a port, such as 127.0.0.1:7379 or [::1]:7379; names other than localhost are not looked up"
                    .to_owned()
            }
        };
        format!("invalid address '{text}': {right}")
    })
}

/// Accepts a string, or an integer as its digits.
struct TextVisitor<T>(PhantomData<T>);

impl<'de, T: FromStr<Err = String>> Visitor<'de> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a whole number")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i128<E: de::Error>(self, number: i128) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    /// No value has a fraction: the error of each says what it accepts.
    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&format!("{number:?}"))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_u128<E: de::Error>(self, number: u128) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<T, A::Error> {
        self.visit_str("[…]")
    }

    /// A table, or a date of TOML, which comes as a table with its text.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        match map.next_entry::<String, String>() {
            Ok(Some((name, text))) if name.starts_with('$') => self.visit_str(&text),
            _ => self.visit_str("{…}"),
        }
    }
}

macro_rules! deserialize_from_text {
    ($($value:ty),*) => {$(
        impl<'de> Deserialize<'de> for $value {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$value, D::Error> {
                deserializer.deserialize_any(TextVisitor(PhantomData))
            }
        }
    )*};
}

deserialize_from_text!(Address, Length, Delay, Timeout, Clients, Most, Bytes, Bits<32>, Bits<128>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parse_address(text).map(|address| address.to_string()).as_deref(), Ok(expected));
        };
        check("127.0.0.1:7379", "127.0.0.1:7379");
        check("[::1]:0", "[::1]:0");
        check("localhost:7379", "127.0.0.1:7379");
        check("LocalHost:0", "127.0.0.1:0");
        let check = |text: &str, right: &str| {
            let error = parse_address(text).expect_err(text);
            assert!(error.starts_with(&format!("invalid address '{text}': {right}")), "{error}");
        };
        check("localhost", "give a port, too: localhost:PORT");
        check("10.0.0.1", "give a port, too: 10.0.0.1:PORT");
        check("::1", "an address of version 6 is in brackets, and has a port: [::1]:7379");
        check("::1:7379", "an address of version 6 is in brackets: [::1]:7379");
        check("6379", "give an IP address, too, such as 127.0.0.1:6379");
        check(":6379", "give an IP address, too, such as 127.0.0.1:6379");
        check("127.0.0.1:65536", "a port is a number from 0 to 65535");
        check("localhost:+1", "a port is a number from 0 to 65535");
        check("localhost:x", "a port is a number from 0 to 65535");
        check("[::1]:-1", "a port is a number from 0 to 65535");
        for text in ["", "example.org:80", "70000", "a b", "redis://127.0.0.1:7379", "[::1]"] {
            check(text, "give an IP address and a port");
        }
    }
}
