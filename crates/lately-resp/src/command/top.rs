//! `TOP`: the keys with the most hits.

use lately::Span;

use crate::args::ArgList;
use crate::command::Command;
use crate::command::options::{how_many, is_word, prefix_after, required, set_once, span, unexpected};
use crate::command::spec::{ArgumentSpec, CommandSpec, Group, Verb};
use crate::error::CommandError;
use crate::limits::MAX_TOP_KEYS;

/// `TOP k [window] [PREFIX p] [BOUNDS]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Top<'a> {
    /// The number of keys to return.
    pub count: usize,
    /// The window. `None` is the default of each key's class.
    pub window: Option<Span>,
    /// Only keys that begin with this.
    pub prefix: &'a [u8],
    /// Whether to return the bounds of each key, and that of the keys that are not named.
    pub has_bounds: bool,
}

pub(super) static SPECS: [CommandSpec; 1] = [CommandSpec::new("top", -2, Some(Verb::Read), parse_top)
    .doc(Group::Hits, "Returns the keys with the most hits in a window")
    .complexity("O(N) with N the number of all keys")
    .arguments(&[
        ArgumentSpec::of("k", "integer"),
        ArgumentSpec::of("window", "string").optional(),
        ArgumentSpec::of("prefix", "string").after("PREFIX").optional(),
        ArgumentSpec::word("bounds", "BOUNDS").optional(),
    ])];

fn parse_top(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let count = how_many(required(args, 1)?, MAX_TOP_KEYS)?;
    let is_option = |arg| is_word(arg, "PREFIX") || is_word(arg, "BOUNDS");
    let (window, mut index) = match args.get(2) {
        Some(arg) if !is_option(arg) => (Some(span(arg)?), 3),
        _ => (None, 2),
    };
    let (mut prefix, mut bounds) = (None, None);
    while let Some(word) = args.get(index) {
        if is_word(word, "PREFIX") {
            set_once(&mut prefix, prefix_after(args, index)?, "PREFIX")?;
            index += 2;
        } else if is_word(word, "BOUNDS") {
            set_once(&mut bounds, (), "BOUNDS")?;
            index += 1;
        } else {
            return Err(unexpected(word, ": one window comes before PREFIX and BOUNDS"));
        }
    }
    let (prefix, has_bounds) = (prefix.unwrap_or_default(), bounds.is_some());
    Ok(Command::Top(Top { count, window, prefix, has_bounds }))
}
