//! Transactions: `MULTI EXEC DISCARD`. The server queues the commands.

use crate::command::Command;
use crate::command::spec::{CommandFlag, CommandSpec, Group};

const GROUP: Group = Group::Transactions;
const FLAGS: &[CommandFlag] = &[CommandFlag::Fast];

pub(super) static SPECS: [CommandSpec; 3] = [
    CommandSpec::new("multi", 1, None, |_| Ok(Command::Multi))
        .flags(FLAGS)
        .while_loading()
        .doc(GROUP, "Starts a transaction"),
    CommandSpec::new("exec", 1, None, |_| Ok(Command::Exec))
        .running_transaction()
        .while_loading()
        .doc(GROUP, "Runs the queued commands as one batch")
        .complexity("Depends on the commands in the transaction"),
    CommandSpec::new("discard", 1, None, |_| Ok(Command::Discard))
        .flags(FLAGS)
        .while_loading()
        .doc(GROUP, "Drops the queued commands")
        .complexity("O(N) with N the number of queued commands"),
];
