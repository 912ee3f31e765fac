//! The parameters of a request: the key in its path, and its query.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use axum::http::Uri;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lately::limits::{MAX_KEY_BYTES, MAX_TOTAL};
use lately::{HitError, Span, Timestamp};
use lately_resp::parse_integer;
use memchr::memchr;
use percent_encoding::percent_decode_str;

use super::problem::Problem;

/// The slashes in a path such as `/v1/hits/`.
const KEY_SLASHES: usize = 3;

/// The parameter with the key of a path that ends before it, in Base64. Browsers cannot have the keys `.` and `..` in a path.
const KEY: &str = "key_b64";

/// The key at the end of a path. A slash in it need not be encoded.
pub(super) fn key_of<'u>(uri: &'u Uri, path: &str) -> Result<Cow<'u, [u8]>, Problem> {
    let text = uri.path().strip_prefix(path).unwrap_or_default();
    if text.is_empty()
        && let Some(encoded) = key_in_query(uri).next()
    {
        let encoded = encoded?;
        let wrong =
            || format!("invalid {KEY} '{}': it is not Base64", shown(&String::from_utf8_lossy(&encoded)));
        let key = STANDARD.decode(&encoded).map_err(|_| Problem::bad(wrong()))?;
        return checked(key.into());
    }
    let key = unescaped(text).map_err(|wrong| Problem::bad(format!("invalid key: {wrong}")))?;
    checked(key)
}

/// The values of the parameter with the key. Only a path that ends before the key has it.
fn key_in_query(uri: &Uri) -> impl Iterator<Item = Result<Cow<'_, [u8]>, Problem>> {
    let is_before_key = uri.path().ends_with('/') && uri.path().matches('/').count() == KEY_SLASHES;
    let query = uri.query().filter(|_| is_before_key).unwrap_or_default();
    let values = query.split('&').filter_map(|pair| pair.strip_prefix(KEY)?.strip_prefix('='));
    // Base64 has pluses, which stay.
    values.map(|value| unescaped(value).map_err(|wrong| Problem::bad(format!("invalid {KEY}: {wrong}"))))
}

/// A key, if it has a valid length.
pub(super) fn checked(key: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, Problem> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(Problem::of_hit(&HitError::KeyLength { bytes: key.len() }));
    }
    Ok(key)
}

/// The bytes of a percent-encoded text. An error names what is none.
fn unescaped(text: &str) -> Result<Cow<'_, [u8]>, String> {
    if memchr(b'%', text.as_bytes()).is_none() {
        return Ok(text.as_bytes().into());
    }
    let is_escape = |at: usize| {
        text.as_bytes().get(at + 1..at + 3).is_some_and(|it| it.iter().all(u8::is_ascii_hexdigit))
    };
    match text.match_indices('%').find(|&(at, _)| !is_escape(at)) {
        None => Ok(percent_decode_str(text).into()),
        Some((at, _)) => {
            let wrong = text.get(at..).unwrap_or_default().chars().take(3).collect::<String>();
            Err(format!("'{}' is no percent-encoded byte, %25 is a percent sign", shown(&wrong)))
        }
    }
}

/// The name of a parameter, and its value.
type Parameter<'u> = (Cow<'u, [u8]>, Cow<'u, [u8]>);

/// The parameters of a query that were not taken yet.
pub(super) struct Query<'u> {
    /// The parameters that there are, for an error.
    known: &'static str,
    left: Vec<Parameter<'u>>,
}

/// Decodes a name or a value of a query.
fn decoded(text: &str) -> Result<Cow<'_, [u8]>, Problem> {
    let bytes = match memchr(b'+', text.as_bytes()) {
        Some(_) => unescaped(&text.replace('+', " ")).map(|bytes| Cow::Owned(bytes.into_owned())),
        None => unescaped(text),
    };
    bytes.map_err(|wrong| Problem::bad(format!("invalid query: {wrong}")))
}

impl<'u> Query<'u> {
    /// The parameters of a request to a path that knows these.
    ///
    /// # Errors
    /// They are not percent-encoded, or a name is not UTF-8.
    pub(super) fn of(uri: &'u Uri, known: &'static str) -> Result<Query<'u>, Problem> {
        let query = uri.query().unwrap_or_default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decoded(name)?;
            if std::str::from_utf8(&name).is_err() {
                return Err(Problem::bad("invalid query: the name of a parameter is not UTF-8".to_owned()));
            }
            Ok((name, decoded(value)?))
        });
        let mut query = Query { known, left: pairs.collect::<Result<_, Problem>>()? };
        if key_in_query(uri).next().is_some() {
            query.bytes(KEY)?;
        }
        Ok(query)
    }

    /// The value of a parameter, if it is given.
    ///
    /// # Errors
    /// It is given twice.
    pub(super) fn bytes(&mut self, name: &str) -> Result<Option<Cow<'u, [u8]>>, Problem> {
        let is_it = |(other, _): &Parameter<'u>| **other == *name.as_bytes();
        let Some(at) = self.left.iter().position(is_it) else { return Ok(None) };
        let (_, value) = self.left.remove(at);
        match self.left.iter().any(is_it) {
            false => Ok(Some(value)),
            true => Err(Problem::bad(format!("{name} is given twice"))),
        }
    }

    /// The value of a parameter, read by `read`, which gets its name and text.
    pub(super) fn one<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str, &str) -> Result<T, Problem>,
    ) -> Result<Option<T>, Problem> {
        let value = self.bytes(name)?;
        value.map(|value| read(name, text(name, &value)?)).transpose()
    }

    /// All values of a parameter that may be given several times.
    pub(super) fn all<T>(
        &mut self,
        name: &str,
        most: usize,
        read: impl Fn(&str, &str) -> Result<T, Problem>,
    ) -> Result<Vec<T>, Problem> {
        let values: Vec<_> = self.left.extract_if(.., |(other, _)| **other == *name.as_bytes()).collect();
        if values.len() > most {
            return Err(Problem::bad(format!("{name}: at most {most} in a request")));
        }
        values.iter().map(|(_, value)| read(name, text(name, value)?)).collect()
    }

    pub(super) fn time(&mut self, name: &str) -> Result<Option<Timestamp>, Problem> {
        self.one(name, parsed)
    }

    pub(super) fn span(&mut self, name: &str) -> Result<Option<Span>, Problem> {
        self.one(name, parsed)
    }

    /// A number of hits.
    pub(super) fn count(&mut self, name: &str) -> Result<Option<u64>, Problem> {
        self.one(name, |name, text| {
            let count = parse_integer(text.as_bytes()).and_then(|count| u64::try_from(count).ok());
            count.ok_or_else(|| {
                let text = shown(text);
                Problem::bad(format!(
                    "invalid {name} '{text}': {name} is a whole number from 0 to {MAX_TOTAL}"
                ))
            })
        })
    }

    /// A number of hits, or below 0 of hits to give back.
    pub(super) fn signed_count(&mut self, name: &str) -> Result<Option<i64>, Problem> {
        self.one(name, |name, text| {
            let count = parse_integer(text.as_bytes()).filter(|count| *count > i64::MIN);
            count.ok_or_else(|| {
                let text = shown(text);
                Problem::bad(format!(
                    "invalid {name} '{text}': {name} is a whole number from 0 to {MAX_TOTAL}, or below 0 to give hits back"
                ))
            })
        })
    }

    /// True or false; false if it is not given.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Problem> {
        Ok(self.switch(name)?.unwrap_or_default())
    }

    /// True or false.
    pub(super) fn switch(&mut self, name: &str) -> Result<Option<bool>, Problem> {
        self.one(name, |name, text| {
            text.parse()
                .map_err(|_| Problem::bad(format!("invalid {name} '{}': give true or false", shown(text))))
        })
    }

    /// Refuses parameters that nobody took.
    pub(super) fn end(self) -> Result<(), Problem> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => Err(Problem::bad(format!(
                "unknown parameter '{}': this path takes {}",
                shown(&String::from_utf8_lossy(name)),
                self.known
            ))),
        }
    }
}

/// The error about a parameter that is missing.
pub(super) fn missing(what: &str) -> Problem {
    Problem::bad(format!("{what} is missing"))
}

/// Parses a value. The error names the parameter.
pub(super) fn parsed<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error| Problem::bad(format!("{name}: {error}")))
}

fn text<'v>(name: &str, value: &'v [u8]) -> Result<&'v str, Problem> {
    std::str::from_utf8(value).map_err(|_| Problem::bad(format!("{name} is not UTF-8")))
}

/// Text of a client, as errors show it.
pub(super) fn shown(text: &str) -> String {
    let most = lately_resp::limits::MAX_ECHOED_BYTES;
    text.chars().take(most).map(|it| if it.is_control() { '\u{fffd}' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Browsers read `.` and `..` in a path as steps, however they are encoded.
    #[test]
    fn a_key_may_be_in_the_query() {
        let check = |target: &'static str, expected: Option<&[u8]>| {
            let uri = Uri::from_static(target);
            let key = key_of(&uri, "/v1/hits/").and_then(|key| Query::of(&uri, "none")?.end().map(|()| key));
            assert_eq!(key.ok().as_deref(), expected, "{target}");
        };
        check("/v1/hits/?key_b64=Lg==", Some(b"."));
        check("/v1/hits/?key_b64=Li4%3D", Some(b".."));
        check("/v1/hits/?key_b64=%2B%2f%2F%2f", Some(&[0xfb, 0xff, 0xff]));
        check("/v1/hits/?key_b64=+///", Some(&[0xfb, 0xff, 0xff]));
        check("/v1/hits/?key_b64=", None);
        check("/v1/hits/?key_b64=x", None);
        check("/v1/hits/?key_b64=Lg==&key_b64=Lg==", None);
        check("/v1/hits/", None);
        // The path has a key.
        check("/v1/hits/a?key_b64=Lg==", None);
        check("/v1/hits/a/?key_b64=Lg==", None);
    }

    #[test]
    fn numbers_are_those_of_the_commands() {
        let check = |text: &str, expected: [Option<i64>; 2]| {
            let uri: Uri = format!("/?n={text}").parse().expect("a target");
            let query = || Query::of(&uri, "n").ok().expect("a query");
            let count = query().count("n").ok().flatten().map(|count| i64::try_from(count).expect("it fits"));
            assert_eq!([count, query().signed_count("n").ok().flatten()], expected, "{text}");
        };
        check("0", [Some(0); 2]);
        check("9223372036854775807", [Some(i64::MAX); 2]);
        check("-9223372036854775807", [None, Some(-i64::MAX)]);
        for bad in ["", "%2b5", "+5", "05", "-0", "5.0", "9223372036854775808", "-9223372036854775808"] {
            check(bad, [None; 2]);
        }
    }
}
