//! `COOLEST`: the keys with the fewest hits.

use lately::Span;

use crate::args::ArgList;
use crate::command::Command;
use crate::command::options::{
    A_COUNT, A_DURATION, at_most, count, how_many, is_word, keys_from, prefix_after, required, set_once,
    span, unexpected, value_of,
};
use crate::command::spec::{ArgumentSpec, CommandFlag, CommandSpec, Group, Verb};
use crate::error::CommandError;
use crate::limits::MAX_COUNTED_KEYS;

/// `COOLEST k [WINDOW w] [BELOW n] key [key …]`, or `PREFIX p` instead of the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coolest<'a> {
    /// The number of keys to return.
    pub count: usize,
    /// The window. `None` is the default of each key's class.
    pub window: Option<Span>,
    /// Only keys with fewer hits.
    pub below: Option<u64>,
    /// The keys to compare.
    pub among: Among<'a>,
}

/// The keys that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Among<'a> {
    /// These keys, with or without hits.
    Keys(ArgList<'a>),
    /// All keys of the store with this prefix.
    Prefix(&'a [u8]),
}

const KEYS: &[ArgumentSpec] =
    &[ArgumentSpec::of("key", "key").multiple(), ArgumentSpec::of("prefix", "string").after("PREFIX")];

pub(super) static SPECS: [CommandSpec; 1] =
    [CommandSpec::new("coolest", -3, Some(Verb::Read), parse_coolest)
        .flags(&[CommandFlag::MovableKeys])
        .doc(Group::Limits, "Returns the keys with the fewest hits in a window")
        .complexity("O(N) with N the number of keys named, or with PREFIX of all keys")
        .arguments(&[
            ArgumentSpec::of("k", "integer"),
            ArgumentSpec::of("window", "string").after("WINDOW").optional(),
            ArgumentSpec::of("n", "integer").after("BELOW").optional(),
            ArgumentSpec::group("among", "oneof", KEYS),
        ])];

/// An option word after a key is an error, not a key.
fn parse_coolest(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let wanted = how_many(required(args, 1)?, MAX_COUNTED_KEYS)?;
    let (mut window, mut below) = (None, None);
    let mut index = 2;
    loop {
        let word = args.get(index).ok_or(CommandError::Arity { name: "coolest" })?;
        if is_word(word, "WINDOW") {
            set_once(&mut window, span(value_of(args, index, "WINDOW", A_DURATION)?)?, "WINDOW")?;
        } else if is_word(word, "BELOW") {
            set_once(&mut below, count(value_of(args, index, "BELOW", A_COUNT)?, "BELOW")?, "BELOW")?;
        } else {
            break;
        }
        index += 2;
    }
    let named = args.from(index);
    let among = match named.get(0) {
        Some(word) if is_word(word, "PREFIX") => {
            let prefix = prefix_after(named, 0)?;
            if let Some(word) = named.get(2) {
                return Err(after_keys(word)
                    .unwrap_or_else(|| unexpected(word, ": one PREFIX takes the place of all keys")));
            }
            Among::Prefix(prefix)
        }
        _ => {
            if let Some(error) = named.iter().find_map(after_keys) {
                return Err(error);
            }
            at_most(MAX_COUNTED_KEYS, "keys", named.len(), "COOLEST")?;
            Among::Keys(keys_from(args, index)?)
        }
    };
    Ok(Command::Coolest(Coolest { count: wanted, window, below, among }))
}

/// The error for an option word among the keys.
fn after_keys(word: &[u8]) -> Option<CommandError> {
    if is_word(word, "WINDOW") || is_word(word, "BELOW") {
        return Some(unexpected(word, ": WINDOW and BELOW come before PREFIX and the keys"));
    }
    is_word(word, "PREFIX").then(|| unexpected(word, ": PREFIX takes the place of the keys"))
}
