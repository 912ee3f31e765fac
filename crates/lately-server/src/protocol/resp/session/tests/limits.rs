//! `LIMIT`.

use super::*;

#[test]
fn limit_counts_allowed_requests() {
    let mut talk = Talk::new();
    talk.check_all(&[
        ("LIMIT k 3 10 COST 2", "*5|:1|:3|:1|:0|:10000|"),
        ("LIMIT k 3 10 COST 2", "*5|:0|:3|:1|:10000|:10000|"),
        ("LIMIT k 3 10 COST 4", "*5|:0|:3|:1|:-1|:10000|"),
        ("LIMIT k 3 10 PEEK", "*5|:1|:3|:1|:0|:10000|"),
        ("HITS k", ":2|"),
    ]);
    talk.clock.advance(milliseconds(4_321));
    talk.check("LIMIT k 3 10s", "*5|:1|:3|:0|:0|:10000|");
    talk.check("LIMIT k 3 10s", "*5|:0|:3|:0|:5679|:10000|");
    // Two limits of a key with different windows decide independently.
    talk.check("LIMIT k 3 1s", "*5|:1|:3|:1|:0|:1000|");
    talk.clock.advance(milliseconds(5_678));
    talk.check("LIMIT k 3 10s PEEK", "*5|:0|:3|:0|:1|:4322|");
    talk.clock.advance(milliseconds(1));
    talk.check("LIMIT k 3 10s PEEK", "*5|:1|:3|:1|:0|:4321|");
    assert_eq!((talk.info("total_hits"), talk.info("refused_hits")), ("4".into(), "0".into()));
    talk.check("LIMIT none 0 10s", "*5|:0|:0|:0|:-1|:0|");
    talk.check_all(&[
        ("HITS k 10s DENIED", ":1|"),
        ("HITS k DENIED", ":7|"),
        ("HITS none DENIED", ":1|"),
        ("HITS none", ":0|"),
        ("EXISTS none", ":1|"),
        ("DEL none", ":1|"),
        ("HITS none DENIED", ":0|"),
    ]);
    assert_eq!(talk.info("denied_hits"), "8");
}

#[test]
fn mlimit_counts_all_or_none() {
    let mut talk = Talk::new();
    let allowed = "*3|:1|*5|:1|:2|:1|:0|:60000|*5|:1|:3|:2|:0|:86400000|";
    talk.check("MLIMIT ip 2 1m user 3 1d", allowed);
    talk.check(
        "MLIMIT ip 2 1m user 3 1d PEEK COST 2",
        "*3|:0|*5|:0|:2|:1|:60000|:60000|*5|:1|:3|:2|:0|:86400000|",
    );
    talk.check(
        "MLIMIT ip 2 1m user 3 1d COST 2",
        "*3|:0|*5|:0|:2|:1|:60000|:60000|*5|:1|:3|:2|:0|:86400000|",
    );
    talk.check_all(&[
        ("HITS ip", ":1|"),
        ("HITS user", ":1|"),
        ("HITS ip DENIED", ":2|"),
        ("HITS user DENIED", ":0|"),
    ]);
    // A key with several windows is counted once.
    talk.check("MLIMIT k 9 1s k 9 1h", "*3|:1|*5|:1|:9|:8|:0|:1000|*5|:1|:9|:8|:0|:3600000|");
    talk.check("HITS k", ":1|");
    assert_eq!((talk.info("total_hits"), talk.info("denied_hits")), ("3".into(), "2".into()));
    talk.check(
        "MLIMIT k 9 1s other 9 8d",
        &refused(
            "limit 2: invalid window 8d: hits of this key are kept for 7d (`retain`), a limit can ask for no more",
            "MLIMIT <key> <max> <window> ... [COST <cost>] [PEEK] [AT <time>]",
        ),
    );
    talk.check_all(&[("HITS k", ":1|"), ("EXISTS other", ":0|")]);
}

/// The example from the documentation of redis-cell: 16 at once, 30 a minute.
#[test]
fn cl_throttle_answers_as_redis_cell() {
    let mut talk = Talk::new();
    talk.check("CL.THROTTLE k 15 30 60", "*5|:0|:16|:15|:-1|:2|");
    talk.check("CL.THROTTLE k 15 30 60 15", "*5|:0|:16|:0|:-1|:32|");
    talk.check("CL.THROTTLE k 15 30 60 1", "*5|:1|:16|:0|:2|:32|");
    talk.check("CL.THROTTLE k 15 30 60 17", "*5|:1|:16|:0|:-1|:32|");
    talk.check("CL.THROTTLE k 15 30 60 0", "*5|:0|:16|:0|:-1|:32|");
    talk.check_all(&[("HITS k", ":16|"), ("HITS k DENIED", ":18|")]);
    talk.clock.advance(milliseconds(1));
    // Times are rounded up to the next second.
    talk.check("CL.THROTTLE k 15 30 60 1", "*5|:1|:16|:0|:2|:32|");
    talk.clock.advance(milliseconds(1_000));
    talk.check("CL.THROTTLE k 15 30 60 1", "*5|:1|:16|:0|:1|:31|");
    talk.clock.advance(milliseconds(999));
    talk.check("CL.THROTTLE k 15 30 60 1", "*5|:0|:16|:0|:-1|:32|");
    // A negative quantity frees room.
    talk.check("CL.THROTTLE k 15 30 60 -4", "*5|:0|:16|:4|:-1|:24|");
    // One hit in a third of a second: the wait is rounded up to a second.
    talk.check("CL.THROTTLE thirds 0 3 1", "*5|:0|:1|:0|:-1|:1|");
    talk.check("CL.THROTTLE thirds 0 3 1", "*5|:1|:1|:0|:1|:1|");
    talk.check("CL.THROTTLE fast 0 2000000 1", "*5|:0|:1|:0|:-1|:1|");
    talk.check("CL.THROTTLE fast 0 2000000 1", "*5|:1|:1|:0|:1|:1|");
    talk.clock.advance(milliseconds(1));
    talk.check("CL.THROTTLE fast 1999 2000000 1 2000", "*5|:0|:2000|:0|:-1|:1|");
    talk.check("CL.THROTTLE fast 1999 2000000 1", "*5|:1|:2000|:0|:1|:1|");
}

#[test]
fn coolest_returns_the_least_hit_keys() {
    let mut talk = Talk::new();
    talk.check("MHIT web:1 5 web:2 3 web:3 3 db 1", "*4|:5|:3|:3|:1|");
    talk.check("COOLEST 2 web:1 web:2 web:3", "*2|*2|$5|web:2|:3|*2|$5|web:3|:3|");
    talk.check("COOLEST 2 web:3 web:2 web:1 web:3", "*2|*2|$5|web:3|:3|*2|$5|web:2|:3|");
    talk.check("COOLEST 9 BELOW 5 web:1 web:4 web:2", "*2|*2|$5|web:4|:0|*2|$5|web:2|:3|");
    talk.check("COOLEST 9 BELOW 1 web:1", "*0|");
    talk.check("COOLEST 2 PREFIX web:", "*2|*2|$5|web:2|:3|*2|$5|web:3|:3|");
    talk.check("COOLEST 9 BELOW 5 PREFIX web:", "*2|*2|$5|web:2|:3|*2|$5|web:3|:3|");
    talk.check("COOLEST 9 PREFIX nobody", "*0|");
    talk.check("COOLEST 0 PREFIX web:", "*0|");
    talk.clock.advance(milliseconds(100_000));
    talk.check("HIT web:3", ":4|");
    talk.check("COOLEST 1 WINDOW 1m PREFIX web:", "*1|*2|$5|web:1|:0|");
    talk.check("EXISTS web:4", ":0|");
    // More keys than fit on a page.
    for n in 0..30_000 {
        talk.ask(&format!("HIT many:{n} {}", 30_000 - n));
    }
    talk.check("COOLEST 2 PREFIX many:", "*2|*2|$10|many:29999|:1|*2|$10|many:29998|:2|");
}

#[test]
fn limit_takes_a_time_and_a_lockout() {
    let mut talk = Talk::new();
    talk.check(&format!("LIMIT k 1 1m AT {}", ago(30)), "*5|:1|:1|:0|:0|:60000|");
    talk.check(&format!("LIMIT k 1 1m AT {}", ago(80)), "*5|:0|:1|:0|:110000|:110000|");
    talk.check("LIMIT k 1 1m PEEK LOCKOUT 1h", "*5|:0|:1|:0|:30000|:30000|");
    talk.check("LIMIT k 1 1m LOCKOUT 1h", "*5|:0|:1|:0|:3600000|:3600000|");
    talk.clock.advance(minutes(10));
    talk.check("LIMIT k 1 1m LOCKOUT 1h", "*5|:0|:1|:0|:3000000|:3000000|");
    talk.check("HITS k 1h", ":1|");
    talk.clock.advance(minutes(50));
    talk.check("LIMIT k 1 1m LOCKOUT 1h", "*5|:1|:1|:0|:0|:60000|");
    talk.check(
        "LIMIT k 1 8d",
        &refused(
            "invalid window 8d: hits of this key are kept for 7d (`retain`), a limit can ask for no more",
            LIMIT,
        ),
    );
    let late = talk.ask("LIMIT k 1 1m AT 5");
    assert!(late.starts_with("-LATE hit at 5 is older"), "{late}");
}
