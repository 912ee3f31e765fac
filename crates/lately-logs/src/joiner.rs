//! Joins lines that a container runtime or journald cut into parts.
//!
//! Docker's json-file driver and CRI runtimes cut output after 16 KiB, journald after 48 KiB. A client that sends
//! long texts chooses the text after a cut, so a part must never be parsed as a line of its own. A line is joined
//! inside the wrapper of its first part, so the parser gets a wrapped line that looks as if it had never been cut.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use regex::bytes::Regex;

use crate::error::Malformed;
use crate::format::expression;
use crate::json;
use crate::limits::{MAX_CUT_LINES, MAX_JOINED_BYTES, SAMPLE_LINES};
use crate::wanted::Wanted;
use crate::wrapper;

/// A record of docker with at least this much text and no line end is a part. A shorter one may be all that the
/// program wrote.
const DOCKER_PART_BYTES: usize = 16 * 1024;

/// The number of the first part, and the joined line or the reason why it is not usable.
pub(crate) type Joined = (u64, Result<Vec<u8>, Malformed>);

/// Holds the parts of incomplete lines.
#[derive(Debug)]
pub(crate) struct Joiner {
    /// Oldest first.
    cut: Vec<CutLine>,
    line_ends: LineEnds,
    /// Whether every line is checked, and not only lines that start like a carrier's. That is so for the first lines,
    /// and for logs with a prefix before the carrier's text, as grep writes it.
    checks_all: bool,
    has_fronts: bool,
    /// Whether there was a JSON object of a carrier that does not start like docker's.
    has_objects: bool,
}

/// Whether the records of docker in this log have line ends. Some shippers remove them.
#[derive(Debug, Default)]
enum LineEnds {
    /// Not known yet. `Held` has the records so far, none of which had a line end.
    #[default]
    Unknown,
    Held(Vec<(u64, Vec<u8>)>),
    Kept,
    LeftOut,
}

/// The first parts of a line.
#[derive(Clone, Debug)]
struct CutLine {
    stream: Vec<u8>,
    number: u64,
    /// The record of the first part, and the place of its text.
    record: Vec<u8>,
    place: Range<usize>,
    /// The text of all parts. `None` if it is too long.
    text: Option<Vec<u8>>,
    carrier: Carrier,
}

/// The carriers that cut lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Carrier {
    Docker,
    Cri,
    Journald,
}

/// The incomplete lines at the end of a log. After a rotation, the next log begins with their other parts.
#[derive(Clone, Default, Debug)]
pub struct CutLines(Vec<CutLine>);

/// A record that may be a part of a line.
#[derive(Debug)]
struct Part<'a> {
    carrier: Carrier,
    stream: Vec<u8>,
    text: Cow<'a, [u8]>,
    place: Range<usize>,
    /// Docker's time as written. All parts of a line have the same.
    time: &'a str,
    is_partial: bool,
    /// Whether grep's prefix is before it.
    has_front: bool,
}

/// One in this many lines is checked for a JSON object of a carrier. A log nearly always has one kind of lines, which
/// its first lines show.
const CHECK_EVERY: u64 = 64;

/// Matches an object of a carrier that does not start like docker's.
static OBJECT: LazyLock<Regex> = LazyLock::new(|| compiled(r#""log" ?: ?"|"__REALTIME_TIMESTAMP""#));

/// Matches an object of such a carrier that is a part.
static MARKS: LazyLock<Regex> =
    LazyLock::new(|| compiled(r#""log" ?: ?"|"CONTAINER_PARTIAL_MESSAGE"|"_LINE_BREAK""#));

/// The bytes after the text in a record of docker.
static BEHIND_TEXT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\",\"stream\":\""));

/// A CRI record, with or without grep's prefix.
static CRI: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r#"(?s)^(?<front>(?:[^\s:"\[{]*[^\s:"\[{0-9][^\s:"\[{]*:)?)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* (?<stream>stdout|stderr) (?<tag>[FP])(?::\S*)? (?<text>.*)$"#,
    )
});

/// A JSON object after grep's prefix.
static FRONTED: LazyLock<Regex> =
    LazyLock::new(|| compiled(r#"^[^\s:"\[{]*[^\s:"\[{0-9][^\s:"\[{]*:\{"log":"#));

/// The fields of docker and journald around a part.
static FIELDS: LazyLock<Wanted> = LazyLock::new(|| {
    let names = ["log", "stream", "time", "MESSAGE", json::JOURNALD_TIME];
    let journald = ["_STREAM_ID", "_LINE_BREAK", "CONTAINER_ID", "PRIORITY", "CONTAINER_PARTIAL_MESSAGE"];
    Wanted::new(&[names, journald].concat().into_iter().map(str::to_owned).collect::<Vec<_>>())
});

fn compiled(pattern: &str) -> Regex {
    expression(pattern).expect("a fixed expression compiles")
}

impl Joiner {
    pub(crate) fn new() -> Joiner {
        let (cut, line_ends) = (Vec::new(), LineEnds::default());
        Joiner { cut, line_ends, checks_all: true, has_fronts: false, has_objects: false }
    }

    /// Whether a line must be passed to [`Joiner::take`]. All others are complete lines.
    #[inline]
    pub(crate) fn may_be_part(&mut self, line: &[u8], number: u64) -> bool {
        let is_like_part = line.first() == Some(&b'{') || line.get(10) == Some(&b'T');
        (is_like_part || self.checks_all) && self.check_part(line, number)
    }

    #[inline(never)]
    fn check_part(&mut self, line: &[u8], number: u64) -> bool {
        self.checks_all = self.has_fronts || number < SAMPLE_LINES as u64;
        if wrapper::is_docker(line) {
            return match self.line_ends {
                LineEnds::Unknown | LineEnds::Held(_) => true,
                LineEnds::Kept => !self.cut.is_empty() || !has_line_end(line),
                LineEnds::LeftOut => false,
            };
        }
        if !self.cut.is_empty() {
            return true;
        }
        if line.first() == Some(&b'{') {
            let is_checked = number <= SAMPLE_LINES as u64 || number.is_multiple_of(CHECK_EVERY);
            self.has_objects = self.has_objects || is_checked && OBJECT.is_match(line);
            return self.has_objects && MARKS.is_match(line);
        }
        match cri_tag(line) {
            Some(b'P') => true,
            Some(_) if self.has_fronts || line.get(10) == Some(&b'T') => false,
            _ => self.checks_all && (CRI.is_match(line) || FRONTED.is_match(line)),
        }
    }

    /// The incomplete lines.
    pub(crate) fn cut_lines(&self) -> CutLines {
        CutLines(self.cut.clone())
    }

    /// Continues the incomplete lines of the previous log.
    pub(crate) fn resume(&mut self, cut: CutLines) {
        self.cut = cut.0;
    }

    /// Takes a record, and returns the lines that are complete now.
    pub(crate) fn take(&mut self, line: &[u8], number: u64) -> Vec<Joined> {
        let mut whole = Vec::new();
        match Part::of(line) {
            Some(part) => {
                self.has_fronts |= part.has_front;
                self.checks_all |= part.has_front;
                if part.carrier == Carrier::Docker {
                    self.take_docker(&part, line, number, &mut whole);
                } else {
                    self.add(&part, line, number, &mut whole);
                }
            }
            None => whole.push((number, Ok(line.to_vec()))),
        }
        whole
    }

    /// Ends the log. Returns the incomplete lines as they are, like the last line of any file.
    pub(crate) fn finish(&mut self) -> Vec<Joined> {
        let mut whole = Vec::new();
        if let LineEnds::Held(held) = std::mem::take(&mut self.line_ends) {
            let records: Vec<_> =
                held.iter().filter_map(|(number, line)| Some((*number, line, Part::of(line)?))).collect();
            for (number, line, part) in &records {
                // Docker writes one time on all parts of a line.
                let is_cut =
                    records.iter().all(|(.., other)| other.stream != part.stream || other.time == part.time);
                if is_cut {
                    self.add(part, line, *number, &mut whole);
                } else {
                    whole.push((*number, Ok(line.to_vec())));
                }
            }
        }
        whole.extend(self.cut.drain(..).filter_map(CutLine::whole));
        whole
    }

    /// Drops the incomplete lines, whose ends will not come.
    pub(crate) fn clear(&mut self) {
        self.cut.clear();
        if let LineEnds::Held(_) = self.line_ends {
            self.line_ends = LineEnds::Unknown;
        }
    }

    fn take_docker(&mut self, part: &Part<'_>, line: &[u8], number: u64, whole: &mut Vec<Joined>) {
        let is_of_docker = !part.is_partial || part.text.len() >= DOCKER_PART_BYTES;
        match &mut self.line_ends {
            LineEnds::LeftOut => whole.push((number, Ok(line.to_vec()))),
            LineEnds::Kept => self.add(part, line, number, whole),
            LineEnds::Unknown | LineEnds::Held(_) if is_of_docker => {
                if let LineEnds::Held(held) = std::mem::replace(&mut self.line_ends, LineEnds::Kept) {
                    for (number, line) in &held {
                        if let Some(part) = Part::of(line) {
                            self.add(&part, line, *number, whole);
                        }
                    }
                }
                self.add(part, line, number, whole);
            }
            LineEnds::Unknown => self.line_ends = LineEnds::Held(vec![(number, line.to_vec())]),
            LineEnds::Held(held) => {
                held.push((number, line.to_vec()));
                if held.len() >= SAMPLE_LINES {
                    whole.extend(held.drain(..).map(|(number, line)| (number, Ok(line))));
                    self.line_ends = LineEnds::LeftOut;
                }
            }
        }
    }

    /// Adds a part to its line. Completes the line if it is the last part.
    fn add(&mut self, part: &Part<'_>, line: &[u8], number: u64, whole: &mut Vec<Joined>) {
        let Some(place) = self.cut.iter().position(|cut| cut.stream == part.stream) else {
            if !part.is_partial {
                whole.push((number, Ok(line.to_vec())));
                return;
            }
            if self.cut.len() >= MAX_CUT_LINES {
                whole.extend(self.cut.remove(0).whole());
            }
            self.cut.push(CutLine {
                stream: part.stream.clone(),
                number,
                record: line.to_vec(),
                place: part.place.clone(),
                text: Some(part.text.to_vec()),
                carrier: part.carrier,
            });
            return;
        };
        let cut = &mut self.cut[place];
        if cut.text.as_ref().is_some_and(|text| text.len() + part.text.len() > MAX_JOINED_BYTES) {
            cut.text = None;
            whole.push((cut.number, Err(Malformed::JoinedLength)));
        }
        if let Some(text) = &mut cut.text {
            text.extend_from_slice(&part.text);
        }
        if !part.is_partial {
            whole.extend(self.cut.remove(place).whole());
        }
    }
}

impl CutLine {
    /// The record of the first part with the text of all parts. `None` if the text was too long, which was reported.
    fn whole(self) -> Option<Joined> {
        let CutLine { number, mut record, place, text, carrier, .. } = self;
        let text = text?;
        let written = match (carrier, String::from_utf8(text)) {
            (Carrier::Cri, Ok(text)) => text.into_bytes(),
            (Carrier::Cri, Err(error)) => error.into_bytes(),
            (_, Ok(text)) => serde_json::Value::from(text).to_string().into_bytes(),
            // Journald writes text that is not UTF-8 as an array of bytes. Docker writes UTF-8 only.
            (_, Err(error)) => serde_json::Value::from(error.into_bytes()).to_string().into_bytes(),
        };
        if carrier == Carrier::Cri {
            mark_full(&mut record[..place.start]);
        }
        record.splice(place, written);
        Some((number, Ok(record)))
    }
}

/// Marks the record of a part as complete. The tag of that is the first one before the text.
fn mark_full(front: &mut [u8]) {
    let tags = front.iter().rev().skip(1).position(|&byte| byte == b' ');
    if let Some(tag) = tags.map(|len| front.len() - 1 - len) {
        front[tag] = b'F';
    }
}

impl<'a> Part<'a> {
    fn of(line: &'a [u8]) -> Option<Part<'a>> {
        if line.first() == Some(&b'{') {
            return Part::of_json(line, 0);
        }
        if FRONTED.is_match(line) {
            return Part::of_json(line, memchr::memchr(b'{', line)?);
        }
        let groups = CRI.captures(line)?;
        let text = groups.name("text")?;
        Some(Part {
            carrier: Carrier::Cri,
            stream: [&groups["front"], b" ", &groups["stream"]].concat(),
            text: Cow::Borrowed(text.as_bytes()),
            place: text.range(),
            time: "",
            is_partial: &groups["tag"] == b"P",
            has_front: !groups["front"].is_empty(),
        })
    }

    /// Parses an object of docker or journald, from `from` on.
    fn of_json(line: &'a [u8], from: usize) -> Option<Part<'a>> {
        let found = json::find(&line[from..], &FIELDS)?;
        let value = |index: usize| json::value(FIELDS.name(index), found.get(index)?);
        let place = |raw: &str| {
            let start = raw.as_ptr().addr() - line.as_ptr().addr();
            start..start + raw.len()
        };
        let stream = |name: &[u8], part: &[u8]| [&line[..from], b" ", name, b" ", part].concat();
        let docker = || {
            let (text, name, time) = (value(0)?, value(1)?, found.get(2)?);
            let is_partial = !text.ends_with(b"\n");
            Some((Carrier::Docker, stream(&name, b""), text, place(found.get(0)?), time, is_partial))
        };
        let journald = || {
            let (text, _) = (value(3)?, value(4)?);
            let is = |index: usize, wanted: &[u8]| value(index).is_some_and(|value| *value == *wanted);
            let (stream, is_partial) = match (value(5), value(7)) {
                // Docker's journald driver cuts lines itself. It has one priority for stdout and one for stderr.
                (_, Some(container)) => (stream(&container, &value(8).unwrap_or_default()), is(9, b"true")),
                (Some(id), None) => (stream(&id, b""), is(6, b"line-max")),
                (None, None) => return None,
            };
            Some((Carrier::Journald, stream, text, place(found.get(3)?), "", is_partial))
        };
        let (carrier, stream, text, place, time, is_partial) = docker().or_else(journald)?;
        Some(Part { carrier, stream, text, place, time, is_partial, has_front: from > 0 })
    }
}

/// The first tag of a CRI record without a prefix.
fn cri_tag(line: &[u8]) -> Option<u8> {
    let rest = &line[memchr::memchr(b' ', line)?..];
    let rest = rest.strip_prefix(b" stdout ").or_else(|| rest.strip_prefix(b" stderr "))?;
    matches!(rest, [b'F' | b'P', b' ' | b':', ..]).then(|| rest[0])
}

/// Whether the text of a record that starts like docker's ends with a line end.
fn has_line_end(line: &[u8]) -> bool {
    // Quotes within the text would be escaped.
    let Some(end) = BEHIND_TEXT.find(line) else { return false };
    let Some(before) = line[..end].strip_suffix(b"n") else { return false };
    before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    type Lines = Vec<(u64, Result<String, Malformed>)>;

    /// The lines from these records, and those at the end of the log.
    fn joined(records: &[String]) -> (Lines, Lines) {
        let text = |(number, line): Joined| (number, line.map(|line| String::from_utf8(line).expect("text")));
        let (mut joiner, mut lines) = (Joiner::new(), Vec::new());
        for (number, record) in (1..).zip(records) {
            if joiner.may_be_part(record.as_bytes(), number) {
                lines.extend(joiner.take(record.as_bytes(), number).into_iter().map(text));
            } else {
                lines.push((number, Ok(record.clone())));
            }
        }
        (lines, joiner.finish().into_iter().map(text).collect())
    }

    fn docker(stream: &str, second: u8, text: &str) -> String {
        let log = serde_json::Value::from(text);
        format!("{{\"log\":{log},\"stream\":\"{stream}\",\"time\":\"2024-03-12T09:00:0{second}Z\"}}")
    }

    fn cri(stream: &str, tag: &str, text: &str) -> String {
        format!("2024-03-12T09:00:01.5Z {stream} {tag} {text}")
    }

    fn check(records: &[String], lines: &[(u64, String)], at_end: &[(u64, String)]) {
        let whole = |lines: &[(u64, String)]| -> Lines {
            lines.iter().map(|(number, line)| (*number, Ok(line.clone()))).collect()
        };
        assert_eq!(joined(records), (whole(lines), whole(at_end)), "{records:#?}");
    }

    #[test]
    fn parts_are_joined_by_stream() {
        let records = [
            docker("stdout", 1, "a\n"),
            docker("stdout", 2, "b \"\\n"),
            docker("stderr", 3, "x"),
            docker("stdout", 4, ""),
            docker("stderr", 5, "y\n"),
            docker("stdout", 6, "\u{e9}\n"),
            docker("stdout", 7, "c\n"),
            docker("stdout", 8, "left"),
        ];
        check(
            &records,
            &[
                (1, docker("stdout", 1, "a\n")),
                (3, docker("stderr", 3, "xy\n")),
                (2, docker("stdout", 2, "b \"\\n\u{e9}\n")),
                (7, docker("stdout", 7, "c\n")),
            ],
            &[(8, docker("stdout", 8, "left"))],
        );
        let records = [
            cri("stdout", "P", "a "),
            cri("stderr", "F", "x"),
            cri("stdout", "P:tag", "b"),
            cri("stdout", "F:tag", ""),
            cri("stdout", "F", "c"),
            "hello".to_owned(),
            cri("stderr", "P:tag", "left"),
        ];
        check(
            &records,
            &[
                (2, cri("stderr", "F", "x")),
                (1, cri("stdout", "F", "a b")),
                (5, cri("stdout", "F", "c")),
                (6, "hello".into()),
            ],
            &[(7, cri("stderr", "F:tag", "left"))],
        );
        // Of several files, as grep shows them.
        let of = |file: &str, record: String| format!("{file}.log:{record}");
        let records = [
            of("a", cri("stdout", "P", "a")),
            of("b", cri("stdout", "P", "x")),
            of("a", docker("stdout", 1, "d")),
            of("a", docker("stdout", 1, "e\n")),
            of("a", cri("stdout", "F", "b")),
            of("b", cri("stdout", "F", "y")),
        ];
        check(
            &records,
            &[
                (3, of("a", docker("stdout", 1, "de\n"))),
                (1, of("a", cri("stdout", "F", "ab"))),
                (2, of("b", cri("stdout", "F", "xy"))),
            ],
            &[],
        );
    }

    /// Whatever came before them.
    #[test]
    fn parts_are_joined_wherever_the_first_is() {
        let fronted = |record: String| format!("a.log:{record}");
        let plain = |text: &str| text.to_owned();
        let journald = |more: &str, text: &str| {
            format!("{{\"MESSAGE\":\"{text}\",\"__REALTIME_TIMESTAMP\":\"1\",\"_STREAM_ID\":\"1\"{more}}}")
        };
        let cut = ",\"_LINE_BREAK\":\"line-max\"";
        for (whole, parts, joined_line) in [
            (
                docker("stdout", 1, "x\n"),
                [docker("stdout", 1, "a"), docker("stdout", 1, "b\n")],
                docker("stdout", 1, "ab\n"),
            ),
            (
                cri("stdout", "F", "x"),
                [cri("stdout", "P", "a"), cri("stdout", "F", "b")],
                cri("stdout", "F", "ab"),
            ),
            (plain("hello"), [cri("stdout", "P", "a"), cri("stdout", "F", "b")], cri("stdout", "F", "ab")),
            (
                fronted(cri("stdout", "F", "x")),
                [fronted(cri("stdout", "P", "a")), fronted(cri("stdout", "F", "b"))],
                fronted(cri("stdout", "F", "ab")),
            ),
            (
                fronted(docker("stdout", 1, "x\n")),
                [fronted(docker("stdout", 1, "a")), fronted(docker("stdout", 1, "b\n"))],
                fronted(docker("stdout", 1, "ab\n")),
            ),
            (journald("", "x"), [journald(cut, "a"), journald("", "b")], journald(cut, "ab")),
        ] {
            let before = 3 * SAMPLE_LINES;
            let records = [&vec![whole.clone(); before][..], &parts].concat();
            let (lines, at_end) = joined(&records);
            assert_eq!((lines.len(), at_end.len()), (before + 1, 0), "{whole}");
            assert_eq!(lines[before], (before as u64 + 1, Ok(joined_line)));
        }
    }

    #[test]
    fn journald_and_dockers_driver_for_it() {
        let record = |message: &str, more: &str| {
            format!("{{\"MESSAGE\":{message},\"__REALTIME_TIMESTAMP\":\"1710234001500000\"{more}}}")
        };
        let stream = |id: u8, is_cut: bool| {
            let cut = if is_cut { ",\"_LINE_BREAK\":\"line-max\"" } else { "" };
            format!(",\"_STREAM_ID\":\"{id}\"{cut}")
        };
        let container = |priority: u8, is_cut: bool| {
            let cut = if is_cut { ",\"CONTAINER_PARTIAL_MESSAGE\":\"true\"" } else { "" };
            format!(",\"CONTAINER_ID\":\"c\",\"PRIORITY\":\"{priority}\"{cut}")
        };
        let records = [
            record("\"a\"", &stream(1, true)),
            record("\"x\"", &stream(2, false)),
            record("[98,255]", &stream(1, true)),
            record("\"c\"", &stream(1, false)),
            record("\"d\"", &container(6, true)),
            record("\"y\"", &container(3, false)),
            record("\"e\"", &container(6, false)),
            record("\"f\"", ",\"_LINE_BREAK\":\"eof\",\"_STREAM_ID\":\"3\""),
            record("\"g\"", ""),
        ];
        check(
            &records,
            &[
                (2, record("\"x\"", &stream(2, false))),
                (1, record("[97,98,255,99]", &stream(1, true))),
                (6, record("\"y\"", &container(3, false))),
                (5, record("\"de\"", &container(6, true))),
                (8, records[7].clone()),
                (9, records[8].clone()),
            ],
            &[],
        );
    }

    /// Shippers leave the line ends of docker's records out, and then each is a line.
    #[test]
    fn records_of_which_none_has_a_line_end_are_lines() {
        let records = |count: usize, second: fn(usize) -> u8| -> Vec<String> {
            (0..count).map(|number| docker("stdout", second(number), &format!("a{number}"))).collect()
        };
        let numbered = |records: &[String]| (1..).zip(records.to_vec()).collect::<Vec<_>>();
        let at_times = records(SAMPLE_LINES + 5, |number| u8::from(number > 0));
        check(&at_times, &numbered(&at_times), &[]);
        let few = &at_times[..SAMPLE_LINES - 1];
        check(few, &[], &numbered(few));
        // One line that is not at its end.
        let parts = records(3, |_| 1);
        check(&parts, &[], &[(1, docker("stdout", 1, "a0a1a2"))]);
        // Docker cuts nothing that is shorter.
        for (len, is_cut) in [(DOCKER_PART_BYTES - 1, false), (DOCKER_PART_BYTES, true)] {
            let text = "x".repeat(len);
            let records = [docker("stdout", 1, &text), docker("stdout", 2, "y")];
            let at_end =
                if is_cut { vec![(1, docker("stdout", 1, &(text + "y")))] } else { numbered(&records) };
            check(&records, &[], &at_end);
        }
    }

    #[test]
    fn held_parts_are_bounded() {
        let part = "x".repeat(MAX_JOINED_BYTES / 4);
        let mut records = vec![cri("stdout", "P", &part); 3];
        records.push(cri("stdout", "F", &part));
        let (lines, _) = joined(&records);
        assert!(lines == [(1, Ok(cri("stdout", "F", &part.repeat(4))))], "at the bound");
        records.insert(3, cri("stdout", "P", "x"));
        records.insert(4, cri("stderr", "F", "y"));
        records.push(cri("stdout", "F", "z"));
        let refused = (1, Err(Malformed::JoinedLength));
        let expected = [(5, Ok(cri("stderr", "F", "y"))), refused, (7, Ok(cri("stdout", "F", "z")))];
        let (lines, at_end) = joined(&records);
        assert!(lines == expected && at_end.is_empty(), "one byte past it");
        records.truncate(6);
        records[5] = cri("stdout", "P", &part);
        let (lines, at_end) = joined(&records);
        assert!(lines.len() == 2 && at_end.is_empty(), "it was reported");
        // Of more streams than are held, the oldest is read as it is.
        let first_parts = |streams: usize| -> Vec<String> {
            (0..streams).map(|stream| format!("{stream}.log:{}", cri("stdout", "P", "x"))).collect()
        };
        let (lines, at_end) = joined(&first_parts(MAX_CUT_LINES));
        assert_eq!((lines.len(), at_end.len()), (0, MAX_CUT_LINES));
        let (lines, at_end) = joined(&first_parts(MAX_CUT_LINES + 1));
        assert_eq!(
            (lines, at_end.len()),
            (vec![(1, Ok(format!("0.log:{}", cri("stdout", "F", "x"))))], MAX_CUT_LINES)
        );
    }

    #[test]
    fn line_ends_are_found() {
        let check = |text: &str, expected: bool| {
            let record = docker("stdout", 1, text);
            assert_eq!(has_line_end(record.as_bytes()), expected, "{record}");
        };
        check("a\n", true);
        check("\n", true);
        check("\"\n", true);
        check("a\\\n", true);
        check("", false);
        check("a", false);
        check("a\\n", false);
        check("\",\"stream\":\"\n", true);
        check("\n\",\"stream\":\"", false);
        check("a\nb", false);
        check("\n\t", false);
        assert!(!has_line_end(b"{\"log\":\"a\\n") && !has_line_end(b"{\"log\":7}"));
    }
}
