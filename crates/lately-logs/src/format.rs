//! The log formats, by name.

use std::str::FromStr;

use regex::bytes::{Regex, RegexBuilder};

use crate::error::SetupError;
use crate::layout::{self, Layout};

/// The values of `--format`.
pub(crate) const FORMATS: &str = "auto, combined, common, vhost, json, logfmt, w3c, alb, syslog, haproxy, envoy, nginx:FORMAT, apache:FORMAT or regex:RE";

/// A log format.
#[derive(Clone, Debug)]
pub enum Format {
    /// The common format, and referer and agent in quotes. Lines without these two, or with the last one cut off,
    /// parse, too. The rest of the line is ignored.
    Combined,
    /// `ip ident user [17/May/2015:10:05:03 +0000] "GET /path HTTP/1.1" status bytes`, as Apache and nginx write it.
    /// The rest of the line is ignored.
    Common,
    /// The combined format after the virtual host, with or without its port.
    Vhost,
    /// A JSON object per line.
    Json,
    /// `key=value key="quoted value"` per line.
    Logfmt,
    /// The extended format of the W3C, whose `#Fields:` line names the fields: IIS, CloudFront.
    W3c,
    /// A layout by its name: `alb`, `haproxy`, `envoy`, `syslog`, `nginx`, `apache`.
    Layout(&'static str, Layout),
    /// A regular expression with named groups, one of them the time. It may match anywhere in the line. Lines are
    /// bytes: `.` is any byte and classes are ASCII, unless the expression says `(?u)`.
    Regex(Layout),
}

impl Format {
    /// The name, without the text after its colon.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Format::Combined => "combined",
            Format::Common => "common",
            Format::Vhost => "vhost",
            Format::Json => "json",
            Format::Logfmt => "logfmt",
            Format::W3c => "w3c",
            Format::Layout(name, _) => name,
            Format::Regex(_) => "regex",
        }
    }

    /// The formats to detect. If several fit equally many lines, the first wins.
    pub(crate) fn known() -> Vec<Format> {
        let mut known = vec![Format::Combined, Format::Vhost, Format::W3c];
        known.push(Format::Layout("alb", layout::alb()));
        known.push(Format::Layout("envoy", layout::envoy()));
        known.push(Format::Layout("haproxy", layout::haproxy()));
        known.extend([Format::Json, Format::Logfmt]);
        known.push(Format::Layout("syslog", layout::syslog()));
        known
    }
}

impl FromStr for Format {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Format, SetupError> {
        match text {
            "combined" => Ok(Format::Combined),
            "common" => Ok(Format::Common),
            "vhost" => Ok(Format::Vhost),
            "json" => Ok(Format::Json),
            "logfmt" => Ok(Format::Logfmt),
            "w3c" => Ok(Format::W3c),
            "alb" => Ok(Format::Layout("alb", layout::alb())),
            "syslog" => Ok(Format::Layout("syslog", layout::syslog())),
            "haproxy" => Ok(Format::Layout("haproxy", layout::haproxy())),
            "envoy" => Ok(Format::Layout("envoy", layout::envoy())),
            _ => match text.split_once(':') {
                Some(("nginx", format)) => {
                    layout::nginx(format).map(|layout| Format::Layout("nginx", layout))
                }
                Some(("apache", format)) => {
                    layout::apache(format).map(|layout| Format::Layout("apache", layout))
                }
                Some(("regex", pattern)) => expression(pattern)
                    .map(|regex| {
                        let names = regex.capture_names().enumerate();
                        let names =
                            names.filter_map(|(group, name)| Some((name?.to_owned(), group))).collect();
                        Format::Regex(Layout { regex, names, times: Vec::new(), one_pass: None })
                    })
                    .map_err(|error| SetupError::Pattern { cause: cause(&error) }),
                _ => Err(SetupError::Format { text: text.into() }),
            },
        }
    }
}

/// An expression over bytes.
pub(crate) fn expression(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).unicode(false).build()
}

/// The problem in one line, without the drawing of its place.
pub(crate) fn cause(error: &regex::Error) -> String {
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
        for name in
            ["combined", "common", "vhost", "json", "logfmt", "w3c", "alb", "syslog", "haproxy", "envoy"]
        {
            check(name, Some(name));
        }
        check("regex:^(?<ip>.*) (?P<time>.*)$", Some("regex"));
        check("nginx:$remote_addr [$time_local]", Some("nginx"));
        check("apache:%h %t", Some("apache"));
        for bad in [
            "regex:(",
            "regex",
            "Combined",
            "",
            "nginx",
            "nginx:$status",
            "nginx:$a$b",
            "apache:%h",
            "apache:%t %",
        ] {
            check(bad, None);
        }
    }
}
