//! redis-cell's command: `CL.THROTTLE`.

use lately::{Rate, Span, Throttle};

use crate::args::ArgList;
use crate::command::Command;
use crate::command::hits::{KEY, WRITE};
use crate::command::options::{count, first_key, required};
use crate::command::spec::{ArgumentSpec, CommandSpec};
use crate::error::CommandError;
use crate::integer::parse_integer;

pub(super) static SPECS: [CommandSpec; 1] = [CommandSpec::new("cl.throttle", -5, parse_throttle)
    .flags(WRITE)
    .keys(1, 1, 1)
    .doc("limits", "Counts hits of a key if they keep to a rate, and says what is left")
    .arguments(&[
        KEY,
        ArgumentSpec::of("max_burst", "integer"),
        ArgumentSpec::of("count_per_period", "integer"),
        ArgumentSpec::of("period", "integer"),
        ArgumentSpec::of("quantity", "integer").optional(),
    ])];

fn parse_throttle(args: ArgList<'_>) -> Result<Command<'_>, CommandError> {
    if args.len() > 6 {
        return Err(CommandError::Arity { name: "cl.throttle" });
    }
    let key = first_key(args)?;
    let number = |index| count(required(args, index)?);
    let (burst, count_per_period, period_s) = (number(2)?, number(3)?, number(4)?);
    if count_per_period == 0 || period_s == 0 {
        return Err(CommandError::ZeroRate);
    }
    let quantity = match args.get(5) {
        Some(arg) => parse_integer(arg).ok_or(CommandError::NotInteger)?,
        None => 1,
    };
    let Some(period) = Span::from_seconds(period_s) else { return Err(CommandError::LongPeriod) };
    let Some(rate) = Rate::new(burst, count_per_period, period) else { return Err(CommandError::LongBurst) };
    Ok(Command::Throttle(Throttle { key, rate, quantity }))
}
