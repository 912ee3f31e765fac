//! `lately bench`: its output, its check of the counts, and its errors.

use serde_json::Value;

use crate::common::{Run, lately};
use crate::running::{Running, serve, serve_with};

fn bench(server: &Running, words: &str) -> Run {
    let mut args = vec!["bench", "--seconds", "1", "--server", &server.resp];
    args.extend(words.split(' '));
    lately(&args)
}

fn object(run: &Run) -> Value {
    assert_eq!((run.err.as_str(), run.code), ("", Some(0)));
    serde_json::from_str(&run.out).expect("an object")
}

#[test]
fn every_key_counts_its_sent_hits() {
    let server = serve();
    // The keys are few enough that each is drawn even on a slow machine. Keys of earlier runs stay.
    for (words, keys) in [
        ("--json --keys 50 --zipf 1.1 --pipeline 8", 50),
        ("--json --keys 1000 --pipeline 16 --clients 5", 1_000),
        ("--json --keys 1000 --pipeline 100 --order uniform", 1_000),
        ("--json --keys 1 --clients 50", 1_000),
        ("--json --keys 7000 --order sequential --pipeline 64 --rate 20000", 7_000),
    ] {
        let report = object(&bench(&server, words));
        let count = |name: &str| report[name].as_u64().expect(name);
        assert!(count("requests") > 0, "{report}");
        assert_eq!((count("sent"), count("counted")), (count("requests"), count("requests")), "{report}");
        assert_eq!((count("errors"), count("wrong_keys")), (0, 0), "{report}");
        let time = |name: &str| report[name].as_f64().expect(name);
        assert!(time("per_second") > 0.0 && time("p50_ms") > 0.0, "{report}");
        assert!(time("p50_ms") <= time("p99_ms") && time("p99_ms") <= time("p99_9_ms"), "{report}");
        assert!(time("p99_9_ms") <= time("worst_ms"), "{report}");
        assert_eq!(server.ask::<u64>("DBSIZE"), keys, "{words}");
    }
}

#[test]
fn reads_count_nothing() {
    let server = serve();
    assert_eq!(server.ask::<u64>("HIT key:000000000003 5"), 5);
    let report = object(&bench(&server, "--command hits --window 1h --keys 10 --pipeline 4 --json"));
    assert_eq!((report["sent"].as_u64(), report["counted"].as_u64()), (Some(0), Some(0)), "{report}");
    assert!(report["requests"].as_u64() > Some(0), "{report}");
    assert_eq!(server.ask::<u64>("HITS key:000000000003"), 5);
}

#[test]
fn lines_for_people() {
    let server = serve();
    let run = bench(&server, "--keys 10 --clients 2 --pipeline 4");
    assert_eq!((run.err.as_str(), run.code), ("", Some(0)));
    let lines: Vec<&str> = run.out.lines().collect();
    let starts = ["requests    ", "throughput  ", "latency     p50 ", "errors      0", "counts      "];
    assert_eq!(lines.len(), starts.len(), "{}", run.out);
    assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{}", run.out);
    assert!(lines[0].ends_with(" s, 2 connections, 4 at a time"), "{}", run.out);
    assert!(lines[4].ends_with(" hits, each key as sent"), "{}", run.out);
    let reads = bench(&server, "--keys 10 --command hits");
    assert!(reads.out.ends_with(" hits, as before\n"), "{}", reads.out);
}

#[test]
fn a_low_rate_is_kept_for_the_planned_time() {
    let report = object(&bench(&serve(), "--json --keys 10 --rate 2"));
    let (requests, rate) = (report["requests"].as_f64(), report["per_second"].as_f64());
    assert!(rate.expect("a rate") <= requests.expect("a count"), "{report}");
}

#[test]
fn error_replies_and_lost_counts_are_a_negative_answer() {
    let server = serve();
    // This server does not have the command.
    let run = bench(&server, "--command incr --keys 10");
    assert_eq!((run.out.as_str(), run.code), ("", Some(2)), "{}", run.err);
    assert!(
        run.err.contains("reading the counts: ") && run.err.contains("hint: is it a Redis server?"),
        "{}",
        run.err
    );

    // The class keeps hits for one second only, so the first ones are gone at the end.
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lately.toml");
    let class = "[[class]]\nmatch = \"*\"\nwindow = \"100ms\"\nresolution = \"10ms\"\nexact = \"200ms\"\nretain = \"200ms\"\n";
    std::fs::write(&config, class).expect("room for a file");
    let short = serve_with(&["--config", config.to_str().expect("UTF-8")]);
    let run = bench(&short, "--keys 10");
    assert_eq!(run.code, Some(1), "{}", run.err);
    assert!(run.out.contains(" hits, not as sent\n"), "{}", run.out);
    assert!(
        run.err.starts_with(
            "lately: bench: 10 keys have another count than they were sent: key:000000000000 was sent "
        ),
        "{}",
        run.err
    );
    assert!(
        run.err.ends_with("hint: does another client hit these keys, or does the server evict keys?\n"),
        "{}",
        run.err
    );
}

#[test]
fn bad_options_of_bench_are_refused() {
    let check = |words: &str, error: &str, hint: &str| {
        let args: Vec<&str> = ["bench"].into_iter().chain(words.split(' ')).collect();
        let run = lately(&args);
        assert_eq!((run.out.as_str(), run.code), ("", Some(2)), "{words}");
        let (first, second) = run.err.trim_end().split_once('\n').expect("two lines");
        assert!(first.starts_with(&format!("lately: {error}")), "{words}: {first}");
        assert_eq!(second, format!("hint: {hint}"), "{words}");
    };
    let help = "see lately bench --help";
    check("--pipeline 0", "bench: pipeline 0 is out of bounds: give 1 to 10000", help);
    check("--clients 10001", "bench: clients 10001 is out of bounds: give 1 to 10000", help);
    check("--keys 0", "bench: keys 0 is out of bounds: give 1 to 100000000", help);
    check("--seconds 0", "bench: seconds 0 is out of bounds: give 0.001 to 86400", help);
    check("--zipf 11", "bench: zipf 11 is out of bounds: give 0 to 10", help);
    check("--rate 0", "bench: rate 0 is out of bounds: give 1 to 1000000000", help);
    check("--window 1h", "--window: only hits asks for a window", "add --command hits");
    let nobody = "is the server running there? lately serve starts one";
    check("--server 127.0.0.1:1", "127.0.0.1:1: ", nobody);
}
