//! Lines of a layout, and of any other, by an expression with groups.

use std::borrow::Cow;

use regex::bytes::{CaptureLocations, Regex};

use crate::error::SetupError;
use crate::layout::Layout;
use crate::request::{Request, without_host, without_query};

/// A compiled expression and the places its matches are written to, kept from line to line.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    locations: CaptureLocations,
    fields: Vec<Field>,
}

/// A field: the groups it may be in, and what of them it is.
#[derive(Clone, Debug)]
struct Field {
    groups: Vec<usize>,
    part: Part,
}

/// What of a group a field is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Whole,
    Method,
    Url,
    Path,
    Protocol,
    /// Of a URL.
    WithoutQuery,
}

/// The groups of one match.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups<'p, 'a> {
    pattern: &'p Pattern,
    line: &'a [u8],
}

impl Pattern {
    /// Of the fields of this layout with these names.
    pub(crate) fn new(
        layout: &Layout,
        format: &'static str,
        wanted: &[String],
    ) -> Result<Pattern, SetupError> {
        let fields = wanted.iter().map(|name| field(layout, format, name)).collect::<Result<_, _>>()?;
        Ok(Pattern { fields, locations: layout.regex.capture_locations(), regex: layout.regex.clone() })
    }

    /// The groups of the first match in `line`.
    pub(crate) fn read<'a>(&mut self, line: &'a [u8]) -> Option<Groups<'_, 'a>> {
        self.regex.captures_read(&mut self.locations, line)?;
        Some(Groups { pattern: self, line })
    }
}

/// Where a field is: in a group of its name, or in that of the request.
fn field(layout: &Layout, format: &'static str, name: &str) -> Result<Field, SetupError> {
    let groups = |name: &str| -> Vec<usize> {
        layout.names.iter().filter(|(known, _)| known == name).map(|(_, group)| *group).collect()
    };
    let of = |from: &str, part| {
        Some(Field { groups: groups(from), part }).filter(|field| !field.groups.is_empty())
    };
    let derived = || {
        if format == "regex" {
            return None;
        }
        match name {
            "method" => of("request", Part::Method),
            "url" => of("request", Part::Url),
            "path" => of("request", Part::Path).or_else(|| of("url", Part::WithoutQuery)),
            "protocol" => of("request", Part::Protocol),
            _ => None,
        }
    };
    of(name, Part::Whole).or_else(derived).ok_or_else(|| {
        let mut known: Vec<String> = layout.names.iter().map(|(name, _)| name.clone()).collect();
        if format != "regex" && !groups("request").is_empty() {
            known.extend(["method", "url", "path", "protocol"].map(str::to_owned));
        }
        let mut seen = Vec::new();
        known.retain(|name| {
            // Names of ours for the groups that have the time have a blank.
            let is_new = !seen.contains(name) && !name.contains(' ');
            seen.push(name.clone());
            is_new
        });
        SetupError::Field { field: name.into(), format, known }
    })
}

impl<'a> Groups<'_, 'a> {
    /// The wanted field with this index; `None` when its group has no part in the match.
    pub(crate) fn field(&self, index: usize) -> Option<Cow<'a, [u8]>> {
        let Field { groups, part } = &self.pattern.fields[index];
        let text = groups.iter().find_map(|&group| self.group(group))?;
        let request = || Request::parse(text);
        let value = match part {
            Part::Whole => text,
            Part::Method => request()?.method,
            Part::Url => without_host(request()?.url),
            Part::Path => without_query(without_host(request()?.url)),
            Part::Protocol => request()?.protocol?,
            Part::WithoutQuery => without_query(text),
        };
        Some(Cow::Borrowed(value))
    }

    pub(crate) fn group(&self, group: usize) -> Option<&'a [u8]> {
        let (from, to) = self.pattern.locations.get(group)?;
        Some(&self.line[from..to])
    }
}
