//! Deciding: `LIMIT`.

use lately::Request;

use crate::args::ArgList;
use crate::command::Command;
use crate::command::hits::{AT, KEY, WRITE};
use crate::command::options::{count, first_key, is_word, required, set_once, span, time};
use crate::command::spec::{ArgumentSpec, CommandSpec};
use crate::error::CommandError;

pub(super) static SPECS: [CommandSpec; 1] = [CommandSpec::new("limit", -4, parse_limit)
    .flags(WRITE)
    .keys(1, 1, 1)
    .doc("limits", "Counts hits of a key if a window has no more than a limit then, and says what is left")
    .arguments(&[
        KEY,
        ArgumentSpec::of("max", "integer"),
        ArgumentSpec::of("window", "string"),
        ArgumentSpec::of("cost", "integer").after("COST").optional(),
        ArgumentSpec::word("peek", "PEEK").optional(),
        ArgumentSpec::of("lockout", "string").after("LOCKOUT").optional(),
        AT,
    ])];

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
