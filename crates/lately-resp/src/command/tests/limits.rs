//! The family that decides.

use super::*;
use lately::{Limit, Rate};

#[test]
fn limit() {
    let limit = |cost, is_peek, lockout, at| {
        Command::Limit(Request { at, is_peek, lockout, ..Request::new(b"k", 5, span("1m"), cost) })
    };
    check("LIMIT k 5 1m", limit(1, false, None, None));
    check("limit k 5 60 cost 3", limit(3, false, None, None));
    check("LIMIT k 5 1m PEEK", limit(1, true, None, None));
    check("LIMIT k 5 1m AT 9 lockout 15m PEEK COST 0", limit(0, true, Some(span("15m")), at(9)));
    check_errors(
        &["LIMIT k x 1m", "LIMIT k -1 1m", "LIMIT k 5 1m COST x", "LIMIT k 5 1m COST -1"],
        NOT_INTEGER,
    );
    let syntax = [
        "LIMIT k 5 1m COST",
        "LIMIT k 5 1m PEEK PEEK",
        "LIMIT k 5 1m AT",
        "LIMIT k 5 1m LOCKOUT 1 LOCKOUT 2",
    ];
    check_errors(&syntax, SYNTAX);
    check_errors(&["LIMIT k 5 1m now", "LIMIT k 5 1m COST 1 2"], SYNTAX);
    check_error("LIMIT k 5", &arity("limit"));
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
    // A key named as an option is stands first.
    check("MLIMIT at 5 1m ip 5 1m", all(&[limit(b"at", 5, "1m"), ip], 1, false, None));
    check_errors(
        &[
            "MLIMIT ip 5 1m user",
            "MLIMIT ip 5 1m user 9",
            "MLIMIT ip 5 1m PEEK user 9 1d",
            "MLIMIT ip 5 1m COST",
            "MLIMIT ip 5 1m PEEK PEEK",
        ],
        SYNTAX,
    );
    check_errors(
        &["MLIMIT ip @day ip @minute", "MLIMIT ip 5 1m ip @day"],
        "ERR MLIMIT takes a key, its max and its window, and no @name",
    );
    check_error("MLIMIT ip 5 1m LOCKOUT 1m", "ERR LOCKOUT does not go with MLIMIT");
    check_error("MLIMIT ip -5 1m", "ERR value is not an integer or out of range");
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
    check_errors(&["CL.THROTTLE k 15 0 60", "CL.THROTTLE k 15 30 0"], "ERR zero rates are not supported");
    check_errors(
        &[
            "CL.THROTTLE k -1 30 60",
            "CL.THROTTLE k 15 -30 60",
            "CL.THROTTLE k x 30 60",
            "CL.THROTTLE k 15 30 60 x",
        ],
        "ERR value is not an integer or out of range",
    );
    check_error(
        "CL.THROTTLE k 15 30 1000000001",
        "ERR invalid period: give whole seconds, from 1 to 1000000000",
    );
    check_error(
        "CL.THROTTLE k 1000000000000000 1 1000000000",
        "ERR invalid rate: max_burst hits at this rate would take longer than 146 million years",
    );
    check_errors(&["CL.THROTTLE k 15 30", "CL.THROTTLE k 15 30 60 1 1"], &arity("cl.throttle"));
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
    check_errors(&["COOLEST 1 WINDOW 1m", "COOLEST 1 BELOW 1 BELOW 2 a", "COOLEST 1 WINDOW"], SYNTAX);
    check_errors(
        &["COOLEST 1 a BELOW 5", "COOLEST 1 a window", "COOLEST 1 PREFIX", "COOLEST 1 PREFIX a BELOW 5"],
        "ERR COOLEST takes WINDOW and BELOW before the keys, and PREFIX in place of them: no key has such a name here",
    );
    check_error("COOLEST x a", "ERR value is not an integer or out of range");
    check_error("COOLEST 16385 a", "ERR COOLEST takes at most 16384 keys");
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
    // Whether there is such a limit is not for the parser to say.
    check("LIMIT k @", named(b"", 1, false, None));
    check("LIMIT k @@a", named(b"@a", 1, false, None));
    let lockout = "ERR LOCKOUT does not go with @name: the limit has its own in the config";
    check_error("LIMIT k @a LOCKOUT 5m", lockout);
    check_errors(&["LIMIT k @a 5 1m", "LIMIT k @a COST", "LIMIT k @a PEEK PEEK", "LIMIT k @a now"], SYNTAX);
    check_errors(&["LIMIT k @a COST x", "LIMIT k a@ 1m"], NOT_INTEGER);
    check_error("LIMIT k", &arity("limit"));
}
