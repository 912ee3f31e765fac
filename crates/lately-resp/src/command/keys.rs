//! Commands for keys, as in Redis: `DEL EXISTS SCAN DBSIZE FLUSHALL FLUSHDB TYPE TTL PTTL`.

use crate::args::ArgList;
use crate::command::Command;
use crate::command::hits::KEY;
use crate::command::options::{first_key, is_word, keys_from, required};
use crate::command::spec::{ArgumentSpec, CommandFlag, CommandSpec, Group, Verb};
use crate::error::CommandError;
use crate::integer::parse_integer;

/// The default number of keys that a step of `SCAN` visits.
pub const DEFAULT_SCAN_COUNT: u64 = 10;

const GROUP: Group = Group::Generic;
const FAST: &[CommandFlag] = &[CommandFlag::Fast];
const FLUSH_MODE: &[ArgumentSpec] = &[ArgumentSpec::group(
    "mode",
    "oneof",
    &[ArgumentSpec::word("async", "ASYNC"), ArgumentSpec::word("sync", "SYNC")],
)
.optional()];

pub(super) static SPECS: [CommandSpec; 9] = [
    CommandSpec::new("del", -2, Some(Verb::Delete), |args| Ok(Command::Delete { keys: keys_from(args, 1)? }))
        .keys(1, -1, 1)
        .doc(GROUP, "Forgets keys")
        .complexity("O(N) with N the number of keys")
        .arguments(&[KEY.multiple()]),
    CommandSpec::new("exists", -2, Some(Verb::Read), |args| {
        Ok(Command::Exists { keys: keys_from(args, 1)? })
    })
    .flags(FAST)
    .keys(1, -1, 1)
    .doc(GROUP, "Returns how many of the keys exist")
    .complexity("O(N) with N the number of keys")
    .arguments(&[KEY.multiple()]),
    CommandSpec::new("type", 2, Some(Verb::Read), |args| Ok(Command::Type { key: first_key(args)? }))
        .flags(FAST)
        .keys(1, 1, 1)
        .doc(GROUP, "Returns the type of a key: hits, or none")
        .arguments(&[KEY]),
    CommandSpec::new("ttl", 2, Some(Verb::Read), |args| Ok(Command::TimeToLive { key: first_key(args)? }))
        .flags(FAST)
        .keys(1, 1, 1)
        .doc(GROUP, "Returns the seconds until the last hit of a key leaves the retention")
        .arguments(&[KEY]),
    CommandSpec::new("pttl", 2, Some(Verb::Read), |args| {
        Ok(Command::TimeToLiveMillis { key: first_key(args)? })
    })
    .flags(FAST)
    .keys(1, 1, 1)
    .doc(GROUP, "Returns the milliseconds until the last hit of a key leaves the retention")
    .arguments(&[KEY]),
    CommandSpec::new("scan", -2, Some(Verb::Read), parse_scan)
        .doc(GROUP, "Walks over the keys in steps")
        .complexity("O(N) for a whole walk with N the number of keys")
        .arguments(&[
            ArgumentSpec::of("cursor", "integer"),
            ArgumentSpec::of("pattern", "pattern").after("MATCH").optional(),
            ArgumentSpec::of("count", "integer").after("COUNT").optional(),
            ArgumentSpec::of("type", "string").after("TYPE").optional(),
        ]),
    CommandSpec::new("dbsize", 1, Some(Verb::Read), |_| Ok(Command::DatabaseSize))
        .flags(FAST)
        .doc(Group::Server, "Returns the number of keys"),
    CommandSpec::new("flushall", -1, Some(Verb::Delete), parse_flush)
        .doc(Group::Server, "Forgets all keys")
        .complexity("O(N) with N the number of keys")
        .arguments(FLUSH_MODE),
    CommandSpec::new("flushdb", -1, Some(Verb::Delete), parse_flush)
        .doc(Group::Server, "Forgets all keys")
        .complexity("O(N) with N the number of keys")
        .arguments(FLUSH_MODE),
];

/// The arguments of `SCAN`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scan<'a> {
    /// Where to continue; 0 starts.
    pub cursor: u64,
    /// Only keys that match this glob.
    pub pattern: Option<&'a [u8]>,
    /// The number of keys to visit, at least 1.
    pub count: u64,
    /// Only keys of this type.
    pub kind: Option<&'a [u8]>,
}

fn parse_scan(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    let cursor = cursor(required(args, 1)?).ok_or(CommandError::Cursor)?;
    let mut scan = Scan { cursor, pattern: None, count: DEFAULT_SCAN_COUNT, kind: None };
    let mut index = 2;
    while let Some(word) = args.get(index) {
        let value = required(args, index + 1)?;
        if is_word(word, "MATCH") {
            scan.pattern = Some(value);
        } else if is_word(word, "COUNT") {
            let count = parse_integer(value).ok_or(CommandError::NotInteger)?;
            scan.count = u64::try_from(count).ok().filter(|&n| n >= 1).ok_or(CommandError::Syntax)?;
        } else if is_word(word, "TYPE") {
            scan.kind = Some(value);
        } else {
            return Err(CommandError::Syntax);
        }
        index += 2;
    }
    Ok(Command::Scan(scan))
}

/// Digits only; `str::parse` alone would accept a plus.
fn cursor(arg: &[u8]) -> Option<u64> {
    if !arg.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(arg).ok()?.parse().ok()
}

fn parse_flush(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    match args.get(1) {
        None => Ok(Command::FlushAll),
        Some(mode) if args.len() == 2 && (is_word(mode, "ASYNC") || is_word(mode, "SYNC")) => {
            Ok(Command::FlushAll)
        }
        Some(_) => Err(CommandError::Syntax),
    }
}
