//! The permissions of a client.

use lately::Pattern;
use lately_resp::command::{Verb, commands};
use lately_resp::write_request;

use super::*;
use crate::limits::LONG_ARGUMENTS;
use crate::service::access::Principal;

const NO_KEY: &str = "-NOPERM this user has no permissions to access one of the keys used as arguments|";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.|";

/// Every command, the verb it needs, and an example. Commands without an example cannot be requested.
const TABLE: [(&str, Option<Verb>, &str); 61] = [
    ("hit", Some(Verb::Hit), "HIT k"),
    ("mhit", Some(Verb::Hit), "MHIT k 1 l 2"),
    ("hits", Some(Verb::Read), "HITS k"),
    ("mhits", Some(Verb::Read), "MHITS 1m k l"),
    ("rate", Some(Verb::Read), "RATE k"),
    ("series", Some(Verb::Read), "SERIES k 5s 1s"),
    ("limit", Some(Verb::Limit), "LIMIT k 5 1m"),
    ("mlimit", Some(Verb::Limit), "MLIMIT k 5 1m l 5 1h"),
    ("cl.throttle", Some(Verb::Limit), "CL.THROTTLE k 1 1 1"),
    ("del", Some(Verb::Delete), "DEL k"),
    ("exists", Some(Verb::Read), "EXISTS k"),
    ("type", Some(Verb::Read), "TYPE k"),
    ("ttl", Some(Verb::Read), "TTL k"),
    ("pttl", Some(Verb::Read), "PTTL k"),
    ("scan", Some(Verb::Read), "SCAN 0"),
    ("dbsize", Some(Verb::Read), "DBSIZE"),
    ("flushall", Some(Verb::Delete), "FLUSHALL"),
    ("flushdb", Some(Verb::Delete), "FLUSHDB"),
    ("multi", None, "MULTI"),
    ("exec", None, "EXEC"),
    ("discard", None, "DISCARD"),
    ("ping", None, "PING"),
    ("echo", None, "ECHO a"),
    ("hello", None, "HELLO 3"),
    ("auth", None, "AUTH default a"),
    ("select", None, "SELECT 0"),
    ("reset", None, "RESET"),
    ("quit", None, "QUIT"),
    ("info", None, "INFO"),
    ("time", None, "TIME"),
    ("shutdown", Some(Verb::Admin), "SHUTDOWN"),
    ("bgsave", Some(Verb::Admin), "BGSAVE"),
    ("lastsave", Some(Verb::Admin), "LASTSAVE"),
    ("cluster", Some(Verb::Admin), ""),
    ("coolest", Some(Verb::Read), "COOLEST 1 k l"),
    ("ingest", Some(Verb::Hit), "INGEST log 0 9 k 1 1700000000"),
    ("client", None, "CLIENT"),
    ("client|id", None, "CLIENT ID"),
    ("client|setname", None, "CLIENT SETNAME a"),
    ("client|getname", None, "CLIENT GETNAME"),
    ("client|setinfo", None, "CLIENT SETINFO LIB-NAME a"),
    ("client|info", None, "CLIENT INFO"),
    ("client|list", Some(Verb::Admin), "CLIENT LIST"),
    ("client|no-evict", Some(Verb::Admin), "CLIENT NO-EVICT ON"),
    ("client|no-touch", None, "CLIENT NO-TOUCH ON"),
    ("client|tracking", None, "CLIENT TRACKING OFF"),
    ("client|reply", None, "CLIENT REPLY ON"),
    ("client|help", None, "CLIENT HELP"),
    ("command", None, "COMMAND"),
    ("command|count", None, "COMMAND COUNT"),
    ("command|docs", None, "COMMAND DOCS"),
    ("command|info", None, "COMMAND INFO"),
    ("command|list", None, "COMMAND LIST"),
    ("command|getkeys", None, "COMMAND GETKEYS HIT k"),
    ("command|help", None, "COMMAND HELP"),
    ("config", None, "CONFIG"),
    ("config|get", Some(Verb::Admin), "CONFIG GET port"),
    ("config|set", Some(Verb::Admin), ""),
    ("config|rewrite", Some(Verb::Admin), ""),
    ("config|resetstat", Some(Verb::Admin), ""),
    ("config|help", None, "CONFIG HELP"),
];

/// A client with these verbs, on keys that match the pattern.
fn client(verbs: &'static [Verb], keys: Option<&str>) -> Talk {
    let mut talk = Talk::new();
    talk.session.principal = Principal { verbs, keys: keys.map(|pattern| Pattern::new(pattern.as_bytes())) };
    talk
}

/// The test fails if a command has no row in the table of this file.
#[test]
fn each_command_needs_its_verb() {
    let all = commands().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
    assert_eq!(
        all.map(|spec| (spec.name, spec.verb)).collect::<Vec<_>>(),
        TABLE.map(|(name, verb, _)| (name, verb))
    );
    for (name, verb, line) in TABLE.into_iter().filter(|(.., line)| !line.is_empty()) {
        for verbs in Verb::ALL.chunks(1) {
            let mut talk = client(verbs, None);
            let mut other = talk.twin();
            other.check("HIT l", ":1|");
            let reply = talk.ask(line);
            let is_allowed = verb.is_none_or(|verb| verbs.contains(&verb));
            let escaped = name.replace('|', "\\|");
            let refused = format!("-NOPERM this user has no permissions to run the '{escaped}' command|");
            assert_eq!(reply != refused, is_allowed, "{line} {verbs:?}: {reply}");
            if !is_allowed {
                assert_eq!(talk.flow, Flow::Continue, "{line}");
                other.check("MHITS 1m l k", "*2|:1|:0|");
            }
        }
    }
}

#[test]
fn one_forbidden_key_refuses_the_whole_request() {
    let mut talk = client(Verb::ALL, Some("app:*"));
    let mut other = talk.twin();
    other.check("MHIT app:1 1 other 1", "*2|:1|:1|");
    for line in [
        "HIT other",
        "HITS other",
        "MHIT app:1 1 other 1",
        "MHITS 1m app:1 other",
        "RATE other",
        "SERIES other 5s 1s",
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
        // These commands concern all keys.
        "COOLEST 1 PREFIX app:",
        "SCAN 0",
        "DBSIZE",
        "FLUSHALL",
    ] {
        talk.check(line, NO_KEY);
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

/// Requests that differ only in their key are executed together if all keys are allowed.
#[test]
fn the_key_of_each_repeated_request_is_checked() {
    let mut talk = client(Verb::ALL, Some("app:*"));
    let mut bytes = Vec::new();
    for key in ["app:1", "app:2", "other", "app:1", "other"] {
        write_request(&mut bytes, &[b"HIT", key.as_bytes()]);
    }
    assert_eq!(barred(&talk.send(&bytes, 5)), [":1|", ":1|", NO_KEY, ":2|", NO_KEY].concat());
    talk.twin().check("DBSIZE", ":2|");
}

#[test]
fn all_keys_of_a_long_request_are_checked_before_it_begins() {
    let mut talk = client(Verb::ALL, Some("app:*"));
    let mut other = talk.twin();
    let names = || (0..LONG_ARGUMENTS).map(|number| format!(" app:{number}"));
    let pairs: String = names().map(|name| name + " 1").collect();
    talk.check(&format!("MHIT{pairs} other 1"), NO_KEY);
    other.check("DBSIZE", ":0|");
    assert!(talk.ask(&format!("MHIT{pairs}")).starts_with(&format!("*{LONG_ARGUMENTS}|:1|")));
    talk.check(&format!("DEL{} other", names().collect::<String>()), NO_KEY);
    other.check("DBSIZE", &format!(":{LONG_ARGUMENTS}|"));
}

#[test]
fn a_forbidden_command_aborts_its_transaction() {
    let no_hit = "-NOPERM this user has no permissions to run the 'hit' command|";
    for (mut talk, refused) in
        [(client(&[Verb::Read], None), no_hit), (client(Verb::ALL, Some("app:*")), NO_KEY)]
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
    talk.session.principal.keys = Some(Pattern::new(b"app:*"));
    talk.check("EXEC", &format!("*2|:1|{NO_KEY}"));
    talk.twin().check("DBSIZE", ":1|");
}
