//! Deciding: `LIMIT` and `MLIMIT`.

use lately::limits::MAX_LIMITS;
use lately::{JointRequest, Limit, Request, Span, Timestamp};

use crate::args::ArgList;
use crate::command::Command;
use crate::command::hits::{AT, KEY, WRITE};
use crate::command::options::{at_most, count, first_key, is_word, key, required, set_once, span, time};
use crate::command::spec::{ArgumentSpec, CommandSpec};
use crate::error::CommandError;

const MAX: ArgumentSpec = ArgumentSpec::of("max", "integer");
const WINDOW: ArgumentSpec = ArgumentSpec::of("window", "string");
const COST: ArgumentSpec = ArgumentSpec::of("cost", "integer").after("COST").optional();
const PEEK: ArgumentSpec = ArgumentSpec::word("peek", "PEEK").optional();

const SAID: ArgumentSpec = ArgumentSpec::group("said", "block", &[MAX, WINDOW]);

pub(super) static SPECS: [CommandSpec; 2] = [
    CommandSpec::new("limit", -3, parse_limit)
        .flags(WRITE)
        .keys(1, 1, 1)
        .doc(
            "limits",
            "Counts hits of a key if a window has no more than a limit then, and says what is left",
        )
        .arguments(&[
            KEY,
            ArgumentSpec::group("limit", "oneof", &[SAID, ArgumentSpec::of("@name", "string")]),
            COST,
            PEEK,
            ArgumentSpec::of("lockout", "string").after("LOCKOUT").optional(),
            AT,
        ]),
    CommandSpec::new("mlimit", -4, parse_multi_limit)
        .flags(WRITE)
        .keys(1, 1, 1)
        .doc("limits", "Counts hits of several keys if all of them stay within their limits, or none")
        .complexity("O(N) with N the number of limits")
        .arguments(&[ArgumentSpec::group("data", "block", &[KEY, MAX, WINDOW]).multiple(), COST, PEEK, AT]),
];

fn parse_limit(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let key = first_key(args)?;
    let max = required(args, 2)?;
    if let Some(name) = max.strip_prefix(b"@") {
        let Options { cost, is_peek, lockout, at } = options(args, 3)?;
        let named = Command::LimitByRule { key, name, cost, at, is_peek };
        return if lockout.is_none() { Ok(named) } else { Err(CommandError::NamedLockout) };
    }
    let window = args.get(3).ok_or(CommandError::Arity { name: "limit" })?;
    let (max, window) = (count(max)?, span(window)?);
    let Options { cost, is_peek, lockout, at } = options(args, 4)?;
    Ok(Command::Limit(Request { at, is_peek, lockout, ..Request::new(key, max, window, cost) }))
}

/// What may follow the limit.
struct Options {
    cost: u64,
    is_peek: bool,
    lockout: Option<Span>,
    at: Option<Timestamp>,
}

/// Reads all that is left from `index` on.
fn options(args: ArgList<'_>, mut index: usize) -> Result<Options, CommandError> {
    let (mut cost, mut peek, mut lockout, mut at) = (None, None, None, None);
    while let Some(word) = args.get(index) {
        if is_word(word, "PEEK") {
            set_once(&mut peek, ())?;
            index += 1;
            continue;
        }
        let value = || required(args, index + 1);
        if is_word(word, "COST") {
            set_once(&mut cost, count(value()?)?)?;
        } else if is_word(word, "LOCKOUT") {
            set_once(&mut lockout, span(value()?)?)?;
        } else if is_word(word, "AT") {
            set_once(&mut at, time(value()?)?)?;
        } else {
            return Err(CommandError::Syntax);
        }
        index += 2;
    }
    Ok(Options { cost: cost.unwrap_or(1), is_peek: peek.is_some(), lockout, at })
}

/// Behind a limit, an option word is one: a key of that name has to be named first.
fn parse_multi_limit(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let is_option = |arg: &[u8]| ["COST", "PEEK", "AT", "LOCKOUT"].iter().any(|word| is_word(arg, word));
    // No more than that: options are among them.
    let most = (args.len() / 3).min(MAX_LIMITS);
    let (mut limits, mut index) = (Vec::with_capacity(most), 1);
    while let Some(word) = args.get(index).filter(|word| limits.is_empty() || !is_option(word)) {
        let max = required(args, index + 1)?;
        if max.starts_with(b"@") {
            return Err(CommandError::NameAmongLimits);
        }
        let (max, window) = (count(max)?, span(required(args, index + 2)?)?);
        limits.push(Limit { key: key(word)?, max, window });
        at_most(MAX_LIMITS, "limits", limits.len(), "MLIMIT")?;
        index += 3;
    }
    match options(args, index)? {
        Options { lockout: Some(_), .. } => Err(CommandError::LockoutAmongLimits),
        Options { cost, is_peek, at, lockout: None } => {
            Ok(Command::LimitAll(JointRequest { limits, cost, at, is_peek }))
        }
    }
}
