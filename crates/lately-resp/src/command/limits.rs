//! Deciding: `LIMIT` and `MLIMIT`.

use lately::limits::MAX_LIMITS;
use lately::{Admission, Factor, JointRequest, Limit, Lockout, LockoutError, Request, Span, Timestamp};

use crate::args::ArgList;
use crate::command::Command;
use crate::command::hits::{AT, COUNTS, KEY};
use crate::command::options::{
    A_COUNT, A_DURATION, at_most, count, first_key, invalid, is_word, key, required, set_once, signed_count,
    span, time_after, unexpected, value_of,
};
use crate::command::spec::{ArgumentSpec, CommandFlag, CommandSpec, Group, Verb};
use crate::error::{CommandError, echo};
use crate::limits::MAX_ECHOED_BYTES;

const MAX: ArgumentSpec = ArgumentSpec::of("max", "integer");
const WINDOW: ArgumentSpec = ArgumentSpec::of("window", "string");
const COST: ArgumentSpec = ArgumentSpec::of("cost", "integer").after("COST").optional();
const PEEK: ArgumentSpec = ArgumentSpec::word("peek", "PEEK").optional();

const OVERDRAFT: ArgumentSpec = ArgumentSpec::word("overdraft", "OVERDRAFT").optional();
const LOCKOUT: ArgumentSpec = ArgumentSpec::of("lockout", "string").after("LOCKOUT");
const FACTOR: ArgumentSpec = ArgumentSpec::of("factor", "double").after("FACTOR").optional();
const LONGEST: ArgumentSpec = ArgumentSpec::of("longest", "string").after("MAX").optional();

const LIMIT_IN_WORDS: ArgumentSpec = ArgumentSpec::group("said", "block", &[MAX, WINDOW]);

pub(super) static SPECS: [CommandSpec; 2] = [
    CommandSpec::new("limit", -3, Some(Verb::Limit), parse_limit)
        .flags(COUNTS)
        .keys(1, 1, 1)
        .doc(
            Group::Limits,
            "Counts hits of a key if a window has no more than a limit then, and says what is left",
        )
        .arguments(&[
            KEY,
            ArgumentSpec::group("limit", "oneof", &[LIMIT_IN_WORDS, ArgumentSpec::of("@name", "string")]),
            COST,
            PEEK,
            OVERDRAFT,
            ArgumentSpec::group("lockouts", "block", &[LOCKOUT, FACTOR, LONGEST]).optional(),
            AT,
        ]),
    // A limit in one word, 5/1m or @name, is a frequent mistake. The parser has a better message than that an
    // argument is missing.
    CommandSpec::new("mlimit", -3, Some(Verb::Limit), parse_multi_limit)
        .flags(&[CommandFlag::DenyOutOfMemory, CommandFlag::Fast, CommandFlag::MovableKeys])
        .keys(1, 1, 1)
        .doc(Group::Limits, "Counts hits of several keys if all of them stay within their limits, or none")
        .complexity("O(N) with N the number of limits")
        .arguments(&[ArgumentSpec::group("data", "block", &[KEY, MAX, WINDOW]).multiple(), COST, PEEK, AT]),
];

fn parse_limit(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let key = first_key(args)?;
    let max = required(args, 2)?;
    if let Some(name) = max.strip_prefix(b"@") {
        let options = options(args, 3, true)?;
        return match options.of_the_config() {
            Some(option) => Err(CommandError::NamedOption { option }),
            None => {
                let Options { cost, is_peek, at, .. } = options;
                Ok(Command::LimitByRule { key, name, cost, at, is_peek })
            }
        };
    }
    if max.first().is_some_and(u8::is_ascii_alphabetic) {
        let expected = "give a whole number, such as 5 before 1m, or the name of a limit behind an @";
        return Err(invalid("max", max, expected));
    }
    let most = self::max(max)?;
    let window = args.get(3).ok_or(CommandError::Arity { name: "limit" })?;
    let (max, window) = (most, span(window)?);
    let options = options(args, 4, true)?;
    let lockout = options.lockout()?;
    let Options { cost, is_peek, at, is_overdraft, .. } = options;
    let admission = if is_overdraft { Admission::Overdraft } else { Admission::Whole };
    let request = Request::new(key, max, window, cost.unsigned_abs());
    let request = Request { at, is_peek, lockout, admission, ..request };
    Ok(if cost < 0 { Command::Refund(request) } else { Command::Limit(request) })
}

/// The most hits of a limit. A frequent mistake is to give it in one word with the window.
#[inline]
fn max(arg: &[u8]) -> Result<u64, CommandError> {
    count(arg, "max").map_err(|error| {
        let parts = str::from_utf8(arg).ok().and_then(|text| text.split_once('/'));
        match parts.filter(|(max, window)| count(max.as_bytes(), "max").is_ok() && !window.is_empty()) {
            Some((max, window)) => {
                let window = if span(window.as_bytes()).is_ok() { window } else { "1m" };
                invalid("max", arg, format!("give max and window as two arguments, such as {max} {window}"))
            }
            None => error,
        }
    })
}

/// The options of a limit.
struct Options {
    /// Below 0, hits are given back.
    cost: i64,
    is_peek: bool,
    is_overdraft: bool,
    lockout: Option<Span>,
    factor: Option<Factor>,
    longest: Option<Span>,
    at: Option<Timestamp>,
}

impl Options {
    /// The lockout of these options.
    fn lockout(&self) -> Result<Option<Lockout>, CommandError> {
        let &Options { lockout, factor, longest, .. } = self;
        let growth = factor.map(|_| "FACTOR").or(longest.map(|_| "MAX"));
        match (lockout, growth) {
            (None, Some(option)) => Err(CommandError::WithoutLockout { option }),
            (None, None) => Ok(None),
            (Some(first), None) => Ok(Some(Lockout::of(first))),
            (Some(first), Some(_)) => {
                Ok(Some(Lockout::growing(first, factor.unwrap_or(Factor::ONE), longest)?))
            }
        }
    }

    /// An option that named limits have in the config.
    fn of_the_config(&self) -> Option<&'static str> {
        let is_given = [
            (self.is_overdraft, "OVERDRAFT"),
            (self.lockout.is_some(), "LOCKOUT"),
            (self.factor.is_some(), "FACTOR"),
            (self.longest.is_some(), "MAX"),
        ];
        is_given.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
    }
}

/// Parses the arguments from `index` on. Only `LIMIT` gives hits back.
fn options(args: ArgList<'_>, mut index: usize, is_refund_known: bool) -> Result<Options, CommandError> {
    let (mut cost, mut peek, mut overdraft, mut at) = (None, None, None, None);
    let (mut lockout, mut factor, mut longest) = (None, None, None);
    while let Some(word) = args.get(index) {
        if is_word(word, "PEEK") {
            set_once(&mut peek, (), "PEEK")?;
            index += 1;
            continue;
        }
        if is_word(word, "OVERDRAFT") {
            set_once(&mut overdraft, (), "OVERDRAFT")?;
            index += 1;
            continue;
        }
        if is_word(word, "COST") {
            let value = value_of(args, index, "COST", A_COUNT)?;
            let value = if is_refund_known {
                signed_count(value, "COST")?
            } else {
                count(value, "COST")?.cast_signed()
            };
            set_once(&mut cost, value, "COST")?;
        } else if is_word(word, "LOCKOUT") {
            set_once(&mut lockout, span(value_of(args, index, "LOCKOUT", A_DURATION)?)?, "LOCKOUT")?;
        } else if is_word(word, "FACTOR") {
            set_once(&mut factor, self::factor(value_of(args, index, "FACTOR", A_FACTOR)?)?, "FACTOR")?;
        } else if is_word(word, "MAX") {
            set_once(&mut longest, span(value_of(args, index, "MAX", A_DURATION)?)?, "MAX")?;
        } else if is_word(word, "AT") {
            set_once(&mut at, time_after(args, index)?, "AT")?;
        } else {
            return Err(unexpected(word, ""));
        }
        index += 2;
    }
    let (cost, is_peek, is_overdraft) = (cost.unwrap_or(1), peek.is_some(), overdraft.is_some());
    Ok(Options { cost, is_peek, is_overdraft, lockout, factor, longest, at })
}

const A_FACTOR: &str = "a number from 1 on, such as 2,";

fn factor(arg: &[u8]) -> Result<Factor, CommandError> {
    let factor = str::from_utf8(arg).ok().filter(|_| arg.len() <= MAX_ECHOED_BYTES);
    let factor = factor.map_or_else(|| Err(LockoutError::Factor { text: echo(arg) }), str::parse);
    Ok(factor?)
}

/// After a limit, an option word is an option. A key with such a name must come first.
fn parse_multi_limit(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let words = ["COST", "PEEK", "AT", "LOCKOUT", "OVERDRAFT", "FACTOR"];
    let is_option = |arg: &[u8]| words.iter().any(|word| is_word(arg, word));
    // An upper bound, because it includes the options.
    let most = (args.len() / 3).min(MAX_LIMITS);
    let (mut limits, mut index) = (Vec::with_capacity(most), 1);
    while let Some(word) = args.get(index).filter(|word| limits.is_empty() || !is_option(word)) {
        let incomplete = |missing| CommandError::Incomplete { key: echo(word), missing };
        let max = args.get(index + 1).ok_or_else(|| incomplete("max and no window"))?;
        if max.starts_with(b"@") {
            return Err(invalid(
                "max",
                max,
                "give numbers, such as 5 1m: MLIMIT takes max and window, and no @name",
            ));
        }
        let max = self::max(max)?;
        let window = args.get(index + 2).ok_or_else(|| match args.len() {
            3 => CommandError::Arity { name: "mlimit" },
            _ => incomplete("window"),
        })?;
        let window = span(window)?;
        limits.push(Limit { key: key(word)?, max, window });
        at_most(MAX_LIMITS, "limits", limits.len(), "MLIMIT")?;
        index += 3;
    }
    let options = options(args, index, false)?;
    if let Some(option) = options.of_the_config() {
        return Err(CommandError::AmongLimits { option });
    }
    let Options { cost, is_peek, at, .. } = options;
    Ok(Command::LimitAll(JointRequest { limits, cost: cost.unsigned_abs(), at, is_peek }))
}
