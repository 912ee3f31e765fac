//! The log formats, and telling them apart by a line.

use std::str::FromStr;

use regex::bytes::{Regex, RegexBuilder};

use crate::error::SetupError;

/// How the lines of a log are laid out.
#[derive(Clone, Debug)]
pub enum Format {
    /// The common format and, in quotes, referer and agent. Lines without these two, or with the
    /// last one cut off, are taken as well; what follows them is not looked at.
    Combined,
    /// `ip ident user [17/May/2015:10:05:03 +0000] "GET /path HTTP/1.1" status bytes`, as Apache and
    /// nginx write it. What follows is not looked at.
    Common,
    /// A JSON object per line.
    Json,
    /// A regular expression with named groups, one of them the time. It may match anywhere in the
    /// line. Lines are bytes: `.` is any byte and classes are ASCII, unless the expression says `(?u)`.
    Regex(Regex),
}

impl Format {
    /// The format of a log whose first line with something in it is `line`: JSON when it starts with
    /// `{`, else combined, which takes common lines too.
    #[must_use]
    pub fn detect(line: &[u8]) -> Format {
        if line.trim_ascii_start().first() == Some(&b'{') { Format::Json } else { Format::Combined }
    }

    /// `combined`, `common`, `json` or `regex`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Format::Combined => "combined",
            Format::Common => "common",
            Format::Json => "json",
            Format::Regex(_) => "regex",
        }
    }
}

impl FromStr for Format {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Format, SetupError> {
        match text {
            "combined" => Ok(Format::Combined),
            "common" => Ok(Format::Common),
            "json" => Ok(Format::Json),
            _ => match text.strip_prefix("regex:") {
                Some(pattern) => RegexBuilder::new(pattern)
                    .unicode(false)
                    .build()
                    .map(Format::Regex)
                    .map_err(|error| SetupError::Pattern { cause: cause(&error) }),
                None => Err(SetupError::Format { text: text.into() }),
            },
        }
    }
}

/// What is wrong, without the drawing of where, which takes several lines.
fn cause(error: &regex::Error) -> String {
    let text = error.to_string();
    text.rsplit_once("error: ").map_or(text.as_str(), |(_, cause)| cause).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_parse() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(text.parse::<Format>().ok().as_ref().map(Format::name), expected, "{text}");
        };
        check("combined", Some("combined"));
        check("common", Some("common"));
        check("json", Some("json"));
        check("regex:^(?<ip>.*) (?P<time>.*)$", Some("regex"));
        check("regex:(", None);
        check("regex", None);
        check("Combined", None);
        check("", None);
    }

    #[test]
    fn the_first_line_tells() {
        assert_eq!(Format::detect(b" {\"ip\":1}").name(), "json");
        assert_eq!(Format::detect(b"1.2.3.4 - - [").name(), "combined");
        assert_eq!(Format::detect(b"").name(), "combined");
    }
}
