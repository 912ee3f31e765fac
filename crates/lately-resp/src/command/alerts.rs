//! `ALERTS`, and `SUBSCRIBE` to them.

use crate::args::ArgList;
use crate::command::Command;
use crate::command::spec::{ArgumentSpec, CommandFlag, CommandSpec, Group, Verb};
use crate::error::{CommandError, echo};

/// The channel of alerts that start or end, the only one.
pub const ALERTS_CHANNEL: &str = "lately:alerts";

const GROUP: Group = Group::Alerts;
const GROUP_OF_REDIS: Group = Group::PubSub;
const CHANNEL: ArgumentSpec = ArgumentSpec::of("channel", "string");

pub(super) static SPECS: [CommandSpec; 3] = [
    CommandSpec::new("alerts", 1, Some(Verb::Read), |_| Ok(Command::Alerts))
        .doc(GROUP, "Returns the alerts that are pending or firing")
        .complexity("O(N) with N the number of alerts in the config"),
    CommandSpec::new("subscribe", -2, Some(Verb::Read), |args| {
        channels(args).map(|channels| Command::Subscribe { channels })
    })
    .flags(&[CommandFlag::NoMulti])
    .while_subscribed()
    .doc(GROUP_OF_REDIS, "Gets a message when an alert starts or ends")
    .arguments(&[CHANNEL.multiple()]),
    CommandSpec::new("unsubscribe", -1, None, |args| {
        channels(args).map(|channels| Command::Unsubscribe { channels })
    })
    .flags(&[CommandFlag::NoMulti])
    .while_subscribed()
    .doc(GROUP_OF_REDIS, "Gets no more messages")
    .arguments(&[CHANNEL.multiple().optional()]),
];

fn channels(args: ArgList<'_>) -> Result<ArgList<'_>, CommandError> {
    let channels = args.from(1);
    match channels.iter().find(|channel| *channel != ALERTS_CHANNEL.as_bytes()) {
        None => Ok(channels),
        Some(channel) => Err(CommandError::Channel { channel: echo(channel), known: ALERTS_CHANNEL }),
    }
}
