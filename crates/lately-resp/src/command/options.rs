//! Reading single arguments: keys, counts, times, and option words.

use lately::limits::MAX_KEY_BYTES;
use lately::{Span, TimeError, Timestamp};

use crate::args::ArgList;
use crate::error::{CommandError, echo};
use crate::integer::parse_integer;
use crate::limits::MAX_ECHOED_BYTES;

pub(super) fn is_word(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// The argument at `index`, or a syntax error: for what an option word promises.
#[inline]
pub(super) fn required(args: ArgList<'_>, index: usize) -> Result<&[u8], CommandError> {
    match args.get(index) {
        Some(arg) => Ok(arg),
        None => Err(CommandError::Syntax),
    }
}

#[inline]
pub(super) fn key(arg: &[u8]) -> Result<&[u8], CommandError> {
    if arg.is_empty() || arg.len() > MAX_KEY_BYTES { Err(CommandError::KeyLength) } else { Ok(arg) }
}

/// The key of a command that has it first.
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

/// An error when there are more of something than `command` takes.
pub(super) fn at_most(
    most: usize,
    what: &'static str,
    count: usize,
    command: &'static str,
) -> Result<(), CommandError> {
    if count > most { Err(CommandError::TooMany { command, what, most }) } else { Ok(()) }
}

/// The weight of a hit: 0 to `i64::MAX`.
#[inline]
pub(super) fn count(arg: &[u8]) -> Result<u64, CommandError> {
    match parse_integer(arg).map(u64::try_from) {
        Some(Ok(count)) => Ok(count),
        _ => Err(CommandError::NotInteger),
    }
}

#[inline]
pub(super) fn span(arg: &[u8]) -> Result<Span, CommandError> {
    match Span::from_short(arg) {
        Some(span) => Ok(span),
        None => long_span(arg),
    }
}

#[cold]
fn long_span(arg: &[u8]) -> Result<Span, CommandError> {
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

/// Reads `[AT time]` and nothing else from `index` on.
pub(super) fn only_at(args: ArgList<'_>, index: usize) -> Result<Option<Timestamp>, CommandError> {
    match args.get(index) {
        None => Ok(None),
        Some(word) if is_word(word, "AT") && args.len() <= index + 2 => {
            time(required(args, index + 1)?).map(Some)
        }
        Some(_) => Err(CommandError::Syntax),
    }
}

/// Fills an option once; a second time is a syntax error.
pub(super) fn set_once<T>(slot: &mut Option<T>, value: T) -> Result<(), CommandError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(CommandError::Syntax),
    }
}
