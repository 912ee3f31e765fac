//! `DEL EXISTS SCAN DBSIZE FLUSHALL TYPE TTL`.

use std::collections::BTreeSet;

use super::*;
use crate::limits::{SCAN_BYTES, SCAN_STEP};

#[test]
fn keys_exist_from_their_first_hit_until_they_are_deleted() {
    Talk::new().check_all(&[
        ("DBSIZE", ":0|"),
        ("MHIT a 1 b 2 c 3", "*3|:1|:2|:3|"),
        ("DBSIZE", ":3|"),
        ("EXISTS a", ":1|"),
        ("EXISTS a a none b", ":3|"),
        ("TYPE a", "+hits|"),
        ("TYPE none", "+none|"),
        ("DEL a none a", ":1|"),
        ("HITS a", ":0|"),
        ("TYPE a", "+none|"),
        ("DEL b c", ":2|"),
        ("DBSIZE", ":0|"),
        ("DEL", "-ERR wrong number of arguments for 'del' command|"),
        ("DEL ''", "-ERR invalid key of 0 bytes: a key has 1 to 1024 bytes|"),
        ("HIT a", ":1|"),
        ("FLUSHALL", "+OK|"),
        ("HITS a", ":0|"),
        ("HIT a", ":1|"),
        ("FLUSHDB ASYNC", "+OK|"),
        ("FLUSHALL SYNC", "+OK|"),
        ("FLUSHALL NOW", SYNTAX),
        ("DBSIZE", ":0|"),
    ]);
}

#[test]
fn time_to_live_lasts_until_the_last_hit_leaves_the_retention() {
    let mut talk = Talk::new();
    talk.check_all(&[("TTL k", ":-2|"), ("PTTL k", ":-2|"), ("HIT k", ":1|")]);
    let left_ms = |talk: &mut Talk| -> i64 {
        let reply = talk.ask("PTTL k");
        reply.trim_matches([':', '|']).parse().expect("an integer")
    };
    let first_ms = left_ms(&mut talk);
    let week_ms = 604_800_000;
    assert!((week_ms..week_ms + week_ms / 100).contains(&first_ms), "{first_ms}");
    talk.clock
        .set(Timestamp::from_millis(i64::try_from(NOW_S).expect("small") * 1_000 + 1).expect("in range"));
    assert_eq!(left_ms(&mut talk), first_ms - 1);
    // A time to live is rounded up, so an existing key has at least a second left.
    talk.check("TTL k", &format!(":{}|", (first_ms + 998) / 1_000));
    talk.clock.set(seconds(NOW_S).saturating_add(lately::Span::from_millis(first_ms).expect("positive")));
    talk.check_all(&[("TTL k", ":-2|"), ("EXISTS k", ":0|"), ("TYPE k", "+none|"), ("HITS k 6d", ":0|")]);
}

/// The next cursor and the keys of a reply of `SCAN`.
fn page(reply: &str) -> (String, Vec<String>) {
    let lines: Vec<_> = reply.trim_end_matches('|').split('|').collect();
    assert_eq!(lines[0], "*2", "{reply}");
    let keys: Vec<_> = lines[4..].iter().skip(1).step_by(2).map(ToString::to_string).collect();
    assert_eq!(lines[3], format!("*{}", keys.len()), "{reply}");
    (lines[2].to_owned(), keys)
}

fn scan(talk: &mut Talk, options: &str) -> BTreeSet<String> {
    scan_pages(talk, options).1
}

/// The number of pages of a scan, and its keys.
fn scan_pages(talk: &mut Talk, options: &str) -> (usize, BTreeSet<String>) {
    let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
    for pages in 1..=1_000 {
        let (next, keys) = page(&talk.ask(&format!("SCAN {cursor} {options}")));
        found.extend(keys);
        cursor = next;
        if cursor == "0" {
            return (pages, found);
        }
    }
    panic!("SCAN {options} does not end");
}

/// Hits this many long keys with a common prefix.
fn hit_long_keys(talk: &mut Talk, byte: &str, keys: usize) {
    let fill = byte.repeat(lately::limits::MAX_KEY_BYTES - 5);
    for number in 0..keys {
        talk.check(&format!("HIT {fill}{number:05}"), ":1|");
    }
}

/// Symptom: one request kept a thread busy for minutes. Cause: a pattern of a megabyte was matched with every key. Fix: a
/// pattern is at most as long as a key.
#[test]
fn a_scan_is_bounded() {
    let mut talk = Talk::new();
    talk.check(&format!("SCAN 0 MATCH {}", "*".repeat(1_024)), "*2|$1|0|*0|");
    talk.check(
        &format!("SCAN 0 MATCH {}", "*".repeat(1_025)),
        "-ERR invalid pattern: a pattern has at most 1024 bytes|",
    );
}

/// Symptom: one `SCAN` with a long pattern on long keys kept all other clients waiting for ten seconds. Cause: a page was
/// bounded in slots and bytes, not in the cost of matching. Fix: it is bounded in that, too.
#[test]
fn a_page_is_bounded_by_its_matching_time() {
    let mut talk = Talk::new();
    hit_long_keys(&mut talk, "a", 100);
    let mut pages = |pattern: &str| {
        let (pages, found) = scan_pages(&mut talk, &format!("COUNT 10000 MATCH {pattern}"));
        (pages, found.len())
    };
    let (slow, none) = pages(&format!("*{}b", "a".repeat(500)));
    let (slow_set, all) = pages(&format!("*[{}]*", "0b".repeat(500)));
    assert!((3..=20).contains(&slow) && (3..=20).contains(&slow_set), "{slow} and {slow_set}");
    assert_eq!((none, all), (0, 100));
    assert_eq!(pages("a*9"), (1, 10));
}

/// Symptom: a request of thirty bytes had a reply of ten megabytes. Cause: a page was bounded in slots, not in bytes, and
/// a key may be long. Fix: a page is bounded in bytes of keys, too.
#[test]
fn a_page_of_long_keys_is_bounded_in_bytes() {
    let mut talk = Talk::new();
    hit_long_keys(&mut talk, "k", 2_000);
    let reply = talk.ask("SCAN 0 COUNT 10000");
    let step_bytes = SCAN_STEP * (lately::limits::MAX_KEY_BYTES + "$1024||".len());
    assert!(reply.len() >= SCAN_BYTES, "{}", reply.len());
    assert!(reply.len() < SCAN_BYTES + SCAN_BYTES / 64 + step_bytes, "{}", reply.len());
    assert!(!reply.starts_with("*2|$1|0|"));
    assert_eq!(scan(&mut talk, "COUNT 10000").len(), 2_000);
    // With short keys, a page has as many slots as requested.
    talk.check("FLUSHALL", "+OK|");
    for number in 0..2_000 {
        talk.check(&format!("HIT {number:05}"), ":1|");
    }
    assert_eq!(page(&talk.ask("SCAN 0 COUNT 10000")).1.len(), 2_000);
    let (next, keys) = page(&talk.ask("SCAN 0 COUNT 1000"));
    assert!(next != "0" && (900..=1_000).contains(&keys.len()), "{next} {}", keys.len());
}

#[test]
fn a_scan_finds_every_key() {
    let mut talk = Talk::new();
    talk.check("SCAN 0 COUNT 1000", "*2|$1|0|*0|");
    let names: BTreeSet<String> = (0..200).map(|number| format!("key:{number}")).collect();
    for name in &names {
        talk.check(&format!("HIT {name}"), ":1|");
    }
    assert_eq!(scan(&mut talk, ""), names);
    assert_eq!(scan(&mut talk, "COUNT 1"), names);
    assert_eq!(scan(&mut talk, "COUNT 9223372036854775807"), names);
    assert_eq!(scan(&mut talk, "TYPE hits COUNT 50"), names);
    assert_eq!(scan(&mut talk, "TYPE string"), BTreeSet::new());
    let tens = scan(&mut talk, "MATCH key:?0");
    assert_eq!(tens, (1..10).map(|ten| format!("key:{ten}0")).collect());
    talk.check_all(&[
        ("SCAN x", "-ERR invalid cursor|"),
        ("SCAN -1", "-ERR invalid cursor|"),
        ("SCAN 0 COUNT 0", SYNTAX),
        ("SCAN 0 COUNT x", NOT_INTEGER),
        ("SCAN 0 MATCH", SYNTAX),
        ("SCAN 0 NOVALUES", SYNTAX),
    ]);
}

/// Long commands are answered in slices, alone and inside a transaction. Later requests of the client wait.
#[test]
fn slow_commands_let_other_clients_run() {
    let mut talk = Talk::new();
    for key in 0..40 {
        talk.ask(&format!("HIT k{key}"));
    }
    for (line, parts) in [
        ("SERIES k1 2048s 1s", 1),
        ("SERIES k1 2049s 1s", 3),
        ("SCAN 0 COUNT 256", 1),
        ("COOLEST 2 PREFIX k1", 2),
    ] {
        let whole = talk.ask(line);
        let mut reply = talk.first_of(line);
        let mut seen = 1;
        while talk.flow == Flow::More {
            // Another client is answered meanwhile.
            talk.twin().check("PING", "+PONG|");
            let mut out = Vec::new();
            talk.flow = talk.session.resume(false, &mut Written::default(), &mut out);
            reply += &barred(&out);
            seen += 1;
        }
        assert!(seen >= parts, "{line}: {seen}");
        assert_eq!(reply, whole, "{line}");
        talk.check_all(&[("MULTI", "+OK|"), (line, "+QUEUED|"), ("HITS k1", "+QUEUED|")]);
        assert_eq!(talk.ask("EXEC"), format!("*2|{whole}:1|"), "{line}");
        talk.check("PING", "+PONG|");
    }
}

/// When the client leaves, its slow commands are dropped.
#[test]
fn a_gone_client_runs_no_slow_commands() {
    let mut talk = Talk::new();
    talk.check("HIT k", ":1|");
    talk.first_of("SERIES k 20000s 1s");
    assert_eq!(talk.flow, Flow::More);
    let held = talk.session.held_bytes();
    let mut out = Vec::new();
    assert_eq!(talk.session.resume(true, &mut Written::default(), &mut out), Flow::Continue);
    assert!(out.is_empty() && talk.session.held_bytes() < held);
}

/// Symptom: `EXISTS` of a million keys delayed all other clients by a second, and the journal records of a `DEL` of 250,000
/// absent keys took twice the ceiling. Fix: these commands run a part of the keys at a time.
#[test]
fn commands_of_many_keys_run_in_parts() {
    let mut talk = Talk::new();
    let keys: Vec<String> = (0..3_000).map(|key| format!("k{key}")).collect();
    let named = keys.join(" ");
    let counted: String = keys.iter().map(|key| format!(" {key} 2")).collect();
    let elements = |hits: u64| format!("*3000|{}", format!(":{hits}|").repeat(3_000));
    for (line, expected) in [
        (format!("MHIT{counted}"), elements(2)),
        (format!("MHITS 5m {named}"), elements(2)),
        (format!("EXISTS {named} {named}"), ":6000|".to_owned()),
        (format!("DEL {named} {named}"), ":3000|".to_owned()),
        (format!("EXISTS {named}"), ":0|".to_owned()),
    ] {
        let first = talk.first_of(&line);
        assert_eq!(talk.flow, Flow::More, "{line:.10}");
        let (mut reply, mut parts) = (first, 1);
        while talk.flow == Flow::More {
            let mut out = Vec::new();
            talk.flow = talk.session.resume(false, &mut Written::default(), &mut out);
            reply += &barred(&out);
            parts += 1;
        }
        assert_eq!(reply, expected, "{line:.10}");
        assert!(parts > 5, "{line:.10}: {parts}");
        talk.check_all(&[("MULTI", "+OK|"), (&line, "+QUEUED|"), ("PING", "+QUEUED|")]);
        let again = match &line[..4] {
            "MHIT" if line.starts_with("MHIT ") => elements(4),
            "DEL " => ":0|".to_owned(),
            _ => expected,
        };
        assert_eq!(talk.ask("EXEC"), format!("*2|{again}+PONG|"), "{line:.10}");
        if line.starts_with("MHIT ") {
            talk.check("FLUSHALL", "+OK|");
            talk.ask(&line);
        }
    }
    assert_eq!(talk.info("total_hits"), "18000");
}

/// Symptom: a long `MHIT` was the first command after a start, and its keys were gone a moment later. Cause: its parts ran
/// at the time of the store, which is 0 before the first hit. Fix: they run at the time of the clock.
#[test]
fn the_first_long_command_uses_the_time_of_the_clock() {
    let mut talk = Talk::new();
    let counted: String = (0..2_000).map(|key| format!(" k{key} 1")).collect();
    assert!(talk.ask(&format!("MHIT{counted}")).ends_with("|:1|"));
    talk.check_all(&[("HITS k0 1m", ":1|"), ("HITS k1999 1m", ":1|")]);
    assert_eq!(talk.info("expired_keys"), "0");
}

#[test]
fn the_least_hit_of_many_named_keys_are_found_in_slices() {
    let mut talk = Talk::new();
    (0..3_000_u64).filter(|n| *n != 2_500).for_each(|n| _ = talk.ask(&format!("HIT k{n} {}", n % 7 + 1)));
    let keys: String = (0..3_000).chain([7]).map(|n| format!(" k{n}")).collect();
    let expected = "*4|*2|$5|k2500|:0|*2|$2|k0|:1|*2|$2|k7|:1|*2|$3|k14|:1|";
    assert_eq!((talk.first_of(&format!("COOLEST 4{keys}")), talk.flow), (String::new(), Flow::More));
    assert!(talk.session.held_bytes() > 3_000 * size_of::<Box<[u8]>>());
    let (mut out, mut slices) = (Vec::new(), 0);
    while talk.flow == Flow::More {
        talk.flow = talk.session.resume(false, &mut Written::default(), &mut out);
        slices += 1;
    }
    assert_eq!(
        (barred(&out).as_str(), slices),
        (expected, 3_000_usize.div_ceil(crate::limits::COOLEST_STEP))
    );
    talk.check(&format!("COOLEST 9 BELOW 1{keys}"), "*1|*2|$5|k2500|:0|");
}
