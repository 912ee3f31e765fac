//! Deciding: `LIMIT` and `MLIMIT`.

use lately::limits::MAX_LIMITS;
use lately::{JointRequest, Limit, Request};

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

pub(super) static SPECS: [CommandSpec; 2] = [
    CommandSpec::new("limit", -4, parse_limit)
        .flags(WRITE)
        .keys(1, 1, 1)
        .doc(
            "limits",
            "Counts hits of a key if a window has no more than a limit then, and says what is left",
        )
        .arguments(&[
            KEY,
            MAX,
            WINDOW,
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
    let (max, window) = (count(required(args, 2)?)?, span(required(args, 3)?)?);
    let (mut cost, mut peek, mut lockout, mut at) = (None, None, None, None);
    let mut index = 4;
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
    let (cost, is_peek) = (cost.unwrap_or(1), peek.is_some());
    Ok(Command::Limit(Request { key, max, window, cost, at, is_peek, lockout }))
}

/// Behind a limit, an option word is one: a key of that name has to be named first.
fn parse_multi_limit(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let mut limits = Vec::new();
    let (mut cost, mut peek, mut at) = (None, None, None);
    let mut index = 1;
    while let Some(word) = args.get(index) {
        let is_option = |name| !limits.is_empty() && is_word(word, name);
        if is_option("PEEK") {
            set_once(&mut peek, ())?;
            index += 1;
        } else if is_option("COST") {
            set_once(&mut cost, count(required(args, index + 1)?)?)?;
            index += 2;
        } else if is_option("AT") {
            set_once(&mut at, time(required(args, index + 1)?)?)?;
            index += 2;
        } else if cost.is_none() && peek.is_none() && at.is_none() {
            let (max, window) = (count(required(args, index + 1)?)?, span(required(args, index + 2)?)?);
            limits.push(Limit { key: key(word)?, max, window });
            at_most(MAX_LIMITS, "limits", limits.len(), "MLIMIT")?;
            index += 3;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(Command::LimitAll(JointRequest { limits, cost: cost.unwrap_or(1), at, is_peek: peek.is_some() }))
}
