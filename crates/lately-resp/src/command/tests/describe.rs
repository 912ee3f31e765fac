//! Tests of the table of commands, and of the replies of `COMMAND` and `HELP`.

use super::*;
use crate::command::describe::usage_of;
use crate::reply::Encoder;

#[test]
fn the_table_is_consistent() {
    let all: Vec<&CommandSpec> = commands().flat_map(|spec| spec.subcommands.iter().chain([spec])).collect();
    for spec in &all {
        assert_eq!(spec.name, spec.name.to_lowercase());
        assert!(!spec.summary.is_empty() && !spec.summary.ends_with('.'), "{}", spec.name);
        assert!(spec.arity != 0, "{}", spec.name);
        assert_eq!(all.iter().filter(|other| other.name == spec.name).count(), 1, "{}", spec.name);
        assert!(
            find_command(spec.name.to_uppercase().as_bytes()).is_some_and(|found| found.name == spec.name)
        );
        let has_key =
            spec.arguments.iter().any(|arg| arg.kind == "key" || ["data", "stretch"].contains(&arg.name));
        assert_eq!(has_key, spec.first_key > 0, "{}", spec.name);
    }
    assert_eq!(commands().count(), 45);
    assert!(find_command(b"get").is_none() && find_command(b"client|nosuch").is_none());
}

/// The reply to a request about commands, without line ends.
fn answer(line: &str, protocol: Protocol) -> String {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(&mut out, protocol);
    with_args(line, |args| match Command::parse(args) {
        Ok(Command::Command(query)) => query.answer(&mut encoder),
        Ok(Command::Help { container }) => write_help(&mut encoder, container),
        other => panic!("{line}: {other:?}"),
    });
    String::from_utf8(out).expect("text").replace("\r\n", " ")
}

#[test]
fn commands_describe_themselves() {
    let check = |line: &str, v2: &str, v3: &str| {
        assert_eq!(answer(line, Protocol::V2), v2, "{line}");
        assert_eq!(answer(line, Protocol::V3), v3, "{line}");
    };
    check("COMMAND COUNT", ":45 ", ":45 ");
    check(
        "COMMAND INFO nosuch HIT",
        "*2 $-1 *10 $3 hit :-2 *3 +write +denyoom +fast :1 :1 :1 *2 +@write +@fast *0 *0 *0 ",
        "*2 _ *10 $3 hit :-2 ~3 +write +denyoom +fast :1 :1 :1 ~2 +@write +@fast ~0 ~0 ~0 ",
    );
    check(
        "COMMAND INFO client|setname",
        "*1 *10 $14 client|setname :3 *1 +loading :0 :0 :0 *2 +@connection +@slow *0 *0 *0 ",
        "*1 *10 $14 client|setname :3 ~1 +loading :0 :0 :0 ~2 +@connection +@slow ~0 ~0 ~0 ",
    );
    for name in ["mlimit", "coolest"] {
        let info = answer(&format!("COMMAND INFO {name}"), Protocol::V2);
        assert!(info.contains(" +movablekeys "), "{info}");
    }
    check("COMMAND DOCS nosuch", "*0 ", "%0 ");
    check(
        "COMMAND DOCS nosuch ping",
        "*2 $4 ping *10 $7 summary $28 Answers PONG, or the message $5 since $5 0.1.0 $5 group $10 connection $10 complexity $4 O(1) $9 arguments *1 *6 $4 name $7 message $4 type $6 string $5 flags *1 +optional ",
        "%1 $4 ping %5 $7 summary $28 Answers PONG, or the message $5 since $5 0.1.0 $5 group $10 connection $10 complexity $4 O(1) $9 arguments *1 %3 $4 name $7 message $4 type $6 string $5 flags ~1 +optional ",
    );
    assert!(answer("COMMAND LIST", Protocol::V3).starts_with("*45 $3 hit $4 mhit $4 hits "));
    assert!(answer("COMMAND", Protocol::V3).starts_with("*45 *10 $3 hit "));
    assert!(answer("COMMAND DOCS", Protocol::V2).starts_with("*90 $3 hit "));
}

/// The error texts are those of Redis 7.0.15 for the same requests.
#[test]
fn the_keys_of_a_request_are_found() {
    let check = |request: &str, expected: &[&str]| {
        let keys: String = expected.iter().map(|key| format!("${} {key} ", key.len())).collect();
        let expected = format!("*{} {keys}", expected.len());
        assert_eq!(answer(&format!("COMMAND GETKEYS {request}"), Protocol::V2), expected, "{request}");
    };
    check("HIT a 3 AT 9", &["a"]);
    check("mhit a 1 b 2 a 3", &["a", "b", "a"]);
    check("MHITS 5m a b", &["a", "b"]);
    check("DEL a b c", &["a", "b", "c"]);
    check("LIMIT k @login", &["k"]);
    check("MLIMIT ip 5 1m user 9 1d COST 2 PEEK", &["ip", "user"]);
    check("COOLEST 1 WINDOW 1m BELOW 5 a b", &["a", "b"]);
    check("CL.THROTTLE k 1 1 1", &["k"]);
    check("INGEST log 0 9 a 1 1700000000 b 2 1700000001", &["a", "b"]);
    let check = |request: &str, expected: &str| {
        assert_eq!(answer(&format!("COMMAND GETKEYS {request}"), Protocol::V2), format!("-ERR {expected} "));
    };
    for request in ["nosuch a", "client nosuch"] {
        check(request, "Invalid command specified");
    }
    for request in ["ping a", "client list", "SCAN 0", "COOLEST 1 PREFIX p", "TOP 1 PREFIX p", "INGEST s"] {
        check(request, "The command has no key arguments");
    }
    for request in ["hit", "TTL a b", "MLIMIT a 5", "COOLEST 1"] {
        check(request, "Invalid number of arguments specified for command");
    }
    for request in ["MLIMIT ip 5 1m user", "COOLEST x a", "COOLEST 1 a BELOW 5"] {
        check(request, "Invalid arguments specified for command");
    }
}

/// Symptom: a request of 7 MB had a reply of 1.7 GB. Cause: a command was described each time it was named.
/// Fix: a bound on the names that no client exceeds.
#[test]
fn names_to_describe_have_a_bound() {
    assert!(commands().flat_map(|spec| spec.subcommands.iter().chain([spec])).count() <= 128);
    for query in ["DOCS", "INFO"] {
        let start = format!("COMMAND {query}");
        check_many(&start, 128, "client", None);
        check_many(&start, 129, "client", Some(&format!("ERR {start} takes at most 128 names")));
        let most = commands().map(|spec| answer(&format!("{start} {}", spec.name), Protocol::V2).len()).max();
        assert!(most.expect("commands") * 128 < 1 << 20, "{most:?}");
    }
}

#[test]
fn containers_have_help() {
    let help = answer("CLIENT HELP", Protocol::V2);
    assert!(
        help.starts_with("*23 +CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are: +ID "),
        "{help}"
    );
    for line in [
        "+SETNAME <connection-name> +    Names this connection. ",
        "+SETINFO (LIB-NAME <libname>|LIB-VER <libver>) ",
        "+NO-EVICT (ON|OFF) ",
        "+HELP +    Lists the subcommands. ",
    ] {
        assert!(help.contains(line), "{line}");
    }
    assert_eq!(usage_of("hits"), "HITS <key> [<window> ...] [BOUNDS|DENIED|STALENESS|BY ORIGIN] [AT <time>]");
    assert!(answer("CONFIG HELP", Protocol::V2).contains("+GET <parameter> ... "));
    assert!(answer("COMMAND HELP", Protocol::V2).contains("+DOCS [<command-name> ...] "));
}

/// Counts the elements that a reply announces: a wrong number would stall clients.
#[test]
fn descriptions_are_whole_replies() {
    fn skip(lines: &mut std::str::Split<'_, &str>) {
        let line = lines.next().expect("a reply");
        let (marker, rest) = line.split_at(1);
        let replies = match marker {
            "*" | "~" => rest.parse().expect("a length"),
            "%" => rest.parse::<usize>().expect("a length") * 2,
            "$" if rest != "-1" => {
                let content = lines.next().expect("content");
                assert_eq!(content.len().to_string(), rest);
                0
            }
            _ => 0,
        };
        (0..replies).for_each(|_| skip(lines));
    }
    for protocol in [Protocol::V2, Protocol::V3] {
        for write in [
            |out: &mut Encoder<'_>| write_command_info(out, None),
            |out: &mut Encoder<'_>| write_command_docs(out, None),
            |out: &mut Encoder<'_>| write_help(out, ContainerName::Command),
        ] {
            let mut out = Vec::new();
            write(&mut Encoder::new(&mut out, protocol));
            let text = String::from_utf8(out).expect("text");
            let mut lines = text.split("\r\n");
            skip(&mut lines);
            assert_eq!(lines.collect::<Vec<_>>(), [""]);
        }
    }
}
