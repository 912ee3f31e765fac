//! The permissions of a client.

use lately_resp::command::{Verb, commands};
use lately_resp::write_request;

use super::*;
use crate::limits::LONG_ARGUMENTS;
use crate::protocol::permissions::{Expected, Guide, Needs, everybody};
use crate::service::access::Principal;
use crate::service::users::User;

const NO_OTHER: &str = "-NOPERM User web has no permissions to access the 'other' key|";
/// Any refused `EXEC` is an abort, as in Redis.
const EXEC_NOAUTH: &str = "-EXECABORT Transaction discarded because of: NOAUTH Authentication required.|";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.|";

/// Every command, what it needs, and an example. Commands without an example cannot be requested.
const TABLE: [(&str, Needs, &str); 69] = [
    ("hit", Needs::Keys(Verb::Hit, &["app:1"]), "HIT app:1"),
    ("mhit", Needs::Keys(Verb::Hit, &["app:1", "app:2"]), "MHIT app:1 1 app:2 2"),
    ("hits", Needs::Keys(Verb::Read, &["app:1"]), "HITS app:1"),
    ("mhits", Needs::Keys(Verb::Read, &["app:1", "app:2"]), "MHITS 1m app:1 app:2"),
    ("rate", Needs::Keys(Verb::Read, &["app:1"]), "RATE app:1"),
    ("series", Needs::Keys(Verb::Read, &["app:1"]), "SERIES app:1 5s 1s"),
    ("uniq", Needs::Keys(Verb::Read, &["app:1"]), "UNIQ app:1"),
    ("limit", Needs::Keys(Verb::Limit, &["app:1"]), "LIMIT app:1 5 1m"),
    ("mlimit", Needs::Keys(Verb::Limit, &["app:1", "app:2"]), "MLIMIT app:1 5 1m app:2 5 1h"),
    ("cl.throttle", Needs::Keys(Verb::Limit, &["app:1"]), "CL.THROTTLE app:1 1 1 1"),
    ("del", Needs::Keys(Verb::Delete, &["app:1", "app:2"]), "DEL app:1 app:2"),
    ("exists", Needs::Keys(Verb::Read, &["app:1", "app:2"]), "EXISTS app:1 app:2"),
    ("type", Needs::Keys(Verb::Read, &["app:1"]), "TYPE app:1"),
    ("ttl", Needs::Keys(Verb::Read, &["app:1"]), "TTL app:1"),
    ("pttl", Needs::Keys(Verb::Read, &["app:1"]), "PTTL app:1"),
    ("scan", Needs::AllKeys(Verb::Read), "SCAN 0"),
    ("dbsize", Needs::AllKeys(Verb::Read), "DBSIZE"),
    ("flushall", Needs::AllKeys(Verb::Delete), "FLUSHALL"),
    ("flushdb", Needs::AllKeys(Verb::Delete), "FLUSHDB"),
    ("multi", Needs::Login, "MULTI"),
    ("exec", Needs::Login, "EXEC"),
    ("discard", Needs::Login, "DISCARD"),
    ("ping", Needs::Login, "PING"),
    ("echo", Needs::Login, "ECHO a"),
    ("hello", Needs::Login, "HELLO 3"),
    ("auth", Needs::Nothing, "AUTH default a"),
    ("select", Needs::Login, "SELECT 0"),
    ("reset", Needs::Nothing, "RESET"),
    ("quit", Needs::Nothing, "QUIT"),
    ("info", Needs::Login, "INFO"),
    ("time", Needs::Login, "TIME"),
    ("shutdown", Needs::AllKeys(Verb::Admin), "SHUTDOWN"),
    ("bgsave", Needs::AllKeys(Verb::Admin), "BGSAVE"),
    ("lastsave", Needs::AllKeys(Verb::Admin), "LASTSAVE"),
    ("cluster", Needs::AllKeys(Verb::Admin), ""),
    ("coolest", Needs::Keys(Verb::Read, &["app:1", "app:2"]), "COOLEST 1 app:1 app:2"),
    ("top", Needs::AllKeys(Verb::Read), "TOP 1"),
    (
        "ingest",
        Needs::Keys(Verb::Hit, &["app:1", "app:2"]),
        "INGEST log 0 9 app:1 1 1700000000 app:2 1 1700000000",
    ),
    ("alerts", Needs::AllKeys(Verb::Read), "ALERTS"),
    ("subscribe", Needs::AllKeys(Verb::Read), "SUBSCRIBE lately:alerts"),
    ("unsubscribe", Needs::Login, "UNSUBSCRIBE"),
    ("client", Needs::Login, "CLIENT"),
    ("client|id", Needs::Login, "CLIENT ID"),
    ("client|setname", Needs::Login, "CLIENT SETNAME a"),
    ("client|getname", Needs::Login, "CLIENT GETNAME"),
    ("client|setinfo", Needs::Login, "CLIENT SETINFO LIB-NAME a"),
    ("client|info", Needs::Login, "CLIENT INFO"),
    ("client|list", Needs::AllKeys(Verb::Admin), "CLIENT LIST"),
    ("client|no-evict", Needs::AllKeys(Verb::Admin), "CLIENT NO-EVICT ON"),
    ("client|no-touch", Needs::Login, "CLIENT NO-TOUCH ON"),
    ("client|tracking", Needs::Login, "CLIENT TRACKING OFF"),
    ("client|reply", Needs::Login, "CLIENT REPLY ON"),
    ("client|help", Needs::Login, "CLIENT HELP"),
    ("command", Needs::Login, "COMMAND"),
    ("command|count", Needs::Login, "COMMAND COUNT"),
    ("command|docs", Needs::Login, "COMMAND DOCS"),
    ("command|info", Needs::Login, "COMMAND INFO"),
    ("command|list", Needs::Login, "COMMAND LIST"),
    ("command|getkeys", Needs::Login, "COMMAND GETKEYS HIT k"),
    ("command|help", Needs::Login, "COMMAND HELP"),
    ("config", Needs::Login, "CONFIG"),
    ("config|get", Needs::AllKeys(Verb::Admin), "CONFIG GET port"),
    ("config|set", Needs::AllKeys(Verb::Admin), ""),
    ("config|rewrite", Needs::AllKeys(Verb::Admin), ""),
    ("config|resetstat", Needs::AllKeys(Verb::Admin), ""),
    ("config|help", Needs::Login, "CONFIG HELP"),
    ("acl", Needs::Login, "ACL"),
    ("acl|whoami", Needs::Login, "ACL WHOAMI"),
    ("acl|help", Needs::Login, "ACL HELP"),
];

/// A client with these verbs, on keys that match the pattern.
fn client(verbs: &[Verb], keys: &str) -> Talk {
    let mut talk = Talk::new();
    talk.session.principal = Principal::User(User::with(verbs, &[keys]));
    talk
}

/// The reply of a refused request.
fn refusal(name: &str, expected: &Expected) -> Option<String> {
    let name = name.replace('|', "\\|");
    let noperm = |what: String| format!("-NOPERM User web has no permissions to {what}|");
    match expected {
        Expected::Allowed => None,
        Expected::NoLogin => Some("-NOAUTH Authentication required.|".to_owned()),
        Expected::NoVerb => Some(noperm(format!("run the '{name}' command"))),
        Expected::NoKey(key) => Some(noperm(format!("access the '{key}' key"))),
        Expected::NotAllKeys => Some(noperm(format!("run the '{name}' command on all keys"))),
    }
}

/// Symptom: a user of some keys saw the hits behind alerts on others, all limits, and the number of keys. Cause: `INFO` has no verb. Fix: these
/// sections need `read` on all keys.
#[test]
fn info_has_nothing_about_keys_that_a_user_may_not_read() {
    const ABOUT_KEYS: [&str; 3] = ["# Limits", "# Alerts", "# Keyspace"];
    let sections = |mut talk: Talk, line: &str| {
        let reply = talk.ask(line);
        ABOUT_KEYS.map(|section| reply.contains(section))
    };
    for line in ["INFO", "INFO everything", "INFO limits alerts keyspace"] {
        assert_eq!(sections(client(Verb::ALL, "app:*"), line), [false; 3], "{line}");
        assert_eq!(sections(client(&[Verb::Hit], "*"), line), [false; 3], "{line}");
        assert_eq!(sections(client(&[Verb::Read], "*"), line), [true; 3], "{line}");
        assert_eq!(sections(Talk::new(), line), [true; 3], "{line}");
    }
    assert!(client(&[Verb::Hit], "app:*").ask("INFO server").contains("redis_version"));
}

#[test]
fn the_guide_has_each_command_under_its_verb() {
    let guide = Guide::read();
    for (name, needs, _) in TABLE.into_iter().filter(|(.., request)| !request.is_empty()) {
        guide.check(&format!("`{}`", name.to_uppercase().replace('|', " ")), needs);
    }
}

/// Each command, by each client. The test fails if a command has no row in the table of this file.
#[test]
fn each_command_needs_its_verb_and_its_keys() {
    let all = commands().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
    let verb_of = |needs| match needs {
        Needs::Nothing | Needs::Login => None,
        Needs::Keys(verb, _) | Needs::AllKeys(verb) => Some(verb),
    };
    assert_eq!(
        all.map(|spec| (spec.name, spec.verb)).collect::<Vec<_>>(),
        TABLE.map(|(name, needs, _)| (name, verb_of(needs)))
    );
    for (name, needs, line) in TABLE.into_iter().filter(|(.., line)| !line.is_empty()) {
        for who in everybody() {
            let mut talk = Talk::new();
            talk.session.principal = who.principal();
            let mut other = talk.twin();
            other.check("HIT l", ":1|");
            let reply = talk.ask(line);
            let expected = refusal(name, &who.expected(needs));
            let case = format!("{line} by {}: {reply}", who.shown());
            let Some(expected) = expected else {
                assert!(!reply.starts_with("-NOPERM") && !reply.starts_with("-NOAUTH"), "{case}");
                continue;
            };
            if name == "hello" {
                assert!(reply.starts_with("-NOAUTH HELLO must be called"), "{case}");
            } else if name == "exec" {
                assert_eq!(reply, EXEC_NOAUTH, "{case}");
            } else {
                assert_eq!(reply, expected, "{case}");
            }
            assert_eq!(talk.flow, Flow::Continue, "{case}");
            other.check_all(&[("MHITS 1m l app:1", "*2|:1|:0|"), ("DBSIZE", ":1|")]);
        }
    }
}

#[test]
fn one_forbidden_key_refuses_the_whole_request() {
    let mut talk = client(Verb::ALL, "app:*");
    let mut other = talk.twin();
    other.check("MHIT app:1 1 other 1", "*2|:1|:1|");
    for line in [
        "HIT other",
        "HITS other",
        "MHIT app:1 1 other 1",
        "MHITS 1m app:1 other",
        "RATE other",
        "SERIES other 5s 1s",
        "UNIQ other",
        "LIMIT other 5 1m",
        "MLIMIT app:1 5 1m other 5 1m",
        "CL.THROTTLE other 1 1 1",
        "DEL app:1 other",
        "EXISTS app:1 other",
        "TYPE other",
        "TTL other",
        "PTTL other",
        "COOLEST 1 app:1 other",
        "INGEST log 0 9 app:1 1 1700000000 other 1 1700000000",
    ] {
        talk.check(line, NO_OTHER);
    }
    // These commands concern all keys.
    for line in [
        "TOP 1",
        "TOP 1 PREFIX app:",
        "COOLEST 1 PREFIX app:",
        "SCAN 0",
        "SCAN 0 MATCH app:*",
        "DBSIZE",
        "FLUSHALL",
    ] {
        let name = line.split(' ').next().unwrap_or_default().to_lowercase();
        let expected =
            format!("-NOPERM User web has no permissions to run the '{name}' command on all keys|");
        talk.check(line, &expected);
    }
    other.check_all(&[("MHITS 1m app:1 other", "*2|:1|:1|"), ("INGEST log", "$-1|")]);
    talk.check_all(&[
        ("HIT app:1", ":2|"),
        ("MHITS 1m app:1 app:2", "*2|:2|:0|"),
        ("COOLEST 1 app:1", "*1|*2|$5|app:1|:2|"),
        ("INGEST log 0 9 app:1 1 1700000000", "*3|:9|:1|:0|"),
        ("INGEST log", ":9|"),
        ("DEL app:1", ":1|"),
    ]);
}

/// Symptom: a user moved the source of another one to the end, and the batches of that one counted nothing. Cause: all users
/// shared all sources. Fix: each has its own.
#[test]
fn each_user_has_sources_of_its_own() {
    let mut talk = client(Verb::ALL, "app:*");
    let mut other = talk.twin();
    talk.check("INGEST log 0 9223372036854775807", "*3|:9223372036854775807|:0|:0|");
    other.check_all(&[("INGEST log", "$-1|"), ("INGEST log 0 9 a 1 1700000000", "*3|:9|:1|:0|")]);
    talk.check("INGEST log", ":9223372036854775807|");
    let long = "x".repeat(256);
    let refused = "-ERR the source and the name of the user have more than 255 bytes together|";
    talk.check(&format!("INGEST {long}"), refused);
    talk.check(&format!("INGEST {long} 0 9"), refused);
    other.check(&format!("INGEST {long}"), "$-1|");
}

/// Requests that differ only in their key are executed together if all keys are allowed.
#[test]
fn the_key_of_each_repeated_request_is_checked() {
    let mut talk = client(Verb::ALL, "app:*");
    let mut bytes = Vec::new();
    for key in ["app:1", "app:2", "other", "app:1", "other"] {
        write_request(&mut bytes, &[b"HIT", key.as_bytes()]);
    }
    assert_eq!(barred(&talk.send(&bytes, 5)), [":1|", ":1|", NO_OTHER, ":2|", NO_OTHER].concat());
    talk.twin().check("DBSIZE", ":2|");
}

#[test]
fn all_keys_of_a_long_request_are_checked_before_it_begins() {
    let mut talk = client(Verb::ALL, "app:*");
    let mut other = talk.twin();
    let names = || (0..LONG_ARGUMENTS).map(|number| format!(" app:{number}"));
    let pairs: String = names().map(|name| name + " 1").collect();
    talk.check(&format!("MHIT{pairs} other 1"), NO_OTHER);
    other.check("DBSIZE", ":0|");
    assert!(talk.ask(&format!("MHIT{pairs}")).starts_with(&format!("*{LONG_ARGUMENTS}|:1|")));
    talk.check(&format!("DEL{} other", names().collect::<String>()), NO_OTHER);
    other.check("DBSIZE", &format!(":{LONG_ARGUMENTS}|"));
}

#[test]
fn a_forbidden_command_aborts_its_transaction() {
    let no_hit = "-NOPERM User web has no permissions to run the 'hit' command|";
    for (mut talk, refused) in [(client(&[Verb::Read], "*"), no_hit), (client(Verb::ALL, "app:*"), NO_OTHER)]
    {
        talk.check_all(&[
            ("MULTI", "+OK|"),
            ("HITS app:1", "+QUEUED|"),
            ("HIT other", refused),
            ("EXEC", ABORTED),
        ]);
        talk.twin().check("DBSIZE", ":0|");
    }
}

/// As in Redis, permissions may change between queueing and `EXEC`.
#[test]
fn queued_commands_are_checked_again_at_exec() {
    let mut talk = Talk::new();
    talk.check_all(&[("MULTI", "+OK|"), ("HIT app:1", "+QUEUED|"), ("HIT other", "+QUEUED|")]);
    talk.session.principal = Principal::User(User::with(Verb::ALL, &["app:*"]));
    talk.check("EXEC", &format!("*2|:1|{NO_OTHER}"));
    talk.twin().check("DBSIZE", ":1|");
}
