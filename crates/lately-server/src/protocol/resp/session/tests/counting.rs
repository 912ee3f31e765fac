//! `HIT MHIT HITS MHITS RATE SERIES UNIQ`.

use lately::{Pattern, Settings};

use super::*;

/// Hits at the seconds 1, 2, 3 and 300, where now is second 301.
fn hits_of_five_minutes() -> Talk {
    let mut talk = Talk::new();
    for (second, expected) in [(1, ":1|"), (2, ":2|"), (3, ":3|"), (300, ":4|")] {
        talk.check(&format!("HIT k AT {}", ago(301 - second)), expected);
    }
    talk
}

#[test]
fn a_hit_counts_for_five_minutes() {
    let mut talk = hits_of_five_minutes();
    for (second, expected) in [(0, ":0|"), (1, ":1|"), (4, ":3|"), (299, ":3|"), (300, ":4|"), (301, ":3|")] {
        talk.check(&format!("HITS k AT {}", ago(301 - second)), expected);
    }
    for (passed_s, expected) in [(0, ":3|"), (1, ":2|"), (2, ":1|"), (298, ":1|"), (299, ":0|")] {
        talk.clock.set(seconds(NOW_S + passed_s));
        talk.check("HITS k", expected);
    }
}

#[test]
fn hit_takes_a_weight_and_a_time() {
    let mut talk = Talk::new();
    talk.check_all(&[
        ("HIT k", ":1|"),
        ("hit k 5", ":6|"),
        ("HIT k 0", ":6|"),
        ("HIT none 0", ":0|"),
        ("EXISTS none", ":0|"),
        ("HIT \"\\xff\\x00\"", ":1|"),
        ("HITS \"\\xff\\x00\"", ":1|"),
        (&format!("HIT k 2 AT {}", ago(60)), ":2|"),
        (&format!("HIT k at {}.999", ago(1)), ":3|"),
        ("HITS k", ":9|"),
        ("HITS k 1", ":6|"),
    ]);
}

#[test]
fn a_refused_hit_changes_nothing_and_gets_a_reason() {
    let mut talk = Talk::new();
    let week_s = 604_800;
    assert!(talk.ask(&format!("HIT k AT {}", ago(week_s - 1))).starts_with(':'));
    talk.check("HIT full 9223372036854775807", ":9223372036854775807|");
    let before = talk.ask("HITS k 7d BOUNDS");
    let late = talk.ask(&format!("HIT k 3 AT {}", ago(week_s + 3_600)));
    assert!(
        late.starts_with("-LATE hit at 1699391640 is older than what is kept, which begins at "),
        "{late}"
    );
    talk.check(&format!("HIT k AT {}", NOW_S + 10), ":1|");
    talk.check(
        &format!("HIT k AT {}.001", NOW_S + 10),
        "-FUTURE hit at 1700000050.001 is too far ahead of the clock, the latest time taken is 1700000050: max_skew is 10s|",
    );
    talk.check(
        "HIT full",
        "-ERR 1 more hits would overflow: the key has 9223372036854775807 of at most 9223372036854775807|",
    );
    talk.check("HITS full", ":9223372036854775807|");
    talk.check("HITS k 7d BOUNDS", &before);
    assert_eq!(talk.info("refused_hits"), "5");
}

/// A session with a class whose ids count once within ten minutes.
fn with_ids() -> Talk {
    let settings = Settings::builder().dedupe("10m".parse().expect("a span")).build().expect("valid");
    Talk::with(Config { classes: vec![(Pattern::new(b"once:*"), settings)], ..Config::default() })
}

#[test]
fn hit_with_an_id_counts_once() {
    let mut talk = with_ids();
    talk.check_all(&[
        ("HIT once:a ID 1", ":1|"),
        ("HIT once:a 5 ID 1", ":1|"),
        ("HIT once:a 5 ID 2", ":6|"),
        ("HIT once:b ID 1", ":1|"),
        (&format!("HIT once:a ID 1 AT {}", ago(599)), ":0|"),
        (&format!("HIT once:a 2 AT {} ID 1", ago(600)), ":2|"),
        ("HITS once:a 1h", ":8|"),
        (
            "HIT k ID 1",
            "-ERR hits of this key have no ids: its class has no `dedupe`, such as dedupe = \"10m\"|",
        ),
        ("EXISTS k", ":0|"),
    ]);
    assert_eq!(
        [talk.info("total_hits"), talk.info("repeated_hits"), talk.info("refused_hits")],
        ["9", "6", "1"]
    );
    talk.clock.set(seconds(NOW_S + 599));
    talk.check("HIT once:a ID 1", ":0|");
    talk.clock.set(seconds(NOW_S + 600));
    talk.check("HIT once:a ID 1", ":1|");
    talk.check_all(&[("DEL once:a", ":1|"), ("HIT once:a ID 1", ":1|"), ("HIT once:a ID 1", ":1|")]);
    assert_eq!(talk.info("forgotten_ids"), "0");
}

#[test]
fn distinct_members_are_counted() {
    let settings =
        Settings::builder().unique(true).dedupe("10m".parse().expect("a span")).build().expect("valid");
    let mut talk =
        Talk::with(Config { classes: vec![(Pattern::new(b"seen:*"), settings)], ..Config::default() });
    talk.check_all(&[
        ("HIT seen:a MEMBER x", ":1|"),
        ("HIT seen:a 5 MEMBER x", ":6|"),
        (&format!("HIT seen:a MEMBER y AT {}", ago(600)), ":1|"),
        ("HIT seen:a", ":7|"),
        ("UNIQ seen:a", ":1|"),
        ("UNIQ seen:a 1h", ":2|"),
        ("UNIQ seen:a 1h BOUNDS", "*4|:2|:2|:2|:1000|"),
        ("UNIQ seen:a 30d BOUNDS", "*4|:2|:2|:-1|:1000|"),
        ("UNIQ seen:none BOUNDS", "*4|:0|:0|:0|:1000|"),
        ("HIT seen:a ID 1 MEMBER z", ":8|"),
        ("HIT seen:a ID 1 MEMBER zz", ":8|"),
        ("UNIQ seen:a", ":2|"),
        ("HIT k MEMBER x", "-ERR hits of this key have no members: its class has no `unique = true`|"),
        ("UNIQ k", "-ERR hits of this key have no members: its class has no `unique = true`|"),
        ("UNIQ k BOUNDS", "-ERR hits of this key have no members: its class has no `unique = true`|"),
        ("EXISTS k", ":0|"),
        ("MULTI", "+OK|"),
        ("HIT seen:t MEMBER 1", "+QUEUED|"),
        ("UNIQ seen:t", "+QUEUED|"),
        ("HIT seen:t MEMBER 2", "+QUEUED|"),
        ("UNIQ seen:t BOUNDS", "+QUEUED|"),
        ("EXEC", "*4|:1|:1|:2|*4|:2|:2|:2|:1000|"),
    ]);
    let hits: String = (0..150).map(|member| format!("HIT seen:many MEMBER {member}\n")).collect();
    talk.send(hits.as_bytes(), 150);
    let bounds = barred(&talk.send(b"UNIQ seen:many BOUNDS\n", 1));
    let [estimate, lower, upper] = [1, 2, 3]
        .map(|part| bounds.split('|').nth(part).expect("a part")[1..].parse::<i64>().expect("a number"));
    assert!((145..=155).contains(&estimate) && lower <= 150 && upper >= 150, "{bounds}");
    talk.clock.set(seconds(NOW_S + 300));
    talk.check_all(&[
        ("UNIQ seen:a", ":0|"),
        ("UNIQ seen:a 301", ":2|"),
        ("DEL seen:a", ":1|"),
        ("UNIQ seen:a 1h", ":0|"),
    ]);
}

#[test]
fn an_id_twice_in_a_pipeline_or_transaction_counts_once() {
    let mut talk = with_ids();
    let replies = talk.send(&b"HIT once:p ID 1\n".repeat(100), 100);
    assert_eq!(barred(&replies), ":1|".repeat(100));
    talk.check_all(&[
        ("MULTI", "+OK|"),
        ("HIT once:t ID 1", "+QUEUED|"),
        ("HIT once:t ID 1", "+QUEUED|"),
        ("HIT once:t ID 2", "+QUEUED|"),
        ("EXEC", "*3|:1|:1|:2|"),
    ]);
}

#[test]
fn mhit_returns_a_count_or_an_error_for_each_key() {
    Talk::new().check_all(&[
        ("MHIT a 1 b 2 a 3", "*3|:1|:2|:4|"),
        ("MHIT a 0", "*1|:4|"),
        (
            "MHIT b 9223372036854775807 c 7",
            "*2|-ERR 9223372036854775807 more hits would overflow: the key has 2 of at most 9223372036854775807|:7|",
        ),
        ("MHIT a", "-ERR wrong number of arguments for 'mhit' command. Usage: MHIT <key> <count> ...|"),
        ("MHIT a 1 b", "-ERR wrong number of arguments for 'mhit' command. Usage: MHIT <key> <count> ...|"),
        (
            "MHIT a 1 b x",
            "-ERR invalid count 'x': give a whole number from 0 to 9223372036854775807. Usage: MHIT <key> <count> ...|",
        ),
        ("MHITS 5m a b c none", "*4|:4|:2|:7|:0|"),
    ]);
}

/// The longest reply of a command over several keys has an error for each key.
#[test]
fn the_longest_reply_of_mhit_is_bounded() {
    let mut talk = Talk::new();
    talk.check("HIT full 9223372036854775807", ":9223372036854775807|");
    let mut words: Vec<&[u8]> = vec![b"MHIT"];
    for _ in 0..lately_resp::limits::MAX_COUNTED_KEYS {
        words.extend([b"full".as_slice(), b"9223372036854775807"]);
    }
    let mut request = Vec::new();
    lately_resp::write_request(&mut request, &words);
    let mut reply = talk.send(&request, 1);
    while talk.flow == Flow::More {
        let mut part = Vec::new();
        talk.flow = talk.session.resume(false, &mut Written::default(), &mut part);
        reply.extend(part);
    }
    assert!(reply.starts_with(b"*16384\r\n-ERR 9223372036854775807 more hits would overflow"));
    assert!(reply.len() < 2 << 20, "{}", reply.len());
    words.extend([b"full".as_slice(), b"1"]);
    request.clear();
    lately_resp::write_request(&mut request, &words);
    assert_eq!(
        talk.send(&request, 1),
        b"-ERR MHIT takes at most 16384 keys. Usage: MHIT <key> <count> ...\r\n"
    );
}

#[test]
fn hits_takes_windows_bounds_and_a_time() {
    let mut talk = hits_of_five_minutes();
    talk.check_all(&[
        ("HITS k 5m", ":3|"),
        ("HITS k 1m 5m 1h", "*3|:1|:3|:4|"),
        ("HITS k 2", ":1|"),
        ("HITS k 1", ":0|"),
        ("HITS none 1m 5m", "*2|:0|:0|"),
        ("HITS k BOUNDS", "*4|:3|:3|:3|:1000|"),
        ("HITS k 5m BOUNDS", "*4|:3|:3|:3|:1000|"),
        ("HITS none BOUNDS", "*4|:0|:0|:0|:1000|"),
        ("HITS k 5m 1m BOUNDS", &refused("unexpected argument '1m': BOUNDS takes at most one window", HITS)),
        ("HITS k 5m DENIED", ":0|"),
        ("HITS k AT", &refused("AT needs a time, such as 1700000000, after it", HITS)),
        ("HITS ''", &refused("invalid key of 0 bytes: a key has 1 to 1024 bytes", HITS)),
        (&format!("HITS {}", "k".repeat(1_024)), ":0|"),
        (
            &format!("HITS {}", "k".repeat(1_025)),
            &refused("invalid key of 1025 bytes: a key has 1 to 1024 bytes", HITS),
        ),
        (&format!("HITS k 5m BOUNDS AT {}", ago(1)), "*4|:4|:4|:4|:1000|"),
        (&format!("HITS k AT {} BOUNDS", ago(297)), "*4|:3|:3|:3|:2000|"),
        (&format!("HITS k 5m 3s AT {}", ago(298)), "*2|:3|:3|"),
        ("MHITS 5m k none", "*2|:3|:0|"),
        ("MHITS 5m", "-ERR wrong number of arguments for 'mhits' command. Usage: MHITS <window> <key> ...|"),
    ]);
    let beyond = talk.ask("HITS k 8d BOUNDS");
    assert!(beyond.starts_with("*4|:4|:4|:-1|:"), "{beyond}");
    let error = talk.ask("HITS k '5 parsecs'");
    assert!(error.starts_with("-ERR invalid duration '5 parsecs'"), "{error}");
    let error = talk.ask("HITS k AT noon");
    assert!(error.starts_with("-ERR invalid time 'noon'"), "{error}");
}

#[test]
fn a_rate_is_a_double() {
    let script = |talk: &mut Talk, rate: &dyn Fn(&str) -> String| {
        talk.check("HIT k 6", ":6|");
        talk.check("RATE k", &rate("0.02"));
        talk.check("RATE k 1m", &rate("0.1"));
        talk.check("RATE k 1", &rate("6"));
        // A window is rounded up to whole panes.
        talk.check("RATE k 100ms", &rate("6"));
        talk.check("RATE none", &rate("0"));
        talk.check(&format!("RATE k 5m AT {}", ago(1)), &rate("0"));
        talk.check(&format!("RATE k AT {NOW_S}"), &rate("0.02"));
        talk.check(
            "RATE k 5m 1m",
            "-ERR unexpected argument '1m'. Usage: RATE <key> [<window>] [AT <time>]|",
        );
    };
    script(&mut Talk::new(), &bulk);
    script(&mut Talk::v3(), &|rate| format!(",{rate}|"));
}

#[test]
fn a_series_adds_up_to_the_count() {
    let mut talk = hits_of_five_minutes();
    // Now is the first second of a minute, so five minutes overlap six whole ones.
    let (minute, hits) = (|n: u64| NOW_S - 300 + 60 * n, [2, 0, 0, 0, 1, 0]);
    let points: String = (0..).zip(hits).map(|(n, hits)| format!("*2|:{}|:{hits}|", minute(n))).collect();
    talk.check("HITS k", ":3|");
    talk.check("SERIES k 5m 1m", &format!("*6|{points}"));
    let two_seconds = format!("*2|*2|:{}|:0|*2|:{}|:1|", ago(2), ago(1));
    talk.check(&format!("SERIES k 2 1 AT {}", ago(1)), &two_seconds);
    talk.check("SERIES none 1s 1s", &format!("*1|*2|:{NOW_S}|:0|"));
    talk.check(
        "SERIES k 5m 1500ms",
        &refused(
            "invalid step 1500ms: give a multiple of the key's resolution, 1s",
            "SERIES <key> <window> <step> [AT <time>]",
        ),
    );
    talk.check(
        "SERIES k 5m",
        "-ERR wrong number of arguments for 'series' command. Usage: SERIES <key> <window> <step> [AT <time>]|",
    );
    assert!(talk.ask("SERIES k 7d 1s").starts_with("-ERR "), "more points than a series may have");
}

#[test]
fn a_series_of_part_seconds_has_doubles() {
    let settings = Settings::builder().resolution("500ms".parse().expect("a span")).build().expect("valid");
    let config = Config { classes: vec![(Pattern::new(b"fine:*"), settings)], ..Config::default() };
    let mut talk = Talk::with(config);
    talk.check("HIT fine:k", ":1|");
    let (before, now) = (format!("{}.5", NOW_S - 1), NOW_S.to_string());
    let v2 = format!("*2|*2|{}:0|*2|{}:1|", bulk(&before), bulk(&now));
    talk.check("SERIES fine:k 1s 500ms", &v2);
    assert!(talk.ask("HELLO 3").starts_with('%'));
    talk.check("SERIES fine:k 1s 500ms", &format!("*2|*2|,{before}|:0|*2|,{now}|:1|"));
}

/// Starts are longest in version 2, as bulk strings of fractional seconds. The hits of all points add up to at most the
/// largest total, so they have fourteen digits each.
#[test]
fn the_longest_series_is_bounded() {
    let settings = Settings::builder().resolution("500ms".parse().expect("a span")).build().expect("valid");
    let config = Config { classes: vec![(Pattern::new(b"fine:*"), settings)], ..Config::default() };
    let most = usize::try_from(lately::limits::MAX_SERIES_POINTS).expect("small");
    let reply = Talk::with(config).ask(&format!("SERIES fine:k {}s 500ms", most / 2));
    assert!(reply.starts_with(&format!("*{most}|*2|$12|")), "{reply:.40}");
    // A start may be four digits longer: two of its milliseconds, and two in a late year.
    assert!(reply.len() + most * (13 + 4) < 5_000_000, "{}", reply.len());
}
