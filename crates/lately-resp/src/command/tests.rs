//! Tests of commands, by family. They compare the command that a request parses to, or the text of its error.

mod client;
mod describe;
mod ingest;
mod limits;
mod top;

use super::describe::usage_of;
use super::*;
use crate::args::Args;
use crate::error::texts;
use crate::frame::{Parsed, parse_request};
use crate::limits::Limits;
use crate::reply::Protocol;

/// Parses an inline request and calls `check` with its arguments.
fn with_args<T>(line: &str, check: impl FnOnce(ArgList<'_>) -> T) -> T {
    let (mut args, buffer) = (Args::new(), format!("{line}\n"));
    let parsed = parse_request(buffer.as_bytes(), &Limits::default(), &mut args);
    assert!(matches!(parsed, Ok(Parsed::Complete { .. })), "{line}");
    check(args.list(buffer.as_bytes()))
}

/// Checks the error of `start`, a request as one types it, with `word` appended `count` times.
fn check_many(start: &str, count: usize, word: &str, error: Option<&str>) {
    let words = start.split(' ').chain(std::iter::repeat_n(word, count)).map(str::as_bytes);
    let (mut args, mut buffer) = (Args::new(), Vec::new());
    crate::write_request(&mut buffer, &words.collect::<Vec<_>>());
    let parsed = parse_request(&buffer, &Limits::default(), &mut args);
    assert!(matches!(parsed, Ok(Parsed::Complete { .. })), "{start}");
    let result = Command::parse(args.list(&buffer)).map(|_| ()).map_err(|error| error.to_string());
    let error = error.map(|error| with_usage(start, error));
    assert_eq!(result.err(), error, "{start} and {count} times {word}");
}

fn check(line: &str, expected: Command<'_>) {
    with_args(line, |args| assert_eq!(Command::parse(args), Ok(expected), "{line}"));
}

fn check_error(line: &str, expected: &str) {
    let error = with_args(line, |args| Command::parse(args).map(|_| ()).expect_err(line));
    assert_eq!(error.to_string(), with_usage(line, expected), "{line:.80}");
}

/// The error of a request. If Redis does not have the command, its usage follows.
fn with_usage(line: &str, error: &str) -> String {
    let name = line.split(' ').next().expect("a name").to_lowercase();
    match find_command(name.as_bytes()) {
        Some(spec) if !spec.group.is_of_redis() => format!("{error}. Usage: {}", usage_of(&name)),
        _ => error.to_owned(),
    }
}

fn check_errors(lines: &[&str], expected: &str) {
    lines.iter().for_each(|line| check_error(line, expected));
}

const SYNTAX: &str = "ERR syntax error";
const NOT_INTEGER: &str = "ERR value is not an integer or out of range";

fn not_a_count(what: &str, value: &str) -> String {
    format!("ERR invalid {what} '{value}': give a whole number from 0 to 9223372036854775807")
}

fn unexpected(value: &str) -> String {
    format!("ERR unexpected argument '{value}'")
}

fn twice(option: &str) -> String {
    format!("ERR {option} is given twice")
}

const AT_NEEDS: &str = "ERR AT needs a time, such as 1700000000, after it";

fn invalid_key(bytes: usize) -> String {
    format!("ERR invalid key of {bytes} bytes: a key has 1 to 1024 bytes")
}

fn at(seconds: u64) -> Option<Timestamp> {
    Some(Timestamp::from_seconds(seconds).expect("in range"))
}

fn span(text: &str) -> Span {
    text.parse().expect(text)
}

fn arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

#[test]
fn uniq() {
    let unique = |window: Option<&str>, has_bounds| {
        let window = window.map(|window| window.parse().expect("a window"));
        Command::Unique { key: b"k", window, has_bounds }
    };
    check("UNIQ k", unique(None, false));
    check("uniq k 5m", unique(Some("5m"), false));
    check("UNIQ k bounds", unique(None, true));
    check("UNIQ k 300 BOUNDS", unique(Some("5m"), true));
    assert_eq!(usage_of("uniq"), "UNIQ <key> [<window>] [BOUNDS]");
    check_error("UNIQ k BOUNDS BOUNDS", &twice("BOUNDS"));
    let hint = ": UNIQ takes one window, and then BOUNDS";
    check_error("UNIQ k 5m 1h", &format!("{}{hint}", unexpected("1h")));
    check_error("UNIQ k BOUNDS 1h", &format!("{}{hint}", unexpected("1h")));
}

#[test]
fn hit() {
    let hit = |count, at| Command::Hit { key: b"k", count, at };
    check("HIT k", hit(1, None));
    check("hIt k 3", hit(3, None));
    check("HIT k 0", hit(0, None));
    check("HIT k 9223372036854775807", hit(u64::MAX / 2, None));
    check("HIT k AT 1700000000", hit(1, at(1_700_000_000)));
    check("HIT k 3 at 1", hit(3, at(1)));
    check("HIT \"\\xff\\x00\"", Command::Hit { key: b"\xff\x00", count: 1, at: None });
    for bad in ["x", "-1", "1.5", "9223372036854775808", "+1", "01"] {
        check_error(&format!("HIT k {bad}"), &not_a_count("count", bad));
    }
    check_error("HIT k ''", &not_a_count("count", ""));
    check_error("HIT k 1 2", &unexpected("2"));
    check_error("HIT k AT", AT_NEEDS);
    check_error("HIT k AT 1 AT 2", &twice("AT"));
    check_error("HIT k AT 1 x", &unexpected("x"));
    check_error("HIT k 1 x AT 1", &unexpected("x"));
    assert_eq!(usage_of("hit"), "HIT <key> [<count>] [AT <time>] [ID <id>] [MEMBER <member>]");
    let once = |weight, at, id| Command::HitOnce(HitOnce { key: b"k", weight, at, id });
    check("HIT k ID x", once(1, None, b"x"));
    check("HIT k 2 id AT AT 1", once(2, at(1), b"AT"));
    check("HIT k AT 1 ID \"\\xff\\x00\"", once(1, at(1), b"\xff\x00"));
    let most = "i".repeat(256);
    check(&format!("HIT k ID {most}"), once(1, None, most.as_bytes()));
    check_error(&format!("HIT k ID {most}i"), "ERR invalid id of 257 bytes: an id has 1 to 256 bytes");
    check_error("HIT k ID ''", "ERR invalid id of 0 bytes: an id has 1 to 256 bytes");
    check_error("HIT k ID", "ERR ID needs an id, such as order-42, after it");
    check_error("HIT k ID 1 ID 2", &twice("ID"));
    let member = |weight, at, id, member| Command::HitMember(MemberHit { key: b"k", weight, at, id, member });
    check("HIT k MEMBER x", member(1, None, None, b"x"));
    check("HIT k 2 member AT AT 1", member(2, at(1), None, b"AT"));
    check("HIT k ID MEMBER MEMBER ID AT 1", member(1, at(1), Some(b"MEMBER"), b"ID"));
    let most = "m".repeat(256);
    check(&format!("HIT k MEMBER {most}"), member(1, None, None, most.as_bytes()));
    check_error(
        &format!("HIT k MEMBER {most}m"),
        "ERR invalid member of 257 bytes: a member has 1 to 256 bytes",
    );
    check_error("HIT k MEMBER ''", "ERR invalid member of 0 bytes: a member has 1 to 256 bytes");
    check_error("HIT k MEMBER", "ERR MEMBER needs a member, such as user-7, after it");
    check_error("HIT k MEMBER 1 MEMBER 2", &twice("MEMBER"));
    check_error(
        "HIT k AT soon",
        "ERR invalid time 'soon': give Unix seconds from 0 to 253402300799, such as 1700000000 or 1700000000.25",
    );
    check_error("HIT", &arity("hit"));
}

#[test]
fn keys_have_bounds() {
    let most = "k".repeat(1_024);
    check(&format!("HIT {most}"), Command::Hit { key: most.as_bytes(), count: 1, at: None });
    for line in [
        "HIT K",
        "MHIT k 1 K 1",
        "HITS K",
        "MHITS 5m k K",
        "RATE K",
        "SERIES K 5m 1s",
        "LIMIT K 5 1m",
        "LIMIT K @login",
        "DEL k K",
        "EXISTS K",
        "TYPE K",
        "TTL K",
        "PTTL K",
    ] {
        check_error(&line.replace('K', "''"), &invalid_key(0));
        check_error(&line.replace('K', &format!("{most}k")), &invalid_key(1_025));
    }
}

#[test]
fn mhit() {
    with_args("MHIT a 1 b 0 a 7", |args| match Command::parse(args) {
        Ok(Command::MultiHit { pairs }) => {
            assert_eq!(pairs.len(), 3);
            let expected: [(&[u8], u64); 3] = [(b"a", 1), (b"b", 0), (b"a", 7)];
            assert_eq!(pairs.iter().collect::<Vec<_>>(), expected);
        }
        other => panic!("{other:?}"),
    });
    for line in ["MHIT", "MHIT a", "MHIT a 1 b"] {
        check_error(line, &arity("mhit"));
    }
    check_error("MHIT a x", &not_a_count("count", "x"));
    check_error("MHIT a 1 b -1", &not_a_count("count", "-1"));
}

/// Symptom: one request had a reply of tens of megabytes, or kept its thread busy for minutes. Cause: the
/// windows and keys of one command were unbounded. Fix: bounds that no real request exceeds.
#[test]
fn windows_and_keys_of_one_command_have_bounds() {
    let windows = Some("ERR HITS takes at most 128 windows");
    check_many("HITS k", 128, "5m", None);
    check_many("HITS k", 129, "5m", windows);
    check_many("HITS k", 1_000_000, "5m", windows);
    let one = "ERR unexpected argument '5m': BOUNDS takes at most one window";
    check_error(&format!("HITS k {}BOUNDS", "5m ".repeat(128)), one);
    check_error(&format!("HITS k {}BOUNDS", "5m ".repeat(129)), "ERR HITS takes at most 128 windows");
    check_many("INFO", 128, "cpu", None);
    check_many("INFO", 129, "cpu", Some("ERR INFO takes at most 128 sections"));
    check_many("COMMAND GETKEYS", 1_024, "del", None);
    check_many("COMMAND GETKEYS", 1_025, "del", Some("ERR COMMAND GETKEYS takes at most 1024 arguments"));
    check_many("SHUTDOWN", 5, "NOW", None);
    check_many("SHUTDOWN", 6, "NOW", Some("ERR syntax error"));
    check_many("MHITS 5m", 16_384, "k", None);
    check_many("MHITS 5m", 16_385, "k", Some("ERR MHITS takes at most 16384 keys"));
    check_many("MHIT", 2 * 16_384, "1", None);
    check_many("MHIT", 2 * 16_385, "1", Some("ERR MHIT takes at most 16384 keys"));
}

#[test]
fn hits() {
    let check_windows = |line: &str, expected: &[&str], expected_at: Option<Timestamp>| {
        with_args(line, |args| match Command::parse(args) {
            Ok(Command::Hits { key: b"k", windows, at }) => {
                let expected: Vec<Span> = expected.iter().map(|text| span(text)).collect();
                assert_eq!(windows.iter().collect::<Vec<_>>(), expected, "{line}");
                assert_eq!((windows.len(), windows.is_empty()), (expected.len(), expected.is_empty()));
                assert_eq!((windows.first(), at), (expected.first().copied(), expected_at), "{line}");
            }
            other => panic!("{line}: {other:?}"),
        });
    };
    check_windows("HITS k", &[], None);
    check_windows("HITS k 5m", &["5m"], None);
    check_windows("HITS k 5m 300 1h At 9", &["5m", "5m", "1h"], at(9));
    check_windows("HITS k AT 9", &[], at(9));

    let bounds = |window, at| Command::HitsBounds { key: b"k", window, at };
    check("HITS k BOUNDS", bounds(None, None));
    check("HITS k 5m bounds", bounds(Some(span("5m")), None));
    check("HITS k 5m BOUNDS AT 9", bounds(Some(span("5m")), at(9)));
    check("HITS k AT 9 BOUNDS", bounds(None, at(9)));

    check_error("HITS k 5m 1h BOUNDS", "ERR unexpected argument '1h': BOUNDS takes at most one window");
    check_error("HITS k AT", AT_NEEDS);
    check_error("HITS k BOUNDS BOUNDS", &twice("BOUNDS"));
    check_error("HITS k AT 1 AT 1", &twice("AT"));
    let behind = |value| {
        format!("{}: windows come before BOUNDS, DENIED, STALENESS, BY ORIGIN and AT", unexpected(value))
    };
    check_error("HITS k BOUNDS 5m", &behind("5m"));
    check_error("HITS k 5m AT 9 1h", &behind("1h"));
    let denied = |window, at| Command::HitsDenied { key: b"k", window, at };
    check("HITS k DENIED", denied(None, None));
    check("HITS k 5m denied AT 9", denied(Some(span("5m")), at(9)));
    check_error("HITS k 5m 1h 1d DENIED", "ERR unexpected argument '1h': DENIED takes at most one window");
    check_errors(
        &["HITS k DENIED BOUNDS", "HITS k 1h BOUNDS DENIED", "HITS k 1h 5m BOUNDS DENIED"],
        "ERR BOUNDS does not go with DENIED",
    );
    check_error("HITS k DENIED 5m", &behind("5m"));
    let staleness = |window, at| Command::HitsStaleness { key: b"k", window, at };
    check("HITS k STALENESS", staleness(None, None));
    check("HITS k 5m staleness AT 9", staleness(Some(span("5m")), at(9)));
    let by_origin = |window, at| Command::HitsByOrigin { key: b"k", window, at };
    check("HITS k BY ORIGIN", by_origin(None, None));
    check("HITS k AT 9 by origin", by_origin(None, at(9)));
    check("HITS k 5m By Origin AT 9", by_origin(Some(span("5m")), at(9)));
    check_error("HITS k BY ORIGIN BY ORIGIN", &twice("BY ORIGIN"));
    check_error("HITS k BY ORIGIN DENIED", "ERR DENIED does not go with BY ORIGIN");
    check_error("HITS k BY ORIGIN 5m", &behind("5m"));
    for line in ["HITS k BY", "HITS k by key", "HITS k 5m AT 9 BY", "HITS k 5m BY NODE", "HITS k BY 5m"] {
        let word = if line.contains("BY") { "BY" } else { "by" };
        check_error(line, &format!("{}: BY ORIGIN gives the hits of each node", unexpected(word)));
    }
    check_error("HITS k 5m 1h STALENESS", "ERR unexpected argument '1h': STALENESS takes at most one window");
    check_error("HITS k 5m 1h BY ORIGIN", "ERR unexpected argument '1h': BY ORIGIN takes at most one window");
    check_error("HITS k DENIED DENIED", &twice("DENIED"));
    let invalid = |text: &str| {
        format!(
            "ERR invalid duration '{text}': give whole seconds or a number with ms, s, m, h, d or w, such as 300, 5m or 250ms, from 1ms to 1000000000s"
        )
    };
    let misplaced = |word| format!("{}: a duration, such as 5m, is possible here", unexpected(word));
    check_error("TOP 5 AT 9", &misplaced("AT"));
    check_error("UNIQ k at 9", &format!("{}: UNIQ counts until now", unexpected("at")));
    let several = "ERR invalid duration 'b': HITS takes one key. For several: MHITS 5m key key";
    for line in ["HITS a b 5m", "HITS a b c 1h"] {
        check_error(line, several);
    }
    check_error("SERIES k 5m AT 9", &misplaced("AT"));
    check_error("RATE k BOUNDS", &misplaced("BOUNDS"));
    for line in ["HITS k x", "HITS k 5m x", "HITS k x AT 1", "RATE k x", "MHITS x k"] {
        check_error(line, &invalid("x"));
    }
    check_error("HITS k \"\\xff\"", &invalid("\u{fffd}"));
    // A long argument is truncated in the error.
    check_error(&format!("HITS k {}", "0".repeat(500)), &invalid(&"0".repeat(128)));
    check_error("HITS", &arity("hits"));
}

#[test]
fn other_counts() {
    with_args("MHITS 5m a b", |args| {
        let expected = Command::MultiHits { window: span("5m"), keys: args.from(2) };
        assert_eq!(Command::parse(args), Ok(expected));
    });
    check_error("MHITS 5m", &arity("mhits"));

    let rate = |window, at| Command::Rate { key: b"k", window, at };
    check("RATE k", rate(None, None));
    check("RATE k 1h", rate(Some(span("1h")), None));
    check("RATE k at 9", rate(None, at(9)));
    check("RATE k 1h AT 9", rate(Some(span("1h")), at(9)));
    check_error("RATE k 1h 1h", &unexpected("1h"));
    check_error("RATE k AT", AT_NEEDS);
    check_error("RATE k AT 1 x", &unexpected("x"));
    check_error("RATE k 1h BOUNDS", &unexpected("BOUNDS"));

    let series = |at| Command::Series { key: b"k", window: span("1h"), step: span("1m"), at };
    check("SERIES k 1h 1m", series(None));
    check("SERIES k 1h 1m AT 9", series(at(9)));
    check_error("SERIES k 1h 1m 1m", &unexpected("1m"));
    check_error("SERIES k 1h 1m AT", AT_NEEDS);
    check_error("SERIES k 1h 1m AT 9 9", &unexpected("9"));
    check_error("SERIES k 1h", &arity("series"));
}

#[test]
fn keys() {
    with_args("DEL a b", |args| {
        assert_eq!(Command::parse(args), Ok(Command::Delete { keys: args.from(1) }));
    });
    with_args("exists a a", |args| {
        assert_eq!(Command::parse(args), Ok(Command::Exists { keys: args.from(1) }));
    });
    check("TYPE k", Command::Type { key: b"k" });
    check("TTL k", Command::TimeToLive { key: b"k" });
    check("PTTL k", Command::TimeToLiveMillis { key: b"k" });
    check("DBSIZE", Command::DatabaseSize);
    for line in ["FLUSHALL", "FLUSHALL async", "FLUSHDB SYNC"] {
        check(line, Command::FlushAll);
    }
    check_errors(&["FLUSHALL x", "FLUSHALL ASYNC x", "FLUSHDB SYNC SYNC"], SYNTAX);
    for name in ["del", "exists", "type", "ttl", "pttl"] {
        check_error(name, &arity(name));
    }
    check_error("DBSIZE x", &arity("dbsize"));
    check_error("TYPE a b", &arity("type"));
}

#[test]
fn scan() {
    let plain = Scan { cursor: 0, pattern: None, count: 10, kind: None };
    check("SCAN 0", Command::Scan(plain));
    check("SCAN 18446744073709551615", Command::Scan(Scan { cursor: u64::MAX, ..plain }));
    check(
        "SCAN 7 match a* count 100 type hits",
        Command::Scan(Scan { cursor: 7, pattern: Some(b"a*"), count: 100, kind: Some(b"hits") }),
    );
    check("SCAN 0 COUNT 1", Command::Scan(Scan { count: 1, ..plain }));
    check_errors(
        &["SCAN x", "SCAN -1", "SCAN ''", "SCAN +1", "SCAN 1.5", "SCAN 18446744073709551616"],
        "ERR invalid cursor",
    );
    check_errors(&["SCAN 0 COUNT 0", "SCAN 0 COUNT -1", "SCAN 0 MATCH", "SCAN 0 x y"], SYNTAX);
    check_error("SCAN 0 COUNT x", NOT_INTEGER);
}

#[test]
fn transactions() {
    check("MULTI", Command::Multi);
    check("exec", Command::Exec);
    check("DISCARD", Command::Discard);
    check_error("MULTI x", &arity("multi"));
    assert_eq!(texts::EXEC_WITHOUT_MULTI, "ERR EXEC without MULTI");
    let aborts = |line: &str| {
        with_args(line, |args| Command::parse(args).map(|_| ()).expect_err(line)).aborts_transaction()
    };
    for line in ["NOSUCH", "HIT", "CLIENT nosuch", "CLIENT SETNAME", "MHIT a"] {
        assert!(aborts(line), "{line}");
    }
    for line in ["HIT k x", "HITS k x", "SELECT 1", "HELLO 9", "FLUSHALL x", "CLUSTER INFO", "DEL ''"] {
        assert!(!aborts(line), "{line}");
    }
}

#[test]
fn connection() {
    check("PING", Command::Ping { message: None });
    check("PING hello", Command::Ping { message: Some(b"hello") });
    check("ECHO ''", Command::Echo { message: b"" });
    check("AUTH secret", Command::Auth { user: None, password: b"secret" });
    check("AUTH me secret", Command::Auth { user: Some(b"me"), password: b"secret" });
    check("SELECT 0", Command::Select);
    check("RESET", Command::Reset);
    check("QUIT x", Command::Quit);
    check_error("AUTH a b c", SYNTAX);
    check_errors(&["SELECT 1", "SELECT -1"], "ERR DB index is out of range");
    check_error("SELECT x", NOT_INTEGER);
    for line in ["PING a b", "ECHO", "AUTH", "SELECT", "RESET x"] {
        let name = line.split(' ').next().expect("a name").to_lowercase();
        check_error(line, &arity(&name));
    }
}

#[test]
fn hello() {
    let plain = Hello::default();
    check("HELLO", Command::Hello(plain));
    check("HELLO 2", Command::Hello(Hello { protocol: Some(Protocol::V2), ..plain }));
    let v3 = Hello { protocol: Some(Protocol::V3), ..plain };
    check("hello 3", Command::Hello(v3));
    let auth = Some((b"default".as_slice(), b"secret".as_slice()));
    check("HELLO 3 AUTH default secret", Command::Hello(Hello { auth, ..v3 }));
    check("HELLO 3 setname me auth default secret", Command::Hello(Hello { auth, name: Some(b"me"), ..v3 }));
    check_error("HELLO x", "ERR Protocol version is not an integer or out of range");
    check_errors(&["HELLO 1", "HELLO 4 x"], "NOPROTO unsupported protocol version");
    check_error("HELLO 3 foo", "ERR Syntax error in HELLO option 'foo'");
    check_error("HELLO 3 AUTH a", "ERR Syntax error in HELLO option 'AUTH'");
    check_error("HELLO 3 setname", "ERR Syntax error in HELLO option 'setname'");
    check_error("HELLO 3 SETNAME 'a b'", client::CLIENT_NAME);
}

#[test]
fn server() {
    check("COMMAND", Command::Command(CommandQuery::All));
    check("COMMAND COUNT", Command::Command(CommandQuery::Count));
    check("COMMAND LIST", Command::Command(CommandQuery::List));
    with_args("COMMAND DOCS hit", |args| {
        assert_eq!(Command::parse(args), Ok(Command::Command(CommandQuery::Docs(args.from(2)))));
    });
    with_args("COMMAND INFO hit ping", |args| {
        assert_eq!(Command::parse(args), Ok(Command::Command(CommandQuery::Info(args.from(2)))));
    });
    with_args("INFO memory", |args| {
        assert_eq!(Command::parse(args), Ok(Command::Info { sections: args.from(1) }));
    });
    with_args("CONFIG GET save a*", |args| {
        assert_eq!(Command::parse(args), Ok(Command::ConfigGet { patterns: args.from(2) }));
    });
    check("TIME", Command::Time);
    check("BGSAVE", Command::BackgroundSave);
    check("bgsave schedule", Command::BackgroundSave);
    check("LASTSAVE", Command::LastSave);
    for line in ["SHUTDOWN", "SHUTDOWN NOSAVE", "SHUTDOWN save now force"] {
        check(line, Command::Shutdown);
    }
    check("SHUTDOWN ABORT", Command::ShutdownAbort);
    check("CONFIG HELP", Command::Help { container: ContainerName::Config });
    check_errors(&["SHUTDOWN x", "SHUTDOWN SAVE NOSAVE", "SHUTDOWN ABORT NOW", "COMMAND LIST x"], SYNTAX);
    check_error("CONFIG SET a b", "ERR CONFIG SET is not supported: settings come from the config file");
    check_errors(&["CLUSTER INFO", "CLUSTER x y"], "ERR This instance has cluster support disabled");
    check_error("CONFIG foo", "ERR unknown subcommand 'foo'. Try CONFIG HELP.");
    for (line, name) in [
        ("COMMAND GETKEYS", "command|getkeys"),
        ("CLUSTER", "cluster"),
        ("CONFIG", "config"),
        ("CONFIG GET", "config|get"),
        ("CONFIG SET a", "config|set"),
        ("COMMAND COUNT x", "command|count"),
        ("TIME x", "time"),
    ] {
        check_error(line, &arity(name));
    }
}

/// The expected texts are what Redis 7.0.15 answered to the same requests.
#[test]
fn unknown_commands() {
    let check_unknown = |line: &str, name: &str, args: &str| {
        check_error(line, &format!("ERR unknown command '{name}', with args beginning with: {args}"));
    };
    let run = |letter: &str, length: usize| letter.repeat(length);
    check_unknown("foo", "foo", "");
    check_unknown("''", "", "");
    check_unknown("PUBLIC a 1", "PUBLIC", "'a' '1' ");
    check_unknown("HITT a", "HITT", "'a' ");
    check_unknown(
        &format!("{} {} b", run("f", 200), run("a", 200)),
        &run("f", 128),
        &format!("'{}' ", run("a", 128)),
    );
    check_unknown(
        &format!("foo {} {} c", run("a", 100), run("b", 100)),
        "foo",
        &format!("'{}' '{}' ", run("a", 100), run("b", 25)),
    );
    check_unknown(&format!("foo {} b", run("a", 122)), "foo", &format!("'{}' 'b' ", run("a", 122)));
    check_unknown(
        &format!("foo {} {} c d e", run("a", 60), run("b", 60)),
        "foo",
        &format!("'{}' '{}' 'c' ", run("a", 60), run("b", 60)),
    );
    // The end, after the words of Redis, is ours.
    check_unknown(
        "Incr a",
        "Incr",
        "'a' (use HIT key [count]: it counts hits and returns those of the last window)",
    );
    check_unknown("KEYS *", "KEYS", "'*' (use SCAN cursor [MATCH pattern])");
    check_unknown(r#""foo\x00bar" "a\x00b""#, "foo", "'a' ");
    check_unknown(r#""f\r\nx""#, "f\r\nx", "");
}
