//! Counting: `HIT MHIT HITS MHITS RATE SERIES UNIQ`.

use lately::{HitOnce, MemberHit, Span, Timestamp};

use crate::args::ArgList;
use crate::command::Command;
use crate::command::options::{
    A_ID, A_MEMBER, at_most, count, first_key, invalid, is_word, key, keys_from, only_at, required, set_once,
    span, time_after, unexpected, value_of,
};
use crate::command::spec::{ArgumentSpec, CommandFlag, CommandSpec, Group, Verb};
use crate::error::CommandError;
use crate::limits::{MAX_COUNTED_KEYS, MAX_WINDOWS};

const GROUP: Group = Group::Hits;
pub(super) const KEY: ArgumentSpec = ArgumentSpec::of("key", "key");
const WINDOW: ArgumentSpec = ArgumentSpec::of("window", "string");
pub(super) const AT: ArgumentSpec = ArgumentSpec::of("time", "string").after("AT").optional();
pub(super) const COUNTS: &[CommandFlag] = &[CommandFlag::DenyOutOfMemory, CommandFlag::Fast];
const FAST: &[CommandFlag] = &[CommandFlag::Fast];

const FORMS: &[ArgumentSpec] = &[
    ArgumentSpec::word("bounds", "BOUNDS"),
    ArgumentSpec::word("denied", "DENIED"),
    ArgumentSpec::word("staleness", "STALENESS"),
    ArgumentSpec::word("by-origin", "BY ORIGIN"),
];

pub(super) static SPECS: [CommandSpec; 7] = [
    CommandSpec::new("hit", -2, Some(Verb::Hit), parse_hit)
        .flags(COUNTS)
        .keys(1, 1, 1)
        .doc(GROUP, "Counts a hit and returns the hits in the default window")
        .arguments(&[
            KEY,
            ArgumentSpec::of("count", "integer").optional(),
            AT,
            ArgumentSpec::of("id", "string").after("ID").optional(),
            ArgumentSpec::of("member", "string").after("MEMBER").optional(),
        ]),
    CommandSpec::new("mhit", -3, Some(Verb::Hit), parse_multi_hit)
        .flags(COUNTS)
        .keys(1, -1, 2)
        .doc(GROUP, "Counts hits of several keys and returns the hits of each in its default window")
        .complexity("O(N) with N the number of keys")
        .arguments(&[
            ArgumentSpec::group("data", "block", &[KEY, ArgumentSpec::of("count", "integer")]).multiple()
        ]),
    CommandSpec::new("hits", -2, Some(Verb::Read), parse_hits)
        .flags(FAST)
        .keys(1, 1, 1)
        .doc(GROUP, "Returns the hits of a key in one or several windows")
        .complexity("O(N) with N the number of windows")
        .arguments(&[
            KEY,
            WINDOW.optional().multiple(),
            ArgumentSpec::group("form", "oneof", FORMS).optional(),
            AT,
        ]),
    CommandSpec::new("mhits", -3, Some(Verb::Read), parse_multi_hits)
        .flags(FAST)
        .keys(2, -1, 1)
        .doc(GROUP, "Returns the hits of several keys in a window")
        .complexity("O(N) with N the number of keys")
        .arguments(&[WINDOW, KEY.multiple()]),
    CommandSpec::new("rate", -2, Some(Verb::Read), parse_rate)
        .flags(FAST)
        .keys(1, 1, 1)
        .doc(GROUP, "Returns the hits per second of a key in a window")
        .arguments(&[KEY, WINDOW.optional(), AT]),
    CommandSpec::new("series", -4, Some(Verb::Read), parse_series)
        .keys(1, 1, 1)
        .doc(GROUP, "Returns the hits of a key in each step of a window")
        .complexity("O(N) with N the number of steps")
        .arguments(&[KEY, WINDOW, ArgumentSpec::of("step", "string"), AT]),
    CommandSpec::new("uniq", -2, Some(Verb::Read), parse_unique)
        .flags(FAST)
        .keys(1, 1, 1)
        .doc(GROUP, "Returns the distinct members of a key's hits in a window")
        .arguments(&[KEY, WINDOW.optional(), ArgumentSpec::word("bounds", "BOUNDS").optional()]),
];

/// The keys of `MHIT`, each with its count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pairs<'a> {
    list: ArgList<'a>,
}

impl<'a> Pairs<'a> {
    /// The number of keys.
    #[must_use]
    pub fn len(self) -> usize {
        self.list.len() / 2
    }

    /// Whether there are none. A parsed command has at least one.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.list.is_empty()
    }

    /// The keys with their counts.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], u64)> + Clone {
        let keys = self.list.iter().step_by(2);
        let counts = self.list.from(1).iter().step_by(2);
        keys.zip(counts).map(|(key, arg)| (key, count(arg, COUNT).expect("checked when it was parsed")))
    }
}

/// The windows of `HITS`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows<'a> {
    first: Option<Span>,
    rest: ArgList<'a>,
}

impl<'a> Windows<'a> {
    /// The number of windows.
    #[must_use]
    pub fn len(self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// Whether none is given, which means the default window.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.first.is_none()
    }

    /// The first window.
    #[must_use]
    pub fn first(self) -> Option<Span> {
        self.first
    }

    /// The windows.
    pub fn iter(self) -> impl Iterator<Item = Span> + Clone + 'a {
        let rest = self.rest.iter().map(|arg| span(arg).expect("checked when it was parsed"));
        self.first.into_iter().chain(rest)
    }
}

/// The name of a hit's weight.
const COUNT: &str = "count";

/// The id after the word at `index`.
fn id_after(args: ArgList<'_>, index: usize) -> Result<&[u8], CommandError> {
    let id = value_of(args, index, "ID", A_ID)?;
    HitOnce::check_id(id).map_err(|_| CommandError::IdLength { bytes: id.len() })?;
    Ok(id)
}

/// The member after the word at `index`.
fn member_after(args: ArgList<'_>, index: usize) -> Result<&[u8], CommandError> {
    let member = value_of(args, index, "MEMBER", A_MEMBER)?;
    MemberHit::check_member(member).map_err(|_| CommandError::MemberLength { bytes: member.len() })?;
    Ok(member)
}

fn parse_hit(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let key = first_key(args)?;
    let is_option = |arg| ["AT", "ID", "MEMBER"].iter().any(|word| is_word(arg, word));
    let (weight, mut index) = match args.get(2) {
        Some(arg) if !is_option(arg) => (count(arg, COUNT)?, 3),
        _ => (1, 2),
    };
    let (mut at, mut id, mut member) = (None, None, None);
    while let Some(word) = args.get(index) {
        if is_word(word, "AT") {
            set_once(&mut at, time_after(args, index)?, "AT")?;
        } else if is_word(word, "ID") {
            set_once(&mut id, id_after(args, index)?, "ID")?;
        } else if is_word(word, "MEMBER") {
            set_once(&mut member, member_after(args, index)?, "MEMBER")?;
        } else {
            return Err(unexpected(word, ""));
        }
        index += 2;
    }
    Ok(match (member, id) {
        (Some(member), id) => Command::HitMember(MemberHit { key, weight, at, id, member }),
        (None, Some(id)) => Command::HitOnce(HitOnce { key, weight, at, id }),
        (None, None) => Command::Hit { key, count: weight, at },
    })
}

fn parse_multi_hit(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let list = args.from(1);
    if !list.len().is_multiple_of(2) {
        return Err(CommandError::Arity { name: "mhit" });
    }
    at_most(MAX_COUNTED_KEYS, "keys", list.len() / 2, "MHIT")?;
    for (index, arg) in list.iter().enumerate() {
        if index % 2 == 0 {
            key(arg)?;
        } else {
            count(arg, COUNT)?;
        }
    }
    Ok(Command::MultiHit { pairs: Pairs { list } })
}

/// What `HITS` replies, if not just the hits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Bounds,
    Denied,
    Staleness,
    ByOrigin,
}

impl Form {
    /// The form at an index of the arguments.
    fn at(named: ArgList<'_>, index: usize) -> Option<Form> {
        let is = |index, word| named.get(index).is_some_and(|arg| is_word(arg, word));
        let forms = [Form::Bounds, Form::Denied, Form::Staleness];
        let form = forms.into_iter().find(|form| is(index, form.word()));
        form.or((is(index, "BY") && is(index + 1, "ORIGIN")).then_some(Form::ByOrigin))
    }

    fn word(self) -> &'static str {
        match self {
            Form::Bounds => "BOUNDS",
            Form::Denied => "DENIED",
            Form::Staleness => "STALENESS",
            Form::ByOrigin => "BY ORIGIN",
        }
    }

    fn words(self) -> usize {
        if self == Form::ByOrigin { 2 } else { 1 }
    }

    /// The error about a second window.
    fn one_window(self) -> &'static str {
        match self {
            Form::Bounds => ": BOUNDS takes at most one window",
            Form::Denied => ": DENIED takes at most one window",
            Form::Staleness => ": STALENESS takes at most one window",
            Form::ByOrigin => ": BY ORIGIN takes at most one window",
        }
    }
}

fn parse_hits(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let key = first_key(args)?;
    let named = args.from(2);
    let is_option = |index: usize| {
        let is = |word| named.get(index).is_some_and(|arg| is_word(arg, word));
        Form::at(named, index).is_some() || is("AT") || is("BY")
    };
    let window_count = (0..named.len()).find(|index| is_option(*index)).unwrap_or(named.len());
    at_most(MAX_WINDOWS, "windows", window_count, "HITS")?;
    let windows = parse_windows(named.first(window_count))?;

    let (mut at, mut form) = (None::<Timestamp>, None::<Form>);
    let mut index = window_count;
    while let Some(word) = named.get(index) {
        if is_word(word, "AT") {
            set_once(&mut at, time_after(named, index)?, "AT")?;
            index += 2;
        } else if let Some(more) = Form::at(named, index) {
            match form.replace(more) {
                Some(before) if before != more => {
                    let (first, second) = (before.min(more).word(), before.max(more).word());
                    return Err(CommandError::TwoForms { first, second });
                }
                Some(_) => return Err(CommandError::Twice { option: more.word() }),
                None => index += more.words(),
            }
        } else if is_word(word, "BY") {
            return Err(unexpected(word, ": BY ORIGIN gives the hits of each node"));
        } else {
            return Err(unexpected(
                word,
                ": windows come before BOUNDS, DENIED, STALENESS, BY ORIGIN and AT",
            ));
        }
    }
    let Some(form) = form else { return Ok(Command::Hits { key, windows, at }) };
    if let Some(second) = windows.rest.get(0) {
        return Err(unexpected(second, form.one_window()));
    }
    let window = windows.first;
    Ok(match form {
        Form::Bounds => Command::HitsBounds { key, window, at },
        Form::Denied => Command::HitsDenied { key, window, at },
        Form::Staleness => Command::HitsStaleness { key, window, at },
        Form::ByOrigin => Command::HitsByOrigin { key, window, at },
    })
}

fn parse_windows(named: ArgList<'_>) -> Result<Windows<'_>, CommandError> {
    let rest = named.from(1);
    let first = named.get(0).map(|arg| {
        let is_before_window = rest.iter().last().is_some_and(|last| span(last).is_ok());
        let several = "HITS takes one key. For several: MHITS 5m key key";
        span(arg).map_err(|error| if is_before_window { invalid("duration", arg, several) } else { error })
    });
    let first = first.transpose()?;
    rest.iter().try_for_each(|arg| span(arg).map(|_| ()))?;
    Ok(Windows { first, rest })
}

fn parse_multi_hits(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    at_most(MAX_COUNTED_KEYS, "keys", args.from(2).len(), "MHITS")?;
    Ok(Command::MultiHits { window: span(required(args, 1)?)?, keys: keys_from(args, 2)? })
}

fn parse_rate(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let key = first_key(args)?;
    let (window, index) = match args.get(2) {
        Some(arg) if !is_word(arg, "AT") => (Some(span(arg)?), 3),
        _ => (None, 2),
    };
    Ok(Command::Rate { key, window, at: only_at(args, index)? })
}

fn parse_series(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    Ok(Command::Series {
        key: first_key(args)?,
        window: span(required(args, 2)?)?,
        step: span(required(args, 3)?)?,
        at: only_at(args, 4)?,
    })
}

fn parse_unique(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let key = first_key(args)?;
    let (window, index) = match args.get(2) {
        Some(arg) if is_word(arg, "AT") => return Err(unexpected(arg, ": UNIQ counts until now")),
        Some(arg) if !is_word(arg, "BOUNDS") => (Some(span(arg)?), 3),
        _ => (None, 2),
    };
    let has_bounds = args.get(index).is_some_and(|arg| is_word(arg, "BOUNDS"));
    match args.get(index + usize::from(has_bounds)) {
        Some(word) if has_bounds && is_word(word, "BOUNDS") => Err(CommandError::Twice { option: "BOUNDS" }),
        Some(word) => Err(unexpected(word, ": UNIQ takes one window, and then BOUNDS")),
        None => Ok(Command::Unique { key, window, has_bounds }),
    }
}
