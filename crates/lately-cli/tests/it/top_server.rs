//! `lately top` on a server.

use std::io::{BufRead, BufReader};

use serde_json::Value;

use crate::client_runs::{check_refused, words};
use crate::common::{command, has, lately};
use crate::running::{serve, serve_with, start};
use crate::terminal::Terminal;
use crate::top::Following;
use crate::top_screen::keys;

/// The first `count` lines that `lately top` prints.
fn first_lines(server: &str, args: &str, count: usize) -> Vec<String> {
    let mut child =
        command(&["top", "--server", server]).args(words(args)).spawn().expect("the binary starts");
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    let lines = out.lines().take(count).map(|line| line.expect("text")).collect();
    child.kill().and_then(|()| child.wait()).expect("it runs");
    lines
}

#[test]
fn the_busiest_keys_of_a_server_are_printed() {
    let server = serve();
    server.ask::<Vec<u64>>("MHIT page:/a 30 page:/b 600 page:/c 30 user:1 7");
    let before: Vec<u64> = server.ask("TIME");
    let lines = first_lines(&server.resp, "--window 1m --prefix page:", 4);
    let row = |line: &String| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
    let rows: Vec<String> = lines.iter().map(row).collect();
    assert_eq!(rows, ["(UTC) HITS RATE/s KEY", "600 10.0 page:/b", "30 0.50 page:/a", "30 0.50 page:/c"]);
    let lines = first_lines(&server.resp, "--top 2 --json", 4);
    let objects: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    let at = objects[0]["at"].as_u64().expect("a time");
    assert!((before[0]..before[0] + 60).contains(&at), "{at}");
    let of = |index: usize| (objects[index]["key"].as_str(), objects[index]["hits"].as_u64());
    assert_eq!([of(0), of(1)], [(Some("page:/b"), Some(600)), (Some("page:/a"), Some(30))]);
    assert_eq!([of(2), of(3)], [of(0), of(1)], "they are printed again");
    assert_eq!((objects[0]["rate"].as_f64(), &objects[0]["peak"]), (Some(2.0), &Value::Null));
}

#[test]
fn top_waits_for_a_server_that_is_away() {
    let server = serve();
    server.ask::<u64>("HIT k 3");
    let address = server.resp.clone();
    let mut following = Following::new(&["--server", &address]);
    following.wait("k", 3);
    server.ask::<u64>("HIT k");
    following.wait("k", 4);
    server.signal("TERM");
    assert_eq!(server.ended().code, Some(0));
    following.wait_for_message(&format!("lately: top: {address}: "));
    let args = ["serve", "--in-memory", "--resp", &address, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
    let server = start(&args);
    server.ask::<u64>("HIT another 9");
    following.wait("another", 9);
    let (messages, code) = following.end("TERM");
    assert_eq!((messages.lines().count(), code), (1, Some(0)), "{messages}");
}

#[test]
fn an_error_of_the_first_answer_ends_it() {
    let server = serve();
    let hint = "the server refused it and changed nothing";
    let address = &server.resp;
    let refused = "ERR invalid k '10001': give how many keys are wanted, 0 to 10000.";
    check_refused(address, "top --top 10001", &format!("{address}: {refused}"), hint);
    check_refused(
        "127.0.0.1:1",
        "top",
        "127.0.0.1:1: ",
        "is the server running there? lately serve starts one",
    );
    // The most keys at once.
    server.ask::<u64>("HIT k");
    assert_eq!(first_lines(address, "--top 0 --json", 1).len(), 1);
}

#[test]
fn options_are_about_logs_or_about_a_server() {
    let check = |args: &str, expected: &str| {
        let run = lately(&args.split(' ').collect::<Vec<_>>());
        assert_eq!((run.out.as_str(), run.code), ("", Some(2)), "{args}");
        assert!(run.err.contains(expected), "{args}: {}", run.err);
    };
    check("top --where status=500", "FILE");
    check("top --key ip", "FILE");
    check("top log --server 127.0.0.1:1", "--server");
    check("top log --prefix a", "--prefix");
    check("top --prefix=", "--prefix");
}

#[test]
fn the_screen_follows_the_server_and_the_keyboard() {
    if !has("setsid") {
        return;
    }
    let server = serve();
    let now: Vec<u64> = server.ask("TIME");
    server.ask::<u64>(&format!("HIT a 30 AT {}", now[0] - 200));
    server.ask::<Vec<u64>>("MHIT bb 20 c 4");
    let args = ["top", "--every", "100ms", "--server", &server.resp];
    let mut terminal = Terminal::run(&args, (100, 24), &[]);
    terminal.wait("the first page", |lines| keys(lines) == ["a", "bb", "c"] && lines[3].contains('█'));
    let shown = terminal.lines();
    assert!(shown[0].starts_with(&format!("lately top  {}", server.resp)), "{}", shown[0]);
    assert!(shown[0].ends_with('Z') && shown[0].len() == 100, "{}", shown[0]);
    let sums = "last 5m: 54 hits, 0.18/s, 3 keys shown, others at most 0 each";
    assert!(shown[1].starts_with(sums) && shown[1].ends_with("by hits"), "{}", shown[1]);
    assert!(shown[2].starts_with("   HITS   RATE/s      10s  CURVE"), "{}", shown[2]);
    let row: Vec<&str> = shown[3].split_whitespace().collect();
    assert_eq!(row[..3], ["30", "0.10", "0"]);
    assert_eq!(shown[23], "/ filter   s sort   w window   q quit");

    server.ask::<Vec<i64>>("LIMIT bb 20 5m COST 3");
    terminal.wait("what limits denied", |lines| lines[2].contains("DENIED") && lines[4].contains("   3  "));
    server.ask::<u64>("HIT c 40");
    terminal.wait("new hits", |lines| keys(lines) == ["c", "a", "bb"]);
    terminal.press("s");
    terminal.wait("another order", |lines| lines[1].ends_with("by the last 10s") && keys(lines)[0] != "a");
    terminal.press("s");
    terminal.wait("by key", |lines| lines[1].ends_with("by key") && keys(lines) == ["a", "bb", "c"]);
    terminal.press("s");
    terminal
        .wait("the first order", |lines| lines[1].ends_with("by hits") && keys(lines) == ["c", "a", "bb"]);
    terminal.press("WW");
    terminal
        .wait("a shorter window", |lines| lines[1].starts_with("last 10s: ") && !keys(lines).contains(&"a"));
    terminal.press("w");
    terminal.wait("a longer window", |lines| lines[1].starts_with("last 1m: 64 hits"));
    terminal.press("/B\r");
    terminal.wait("a filter", |lines| {
        keys(lines) == ["bb"] && lines[1].starts_with("last 1m: 20 hits, 0.33/s, 1 key shown with B")
    });
    server.signal("TERM");
    assert_eq!(server.ended().code, Some(0));
    terminal
        .wait("that the server is away", |lines| lines[22].contains("127.0.0.1:") && keys(lines) == ["bb"]);
    terminal.press("q");
    let ended = terminal.ended();
    assert!(ended.code == Some(0) && ended.is_restored, "{:?} {}", ended.code, ended.messages);
}

#[test]
fn the_screen_of_a_server_has_its_alerts_and_limits() {
    if !has("setsid") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lately.toml");
    let rules = "[[limit]]\nname = \"login\"\nmax = 3\nwindow = \"1h\"\n\
        [[limit]]\nname = \"search\"\nmax = 1\nwindow = \"1h\"\nshadow = true\n\
        [[alert]]\nname = \"busy\"\nmatch = \"k:*\"\nabove = 5\nwindow = \"1h\"\n";
    std::fs::write(&config, rules).expect("room");
    let server = serve_with(&["--config", config.to_str().expect("text")]);
    let args = ["top", "--every", "100ms", "--server", &server.resp];
    let mut terminal = Terminal::run(&args, (100, 24), &[]);
    let limit = |name: &str| server.ask::<Vec<i64>>(&format!("LIMIT u:1 @{name}"));
    let numbers =
        |line: &str| -> Vec<f64> { line.split_whitespace().map_while(|word| word.parse().ok()).collect() };
    let header = "ALLOWED/s  DENIED/s  WOULD DENY/s  LIMIT";
    terminal.wait("the limits", |lines| {
        lines[19] == header && lines[20].ends_with("  login") && lines[21].ends_with("  search")
    });
    // Those that refuse the most come first.
    terminal.wait("what they decide", |lines| {
        limit("login");
        limit("search");
        let rates = [20, 21].map(|line| (lines[line].ends_with("  search"), numbers(&lines[line])));
        let [search, login] = &rates;
        search.0
            && search.1.get(2).is_some_and(|rate| *rate > 0.0)
            && login.1.get(1).is_some_and(|rate| *rate > 0.0)
    });
    server.ask::<u64>("HIT k:a 9");
    let alert = "alert busy is firing: 9 hits in 1h, above 5: k:a 100 %";
    terminal
        .wait("the alert", |lines| lines[18] == alert && lines[19] == header && keys(lines).contains(&"k:a"));
    terminal.press("q");
    assert_eq!(terminal.ended().code, Some(0));
}
