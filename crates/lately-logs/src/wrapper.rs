//! Removes what syslog, containers, journald and `grep -H` put around a line.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::bytes::Regex;

use crate::format::expression;
use crate::json;
use crate::wanted::Wanted;

/// A line without its wrapper.
#[derive(Debug)]
pub(crate) struct Inner<'a> {
    pub(crate) text: Cow<'a, [u8]>,
    /// The time of the wrapper.
    pub(crate) at: Option<Cow<'a, [u8]>>,
    /// For docker and journald, which write a JSON object with fields of their own around the text.
    pub(crate) record: Option<RecordOf>,
}

/// The program that wrote the JSON object around a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordOf {
    Docker,
    Journald,
}

impl RecordOf {
    /// Whether a field belongs to the record even if the record lacks it. The text must not fill it in.
    pub(crate) fn owns(self, field: &str) -> bool {
        match self {
            RecordOf::Docker => field.split('.').next() == Some("attrs"),
            // Journald adds these, and programs cannot.
            RecordOf::Journald => field.starts_with('_'),
        }
    }
}

/// Each has the line in `text`, and the wrapper's time in `at`. Names of programs, hosts and files have no blanks and
/// quotes.
static WRAPPERS: LazyLock<[Regex; 7]> = LazyLock::new(|| {
    [
        // RFC 5424.
        r#"^<\d{1,3}>1 (?<at>\d{4}-\d\d-\d\dT\S+|-) \S+ \S+ \S+ \S+ (?:-|(?:\[(?:[^\]\\]|\\.)*\])+) (?:\xef\xbb\xbf)?(?<text>.+)$"#,
        // RFC 3164, with an old or a new time.
        r#"^(?:<\d{1,3}>)?(?:[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|(?<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*)) [^\s:"]+ [^\s:"\[\]]+(?:\[[^\]\s"]*\])?: ?(?<text>.+)$"#,
        // CRI.
        r"^(?<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*) (?:stdout|stderr) [FP](?::\S*)? (?<text>.+)$",
        // docker compose.
        r"^[A-Za-z0-9][A-Za-z0-9_.-]* *\| (?<text>.+)$",
        // kubectl logs --prefix.
        r"^\[pod/[^\]\s]+\] (?<text>.+)$",
        // docker logs --timestamps.
        r"^(?<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z) (?<text>.+)$",
        // grep -H. A number in place of the file's name would be from grep -n, or the start of an IPv6 address.
        r#"^[^\s:"\[{]*[^\s:"\[{0-9][^\s:"\[{]*:(?<text>.+)$"#,
    ]
    .map(|pattern| expression(pattern).expect("a fixed expression compiles"))
});

/// The fields of docker and journald.
static CARRIED: LazyLock<Wanted> = LazyLock::new(|| {
    Wanted::new(&["log", "stream", "time", "MESSAGE", json::JOURNALD_TIME].map(str::to_owned))
});

/// The line in a wrapper, if it is a known one.
pub(crate) fn inner(line: &[u8]) -> Option<Inner<'_>> {
    if line.first() == Some(&b'{') {
        return inner_json(line);
    }
    WRAPPERS.iter().find_map(|wrapper| {
        let groups = wrapper.captures(line)?;
        let text = groups.name("text")?.as_bytes();
        Some(Inner {
            text: Cow::Borrowed(text),
            at: groups.name("at").map(|at| Cow::Borrowed(at.as_bytes())),
            record: None,
        })
    })
}

/// Whether a JSON line starts like those of docker's json-file driver.
pub(crate) fn is_docker(line: &[u8]) -> bool {
    line.starts_with(b"{\"log\":")
}

/// The text in an object of docker's json-file driver.
pub(crate) fn docker_text(line: &[u8]) -> Option<Cow<'_, [u8]>> {
    if is_docker(line) { inner_json(line).map(|inner| inner.text) } else { None }
}

/// The text in an object of docker's json-file driver, or of journald.
fn inner_json(line: &[u8]) -> Option<Inner<'_>> {
    let wanted = &*CARRIED;
    let found = json::find(line, wanted)?;
    let value = |index: usize| json::value(wanted.name(index), found.get(index)?);
    let (text, at, record) = match (value(0), value(1), value(2), value(3), value(4)) {
        (Some(log), Some(_), Some(at), _, _) => (log, at, RecordOf::Docker),
        (_, _, _, Some(message), Some(at)) => (message, at, RecordOf::Journald),
        _ => return None,
    };
    let end = text.trim_ascii_end().len();
    let text = match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[..end]),
        Cow::Owned(mut text) => {
            text.truncate(end);
            Cow::Owned(text)
        }
    };
    Some(Inner { text, at: Some(at), record: Some(record) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_taken_off() {
        let check = |line: &str, expected: Option<&str>, at: Option<&str>| {
            let found = inner(line.as_bytes());
            let text = |bytes: &Cow<'_, [u8]>| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(found.as_ref().map(|inner| text(&inner.text)).as_deref(), expected, "{line}");
            assert_eq!(found.and_then(|inner| inner.at.map(|at| text(&at))).as_deref(), at, "{line}");
        };
        check("Mar 12 09:00:01 web1 nginx: a - b", Some("a - b"), None);
        check("<34>Mar  2 09:00:01 web1 nginx[12]: a", Some("a"), None);
        check("2024-03-12T09:00:01.5+01:00 web1 app[1]: a", Some("a"), Some("2024-03-12T09:00:01.5+01:00"));
        check("<34>1 2024-03-12T09:00:01Z web1 app 1 - - a b", Some("a b"), Some("2024-03-12T09:00:01Z"));
        check(r#"<34>1 - - - - - [x y="\]"][z] a b"#, Some("a b"), Some("-"));
        check("2024-03-12T09:00:01.5Z stdout F a", Some("a"), Some("2024-03-12T09:00:01.5Z"));
        check("2024-03-12T09:00:01.5Z stderr P a b", Some("a b"), Some("2024-03-12T09:00:01.5Z"));
        check("2024-03-12T09:00:01.5Z a b", Some("a b"), Some("2024-03-12T09:00:01.5Z"));
        check("web-1  | a | b", Some("a | b"), None);
        check("[pod/web/nginx] a", Some("a"), None);
        check("access.log:a b", Some("a b"), None);
        check("logs/access.log:2001:db8::7 b", Some("2001:db8::7 b"), None);
        check("2001:db8::7 b", None, None);
        let docker = r#"{"log":"a \"b\"\n","stream":"stdout","time":"2024-03-12T09:00:01.5Z"}"#;
        check(docker, Some("a \"b\""), Some("2024-03-12T09:00:01.5Z"));
        let journald = r#"{"_PID":"1","MESSAGE":[97,32,98],"__REALTIME_TIMESTAMP":"1710234001500000"}"#;
        check(journald, Some("a b"), Some("1710234001500000"));
        check(r#"{"log":"a"}"#, None, None);
        check("hello world", None, None);
        check("", None, None);
    }
}
