//! Deciding: `LIMIT` and `MLIMIT`.

use lately::limits::MAX_LIMITS;
use lately::{JointRequest, Limit, Request, Span, Timestamp};

use crate::args::ArgList;
use crate::command::Command;
use crate::command::hits::{AT, COUNTS, KEY};
use crate::command::options::{
    A_COUNT, A_DURATION, at_most, count, first_key, invalid, is_word, key, required, set_once, span,
    time_after, unexpected, value_of,
};
use crate::command::spec::{ArgumentSpec, CommandFlag, CommandSpec, Verb};
use crate::error::{CommandError, echo};

const MAX: ArgumentSpec = ArgumentSpec::of("max", "integer");
const WINDOW: ArgumentSpec = ArgumentSpec::of("window", "string");
const COST: ArgumentSpec = ArgumentSpec::of("cost", "integer").after("COST").optional();
const PEEK: ArgumentSpec = ArgumentSpec::word("peek", "PEEK").optional();

const LIMIT_IN_WORDS: ArgumentSpec = ArgumentSpec::group("said", "block", &[MAX, WINDOW]);

pub(super) static SPECS: [CommandSpec; 2] = [
    CommandSpec::new("limit", -3, Some(Verb::Limit), parse_limit)
        .flags(COUNTS)
        .keys(1, 1, 1)
        .doc(
            "limits",
            "Counts hits of a key if a window has no more than a limit then, and says what is left",
        )
        .arguments(&[
            KEY,
            ArgumentSpec::group("limit", "oneof", &[LIMIT_IN_WORDS, ArgumentSpec::of("@name", "string")]),
            COST,
            PEEK,
            ArgumentSpec::of("lockout", "string").after("LOCKOUT").optional(),
            AT,
        ]),
    // A limit in one word, 5/1m or @name, is a frequent mistake. The parser has a better message than that an
    // argument is missing.
    CommandSpec::new("mlimit", -3, Some(Verb::Limit), parse_multi_limit)
        .flags(&[CommandFlag::DenyOutOfMemory, CommandFlag::Fast, CommandFlag::MovableKeys])
        .keys(1, 1, 1)
        .doc("limits", "Counts hits of several keys if all of them stay within their limits, or none")
        .complexity("O(N) with N the number of limits")
        .arguments(&[ArgumentSpec::group("data", "block", &[KEY, MAX, WINDOW]).multiple(), COST, PEEK, AT]),
];

fn parse_limit(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let key = first_key(args)?;
    let max = required(args, 2)?;
    if let Some(name) = max.strip_prefix(b"@") {
        let Options { cost, is_peek, lockout, at } = options(args, 3, "LIMIT")?;
        let named = Command::LimitByRule { key, name, cost, at, is_peek };
        return if lockout.is_none() { Ok(named) } else { Err(CommandError::NamedLockout) };
    }
    let most = self::max(max)?;
    let window = args.get(3).ok_or(CommandError::Arity { name: "limit" })?;
    let (max, window) = (most, span(window)?);
    let Options { cost, is_peek, lockout, at } = options(args, 4, "LIMIT")?;
    Ok(Command::Limit(Request { at, is_peek, lockout, ..Request::new(key, max, window, cost) }))
}

/// The most hits of a limit. A frequent mistake is to give it in one word with the window.
#[inline]
fn max(arg: &[u8]) -> Result<u64, CommandError> {
    count(arg, "max").map_err(|error| {
        let parts = str::from_utf8(arg).ok().and_then(|text| text.split_once('/'));
        match parts
            .filter(|(max, window)| count(max.as_bytes(), "max").is_ok() && span(window.as_bytes()).is_ok())
        {
            Some((max, window)) => {
                invalid("max", arg, format!("give max and window as two arguments, {max} {window}"))
            }
            None => error,
        }
    })
}

/// The options of a limit.
struct Options {
    cost: u64,
    is_peek: bool,
    lockout: Option<Span>,
    at: Option<Timestamp>,
}

/// Options of later versions.
const UNSUPPORTED: [&str; 2] = ["OVERDRAFT", "FACTOR"];

/// Parses the arguments from `index` on.
fn options(args: ArgList<'_>, mut index: usize, command: &'static str) -> Result<Options, CommandError> {
    let (mut cost, mut peek, mut lockout, mut at) = (None, None, None, None);
    while let Some(word) = args.get(index) {
        if is_word(word, "PEEK") {
            set_once(&mut peek, (), "PEEK")?;
            index += 1;
            continue;
        }
        if is_word(word, "COST") {
            set_once(&mut cost, count(value_of(args, index, "COST", A_COUNT)?, "COST")?, "COST")?;
        } else if is_word(word, "LOCKOUT") {
            set_once(&mut lockout, span(value_of(args, index, "LOCKOUT", A_DURATION)?)?, "LOCKOUT")?;
        } else if is_word(word, "AT") {
            set_once(&mut at, time_after(args, index)?, "AT")?;
        } else if let Some(&option) = UNSUPPORTED.iter().find(|option| is_word(word, option)) {
            return Err(CommandError::UnsupportedOption { option, command });
        } else {
            return Err(unexpected(word, ""));
        }
        index += 2;
    }
    Ok(Options { cost: cost.unwrap_or(1), is_peek: peek.is_some(), lockout, at })
}

/// After a limit, an option word is an option. A key with such a name must come first.
fn parse_multi_limit(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let words = ["COST", "PEEK", "AT", "LOCKOUT"].into_iter().chain(UNSUPPORTED);
    let is_option = |arg: &[u8]| words.clone().any(|word| is_word(arg, word));
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
    match options(args, index, "MLIMIT")? {
        Options { lockout: Some(_), .. } => Err(CommandError::LockoutAmongLimits),
        Options { cost, is_peek, at, lockout: None } => {
            Ok(Command::LimitAll(JointRequest { limits, cost, at, is_peek }))
        }
    }
}
