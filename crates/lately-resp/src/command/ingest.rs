//! `INGEST`: the hits of a range of a source, counted once however often they are sent.

use lately::{Source, Timestamp};

use crate::args::ArgList;
use crate::command::Command;
use crate::command::hits::KEY;
use crate::command::options::{at_most, count, key, required, time};
use crate::command::spec::{ArgumentSpec, CommandFlag, CommandSpec, Group, Verb};
use crate::error::CommandError;
use crate::limits::MAX_COUNTED_KEYS;

pub(super) static SPECS: [CommandSpec; 1] = [CommandSpec::new("ingest", -2, Some(Verb::Hit), parse)
    .flags(&[CommandFlag::DenyOutOfMemory])
    .keys(4, -1, 3)
    .doc(Group::Hits, "Counts the hits of a stretch of a source once, or returns how far the source was read")
    .complexity("O(N) with N the number of keys")
    .arguments(&[
        ArgumentSpec::of("source", "string"),
        ArgumentSpec::group(
            "stretch",
            "block",
            &[
                ArgumentSpec::of("from", "integer"),
                ArgumentSpec::of("to", "integer"),
                ArgumentSpec::group(
                    "data",
                    "block",
                    &[KEY, ArgumentSpec::of("count", "integer"), ArgumentSpec::of("time", "string")],
                )
                .optional()
                .multiple(),
            ],
        )
        .optional(),
    ])];

/// The hits of a range of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch<'a> {
    /// The source.
    pub source: Source<'a>,
    /// The start of the range.
    pub from: u64,
    /// The end of the range, not before its start.
    pub to: u64,
    list: ArgList<'a>,
}

impl<'a> Stretch<'a> {
    /// The keys, with their numbers of hits and times.
    pub fn hits(self) -> impl Iterator<Item = (&'a [u8], u64, Timestamp)> + Clone {
        (0..self.list.len() / 3).map(move |index| {
            let arg = |offset| self.list.get(3 * index + offset).expect("they come in threes");
            let weight = count(arg(1), COUNT).expect("checked when it was parsed");
            (arg(0), weight, time(arg(2)).expect("checked when it was parsed"))
        })
    }
}

const COUNT: &str = "count";

fn parse(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let name = required(args, 1)?;
    let source = Source::new(name).ok_or(CommandError::SourceLength { bytes: name.len() })?;
    if args.len() == 2 {
        return Ok(Command::Position { source });
    }
    let list = args.from(4);
    if args.len() < 4 || !list.len().is_multiple_of(3) {
        return Err(CommandError::Arity { name: "ingest" });
    }
    at_most(MAX_COUNTED_KEYS, "keys", list.len() / 3, "INGEST")?;
    let (from, to) = (count(required(args, 2)?, "position")?, count(required(args, 3)?, "position")?);
    if to < from {
        return Err(CommandError::Backward { from, to });
    }
    for (index, arg) in list.iter().enumerate() {
        match index % 3 {
            0 => _ = key(arg)?,
            1 => _ = count(arg, COUNT)?,
            _ => _ = time(arg)?,
        }
    }
    Ok(Command::Ingest(Stretch { source, from, to, list }))
}
