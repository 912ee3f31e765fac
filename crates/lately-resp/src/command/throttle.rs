//! redis-cell's command: `CL.THROTTLE`.

use lately::{Rate, Span, Throttle};

use crate::args::ArgList;
use crate::command::Command;
use crate::command::hits::{COUNTS, KEY};
use crate::command::options::{first_key, invalid, required};
use crate::command::spec::{ArgumentSpec, CommandSpec, Group, Verb};
use crate::error::CommandError;

pub(super) static SPECS: [CommandSpec; 1] =
    [CommandSpec::new("cl.throttle", -5, Some(Verb::Limit), parse_throttle)
        .flags(COUNTS)
        .keys(1, 1, 1)
        .doc(Group::Limits, "Counts hits of a key if they keep to a rate, and says what is left")
        .arguments(&[
            KEY,
            ArgumentSpec::of("max_burst", "integer"),
            ArgumentSpec::of("count_per_period", "integer"),
            ArgumentSpec::of("period", "integer"),
            ArgumentSpec::of("quantity", "integer").optional(),
        ])];

const PERIOD: &str = "give whole seconds, from 1 to 1000000000";

/// The arguments are parsed like redis-cell does: a plus and leading zeros are valid, and a burst of -1
/// allows nothing.
fn parse_throttle(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    if args.len() > 6 {
        return Err(CommandError::Arity { name: "cl.throttle" });
    }
    let key = first_key(args)?;
    let at_least = |least, index, what, expected| integer(args, index, what, expected, least);
    let burst = at_least(-1, 2, "max_burst", "give a whole number from -1 to 9223372036854775806")?;
    let count = at_least(0, 3, "count_per_period", "give a whole number from 1 to 9223372036854775807")?;
    let period_s = at_least(0, 4, "period", PERIOD)?;
    if count == 0 || period_s == 0 {
        return Err(CommandError::ZeroRate);
    }
    let quantity = match args.get(5) {
        Some(_) => at_least(i64::MIN, 5, "quantity", "give a whole number: 0 only asks, below 0 gives back")?,
        None => 1,
    };
    let period = Span::from_seconds(period_s.unsigned_abs());
    let period = period.ok_or_else(|| invalid("period", required(args, 4).unwrap_or_default(), PERIOD))?;
    let limit = burst.saturating_add(1).unsigned_abs();
    let Some(rate) = Rate::of_limit(limit, count.unsigned_abs(), period) else {
        return Err(CommandError::LongBurst);
    };
    Ok(Command::Throttle(Throttle { key, rate, quantity }))
}

/// The integer at `index`, as Rust, and so redis-cell, parses it.
fn integer(
    args: ArgList<'_>,
    index: usize,
    what: &'static str,
    expected: &'static str,
    least: i64,
) -> Result<i64, CommandError> {
    let arg = required(args, index)?;
    let value = str::from_utf8(arg).ok().and_then(|text| text.parse().ok()).filter(|&value| value >= least);
    value.ok_or_else(|| invalid(what, arg, expected))
}
