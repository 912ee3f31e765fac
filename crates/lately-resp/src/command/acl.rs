//! `ACL` and its subcommands. Users come from the config file, so nothing can be changed here.

use crate::command::Command;
use crate::command::spec::{CommandSpec, ContainerName, Group};
use crate::error::CommandError;

const GROUP: Group = Group::Server;

pub(super) static ACL: CommandSpec =
    CommandSpec::new("acl", -2, None, |_| Err(CommandError::Arity { name: "acl" }))
        .doc(GROUP, "A container for commands about users")
        .complexity("Depends on the subcommand")
        .subcommands(&SUBCOMMANDS);

static SUBCOMMANDS: [CommandSpec; 2] = [
    CommandSpec::new("acl|whoami", 2, None, |_| Ok(Command::WhoAmI))
        .while_loading()
        .doc(GROUP, "Returns the user of this connection"),
    CommandSpec::new("acl|help", 2, None, |_| Ok(Command::Help { container: ContainerName::Acl }))
        .while_loading()
        .doc(GROUP, "Lists the subcommands"),
];
