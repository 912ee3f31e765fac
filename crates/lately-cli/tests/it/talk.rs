//! `lately hit` and `lately hits`.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use crate::client_runs::{ask, check, check_json, check_refused, words};
use crate::common::lately;
use crate::running::{Running, serve};

/// The server's time, this many seconds ago.
fn ago(server: &Running, seconds: u64) -> u64 {
    let now: Vec<u64> = server.ask("TIME");
    now[0] - seconds
}

#[test]
fn one_window_of_one_key_prints_a_number() {
    let server = serve();
    check(&server, "hit k", "1\n");
    check(&server, "hit k 4", "5\n");
    check(&server, "hit k 0", "5\n");
    check(&server, "hits k", "5\n");
    check(&server, "hits k --window 1m", "5\n");
    check(&server, "hits none", "0\n");
    let past = ago(&server, 60);
    check(&server, &format!("hit k 2 --at {past}"), "2\n");
    check(&server, &format!("hit k --at {past}.5"), "3\n");
    check(&server, &format!("hits k --at {past}"), "3\n");
    check(&server, "hits k", "8\n");
    check(&server, "hits k --window 30", "5\n");
    assert_eq!(server.ask::<u64>("HITS k"), 8);
}

#[test]
fn several_windows_or_keys_print_rows() {
    let server = serve();
    check(&server, "hit k 3", "3\n");
    check(&server, &format!("hit another 12 --at {}", ago(&server, 90)), "12\n");
    check(
        &server,
        "hits k another none --window 1m --window 1h",
        "HITS  WINDOW  KEY\n   3      1m  k\n   3      1h  k\n   0      1m  another\n  12      1h  another\n   0      1m  none\n   0      1h  none\n",
    );
    check(&server, "hits k another", "HITS   WINDOW  KEY\n   3  default  k\n  12  default  another\n");
    check(&server, "hits k --window 5m --window 1h", "HITS  WINDOW  KEY\n   3      5m  k\n   3      1h  k\n");
}

#[test]
fn objects_for_programs() {
    let server = serve();
    check_json(&server, &words("hit k 3 --json"), &[json!({ "key": "k", "hits": 3 })]);
    let default = json!([{ "window": null, "hits": 3 }]);
    check_json(&server, &words("hits k --json"), &[json!({ "key": "k", "windows": default })]);
    let windows = |hits| json!([{ "window": "1m", "hits": hits }, { "window": "1h", "hits": hits }]);
    check_json(
        &server,
        &words("hits k none --window 60 --window 1h --json"),
        &[json!({ "key": "k", "windows": windows(3) }), json!({ "key": "none", "windows": windows(0) })],
    );
}

#[test]
fn keys_are_bytes() {
    let server = serve();
    let key = OsString::from(OsStr::from_bytes(b"\xff\xfe k"));
    let with = |args: &[&'static str]| -> Vec<OsString> {
        [OsString::from(args[0]), key.clone()]
            .into_iter()
            .chain(args[1..].iter().map(OsString::from))
            .collect()
    };
    let hit = with(&["hit", "--json"]);
    let borrowed: Vec<&OsStr> = hit.iter().map(OsString::as_os_str).collect();
    check_json(&server, &borrowed, &[json!({ "key_b64": "//4gaw==", "hits": 1 })]);
    let hits = with(&["hits", "a\tb"]);
    let borrowed: Vec<&OsStr> = hits.iter().map(OsString::as_os_str).collect();
    let run = ask(&server.resp, &borrowed);
    assert_eq!(run.out, "HITS   WINDOW  KEY\n   1  default  \\xff\\xfe k\n   0  default  a\\tb\n");
    let mut connection = server.connect();
    let hits: u64 = redis::cmd("HITS").arg(b"\xff\xfe k").query(&mut connection).expect("an integer");
    assert_eq!(hits, 1);
}

#[test]
fn the_flag_wins_over_the_environment() {
    let server = serve();
    let run = ask("nobody.invalid:1", &words(&format!("hit k --server {}", server.resp)));
    assert_eq!((run.out.as_str(), run.code), ("1\n", Some(0)), "{}", run.err);
}

#[test]
fn refusals_quote_the_server() {
    let server = serve();
    let (resp, hint) = (&server.resp, "the server refused it and changed nothing");
    check_refused(resp, "hit k --at 1", &format!("{resp}: LATE hit at 1 is older than what is kept"), hint);
    check_refused(
        resp,
        "hit k --at 99999999999",
        &format!("{resp}: FUTURE hit at 99999999999 is too far ahead of the clock"),
        hint,
    );
    let long = "k".repeat(1_025);
    let invalid = format!("{resp}: ERR invalid key of 1025 bytes: a key has 1 to 1024 bytes");
    check_refused(resp, &format!("hit {long}"), &invalid, hint);
    check_refused(resp, &format!("hits k {long}"), &invalid, hint);
    check(&server, "hits k", "0\n");
}

#[test]
fn a_silent_server_times_out() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("bound").to_string();
    let run = lately(&["hit", "k", "--server", &address]);
    assert_eq!((run.code, run.out.as_str()), (Some(2), ""));
    let expected = format!("lately: {address}: no answer within 5 s\nhint: is it a lately server?\n");
    assert_eq!(run.err, expected);
}

/// A server whose reply never ends times out like a silent one.
#[test]
fn an_endless_reply_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        client.set_read_timeout(Some(std::time::Duration::from_millis(500))).expect("a socket");
        client.write_all(b"+").expect("the client is there");
        // Repeats until the client has gone. Waiting for its input is the pause.
        while client.write_all(b"a").is_ok() {
            let _ = client.read(&mut [0; 1_024]);
        }
    });
    let run = lately(&["hit", "k", "--server", &address]);
    let expected = format!("lately: {address}: no answer within 5 s\nhint: is it a lately server?\n");
    assert_eq!((run.code, run.out.as_str(), run.err), (Some(2), "", expected));
    server.join().expect("the client has gone");
}

#[test]
fn mistakes_are_found_before_connecting() {
    let nowhere = "127.0.0.1:1";
    for line in ["hit k", "hits k"] {
        check_refused(
            nowhere,
            line,
            "127.0.0.1:1: Connection refused",
            "is the server running there? lately serve starts one",
        );
    }
    let address = "--server: invalid address 'here:port'";
    check_refused("here:port", "hit k", address, "give HOST:PORT, such as 127.0.0.1:7379");
    let see = "see lately hit --help";
    check_refused(nowhere, "hit k x", "command line: invalid value 'x' for '[N]'", see);
    check_refused(nowhere, "hit k --at noon", "command line: --at <TIME>: invalid time 'noon'", see);
    let see = "see lately hits --help";
    check_refused(nowhere, "hits k --window 0", "command line: --window <W>: invalid duration '0'", see);
    assert_eq!(ask(nowhere, &words("hits")).code, Some(2));
}

#[test]
fn a_duration_in_place_of_a_key_gets_a_hint() {
    let server = serve();
    let check = |line: &str, out: &str, hint: &str| {
        let run = ask(&server.resp, &words(line));
        assert_eq!((run.out.as_str(), run.err.as_str(), run.code), (out, hint, Some(0)), "{line}");
    };
    let rows = "HITS   WINDOW  KEY\n   0  default  k\n   0  default  1h\n";
    check("hits k 1h", rows, "hint: '1h' was read as a key: write --window 1h for a window\n");
    check("hits 250ms", "0\n", "hint: '250ms' was read as a key: write --window 250ms for a window\n");
    check("hits 1h --window 5m", "0\n", "");
    check("hits 300", "0\n", "");
    check("hits 1x", "0\n", "");
}
