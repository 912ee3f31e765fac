//! Deciding: `LIMIT`.

use lately::{Request, Span, Timestamp};

use crate::args::ArgList;
use crate::command::Command;
use crate::command::hits::{AT, KEY, WRITE};
use crate::command::options::{count, first_key, is_word, required, set_once, span, time};
use crate::command::spec::{ArgumentSpec, CommandSpec};
use crate::error::CommandError;

const SAID: ArgumentSpec = ArgumentSpec::group(
    "said",
    "block",
    &[ArgumentSpec::of("max", "integer"), ArgumentSpec::of("window", "string")],
);

pub(super) static SPECS: [CommandSpec; 1] = [CommandSpec::new("limit", -3, parse_limit)
    .flags(WRITE)
    .keys(1, 1, 1)
    .doc("limits", "Counts hits of a key if a window has no more than a limit then, and says what is left")
    .arguments(&[
        KEY,
        ArgumentSpec::group("limit", "oneof", &[SAID, ArgumentSpec::of("@name", "string")]),
        ArgumentSpec::of("cost", "integer").after("COST").optional(),
        ArgumentSpec::word("peek", "PEEK").optional(),
        ArgumentSpec::of("lockout", "string").after("LOCKOUT").optional(),
        AT,
    ])];

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
    Ok(Command::Limit(Request { key, max, window, cost, at, is_peek, lockout }))
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
