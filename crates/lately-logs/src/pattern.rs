//! Lines of a layout, or of any other regular expression with groups.

use std::borrow::Cow;

use regex::bytes::{CaptureLocations, Regex};

use crate::error::SetupError;
use crate::layout::{Layout, OnePass};
use crate::request::{Request, without_host, without_query};
use lately_keys::address;

/// A compiled expression, and the buffer for its matches, which is reused for each line.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    locations: CaptureLocations,
    /// The expression that is tried first, with a buffer of its own.
    one_pass: Option<(OnePass, CaptureLocations)>,
    fields: Vec<Field>,
}

/// The groups of a field, and the part of their text that it is.
#[derive(Clone, Debug)]
struct Field {
    groups: Vec<usize>,
    part: Part,
}

/// The part of a group's text that makes up a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Whole,
    Method,
    Url,
    Path,
    Protocol,
    /// A part of a URL.
    WithoutQuery,
}

/// The groups of one match.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups<'p, 'a> {
    fields: &'p [Field],
    locations: &'p CaptureLocations,
    line: &'a [u8],
}

impl Pattern {
    /// A pattern for the fields of this layout with these names.
    pub(crate) fn new(
        layout: &Layout,
        format: &'static str,
        wanted: &[String],
    ) -> Result<Pattern, SetupError> {
        let fields = wanted.iter().map(|name| field(layout, format, name)).collect::<Result<_, _>>()?;
        let one_pass = layout.one_pass.clone().map(|one_pass| {
            let locations = one_pass.regex.capture_locations();
            (one_pass, locations)
        });
        let (regex, locations) = (layout.regex.clone(), layout.regex.capture_locations());
        Ok(Pattern { regex, locations, one_pass, fields })
    }

    /// The groups of the first match in `line`.
    pub(crate) fn read<'a>(&mut self, line: &'a [u8]) -> Option<Groups<'_, 'a>> {
        let Pattern { regex, locations, one_pass, fields } = self;
        if let Some((one_pass, locations)) = one_pass
            && one_pass.regex.captures_read(locations, line).is_some()
            && one_pass.addresses.iter().all(|(group, is_address)| {
                locations.get(*group).is_some_and(|(from, to)| {
                    let text = &line[from..to];
                    address::is_ipv4(text) || is_address.is_match(text)
                })
            })
        {
            return Some(Groups { fields, locations, line });
        }
        regex.captures_read(locations, line)?;
        Some(Groups { fields, locations, line })
    }
}

/// The place of a field: a group of its name, or one with the request.
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
            // Our names for the groups of the time have a blank.
            let is_new = !seen.contains(name) && !name.contains(' ');
            seen.push(name.clone());
            is_new
        });
        SetupError::Field { field: name.into(), format, known }
    })
}

impl<'a> Groups<'_, 'a> {
    /// The wanted field with this index. `None` if its group is not in the match.
    pub(crate) fn field(&self, index: usize) -> Option<Cow<'a, [u8]>> {
        let Field { groups, part } = &self.fields[index];
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
        let (from, to) = self.locations.get(group)?;
        Some(&self.line[from..to])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::Format;

    /// Layouts, each with whether it has an expression for one pass.
    const LAYOUTS: [(&str, bool); 12] = [
        (
            r#"nginx:$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#,
            true,
        ),
        (r#"nginx:$remote_addr - $remote_user [$time_local] "$request" $status rt=$request_time"#, true),
        (r#"nginx:[$time_local] $remote_addr $upstream_addr "$request""#, true),
        ("nginx:$remote_addr [$time_local] $status $http_user_agent", true),
        ("nginx:$http_x_forwarded_for $remote_addr $time_iso8601 $scheme", true),
        (r#"nginx:{"t":"$time_iso8601","a":"$remote_addr","r":"$request","s":$status}"#, true),
        ("nginx:$msec|$time_iso8601|$remote_addr|$request_uri|$status", false),
        ("nginx:$remote_addr - $remote_user [$time_local] $status $request", false),
        ("nginx:$remote_user $msec $http_user_agent", false),
        ("nginx:$remote_addr:$remote_port [$time_local] $uri", false),
        (r#"apache:%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#, true),
        (r#"apache:%v:%p %a %u [%{%Y-%m-%dT%H:%M:%S%z}t] "%m %U" %>s %D"#, false),
    ];

    fn layout(text: &str) -> Layout {
        match text.parse() {
            Ok(Format::Layout(_, layout)) => layout,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn layouts_that_can_be_read_in_one_pass_are() {
        for (text, is_one_pass) in LAYOUTS {
            assert_eq!(layout(text).one_pass.is_some(), is_one_pass, "{text}");
        }
        let fields = |count: usize| format!("nginx:[$time_local]{}", r#" "$http_x""#.repeat(count));
        assert!(layout(&fields(15)).one_pass.is_some() && layout(&fields(16)).one_pass.is_none());
    }

    /// Pieces of lines, and whole starts of lines of the layouts.
    fn line() -> impl Strategy<Value = Vec<u8>> {
        const PIECES: [&[u8]; 34] = [
            b"198.51.100.7",
            b"2001:db8::7",
            b"fe80::1%eth0",
            b"unix:",
            b"-",
            b"Dec",
            b"10.5",
            b"999.1.1.1",
            b"1.2:3",
            b"::",
            b"client.example.com",
            b"localhost",
            b"a..b",
            b" - ",
            b" - jo [",
            b"[12/Mar/2024:09:00:01 +0000]",
            b" [12/Mar/2024:09:00:01 +0000] \"",
            b"\"",
            b" \"",
            b"\" ",
            b"\\\"",
            b"\\",
            b"GET / HTTP/1.1",
            b" 200 ",
            b" 200 5 ",
            b"1710234001.250",
            b"2024-03-12T09:00:01+00:00",
            b" ",
            b"|",
            b":",
            b", ",
            b"x",
            b"\xff",
            b"http",
        ];
        const LINES: [&[u8]; 7] = [
            b"198.51.100.7 - x [12/Mar/2024:08:00:01 +0000] \\\"GET /evil\\\" 200 5 [12/Mar/2024:09:00:01 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"",
            b"198.51.100.7 - - [12/Mar/2024:08:00:01 +0000] [12/Mar/2024:09:00:01 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"",
            b"198.51.100.7 - jo [12/Mar/2024:09:00:01 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"",
            b"198.51.100.7 - - [12/Mar/2024:09:00:01 +0000] \"GET / HTTP/1.1\" 200 rt=0.5",
            b"[12/Mar/2024:09:00:01 +0000] 198.51.100.7 10.0.0.1:80 \"GET / HTTP/1.1\"",
            b"198.51.100.7 [12/Mar/2024:09:00:01 +0000] 200 curl",
            b"{\"t\":\"2024-03-12T09:00:01+00:00\",\"a\":\"198.51.100.7\",\"r\":\"GET /\",\"s\":200}",
        ];
        let pieces = || {
            proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..14)
                .prop_map(|pieces| pieces.concat())
        };
        let changed =
            (proptest::sample::select(&LINES[..]), any::<proptest::sample::Index>(), 0..3_usize, pieces());
        prop_oneof![
            pieces(),
            changed.prop_map(|(line, at, removed, pieces)| {
                let mut line = line.to_vec();
                let at = at.index(line.len());
                line.splice(at..(at + removed).min(line.len()), pieces.into_iter().take(40));
                line
            }),
            (
                proptest::sample::select(&LINES[..]),
                proptest::sample::select(&PIECES[..]),
                any::<proptest::sample::Index>()
            )
                .prop_map(|(line, piece, word)| {
                    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
                    let word = word.index(words.len());
                    let words =
                        words.iter().enumerate().map(|(at, &old)| if at == word { piece } else { old });
                    words.collect::<Vec<_>>().join(&b' ')
                },),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        #[test]
        fn one_pass_finds_the_fields_that_the_whole_expression_finds(line in line()) {
            for (text, is_one_pass) in LAYOUTS {
                if !is_one_pass {
                    continue;
                }
                let layout = layout_of(text);
                let names: Vec<String> = layout.names.iter().map(|(name, _)| name.clone()).collect();
                let groups = |layout: &Layout| {
                    let mut pattern = Pattern::new(layout, "nginx", &names).expect("its own fields");
                    let groups = pattern.read(&line)?;
                    Some((0..names.len()).map(|index| groups.field(index)).collect::<Vec<_>>())
                };
                let whole = groups(&Layout { one_pass: None, ..layout.clone() });
                prop_assert_eq!(groups(layout), whole, "{}: {}", text, line.escape_ascii());
            }
        }
    }

    /// Compiled once: that takes longer than a line.
    fn layout_of(text: &'static str) -> &'static Layout {
        static COMPILED: std::sync::LazyLock<Vec<(&str, Layout)>> =
            std::sync::LazyLock::new(|| LAYOUTS.map(|(text, _)| (text, layout(text))).to_vec());
        COMPILED.iter().find(|(known, _)| *known == text).map(|(_, layout)| layout).expect("it is one")
    }
}
