//! `CLIENT` and its subcommands.

use super::*;

pub(super) const CLIENT_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";

#[test]
fn client() {
    let check = |line: &str, expected| check(line, Command::Client(expected));
    check("CLIENT ID", ClientCommand::Id);
    check("client setname me", ClientCommand::SetName(b"me"));
    check("CLIENT SETNAME ''", ClientCommand::SetName(b""));
    check("CLIENT GETNAME", ClientCommand::GetName);
    check("CLIENT SETINFO LIB-NAME redis-py", ClientCommand::SetLibraryName(b"redis-py"));
    check("CLIENT SETINFO lib-ver 8.0", ClientCommand::SetLibraryVersion(b"8.0"));
    check("CLIENT INFO", ClientCommand::Info);
    check("CLIENT LIST", ClientCommand::List(WhichClients::All));
    check("CLIENT LIST TYPE Normal", ClientCommand::List(WhichClients::Normal));
    check("CLIENT LIST TYPE pubsub", ClientCommand::List(WhichClients::Subscribed));
    for kind in ["master", "replica", "SLAVE"] {
        check(&format!("CLIENT LIST type {kind}"), ClientCommand::List(WhichClients::None));
    }
    with_args("CLIENT LIST ID 3 7 -1 3 99999999999", |args| match Command::parse(args) {
        Ok(Command::Client(ClientCommand::List(which))) => {
            assert_eq!(which, WhichClients::Ids(args.from(3)));
            assert_eq!(which.ids(), Some([3, 7, 99_999_999_999].into()));
        }
        other => panic!("{other:?}"),
    });
    check_many("CLIENT LIST ID", 1_024, "1", None);
    check_many("CLIENT LIST ID", 1_025, "1", Some("ERR CLIENT LIST takes at most 1024 ids"));
    check_errors(&["CLIENT LIST ID x", "CLIENT LIST ID 1 1.5"], "ERR Invalid client ID");
    check_error("CLIENT LIST TYPE foo", "ERR Unknown client type 'foo'");
    check("CLIENT NO-EVICT on", ClientCommand::NoEvict(true));
    check("CLIENT NO-TOUCH OFF", ClientCommand::NoTouch(false));
    check("CLIENT TRACKING off", ClientCommand::TrackingOff);
    check("CLIENT REPLY ON", ClientCommand::ReplyOn);
    check_errors(
        &["CLIENT SETNAME 'a b'", "CLIENT SETNAME \"a\\n\"", "CLIENT SETNAME \"\\xe9\""],
        CLIENT_NAME,
    );
    check_error("CLIENT TRACKING ON", "ERR client tracking is not supported");
    check_error(
        "CLIENT MAINT_NOTIFICATIONS ON",
        "ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.",
    );
    check_error(
        &format!("CLIENT {}", "x".repeat(200)),
        &format!("ERR unknown subcommand '{}'. Try CLIENT HELP.", "x".repeat(128)),
    );
    check_error("CLIENT REPLY OFF", "ERR the OFF option of CLIENT REPLY is not supported by this version");
    check_error("CLIENT SETINFO color red", "ERR Unrecognized option 'color'");
    check_error(
        "CLIENT SETINFO LIB-NAME 'a b'",
        "ERR lib-name cannot contain spaces, newlines or special characters.",
    );
    check_errors(
        &[
            "CLIENT NO-EVICT x",
            "CLIENT TRACKING x",
            "CLIENT TRACKING OFF x",
            "CLIENT REPLY x",
            "CLIENT LIST x",
            "CLIENT LIST ID",
            "CLIENT LIST TYPE",
            "CLIENT LIST TYPE normal x",
        ],
        SYNTAX,
    );
    check_error("CLIENT", &arity("client"));
    check_error("CLIENT SetName", &arity("client|setname"));
    check_error("CLIENT ID x", &arity("client|id"));
}

#[test]
fn client_names_have_bounds() {
    let most = "n".repeat(128);
    check(&format!("CLIENT SETNAME {most}"), Command::Client(ClientCommand::SetName(most.as_bytes())));
    let past = format!("{most}n");
    for line in ["CLIENT SETNAME", "HELLO 3 SETNAME"] {
        check_error(&format!("{line} {past}"), "ERR Client name is too long: it has at most 128 bytes");
    }
    check_error(
        &format!("CLIENT SETINFO LIB-VER {past}"),
        "ERR lib-ver is too long: it has at most 128 bytes",
    );
}
