//! Tests of limits.

use super::*;
use lately::{Admission, Limit, Lockout, Rate};

#[test]
fn limit() {
    let limit = |cost, is_peek, lockout: Option<Span>, at| {
        let lockout = lockout.map(Lockout::of);
        Command::Limit(Request { at, is_peek, lockout, ..Request::new(b"k", 5, span("1m"), cost) })
    };
    check("LIMIT k 5 1m", limit(1, false, None, None));
    check("limit k 5 60 cost 3", limit(3, false, None, None));
    check("LIMIT k 5 1m PEEK", limit(1, true, None, None));
    check("LIMIT k 5 1m AT 9 lockout 15m PEEK COST 0", limit(0, true, Some(span("15m")), at(9)));
    check_error("LIMIT k x 1m", &not_a_max("x"));
    check_error("LIMIT k 1m 5", &not_a_count("max", "1m"));
    check_error("LIMIT k -1 1m", &not_a_count("max", "-1"));
    for bad in ["x", "-0", "-9223372036854775808", "1.5"] {
        check_error(&format!("LIMIT k 5 1m COST {bad}"), &not_a_cost(bad));
    }
    let as_two = "ERR invalid max '5/1m': give max and window as two arguments, such as 5 1m";
    check_error("LIMIT k 5/1m", as_two);
    check_error("LIMIT k 5/1m PEEK", as_two);
    for one in ["5/min", "5/minute", "5/1m/1"] {
        check_error(&format!("LIMIT k {one}"), &as_two.replace("'5/1m'", &format!("'{one}'")));
    }
    for no_limit in ["5/", "/1m"] {
        check_error(&format!("LIMIT k {no_limit}"), &not_a_count("max", no_limit));
    }
    check_error("LIMIT k a/b", &not_a_max("a/b"));
    check_error("LIMIT k login", &not_a_max("login"));
    check_error("LIMIT k 5 1m COST", "ERR COST needs a number of hits after it");
    check_error("LIMIT k 5 1m LOCKOUT", "ERR LOCKOUT needs a duration, such as 5m, after it");
    check_error("LIMIT k 5 1m AT", AT_NEEDS);
    check_error("LIMIT k 5 1m PEEK PEEK", &twice("PEEK"));
    check_error("LIMIT k 5 1m LOCKOUT 1 LOCKOUT 2", &twice("LOCKOUT"));
    check_error("LIMIT k 5 1m now", &unexpected("now"));
    check_error("LIMIT k 5 1m COST 1 2", &unexpected("2"));
    check_error("LIMIT k 5", &arity("limit"));
    assert_eq!(
        usage_of("limit"),
        "LIMIT <key> (<max> <window>|<@name>) [COST <cost>] [PEEK] [OVERDRAFT] [LOCKOUT <lockout> [FACTOR <factor>] [MAX <longest>]] [AT <time>]"
    );
}

/// The error about a max of `LIMIT` that begins with a letter.
fn not_a_max(value: &str) -> String {
    format!(
        "ERR invalid max '{value}': give a whole number, such as 5 before 1m, or the name of a limit behind an @"
    )
}

/// The error about the cost of `LIMIT`.
fn not_a_cost(value: &str) -> String {
    format!(
        "ERR invalid COST '{value}': give a whole number from 0 to 9223372036854775807, or below 0 to give hits back"
    )
}

#[test]
fn overdrafts_and_refunds() {
    let request = |cost, admission| Request { admission, ..Request::new(b"k", 5, span("1m"), cost) };
    check("LIMIT k 5 1m OVERDRAFT", Command::Limit(request(1, Admission::Overdraft)));
    check("LIMIT k 5 1m overdraft COST 900", Command::Limit(request(900, Admission::Overdraft)));
    check("LIMIT k 5 1m COST -3", Command::Refund(request(3, Admission::Whole)));
    check("LIMIT k 5 1m COST -3 OVERDRAFT", Command::Refund(request(3, Admission::Overdraft)));
    let most = format!("LIMIT k 5 1m COST {}", -i64::MAX);
    check(&most, Command::Refund(request(i64::MAX.unsigned_abs(), Admission::Whole)));
    check_error("LIMIT k 5 1m OVERDRAFT OVERDRAFT", &twice("OVERDRAFT"));
}

#[test]
fn lockouts_that_grow() {
    let request =
        |lockout| Command::Limit(Request { lockout: Some(lockout), ..Request::new(b"k", 5, span("1m"), 1) });
    let growing = |factor: &str, longest: Option<&str>| {
        let factor = factor.parse().expect("a factor");
        request(Lockout::growing(span("15m"), factor, longest.map(span)).expect("it fits"))
    };
    check("LIMIT k 5 1m LOCKOUT 15m FACTOR 2 MAX 1d", growing("2", Some("1d")));
    check("LIMIT k 5 1m MAX 15m factor 1.5 LOCKOUT 15m", growing("1.5", Some("15m")));
    check("LIMIT k 5 1m LOCKOUT 15m FACTOR 2", growing("2", None));
    check("LIMIT k 5 1m LOCKOUT 15m MAX 1h", growing("1", Some("1h")));
    let without = |option| {
        format!("ERR {option} goes with LOCKOUT: give the length of the first one, such as LOCKOUT 15m")
    };
    check_error("LIMIT k 5 1m FACTOR 2", &without("FACTOR"));
    check_error("LIMIT k 5 1m MAX 1d", &without("MAX"));
    check_error(
        "LIMIT k 5 1m LOCKOUT 15m FACTOR",
        "ERR FACTOR needs a number from 1 on, such as 2, after it",
    );
    check_error("LIMIT k 5 1m LOCKOUT 15m MAX", "ERR MAX needs a duration, such as 5m, after it");
    for bad in ["0.5", "x", "-2", "inf"] {
        let error = format!("ERR invalid factor '{bad}': give a number from 1 on, such as 2 or 1.5");
        check_error(&format!("LIMIT k 5 1m LOCKOUT 15m FACTOR {bad}"), &error);
    }
    check_error(
        "LIMIT k 5 1m LOCKOUT 15m MAX 1m",
        "ERR the longest lockout, 1m, is shorter than the first, 15m: give a longer one",
    );
    check_error("LIMIT k 5 1m LOCKOUT 15m FACTOR 2 FACTOR 2", &twice("FACTOR"));
}

#[test]
fn several_limits() {
    let limit = |key, max, window| Limit { key, max, window: span(window) };
    let all = |limits: &[Limit<'static>], cost, is_peek, at| {
        Command::LimitAll(JointRequest { limits: limits.to_vec(), cost, at, is_peek })
    };
    let (ip, user) = (limit(b"ip", 5, "1m"), limit(b"user", 9, "1d"));
    check("MLIMIT ip 5 1m", all(&[ip], 1, false, None));
    check("mlimit ip 5 60 user 9 24h", all(&[ip, user], 1, false, None));
    check("MLIMIT ip 5 1m user 9 1d COST 3 PEEK AT 9", all(&[ip, user], 3, true, at(9)));
    check("MLIMIT ip 5 1m peek at 9 cost 0", all(&[ip], 0, true, at(9)));
    // A key with the name of an option must come first.
    check("MLIMIT at 5 1m ip 5 1m", all(&[limit(b"at", 5, "1m"), ip], 1, false, None));
    let incomplete =
        |missing| format!("ERR the limit of 'user' has no {missing}: give key, max and window of each limit");
    check_error("MLIMIT ip 5 1m user", &incomplete("max and no window"));
    check_error("MLIMIT ip 5 1m user 9", &incomplete("window"));
    check_error("MLIMIT ip 5 1m PEEK user 9 1d", &unexpected("user"));
    check_error("MLIMIT ip 5 1m COST", "ERR COST needs a number of hits after it");
    check_error("MLIMIT ip 5 1m PEEK PEEK", &twice("PEEK"));
    check_error("MLIMIT ip 1m 5", &not_a_count("max", "1m"));
    check_errors(
        &["MLIMIT ip @day ip @minute", "MLIMIT ip 5 1m ip @day", "MLIMIT ip @day", "MLIMIT ip @day PEEK"],
        "ERR invalid max '@day': give numbers, such as 5 1m: MLIMIT takes max and window, and no @name",
    );
    let as_two = "ERR invalid max '5/1m': give max and window as two arguments, such as 5 1m";
    check_errors(&["MLIMIT ip 5/1m", "MLIMIT ip 5 1m user 5/1m", "MLIMIT ip 5/1m COST 2"], as_two);
    check_error("MLIMIT ip", &arity("mlimit"));
    check_error("MLIMIT ip 5 1m LOCKOUT 1m", "ERR LOCKOUT does not go with MLIMIT");
    check_error("MLIMIT ip 5 1m LOCKOUT 1m FACTOR 2", "ERR LOCKOUT does not go with MLIMIT");
    check_error("MLIMIT ip 5 1m OVERDRAFT", "ERR OVERDRAFT does not go with MLIMIT");
    check_error("MLIMIT ip 5 1m FACTOR 2", "ERR FACTOR does not go with MLIMIT");
    check_error("MLIMIT ip 5 1m COST -1", &not_a_count("COST", "-1"));
    check_error("MLIMIT ip -5 1m", &not_a_count("max", "-5"));
    check_error("MLIMIT ip 5", &arity("mlimit"));
    let many = |count: usize| format!("MLIMIT{}", " ip 5 1m".repeat(count));
    check(&many(128), all(&[ip; 128], 1, false, None));
    check_error(&many(129), "ERR MLIMIT takes at most 128 limits");
}

#[test]
fn throttle() {
    let throttle = |burst, count, period, quantity| {
        let rate = Rate::new(burst, count, span(period)).expect("a rate");
        Command::Throttle(Throttle { key: b"k", rate, quantity })
    };
    check("CL.THROTTLE k 15 30 60", throttle(15, 30, "1m", 1));
    check("cl.throttle k 0 5000000 1 -3", throttle(0, 5_000_000, "1s", -3));
    // Rust parses integers like this, and redis-cell is written in Rust.
    check("CL.THROTTLE k +15 030 +0060 -01", throttle(15, 30, "1m", -1));
    check("CL.THROTTLE k -0 1 1 +0", throttle(0, 1, "1s", 0));
    let nothing = Rate::of_limit(0, 1, span("1s")).expect("a rate");
    check("CL.THROTTLE k -1 1 1", Command::Throttle(Throttle { key: b"k", rate: nothing, quantity: 1 }));
    let longest = format!("CL.THROTTLE k {0}1 {0}1 {0}1", "0".repeat(100));
    check(&longest, throttle(1, 1, "1s", 1));
    check_errors(&["CL.THROTTLE k 15 0 60", "CL.THROTTLE k 15 30 0"], "ERR zero rates are not supported");
    let max_burst = "give a whole number from -1 to 9223372036854775806";
    for bad in ["-2", "x", "1.5", "9223372036854775808", "++1", "+"] {
        check_error(
            &format!("CL.THROTTLE k {bad} 30 60"),
            &format!("ERR invalid max_burst '{bad}': {max_burst}"),
        );
    }
    check_error(
        "CL.THROTTLE k 15 -30 60",
        "ERR invalid count_per_period '-30': give a whole number from 1 to 9223372036854775807",
    );
    check_error(
        "CL.THROTTLE k 15 30 1m",
        "ERR invalid period '1m': give whole seconds, from 1 to 1000000000",
    );
    check_error(
        "CL.THROTTLE k 15 30 60 x",
        "ERR invalid quantity 'x': give a whole number: 0 only asks, below 0 gives back",
    );
    check_error(
        "CL.THROTTLE k 15 30 1000000001",
        "ERR invalid period '1000000001': give whole seconds, from 1 to 1000000000",
    );
    check_error(
        "CL.THROTTLE k 1000000000000000 1 1000000000",
        "ERR invalid rate: max_burst hits at this rate would take longer than 146 million years",
    );
    check_error("CL.THROTTLE k 15 30", &arity("cl.throttle"));
    check_error("CL.THROTTLE k 15 30 60 1 1", &arity("cl.throttle"));
}

#[test]
fn coolest() {
    let check_coolest = |line: &str, count, window: Option<&str>, below, keys_from: usize| {
        with_args(line, |args| {
            let among = Among::Keys(args.from(keys_from));
            let expected = Coolest { count, window: window.map(span), below, among };
            assert_eq!(Command::parse(args), Ok(Command::Coolest(expected)), "{line}");
        });
    };
    check_coolest("COOLEST 1 a b", 1, None, None, 2);
    check_coolest("COOLEST 2 WINDOW 1m BELOW 9 a b", 2, Some("1m"), Some(9), 6);
    check_coolest("COOLEST 2 below 9 window 1m a", 2, Some("1m"), Some(9), 6);
    let prefix = |count, prefix| Coolest { count, window: None, below: None, among: Among::Prefix(prefix) };
    check("COOLEST 3 PREFIX web:", Command::Coolest(prefix(3, b"web:")));
    check_error("COOLEST 1 WINDOW 1m", &arity("coolest"));
    check_error("COOLEST 1 BELOW 1 BELOW 2 a", &twice("BELOW"));
    check_error("COOLEST 1 WINDOW", "ERR WINDOW needs a duration, such as 5m, after it");
    check_error("COOLEST 1 BELOW", "ERR BELOW needs a number of hits after it");
    check_error("COOLEST 1 BELOW x a", &not_a_count("BELOW", "x"));
    for (line, option) in [
        ("COOLEST 1 a BELOW 5", "BELOW"),
        ("COOLEST 1 a window", "window"),
        ("COOLEST 1 a b WINDOW 5m PREFIX c", "WINDOW"),
        ("COOLEST 1 PREFIX a BELOW 5", "BELOW"),
    ] {
        let before = format!("{}: WINDOW and BELOW come before PREFIX and the keys", unexpected(option));
        check_error(line, &before);
    }
    let in_place = format!("{}: PREFIX takes the place of the keys", unexpected("prefix"));
    check_errors(&["COOLEST 1 a prefix", "COOLEST 1 a b prefix c", "COOLEST 1 PREFIX a prefix b"], &in_place);
    check_error("COOLEST 1 PREFIX", "ERR PREFIX needs what keys begin with, such as server:, after it");
    let one = format!("{}: one PREFIX takes the place of all keys", unexpected("b"));
    check_errors(&["COOLEST 1 PREFIX a b", "COOLEST 1 PREFIX a b c"], &one);
    check_error("COOLEST 1 PREFIX ''", "ERR invalid prefix '': give 1 to 1024 bytes that keys begin with");
    let (most, more) = ("p".repeat(1_024), "p".repeat(1_025));
    check(&format!("COOLEST 1 PREFIX {most}"), Command::Coolest(prefix(1, most.as_bytes())));
    let cut = &more[..128];
    check_error(
        &format!("COOLEST 1 PREFIX {more}"),
        &format!("ERR invalid prefix '{cut}': give 1 to 1024 bytes that keys begin with"),
    );
    check_error("COOLEST a b", "ERR invalid k 'a': give how many keys are wanted, 0 to 16384");
    check_error("COOLEST 16385 a", "ERR invalid k '16385': give how many keys are wanted, 0 to 16384");
    check_error("COOLEST 1", &arity("coolest"));
    check_many("COOLEST 1", 16_384, "a", None);
    check_many("COOLEST 1", 16_385, "a", Some("ERR COOLEST takes at most 16384 keys"));
}

#[test]
fn a_limit_by_its_name() {
    let named = |name, cost, is_peek, at| Command::LimitByRule { key: b"k", name, cost, at, is_peek };
    check("LIMIT k @login", named(b"login", 1, false, None));
    check("limit k @Login:1 cost 3", named(b"Login:1", 3, false, None));
    check("LIMIT k @a AT 9 PEEK COST 0", named(b"a", 0, true, at(9)));
    // The parser does not know which limits exist.
    check("LIMIT k @", named(b"", 1, false, None));
    check("LIMIT k @@a", named(b"@a", 1, false, None));
    check("LIMIT k @a COST -5", named(b"a", -5, false, None));
    for (options, option) in [
        ("LOCKOUT 5m", "LOCKOUT"),
        ("OVERDRAFT", "OVERDRAFT"),
        ("FACTOR 2", "FACTOR"),
        ("MAX 1d LOCKOUT 5m FACTOR 2", "LOCKOUT"),
        ("MAX 1d", "MAX"),
    ] {
        let own = format!("ERR {option} does not go with @name: the limit has its own in the config");
        check_error(&format!("LIMIT k @a {options}"), &own);
    }
    check_error("LIMIT k @a 5 1m", &unexpected("5"));
    check_error("LIMIT k @a COST", "ERR COST needs a number of hits after it");
    check_error("LIMIT k @a PEEK PEEK", &twice("PEEK"));
    check_error("LIMIT k @a now", &unexpected("now"));
    check_error("LIMIT k @a COST x", &not_a_cost("x"));
    check_error("LIMIT k a@ 1m", &not_a_max("a@"));
    check_error("LIMIT k", &arity("limit"));
}
