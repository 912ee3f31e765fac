//! `LIMIT`.

use super::*;

#[test]
fn limit_counts_what_it_allows() {
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
    // Of what two windows have, each decides for itself.
    talk.check("LIMIT k 3 1s", "*5|:1|:3|:1|:0|:1000|");
    talk.clock.advance(milliseconds(5_678));
    talk.check("LIMIT k 3 10s PEEK", "*5|:0|:3|:0|:1|:4322|");
    talk.clock.advance(milliseconds(1));
    talk.check("LIMIT k 3 10s PEEK", "*5|:1|:3|:1|:0|:4321|");
    assert_eq!((talk.info("total_hits"), talk.info("refused_hits")), ("4".into(), "0".into()));
    talk.check("LIMIT none 0 10s", "*5|:0|:0|:0|:-1|:0|");
    talk.check("EXISTS none", ":0|");
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
        "-ERR invalid window 8d: hits of this key are kept for 7d, a limit can ask for no more|",
    );
    let late = talk.ask("LIMIT k 1 1m AT 5");
    assert!(late.starts_with("-LATE hit at 5 is older"), "{late}");
}
