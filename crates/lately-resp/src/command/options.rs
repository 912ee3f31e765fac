//! Parses single arguments: keys, counts, times, and option words.

use std::borrow::Cow;

use lately::limits::{MAX_KEY_BYTES, MAX_TOTAL};
use lately::{Span, TimeError, Timestamp};

use crate::args::ArgList;
use crate::error::{CommandError, echo};
use crate::integer::parse_integer;
use crate::limits::MAX_ECHOED_BYTES;

pub(super) fn is_word(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// The argument at `index`, or a syntax error.
#[inline]
pub(super) fn required(args: ArgList<'_>, index: usize) -> Result<&[u8], CommandError> {
    match args.get(index) {
        Some(arg) => Ok(arg),
        None => Err(CommandError::Syntax),
    }
}

#[inline]
pub(super) fn key(arg: &[u8]) -> Result<&[u8], CommandError> {
    if arg.is_empty() || arg.len() > MAX_KEY_BYTES {
        return Err(CommandError::KeyLength { bytes: arg.len() });
    }
    Ok(arg)
}

/// The key of a command whose first argument is a key.
#[inline]
pub(super) fn first_key(args: ArgList<'_>) -> Result<&[u8], CommandError> {
    key(required(args, 1)?)
}

/// All arguments from `index` on, each a key.
pub(super) fn keys_from(args: ArgList<'_>, index: usize) -> Result<ArgList<'_>, CommandError> {
    let keys = args.from(index);
    keys.iter().try_for_each(|arg| key(arg).map(|_| ()))?;
    Ok(keys)
}

/// An error if there are more of something than `command` takes.
pub(super) fn at_most(
    most: usize,
    what: &'static str,
    count: usize,
    command: &'static str,
) -> Result<(), CommandError> {
    if count > most { Err(CommandError::TooMany { command, what, most }) } else { Ok(()) }
}

/// A number of hits, 0 to `i64::MAX`. `what` is its name in the error.
#[inline]
pub(super) fn count(arg: &[u8], what: &'static str) -> Result<u64, CommandError> {
    match parse_integer(arg).map(u64::try_from) {
        Some(Ok(count)) => Ok(count),
        _ => Err(not_a_count(arg, what)),
    }
}

/// How many keys a command is to return, 0 to `most`.
pub(super) fn how_many(arg: &[u8], most: usize) -> Result<usize, CommandError> {
    let count = parse_integer(arg).and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|&count| count <= most);
    count.ok_or_else(|| invalid("k", arg, format!("give how many keys are wanted, 0 to {most}")))
}

/// A number of hits, or with a minus a number of hits to give back. `what` is its name in the error.
#[inline]
pub(super) fn signed_count(arg: &[u8], what: &'static str) -> Result<i64, CommandError> {
    parse_integer(arg).filter(|&count| count > i64::MIN).ok_or_else(|| {
        let expected = format!("give a whole number from 0 to {MAX_TOTAL}, or below 0 to give hits back");
        invalid(what, arg, expected)
    })
}

#[cold]
fn not_a_count(arg: &[u8], what: &'static str) -> CommandError {
    invalid(what, arg, format!("give a whole number from 0 to {MAX_TOTAL}"))
}

/// The error for an argument of the wrong form.
#[cold]
pub(super) fn invalid(
    what: &'static str,
    value: &[u8],
    expected: impl Into<Cow<'static, str>>,
) -> CommandError {
    CommandError::Invalid { what, value: echo(value), expected: expected.into() }
}

/// The error for an unexpected argument. The hint says where it belongs.
#[cold]
pub(super) fn unexpected(value: &[u8], hint: &'static str) -> CommandError {
    CommandError::Unexpected { value: echo(value), hint }
}

/// The values that options need.
pub(super) const A_TIME: &str = "a time, such as 1700000000,";
/// See [`A_TIME`].
pub(super) const A_DURATION: &str = "a duration, such as 5m,";
/// See [`A_TIME`].
pub(super) const A_COUNT: &str = "a number of hits";

/// See [`A_TIME`].
pub(super) const A_ID: &str = "an id, such as order-42,";

/// See [`A_TIME`].
pub(super) const A_MEMBER: &str = "a member, such as user-7,";

/// The value after the option at `index`.
pub(super) fn value_of<'a>(
    args: ArgList<'a>,
    index: usize,
    option: &'static str,
    needed: &'static str,
) -> Result<&'a [u8], CommandError> {
    args.get(index + 1).ok_or(CommandError::OptionValue { option, needed })
}

/// What keys begin with, after the option `PREFIX` at `index`.
pub(super) fn prefix_after(args: ArgList<'_>, index: usize) -> Result<&[u8], CommandError> {
    let prefix = value_of(args, index, "PREFIX", "what keys begin with, such as server:,")?;
    key(prefix).map_err(|_| {
        invalid("prefix", prefix, format!("give 1 to {MAX_KEY_BYTES} bytes that keys begin with"))
    })
}

#[inline]
pub(super) fn span(arg: &[u8]) -> Result<Span, CommandError> {
    match Span::from_short(arg) {
        Some(span) => Ok(span),
        None => long_span(arg),
    }
}

/// Words that stand before or after a duration in some command.
const OPTIONS: &[&str] =
    &["AT", "BOUNDS", "BY", "COST", "DENIED", "LOCKOUT", "ORIGIN", "PEEK", "PREFIX", "STALENESS"];

#[cold]
fn long_span(arg: &[u8]) -> Result<Span, CommandError> {
    if OPTIONS.iter().any(|word| is_word(arg, word)) {
        return Err(unexpected(arg, ": a duration, such as 5m, is possible here"));
    }
    match str::from_utf8(arg) {
        Ok(text) if arg.len() <= MAX_ECHOED_BYTES => Ok(text.parse()?),
        _ => Err(TimeError::Span { text: echo(arg) }.into()),
    }
}

pub(super) fn time(arg: &[u8]) -> Result<Timestamp, CommandError> {
    let text = String::from_utf8_lossy(arg);
    if arg.len() > MAX_ECHOED_BYTES {
        return Err(TimeError::Timestamp { text: echo(arg) }.into());
    }
    Ok(text.parse()?)
}

/// The time after the `AT` at `index`.
pub(super) fn time_after(args: ArgList<'_>, index: usize) -> Result<Timestamp, CommandError> {
    time(value_of(args, index, "AT", A_TIME)?)
}

/// Parses `[AT time]` from `index` on, and nothing else.
pub(super) fn only_at(args: ArgList<'_>, index: usize) -> Result<Option<Timestamp>, CommandError> {
    let Some(word) = args.get(index) else { return Ok(None) };
    if !is_word(word, "AT") {
        return Err(unexpected(word, ""));
    }
    let at = time_after(args, index)?;
    match args.get(index + 2) {
        None => Ok(Some(at)),
        Some(word) => Err(unexpected(word, "")),
    }
}

/// Sets an option, which must not be set already.
pub(super) fn set_once<T>(slot: &mut Option<T>, value: T, option: &'static str) -> Result<(), CommandError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(CommandError::Twice { option }),
    }
}
