//! Parses a line of any format into a record.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;

use lately::Timestamp;
use lately::limits::MAX_KEY_BYTES;

use crate::access::{ACCESS_FIELDS, AccessField, AccessLine, COMBINED_FIELDS, COMMON_FIELDS};
use crate::error::{Malformed, SetupError};
use crate::fields::{Fields, FoundAs};
use crate::filter::Filter;
use crate::format::Format;
use crate::json;
use crate::layout::Layout;
use crate::limits::{MAX_FILTERS, MAX_LISTED_CHARACTERS, MAX_LISTED_FIELDS, MAX_WRAPPERS};
use crate::logfmt;
use crate::options::Options;
use crate::pattern::Pattern;
use crate::scanned::Lacking;
use crate::time::{LOG_DATE_LEN, TimeReader};
use crate::w3c::W3c;
use crate::wanted::{Found, Wanted};
use crate::wrapper::{self, RecordOf};
use lately_keys::Part;
use lately_keys::address::canonical_of;

/// A hit from a line: a time and a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The time.
    pub at: Timestamp,
    /// The key: 1 to [`MAX_KEY_BYTES`] bytes.
    pub key: &'a [u8],
    /// The part of the key that is the address or the network of a client. The whole key if no part is known to be
    /// one.
    pub address: &'a [u8],
}

/// A line that parses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed<'a> {
    /// A hit.
    Hit(Record<'a>),
    /// A hit that does not meet the conditions, or is outside the requested times.
    Filtered,
    /// A line that starts with `#`.
    Comment,
}

/// The result of a line, like [`Parsed`]. The key is in the parser.
#[derive(PartialEq, Eq)]
enum Outcome {
    Hit(Timestamp),
    Filtered,
    Comment,
}

/// Parses lines of one format into records.
///
/// The result depends on the line alone, with one exception: a `#Fields:` line of the w3c format changes how later
/// lines are parsed. All other state is a cache.
#[derive(Clone, Debug)]
pub struct LineParser {
    source: Source,
    plan: Plan,
    work: Work,
}

#[derive(Clone, Debug)]
enum Source {
    Access {
        fields: Vec<AccessField>,
        has_vhost: bool,
    },
    /// The last of the names is that of journald's time.
    Json(Fields, Wanted),
    Logfmt(Fields, Wanted),
    W3c(W3c),
    Pattern(Pattern),
}

/// The requested fields of each line, in this order: those of the key, of the conditions, of the time.
#[derive(Clone, Debug)]
struct Plan {
    wanted: Vec<String>,
    key: Vec<Part>,
    /// The part of the key that is an address.
    address: Option<usize>,
    filters: Vec<Filter>,
    /// For each condition, whether any line had its field.
    filter_fields: Vec<FieldSeen>,
    first_filter: usize,
    time: TimePlan,
    /// Whether the time of a wrapper comes before that of the fields. True if no field was given for the time.
    prefers_wrapper_time: bool,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

/// Whether there were lines, and whether any had a field.
#[derive(Clone, Default, Debug)]
struct FieldSeen {
    lines: Cell<bool>,
    fields: Cell<bool>,
}

impl FieldSeen {
    #[inline]
    fn note(&self, has_field: bool) {
        self.lines.set(true);
        if has_field {
            self.fields.set(true);
        }
    }
}

/// Where the time is.
#[derive(Clone, Debug)]
enum TimePlan {
    /// At the fixed place of the format.
    Fixed,
    /// In the first of these fields that has a time.
    Fields(Range<usize>),
    /// In several fields, from this index on.
    Template(Vec<Part>, usize),
}

/// The state that changes from line to line.
#[derive(Clone, Debug)]
struct Work {
    times: TimeReader,
    key: Vec<u8>,
    /// The place of the address in a key of several parts.
    address: Option<Range<usize>>,
    time_text: Vec<u8>,
    /// The time of the outermost wrapper that has one, for JSON and logfmt.
    carried_at: Option<Timestamp>,
    /// The number of wrappers removed from the line. Inside a wrapper, no JSON object is looked for.
    wrappers: usize,
}

impl LineParser {
    /// A parser for lines of `format`.
    ///
    /// The fields of the key and of conditions are, for combined: `ip path url status method user request protocol
    /// bytes forwarded peer referer agent`. Common lacks the last two, and vhost has `vhost`, too. JSON and logfmt
    /// have any names, and `ip path url status method user vhost` are found under the names that servers use. The
    /// other formats have the names of their definition.
    ///
    /// # Errors
    /// The format has no such field, or its time has a fixed place but a time field is given.
    pub fn new(format: &Format, options: &Options) -> Result<LineParser, SetupError> {
        if options.filters.len() > MAX_FILTERS {
            return Err(SetupError::Filters { filters: options.filters.len() });
        }
        let mut wanted = options.key.fields().to_vec();
        let first_filter = wanted.len();
        wanted.extend(options.filters.iter().map(|filter| filter.field().to_owned()));
        let first_time = wanted.len();
        let mut time = match (&options.time, &options.time_field) {
            (Some(template), _) => {
                wanted.extend_from_slice(template.fields());
                TimePlan::Template(template.parts().to_vec(), first_time)
            }
            (None, Some(field)) => {
                wanted.push(field.clone());
                TimePlan::Fields(first_time..wanted.len())
            }
            (None, None) => TimePlan::Fixed,
        };
        let is_fixed = matches!(time, TimePlan::Fixed);
        let source = match format {
            Format::Common => access(format, COMMON_FIELDS, &wanted, is_fixed)?,
            Format::Combined => access(format, COMBINED_FIELDS, &wanted, is_fixed)?,
            Format::Vhost => access(format, ACCESS_FIELDS.len(), &wanted, is_fixed)?,
            Format::Json | Format::Logfmt => {
                if is_fixed {
                    wanted.extend(json::TIME_FIELDS.map(String::from));
                    time = TimePlan::Fields(first_time..wanted.len());
                }
                let fields = Fields::new(&wanted, first_time);
                if matches!(format, Format::Json) {
                    let journald = std::iter::once(json::JOURNALD_TIME.to_owned());
                    let names: Vec<String> = fields.names().iter().cloned().chain(journald).collect();
                    Source::Json(fields, Wanted::new(&names))
                } else {
                    let names = Wanted::new(fields.names());
                    Source::Logfmt(fields, names)
                }
            }
            Format::W3c => {
                if is_fixed {
                    wanted.extend(["date", "time"].map(String::from));
                }
                Source::W3c(W3c::new(&wanted))
            }
            Format::Layout(name, layout) => {
                let mut layout = layout.clone();
                if is_fixed {
                    time = TimePlan::Fields(first_time..first_time + layout.times.len());
                    wanted.extend(name_times(&mut layout));
                }
                Source::Pattern(Pattern::new(&layout, name, &wanted)?)
            }
            Format::Regex(layout) => {
                if is_fixed {
                    wanted.push("time".into());
                    time = TimePlan::Fields(first_time..wanted.len());
                }
                Source::Pattern(Pattern::new(layout, "regex", &wanted)?)
            }
        };
        let plan = Plan {
            wanted,
            key: options.key.parts().to_vec(),
            address: options.key.address_part(),
            filters: options.filters.clone(),
            filter_fields: vec![FieldSeen::default(); options.filters.len()],
            first_filter,
            time,
            prefers_wrapper_time: is_fixed,
            since: options.since,
            until: options.until,
        };
        let times = TimeReader::new(&options.times);
        let work = Work {
            times,
            key: Vec::new(),
            address: None,
            time_text: Vec::new(),
            carried_at: None,
            wrappers: 0,
        };
        Ok(LineParser { source, plan, work })
    }

    /// Advances the clock of [`crate::Times::now`].
    pub fn set_now(&mut self, now: Timestamp) {
        self.work.times.set_now(now);
    }

    /// Parses `line`, without its line end.
    ///
    /// # Errors
    /// The reason why the line does not parse.
    pub fn parse<'a>(&'a mut self, line: &[u8]) -> Result<Parsed<'a>, Malformed> {
        let outcome = match self.read_bare(line, None) {
            Err(Malformed::Shape) => self.read_wrapped(line, None),
            outcome => outcome,
        };
        match outcome? {
            Outcome::Hit(at) => {
                let key = &self.work.key[..];
                let address = self.work.address.as_ref().map_or(key, |address| &key[address.clone()]);
                Ok(Parsed::Hit(Record { at, key, address }))
            }
            Outcome::Filtered => Ok(Parsed::Filtered),
            Outcome::Comment => Ok(Parsed::Comment),
        }
    }

    /// The fields that `line` lacks for its time or, if it has one, for its key; and the fields that it has. Only for
    /// formats whose lines name their fields.
    pub(crate) fn lacking(&self, line: &[u8], why: Malformed) -> Option<Lacking> {
        let is_json = match &self.source {
            Source::Json(..) => true,
            Source::Logfmt(..) => false,
            _ => return None,
        };
        let around = match &self.source {
            Source::Json(_, wanted) | Source::Logfmt(_, wanted) => {
                Around::of(line, wrapper::inner(line).and_then(|inner| inner.record), wanted)
            }
            _ => None,
        };
        let line = unwrapped(line, is_json);
        let line = json::repaired(&line).filter(|_| is_json).map_or(line, Cow::Owned);
        let mut there = if is_json { json::names(&line) } else { logfmt::names(&line) };
        there.truncate(MAX_LISTED_FIELDS);
        let there = there.iter().map(|name| name.chars().take(MAX_LISTED_CHARACTERS).collect()).collect();
        let tried = match (why, &self.plan.time) {
            (Malformed::Field, _) => self.lacking_of_key(&line, around.as_ref()),
            (Malformed::Time | Malformed::Number, TimePlan::Fields(places)) => {
                self.plan.wanted[places.clone()].to_vec()
            }
            (Malformed::Time | Malformed::Number, TimePlan::Template(_, first)) => {
                self.plan.wanted[*first..].to_vec()
            }
            _ => return None,
        };
        Some(Lacking { tried, there })
    }

    /// The fields of the key that are in neither the unwrapped line nor the record around it.
    fn lacking_of_key(&self, line: &[u8], around: Option<&Around<'_>>) -> Vec<String> {
        let has = |field: usize| match &self.source {
            Source::Json(fields, wanted) => json::find(line, wanted).is_some_and(|found| {
                let text = |name| json::value(wanted.name(name), found.get(name)?);
                fields.has(field, |name| Around::or(around, wanted, name, text))
            }),
            Source::Logfmt(fields, wanted) => logfmt::find(line, wanted).is_some_and(|found| {
                let text = |name: usize| logfmt::text(found.get(name)?);
                fields.has(field, |name| Around::or(around, wanted, name, text))
            }),
            _ => true,
        };
        let key = self.plan.wanted[..self.plan.first_filter].iter().enumerate();
        key.filter(|(field, _)| !has(*field)).map(|(_, name)| name.clone()).collect()
    }

    /// The fields of the key that were found under other names.
    pub(crate) fn found_as(&self) -> Vec<FoundAs> {
        match &self.source {
            Source::Json(fields, _) | Source::Logfmt(fields, _) => {
                fields.found_as(&self.plan.wanted[..self.plan.first_filter])
            }
            _ => Vec::new(),
        }
    }

    /// The fields of conditions that were in no line.
    pub(crate) fn missing(&self) -> Vec<String> {
        let filters = self.plan.filters.iter().zip(&self.plan.filter_fields);
        let missing = filters.filter(|(_, seen)| seen.lines.get() && !seen.fields.get());
        missing.map(|(filter, _)| filter.field().to_owned()).collect()
    }

    /// Parses a line that does not have the format as it is: a comment, or a line in a wrapper.
    #[cold]
    fn read_wrapped(&mut self, line: &[u8], around: Option<&Around<'_>>) -> Result<Outcome, Malformed> {
        if line.first() == Some(&b'#') {
            return Ok(Outcome::Comment);
        }
        let inner = wrapper::inner(line).filter(|_| self.work.wrappers < MAX_WRAPPERS);
        let inner = inner.ok_or(Malformed::Shape)?;
        let record = match &self.source {
            Source::Logfmt(_, wanted) => Around::of(line, inner.record, wanted),
            _ => None,
        };
        self.read_carried(&inner, self.work.wrappers + 1, around.or(record.as_ref()))
    }

    /// Parses a line without its wrapper. JSON and logfmt use the time of the outermost wrapper that has one, because
    /// a client may have chosen the text inside.
    fn read_carried(
        &mut self,
        inner: &wrapper::Inner<'_>,
        wrappers: usize,
        around: Option<&Around<'_>>,
    ) -> Result<Outcome, Malformed> {
        let before = (self.work.carried_at, self.work.wrappers);
        if matches!(self.source, Source::Json(..) | Source::Logfmt(..))
            && matches!(self.plan.time, TimePlan::Fields(_))
            && before.0.is_none()
        {
            self.work.carried_at = inner.at.as_deref().and_then(|at| self.work.times.text(at).ok());
        }
        self.work.wrappers = wrappers;
        let outcome = match self.read_bare(&inner.text, around) {
            Err(Malformed::Shape) => self.read_wrapped(&inner.text, around),
            outcome => outcome,
        };
        (self.work.carried_at, self.work.wrappers) = before;
        outcome
    }

    /// Parses a JSON object that may carry another one. Then the fields of both count.
    fn read_json_carrier(&mut self, line: &[u8]) -> Result<Outcome, Malformed> {
        let inner = wrapper::inner(line).filter(|inner| inner.text.first() == Some(&b'{'));
        let around = match (&self.source, &inner) {
            (Source::Json(_, wanted), Some(inner)) => Around::of(line, inner.record, wanted),
            _ => None,
        };
        let outcome = match &inner {
            Some(inner) => self.read_carried(inner, MAX_WRAPPERS, around.as_ref()),
            None => Err(Malformed::Shape),
        };
        if outcome != Err(Malformed::Shape) {
            return outcome;
        }
        self.work.wrappers = MAX_WRAPPERS;
        let outcome = self.read_bare(line, None);
        self.work.wrappers = 0;
        outcome
    }

    #[inline(always)]
    fn read_bare(&mut self, line: &[u8], around: Option<&Around<'_>>) -> Result<Outcome, Malformed> {
        let LineParser { source, plan, work } = self;
        let Source::Access { fields, has_vhost } = source else { return self.read_other(line, around) };
        let Some(access) = AccessLine::cut(line, *has_vhost) else { return Err(Malformed::Shape) };
        let time = |times: &mut TimeReader| match <&[u8; LOG_DATE_LEN]>::try_from(access.date) {
            Ok(date) => times.log_date(date).ok_or(Malformed::Time),
            Err(_) => times.text(access.date),
        };
        // The addresses are canonical already.
        plan.outcome(work, time, |index| access.field(fields[index]), |value| value)
    }

    /// Parses a line of the other formats. A function of its own, because its stack frame is large.
    #[inline(never)]
    fn read_other(&mut self, line: &[u8], around: Option<&Around<'_>>) -> Result<Outcome, Malformed> {
        let LineParser { source, plan, work } = self;
        match source {
            Source::Access { .. } => Err(Malformed::Shape),
            Source::Json(fields, wanted) => {
                let Some(found) = json::find(line, wanted) else {
                    let line = json::repaired(line).ok_or(Malformed::Shape)?;
                    let found = json::find(&line, wanted).ok_or(Malformed::Shape)?;
                    let text = |name| json::value(wanted.name(name), found.get(name)?).map(json::restored);
                    let text = |name| Around::or(around, wanted, name, text);
                    return plan.outcome(work, no_time, |field| fields.value(field, text), canonical_of);
                };
                let is_carrier = wrapper::is_docker(line) || found.has(wanted.len() - 1);
                if is_carrier && work.wrappers == 0 {
                    return self.read_json_carrier(line);
                }
                let text = |name| json::value(wanted.name(name), found.get(name)?);
                let text = |name| Around::or(around, wanted, name, text);
                plan.outcome(work, no_time, |field| fields.value(field, text), canonical_of)
            }
            Source::Logfmt(_, wanted) => {
                let found = logfmt::find(line, wanted).ok_or(Malformed::Shape)?;
                // The words of a wrapper would parse as flags, but the wrapper's time is needed.
                if !logfmt::starts_with_pair(line) && work.wrappers < MAX_WRAPPERS {
                    match self.read_wrapped(line, around) {
                        Err(Malformed::Shape) => {}
                        outcome => return outcome,
                    }
                }
                let LineParser { source: Source::Logfmt(fields, wanted), plan, work } = self else {
                    return Err(Malformed::Shape);
                };
                let text = |name: usize| logfmt::text(found.get(name)?);
                let text = |name| Around::or(around, wanted, name, text);
                plan.outcome(work, no_time, |field| fields.value(field, text), canonical_of)
            }
            Source::W3c(w3c) => {
                if line.first() == Some(&b'#') {
                    w3c.directive(line);
                    return Ok(Outcome::Comment);
                }
                let found = w3c.find(line).ok_or(Malformed::Shape)?;
                let (date, time) = (found.len().wrapping_sub(2), found.len().wrapping_sub(1));
                let time = |times: &mut TimeReader| match (found.get(date), found.get(time)) {
                    // The standard says that they are in UTC.
                    (Some(Some(date)), Some(Some(time))) => times.text(&[*date, b"T", time, b"Z"].concat()),
                    _ => Err(Malformed::Time),
                };
                plan.outcome(work, time, |index| found[index].map(Cow::Borrowed), canonical_of)
            }
            Source::Pattern(pattern) => {
                let groups = pattern.read(line).ok_or(Malformed::Shape)?;
                plan.outcome(work, no_time, |index| groups.field(index), canonical_of)
            }
        }
    }
}

/// The record of docker or journald around a line. Its fields come before those of the line, so that the author of
/// the text cannot change them.
struct Around<'a> {
    found: Found<&'a str>,
    record: RecordOf,
}

impl<'a> Around<'a> {
    fn of(line: &'a [u8], record: Option<RecordOf>, wanted: &Wanted) -> Option<Around<'a>> {
        Some(Around { found: json::find(line, wanted)?, record: record? })
    }

    /// The value under a name: that of the record if it has the field, or else that of the line.
    #[inline(always)]
    fn or<'t>(
        around: Option<&Around<'t>>,
        wanted: &Wanted,
        name: usize,
        text: impl Fn(usize) -> Option<Cow<'t, [u8]>>,
    ) -> Option<Cow<'t, [u8]>> {
        let Some(around) = around else { return text(name) };
        match around.found.get(name) {
            Some(own) => json::value(wanted.name(name), own),
            None if around.record.owns(wanted.name(name)) => None,
            None => text(name),
        }
    }
}

/// A JSON or logfmt line without its wrappers.
fn unwrapped(line: &[u8], is_json: bool) -> Cow<'_, [u8]> {
    let mut line = Cow::Borrowed(line);
    for _ in 0..MAX_WRAPPERS {
        let is_bare = if is_json { line.first() == Some(&b'{') } else { logfmt::is_whole(&line) };
        let inner = wrapper::inner(&line).filter(|inner| !is_bare || inner.text.first() == Some(&b'{'));
        let Some(inner) = inner.map(|inner| inner.text.into_owned()) else { break };
        line = Cow::Owned(inner);
    }
    line
}

impl Plan {
    /// The outcome of a line with these fields. The key is in `work`. In values of conditions and of the key,
    /// addresses are canonical.
    #[inline(always)]
    fn outcome<'a>(
        &self,
        work: &mut Work,
        fixed_time: impl FnOnce(&mut TimeReader) -> Result<Timestamp, Malformed>,
        field: impl Fn(usize) -> Option<Cow<'a, [u8]>>,
        with_one_spelling: impl Fn(Cow<'a, [u8]>) -> Cow<'a, [u8]>,
    ) -> Result<Outcome, Malformed> {
        let clean = |place| field(place).map(&with_one_spelling);
        for ((place, filter), seen) in (self.first_filter..).zip(&self.filters).zip(&self.filter_fields) {
            let value = clean(place);
            seen.note(value.is_some());
            if !filter.holds(value.as_deref()) {
                return Ok(Outcome::Filtered);
            }
        }
        let at = match &self.time {
            TimePlan::Fixed => fixed_time(&mut work.times)?,
            TimePlan::Fields(places) => match work.carried_at.filter(|_| self.prefers_wrapper_time) {
                Some(at) => at,
                None => first_time(&mut work.times, places.clone().map(&field))
                    .or_else(|problem| work.carried_at.ok_or(problem))?,
            },
            TimePlan::Template(parts, first) => {
                work.time_text.clear();
                build(parts, None, &mut work.time_text, |place| field(first + place))
                    .ok_or(Malformed::Time)?;
                work.times.text(&work.time_text)?
            }
        };
        if self.since.is_some_and(|since| at < since) || self.until.is_some_and(|until| at > until) {
            return Ok(Outcome::Filtered);
        }
        work.key.clear();
        match &self.key[..] {
            // Nearly all keys are one field.
            [Part::Field(index)] => work.key.extend_from_slice(&clean(*index).ok_or(Malformed::Field)?),
            parts => {
                let address = build(parts, self.address, &mut work.key, clean).ok_or(Malformed::Field)?;
                work.address = self.address.map(|_| address);
            }
        }
        if work.key.is_empty() || work.key.len() > MAX_KEY_BYTES {
            return Err(Malformed::KeyLength);
        }
        Ok(Outcome::Hit(at))
    }
}

/// The time in the first of these fields that has one, or else the most specific error.
fn first_time<'a>(
    times: &mut TimeReader,
    fields: impl Iterator<Item = Option<Cow<'a, [u8]>>>,
) -> Result<Timestamp, Malformed> {
    let mut problem = Malformed::Time;
    for text in fields.flatten() {
        match times.text(&text) {
            Ok(at) => return Ok(at),
            // An incomplete time is a more specific error than no time.
            Err(Malformed::Zone) => problem = Malformed::Zone,
            Err(Malformed::Number) if problem == Malformed::Time => problem = Malformed::Number,
            Err(_) => {}
        }
    }
    Err(problem)
}

fn no_time(_: &mut TimeReader) -> Result<Timestamp, Malformed> {
    Err(Malformed::Time)
}

fn access(format: &Format, known: usize, wanted: &[String], is_fixed: bool) -> Result<Source, SetupError> {
    if !is_fixed {
        return Err(SetupError::FixedTime { format: format.name() });
    }
    let known = &ACCESS_FIELDS[..known];
    let field = |name: &String| {
        let found = known.iter().find(|(known, _)| known == name).map(|(_, field)| *field);
        found.ok_or_else(|| SetupError::Field {
            field: name.clone(),
            format: format.name(),
            known: known.iter().map(|(name, _)| (*name).into()).collect(),
        })
    };
    let fields = wanted.iter().map(field).collect::<Result<_, _>>()?;
    Ok(Source::Access { fields, has_vhost: matches!(format, Format::Vhost) })
}

/// Names for the groups of the time. No field has such a name.
fn name_times(layout: &mut Layout) -> Vec<String> {
    let names: Vec<String> = (0..layout.times.len()).map(|number| format!("time {number}")).collect();
    layout.names.extend(names.iter().cloned().zip(layout.times.iter().copied()));
    names
}

/// Appends the text of a template to `buffer`; `None` when one of its fields is missing. Returns where the text of the part
/// `looked_for` is.
fn build<'a>(
    parts: &[Part],
    looked_for: Option<usize>,
    buffer: &mut Vec<u8>,
    field: impl Fn(usize) -> Option<Cow<'a, [u8]>>,
) -> Option<Range<usize>> {
    let mut place = 0..0;
    for (number, part) in parts.iter().enumerate() {
        let from = buffer.len();
        match part {
            Part::Text(text) => buffer.extend_from_slice(text.as_bytes()),
            Part::Field(index) => buffer.extend_from_slice(&field(*index)?),
            Part::Network(index, prefix) => buffer.extend_from_slice(&prefix.apply(&field(*index)?)),
        }
        if looked_for == Some(number) {
            place = from..buffer.len();
        }
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Times;
    use lately_keys::Template;

    const NOW: u64 = 1_795_000_000;

    fn options(key: &str) -> Options {
        let now = Timestamp::from_seconds(NOW).expect("in range");
        Options {
            key: key.parse().expect(key),
            times: Times { now, ..Times::default() },
            ..Options::default()
        }
    }

    fn read(format: &str, options: &Options, line: &[u8]) -> Result<(String, Vec<u8>), Malformed> {
        let mut parser = LineParser::new(&format.parse().expect(format), options).expect("a good set-up");
        match parser.parse(line)? {
            Parsed::Hit(record) => Ok((record.at.to_string(), record.key.to_vec())),
            other => Ok((format!("{other:?}"), Vec::new())),
        }
    }

    fn check(format: &str, key: &str, line: &[u8], expected: Result<(&str, &[u8]), Malformed>) {
        let expected = expected.map(|(at, key)| (at.to_owned(), key.to_vec()));
        assert_eq!(read(format, &options(key), line), expected, "{format} {key} {}", line.escape_ascii());
    }

    #[test]
    fn access_lines() {
        let line = br#"1.2.3.4 - jo [17/May/2015:12:05:03 +0200] "GET /a?b HTTP/1.1" 200 12 "-" "agent""#;
        let at = "1431857103";
        check("combined", "ip", line, Ok((at, b"1.2.3.4")));
        check("common", "{ip} {path} {url}", line, Ok((at, b"1.2.3.4 /a /a?b")));
        check("combined", "{{{status}}} {user}", line, Ok((at, b"{200} jo")));
        check("combined", "agent", line, Ok((at, b"agent")));
        check("combined", "{ip/16}", line, Ok((at, b"1.2.0.0/16")));
        check("combined", "*", line, Ok((at, b"*")));
        let line = b"1.2.3.4 - \xff [17/May/2015:10:05:03 +0000] \"-\" 408 -";
        check("combined", "user", line, Ok((at, b"\xff")));
        check("combined", "path", line, Err(Malformed::Field));
        check("combined", "{ip} {path}", line, Err(Malformed::Field));
        check("combined", "agent", line, Err(Malformed::Field));
        check("combined", "ip", b"x - - [40/May/2015:10:05:03 +0000] \"-\" 408 -", Err(Malformed::Time));
        check("combined", "ip", b"x - - [17/May/2015:10:05:03] \"-\" 408 -", Err(Malformed::Zone));
        check(
            "combined",
            "ip",
            b"x - - [17/May/2015:10:05:03.25 +0000] \"-\" 408 -",
            Ok(("1431857103.25", b"x")),
        );
        check("combined", "ip", b"x - - -", Err(Malformed::Shape));
        check("combined", "ip", b"- - - [17/May/2015:10:05:03 +0000] \"-\" 408 -", Err(Malformed::Field));
        check("combined", "ip", b"# comment", Ok(("Comment", b"")));
    }

    #[test]
    fn json_lines() {
        let json = |key, line: &str, expected| check("json", key, line.as_bytes(), expected);
        json("ip", r#"{"ip":"a","time":1431857103}"#, Ok(("1431857103", b"a")));
        json("ip", r#"{"ip":"a","time":"1431857103.25"}"#, Ok(("1431857103.25", b"a")));
        json("ip", r#"{"ip":"a","ts":1431857103123}"#, Ok(("1431857103.123", b"a")));
        json("ip", r#"{"@timestamp":"2015-05-17T10:05:03Z","ip":"a"}"#, Ok(("1431857103", b"a")));
        json("ip", r#"{"ip":"a","time":"17/May/2015:10:05:03 +0000"}"#, Ok(("1431857103", b"a")));
        json("ip", r#"{"ip":"a","time_iso8601":"2015-05-17T10:05:03+00:00"}"#, Ok(("1431857103", b"a")));
        json("ip", r#"{"ip":"a","msec":"1431857103.123"}"#, Ok(("1431857103.123", b"a")));
        json("ip", r#"{"ip":"a","time_local":"17/May/2015:10:05:03 +0000"}"#, Ok(("1431857103", b"a")));
        json("ip", r#"{"ip":"a","__REALTIME_TIMESTAMP":"1431857103123456"}"#, Ok(("1431857103.123", b"a")));
        json(
            "ip",
            r#"{"ts":1431857103,"timestamp":1431857102,"time":1431857101,"ip":"a"}"#,
            Ok(("1431857101", b"a")),
        );
        json("ip", r#"{"@timestamp":4,"ts":1431857103,"timestamp":null,"ip":"a"}"#, Ok(("1431857103", b"a")));
        json(
            "{a.b}/{c}",
            r#"{"time":1431857103,"a":{"b":"x\ty"},"c":true}"#,
            Ok(("1431857103", b"x\ty/true")),
        );
        json("n", r#"{"time":1431857103,"n":1.0}"#, Ok(("1431857103", b"1.0")));
        json("MESSAGE", r#"{"time":1431857103,"MESSAGE":[104,255]}"#, Ok(("1431857103", b"h\xff")));
        json("ip/24", r#"{"time":1431857103,"ip":"::ffff:192.0.2.1"}"#, Ok(("1431857103", b"192.0.2.0/24")));
        // A latency is no time: what is one comes later.
        let line = r#"{"timestamp":"2015-05-17T10:05:03Z","time":0.037,"ip":"a"}"#;
        json("ip", line, Ok(("1431857103", b"a")));
        json("ip", r#"{"ip":"a","time":"soon","ts":1431857103}"#, Ok(("1431857103", b"a")));
        json("ip", r#"{"ip":"a","time":"soon"}"#, Err(Malformed::Time));
        json("ip", r#"{"ip":"a","time":0.037}"#, Err(Malformed::Number));
        json("ip", r#"{"ip":"a","time":0.037,"ts":"2015-05-17T10:05:03"}"#, Err(Malformed::Zone));
        json("ip", r#"{"ip":"a"}"#, Err(Malformed::Time));
        json("ip", r#"{"ip":"a","time":true}"#, Err(Malformed::Time));
        json("ip", r#"{"ip":null,"time":1431857103}"#, Err(Malformed::Field));
        json("ip", r#"{"time":1431857103}"#, Err(Malformed::Field));
        json("ip", r#"{"ip":"","time":1431857103}"#, Err(Malformed::KeyLength));
        json("ip", "ip=a time=1431857103", Err(Malformed::Shape));
    }

    #[test]
    fn the_time_can_be_elsewhere() {
        let time_field = Some("when.at".to_owned());
        let line =
            br#"{"time":1431857103,"ip":"a","when":{"at":1431857104},"d":"2015-05-17","t":"10:05:05Z"}"#;
        let found = read("json", &Options { time_field, ..options("ip") }, line);
        assert_eq!(found, Ok(("1431857104".into(), b"a".to_vec())));
        let time = Some("{d}T{t}".parse::<Template>().expect("a template"));
        let found = read("json", &Options { time: time.clone(), ..options("ip") }, line);
        assert_eq!(found, Ok(("1431857105".into(), b"a".to_vec())));
        let fixed = Options { time_field: Some("time".into()), ..options("ip") };
        let refused = LineParser::new(&Format::Common, &fixed).map(|_| ());
        assert_eq!(refused, Err(SetupError::FixedTime { format: "common" }));
        let when = Options { time_field: Some("when".into()), ..options("ip") };
        assert_eq!(
            read("regex:(?<ip>.) (?<when>.*)", &when, b"a 1431857103"),
            Ok(("1431857103".into(), b"a".to_vec()))
        );
        let regex = "regex:(?<d>[^ ]+) (?<t>[^ ]+) (?<ip>.)";
        let found = read(regex, &Options { time, ..options("ip") }, b"2015-05-17 10:05:05Z a");
        assert_eq!(found, Ok(("1431857105".into(), b"a".to_vec())));
    }

    #[test]
    fn regex_lines() {
        let regex = r"regex:^(?<time>\S+) (?<ip>\S+)(?: (?<user>.+))?$";
        check(regex, "ip", b"1431857103.5 a", Ok(("1431857103.5", b"a")));
        check(regex, "{user}@{ip}", b"2015-05-17T10:05:03Z a \xe9 x", Ok(("1431857103", b"\xe9 x@a")));
        check(regex, "user", b"1431857103 a", Err(Malformed::Field));
        check(regex, "ip", b"soon a", Err(Malformed::Time));
        check(regex, "ip", b"081110 a", Err(Malformed::Number));
        check(regex, "ip", b"1", Err(Malformed::Shape));
    }

    #[test]
    fn conditions_and_times_leave_lines_out() {
        let line = br#"1.2.3.4 - jo [17/May/2015:12:05:03 +0200] "GET /a?b HTTP/1.1" 503 12 "-" "agent""#;
        let at = |seconds: u64| Timestamp::from_seconds(seconds);
        let check = |filters: &[&str], since: Option<Timestamp>, until: Option<Timestamp>, is_hit: bool| {
            let filters = filters.iter().map(|filter| filter.parse().expect(filter)).collect();
            let found = read("combined", &Options { filters, since, until, ..options("ip") }, line);
            let found = found.map(|(at, _)| at);
            assert_eq!(found.as_deref(), Ok(if is_hit { "1431857103" } else { "Filtered" }));
        };
        check(&["status=5xx", "path=/a", "bytes<13"], None, None, true);
        check(&["status=5xx", "path=/b"], None, None, false);
        check(&[], at(1_431_857_103), at(1_431_857_103), true);
        check(&[], at(1_431_857_104), None, false);
        check(&[], None, at(1_431_857_102), false);
        // A line that is left out needs no key.
        let filters = vec!["method=GET".parse().expect("a condition")];
        let tls = br#"1.2.3.4 - - [17/May/2015:12:05:03 +0200] "\x16\x03" 400 12"#;
        let found = read("combined", &Options { filters, ..options("path") }, tls);
        assert_eq!(found.map(|(at, _)| at).as_deref(), Ok("Filtered"));
        let many =
            Options { filters: vec!["a=b".parse().expect("a condition"); MAX_FILTERS + 1], ..options("ip") };
        let refused = LineParser::new(&Format::Json, &many).map(|_| ());
        assert_eq!(refused, Err(SetupError::Filters { filters: MAX_FILTERS + 1 }));
        let most =
            Options { filters: vec!["a=b".parse().expect("a condition"); MAX_FILTERS], ..options("ip") };
        assert!(LineParser::new(&Format::Json, &most).is_ok());
    }

    #[test]
    fn carriers_of_json_have_a_time_and_the_line_goes_before() {
        let docker = |log: &str| {
            format!(
                "{{\"log\":{},\"stream\":\"stdout\",\"time\":\"2015-05-17T10:05:03Z\"}}",
                serde_json::Value::from(log)
            )
        };
        let json = |line: &str, expected| check("json", "ip", line.as_bytes(), expected);
        json(&docker("{\"ip\":\"a\"}\n"), Ok(("1431857103", b"a")));
        json("2015-05-17T10:05:03Z stdout F {\"ip\":\"a\"}", Ok(("1431857103", b"a")));
        check("json", "log", docker("hello\n").as_bytes(), Ok(("1431857103", b"hello\n")));
        let journald = r#"{"MESSAGE":"{\"ip\":\"a\"}","__REALTIME_TIMESTAMP":"1431857103000000"}"#;
        json(journald, Ok(("1431857103", b"a")));
        check("logfmt", "ip", b"web-1  | ip=a time=1431857103", Ok(("1431857103", b"a")));
    }

    /// Symptom: `--key _SYSTEMD_UNIT` left out every service that logs JSON, and a text `{"_SYSTEMD_UNIT":"x","time":…}` chose
    /// the unit and the time of its row. Cause: of a record whose text is an object, only the text's fields were read. Fix:
    /// the record's own fields and time are before those of the text.
    #[test]
    fn a_text_changes_no_field_of_the_record_around_it() {
        let docker = |log: &str, more: &str| {
            let log = serde_json::Value::from(log);
            format!("{{\"log\":{log},\"stream\":\"stdout\"{more},\"time\":\"2015-05-17T10:05:03Z\"}}")
        };
        let journald = |message: &str, more: &str| {
            let message = serde_json::Value::from(message);
            format!("{{\"__REALTIME_TIMESTAMP\":\"1431857103000000\",\"MESSAGE\":{message}{more}}}")
        };
        let unit = ",\"_SYSTEMD_UNIT\":\"web.service\"";
        let attrs = ",\"attrs\":{\"tag\":\"web\"}";
        let object = r#"{"time":1431857000,"ip":"a","level":"info","stream":"evil","_SYSTEMD_UNIT":"evil","_PID":"7","attrs":{"tag":"evil"},"__REALTIME_TIMESTAMP":"1431857000000000","log.level":"warn"}"#;
        let pairs = "time=2015-05-17T09:00:00Z ip=a stream=evil _SYSTEMD_UNIT=evil _PID=7";
        let at = "1431857103";
        for (format, text) in [("json", object), ("logfmt", pairs)] {
            let check = |key: &str, line: &str, expected| check(format, key, line.as_bytes(), expected);
            let (docker, journald) = (|more| docker(text, more), |more| journald(text, more));
            check("stream", &docker(""), Ok((at, b"stdout")));
            check("ip", &docker(""), Ok((at, b"a")));
            check("{stream} {ip}", &docker(""), Ok((at, b"stdout a")));
            check("attrs.tag", &docker(attrs), Ok((at, b"web")));
            check("attrs.tag", &docker(""), Err(Malformed::Field));
            check("_SYSTEMD_UNIT", &journald(unit), Ok((at, b"web.service")));
            check("{_SYSTEMD_UNIT} {ip}", &journald(unit), Ok((at, b"web.service a")));
            // A text fills in none of what journald adds.
            check("_SYSTEMD_UNIT", &journald(""), Err(Malformed::Field));
            check("_SYSTEMD_UNIT", &journald(",\"_SYSTEMD_UNIT\":null"), Err(Malformed::Field));
            check("_PID", &journald(unit), Err(Malformed::Field));
            check("{MESSAGE}", &journald(""), Ok((at, text.as_bytes())));
            // Runtimes that write the time before the text.
            for front in [
                "2015-05-17T10:05:03Z stdout F ",
                "2015-05-17T10:05:03.0Z ",
                "<34>1 2015-05-17T10:05:03Z web app 1 - - ",
                "2015-05-17T10:05:03+00:00 web app[1]: ",
                "web-1  | 2015-05-17T10:05:03Z stdout F ",
            ] {
                check("ip", &format!("{front}{text}"), Ok((at, b"a")));
            }
            // A wrapper in the text is not before the one around it.
            let nested = format!("2015-05-17T10:05:03Z stdout F 2015-05-17T09:00:00Z stdout F {text}");
            check("ip", &nested, Ok((at, b"a")));
        }
        check("json", "log.level", docker(object, "").as_bytes(), Ok((at, b"warn")));
        // No time is written around it: the text's own.
        let line = format!("web-1  | {object}");
        check("json", "ip", line.as_bytes(), Ok(("1431857000", b"a")));
        let line = format!("May 17 10:05:03 web app[1]: {object}");
        check("json", "ip", line.as_bytes(), Ok(("1431857000", b"a")));
        // A field that is asked for is the text's where the record has no such field.
        let asked = Options { time_field: Some("ts".into()), ..options("ip") };
        let found = read("json", &asked, docker(r#"{"ip":"a","ts":1431857001}"#, "").as_bytes());
        assert_eq!(found, Ok(("1431857001".into(), b"a".to_vec())));
        let found = read("json", &asked, docker(r#"{"ip":"a"}"#, "").as_bytes());
        assert_eq!(found, Ok((at.into(), b"a".to_vec())));
        // Conditions see the same fields as keys.
        let filters = vec!["_SYSTEMD_UNIT=web.service".parse().expect("a condition")];
        let found = read("json", &Options { filters, ..options("ip") }, journald(object, unit).as_bytes());
        assert_eq!(found, Ok((at.into(), b"a".to_vec())));
    }

    #[test]
    fn the_address_in_a_key_is_known() {
        let line = br#"::ffff:10.1.2.3 - jo [17/May/2015:12:05:03 +0200] "GET 192.0.2.1 HTTP/1.1" 200 12"#;
        let check = |key: &str, expected: &str| {
            let mut parser = LineParser::new(&Format::Combined, &options(key)).expect(key);
            let Ok(Parsed::Hit(record)) = parser.parse(line) else { panic!("a hit") };
            assert_eq!(String::from_utf8_lossy(record.address), expected, "{key}");
        };
        check("ip", "10.1.2.3");
        check("{path} {ip}", "10.1.2.3");
        check("{user} {ip/16} {path}", "10.1.0.0/16");
        check("user", "jo");
        check("{user} {path}", "jo 192.0.2.1");
        check("*", "*");
    }

    #[test]
    fn unknown_fields_are_refused_with_the_known_ones() {
        let check = |format: &str, key: &str, expected: &str| {
            let error =
                LineParser::new(&format.parse().expect(format), &options(key)).map(|_| ()).expect_err(key);
            assert_eq!(error.to_string(), expected);
        };
        check(
            "common",
            "{ip} {agent}",
            "no field 'agent' in the common format: it has ip, path, url, status, method, user, request, protocol, bytes, forwarded, peer",
        );
        check("regex:(?<time>.)(?<host>.)", "ip", "no field 'ip' in the regex format: it has time, host");
        check("regex:.", "ip", "no field 'ip' in the regex format: it has no named groups");
        check(
            "apache:%t \"%r\"",
            "ip",
            "no field 'ip' in the apache format: it has time, request, method, url, path, protocol",
        );
        for (format, key) in [("combined", "agent"), ("vhost", "vhost"), ("json", "whatever"), ("w3c", "x")] {
            assert!(LineParser::new(&format.parse().expect(format), &options(key)).is_ok(), "{format}");
        }
    }

    #[test]
    fn keys_are_bounded() {
        for (bytes, fits) in [(MAX_KEY_BYTES, true), (MAX_KEY_BYTES + 1, false)] {
            let line = format!("{{\"time\":1431857103,\"ip\":\"{}\"}}", "x".repeat(bytes));
            let expected = if fits { None } else { Some(Malformed::KeyLength) };
            assert_eq!(read("json", &options("ip"), line.as_bytes()).err(), expected);
        }
    }
}
