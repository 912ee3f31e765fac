//! `LIMIT key @name`.

use lately::Lockout;

use super::*;
use crate::config::NamedLimit;
use crate::limits::{MAX_LIMIT_NAME_BYTES, MAX_LIMITS};
use crate::service::named_limits::tests::limit;

/// `login`: one in a minute, with a lockout; `watched`: the same, in shadow; `wide`: 3 in 10 s.
fn talk() -> Talk {
    let lockout = Some(minutes(15).into());
    let limits = vec![
        NamedLimit { lockout, ..limit("login") },
        NamedLimit { lockout, is_shadow: true, ..limit("watched") },
        NamedLimit { max: 3, window: lately::seconds(10), ..limit("wide:1") },
    ];
    Talk::with(Config { limits, ..Config::default() })
}

#[test]
fn a_limit_is_taken_from_the_config() {
    let mut talk = talk();
    talk.check_all(&[
        ("LIMIT k @wide:1 COST 2", "*5|:1|:3|:1|:0|:10000|"),
        ("LIMIT k @wide:1 COST 2", "*5|:0|:3|:1|:10000|:10000|"),
        ("LIMIT k @wide:1 PEEK", "*5|:1|:3|:1|:0|:10000|"),
        ("LIMIT k @wide:1 COST 4", "*5|:0|:3|:1|:-1|:10000|"),
        ("LIMIT k @login PEEK", "*5|:0|:1|:0|:60000|:60000|"),
        ("LIMIT other @login", "*5|:1|:1|:0|:0|:60000|"),
        ("LIMIT other @login", "*5|:0|:1|:0|:900000|:900000|"),
        ("LIMIT other @login", "*5|:0|:1|:0|:900000|:900000|"),
        ("HITS k", ":2|"),
        ("HITS other", ":1|"),
    ]);
    talk.check(&format!("LIMIT late @wide:1 AT {}", ago(5)), "*5|:1|:3|:2|:0|:10000|");
    assert!(talk.ask("LIMIT k @wide:1 AT 5").starts_with("-LATE hit at 5 is older"));
    // Peeks and errors are not counted.
    let said = |talk: &mut Talk, name: &str| talk.info(&format!("limit_{name}"));
    let wide = "max=3,window_ms=10000,lockout_ms=0,shadow=0,allowed=2,denied=2,would_deny=0";
    assert_eq!(said(&mut talk, "wide_1"), wide);
    let login = "max=1,window_ms=60000,lockout_ms=900000,shadow=0,allowed=1,denied=2,would_deny=0";
    assert_eq!(said(&mut talk, "login"), login);
    assert_eq!((talk.info("total_hits"), talk.info("refused_hits")), ("4".into(), "1".into()));
}

#[test]
fn an_unknown_limit_changes_nothing() {
    let mut talk = talk();
    let unknown = |name: &str| {
        refused(&format!("no such limit '{name}': the config has login, watched, wide:1"), LIMIT)
    };
    for name in ["nosuch", "LOGIN", "login "] {
        talk.check(&format!("LIMIT k '@{name}'"), &unknown(name));
    }
    talk.check(
        "LIMIT k @",
        &refused("the name of the limit is missing: the config has login, watched, wide:1", LIMIT),
    );
    talk.check("LIMIT k @nosuch PEEK COST 0", &unknown("nosuch"));
    let in_place = talk.send(b"HIT k\nLIMIT k @a\nHIT k\nLIMIT k @wide:1\n", 4);
    assert_eq!(barred(&in_place), format!(":1|{}:2|*5|:1|:3|:0|:0|:10000|", unknown("a")));
    talk.check("HITS k", ":3|");
    Talk::new().check("LIMIT k @a", &refused("no such limit 'a': the config has none", LIMIT));
    // The error must stay on one line.
    talk.check("LIMIT k \"@a\\r\\n+OK\"", &unknown("a  +OK"));
}

#[test]
fn a_shadow_limit_denies_nothing() {
    let mut talk = talk();
    talk.check_all(&[
        ("LIMIT k @watched", "*5|:1|:1|:0|:0|:60000|"),
        ("LIMIT k @watched", "*5|:1|:1|:0|:0|:60000|"),
        ("LIMIT k @watched COST 2", "*5|:1|:1|:0|:0|:60000|"),
        ("LIMIT k @watched PEEK", "*5|:1|:1|:0|:0|:60000|"),
        // Requests that would have been denied are not counted as hits.
        ("HITS k", ":1|"),
    ]);
    let said = "max=1,window_ms=60000,lockout_ms=900000,shadow=1,allowed=1,denied=0,would_deny=2";
    assert_eq!(talk.info("limit_watched"), said);
    assert_eq!((talk.info("total_hits"), talk.info("refused_hits")), ("1".into(), "0".into()));
    // A shadow limit starts no lockout.
    talk.clock.advance(minutes(1));
    talk.check("LIMIT k 1 1m PEEK", "*5|:1|:1|:1|:0|:0|");
    talk.check("LIMIT k @login", "*5|:1|:1|:0|:0|:60000|");
    talk.check("LIMIT k @login", "*5|:0|:1|:0|:900000|:900000|");
    // A lockout by another limit counts as a denial that the shadow limit would have made.
    talk.clock.advance(minutes(2));
    talk.check("LIMIT k @watched", "*5|:1|:1|:0|:0|:780000|");
    assert!(talk.info("limit_watched").ends_with("allowed=1,denied=0,would_deny=3"));
}

#[test]
fn named_limits_work_in_a_transaction() {
    let mut talk = talk();
    let batch = b"MULTI\nLIMIT k @login\nLIMIT k @a\nLIMIT k @login\nLIMIT k\nEXEC\n";
    let arity = "-ERR wrong number of arguments for 'limit' command. Usage: LIMIT <key> (<max> <window>\\|<@name>) [COST <cost>] [PEEK] [OVERDRAFT] [LOCKOUT <lockout> [FACTOR <factor>] [MAX <longest>]] [AT <time>]|";
    let aborted = "-EXECABORT Transaction discarded because of previous errors.|";
    assert_eq!(barred(&talk.send(batch, 6)), format!("+OK|{}{arity}{aborted}", "+QUEUED|".repeat(3)));
    let batch = b"MULTI\nLIMIT k @login\nLIMIT k @a\nLIMIT k @login\nEXEC\n";
    let replies = barred(&talk.send(batch, 5));
    let start = format!("+OK|{}*3|*5|:1|:1|:0|:0|:60000|-ERR no such limit 'a': ", "+QUEUED|".repeat(3));
    assert!(replies.starts_with(&start) && replies.ends_with("*5|:0|:1|:0|:900000|:900000|"), "{replies}");
}

/// The retention depends on the key, so the config cannot be checked for it, only the request.
#[test]
fn a_named_limit_longer_than_the_retention_is_refused() {
    let text =
        "[[class]]\nmatch = \"long:*\"\nretain = \"30d\"\n[[limit]]\nname = \"a\"\nmax = 1\nwindow = \"8d\"";
    let config = Config { storage: None, ..Config::parse(text).expect("valid") };
    let mut talk = Talk::with(config);
    talk.check("LIMIT long:1 @a", "*5|:1|:1|:0|:0|:691200000|");
    talk.check(
        "LIMIT k @a",
        &refused(
            "invalid window 8d: hits of this key are kept for 7d (`retain`), a limit can ask for no more",
            LIMIT,
        ),
    );
    assert!(talk.info("limit_a").ends_with("allowed=1,denied=0,would_deny=0"));
}

/// A batch uses the limits from its first request with a named limit.
#[test]
fn replaced_limits_apply_from_the_next_batch() {
    let mut talk = talk();
    talk.check("LIMIT k @wide:1 COST 2", "*5|:1|:3|:1|:0|:10000|");
    let max = |max| [NamedLimit { max, window: lately::seconds(10), ..limit("wide:1") }];
    talk.service.rules.replace(&max(2));
    // Earlier hits still count.
    talk.check("LIMIT k @wide:1", "*5|:0|:2|:0|:10000|:10000|");
    talk.check("LIMIT k @login", &refused("no such limit 'login': the config has wide:1", LIMIT));
    talk.service.rules.replace(&max(4));
    talk.check("LIMIT k @wide:1", "*5|:1|:4|:1|:0|:10000|");
    assert!(talk.info("limit_wide_1").ends_with("allowed=2,denied=1,would_deny=0"));
    // Two connections fill a batch, and the limits are replaced while it runs.
    let (bytes, now) = (b"LIMIT new @wide:1\n", talk.service.now());
    let (mut requests, mut args) = (Requests::new(), Args::new());
    requests.parse(bytes, &Limits::default(), &mut args);
    let (mut run, mut out) = (Run::default(), Vec::new());
    for max in [max(5), max(6)] {
        talk.session.batch(requests.iter(bytes), &mut run, now, &mut out);
        talk.service.rules.replace(&max);
    }
    run.finish(&talk.service, now, &mut out);
    assert_eq!(barred(&out), "*5|:1|:4|:3|:0|:10000|*5|:1|:4|:2|:0|:10000|");
    talk.check("LIMIT new @wide:1", "*5|:1|:6|:3|:0|:10000|");
}

#[test]
fn the_longest_info_is_bounded() {
    let named = |number: usize| NamedLimit {
        max: u64::MAX >> 1,
        window: lately::Span::MAX,
        lockout: Some(lately::Span::MAX.into()),
        ..limit(&format!("{number:0>MAX_LIMIT_NAME_BYTES$}"))
    };
    let limits: Vec<NamedLimit> = (0..MAX_LIMITS).map(named).collect();
    let info = Talk::with(Config { limits, ..Config::default() }).ask("INFO");
    // Three counts may be longer by 19 digits each.
    assert!(info.len() + MAX_LIMITS * 3 * 19 < 300 << 10, "{}", info.len());
}

/// `tokens`: an overdraft of 10; `login`: lockouts that double; `internal`: exempt keys, with or without shadow.
fn talk_of_overdrafts() -> Talk {
    let factor = lately::Factor::new(2.0).expect("a factor");
    let lockout = Lockout::growing(minutes(15), factor, None).expect("it fits");
    let exempt: Vec<_> = ["10.0.0.0/8", "robot:*"].map(|exempt| exempt.parse().expect(exempt)).into();
    let limits = vec![
        NamedLimit { max: 10, is_overdraft: true, ..limit("tokens") },
        NamedLimit { lockout: Some(lockout), exempt: exempt.clone(), ..limit("login") },
        NamedLimit { exempt, is_shadow: true, ..limit("watched") },
    ];
    Talk::with(Config { limits, ..Config::default() })
}

#[test]
fn an_overdraft_is_allowed_while_there_is_room_for_one() {
    let mut talk = talk_of_overdrafts();
    talk.check_all(&[
        ("LIMIT k @tokens COST 9", "*5|:1|:10|:1|:0|:60000|"),
        ("LIMIT k @tokens COST 900", "*5|:1|:10|:-899|:0|:60000|"),
        ("LIMIT k @tokens", "*5|:0|:10|:-899|:60000|:60000|"),
        ("LIMIT k @tokens COST 0", "*5|:0|:10|:-899|:60000|:60000|"),
        ("LIMIT k @tokens COST -902", "*5|:1|:10|:3|:0|:60000|"),
        ("LIMIT k @tokens COST -5 PEEK", "*5|:1|:10|:3|:0|:60000|"),
        ("LIMIT k @tokens COST -50", "*5|:1|:10|:10|:0|:0|"),
        ("HITS k", ":0|"),
        ("LIMIT j 3 1m COST 9 OVERDRAFT", "*5|:1|:3|:-6|:0|:60000|"),
        ("LIMIT j 3 1m", "*5|:0|:3|:0|:60000|:60000|"),
        ("LIMIT j 3 1m COST -7", "*5|:1|:3|:1|:0|:60000|"),
        ("LIMIT j 3 1m", "*5|:1|:3|:0|:0|:60000|"),
    ]);
    let tokens = talk.info("limit_tokens");
    assert!(tokens.ends_with("allowed=2,denied=2,would_deny=0"), "refunds are not counted: {tokens}");
}

#[test]
fn lockouts_of_a_named_limit_grow() {
    let mut talk = talk_of_overdrafts();
    talk.check_all(&[
        ("LIMIT k @login COST 2", "*5|:0|:1|:0|:-1|:900000|"),
        ("LIMIT k @login COST 2", "*5|:0|:1|:0|:-1|:900000|"),
    ]);
    talk.clock.advance(minutes(15));
    talk.check("LIMIT k @login COST 2", "*5|:0|:1|:0|:-1|:1800000|");
    talk.clock.advance(minutes(30));
    talk.check("LIMIT k 0 1 LOCKOUT 15m FACTOR 2 MAX 50m", "*5|:0|:0|:0|:-1|:3000000|");
}

#[test]
fn exempt_keys_are_counted_and_never_denied() {
    let mut talk = talk_of_overdrafts();
    for limit in ["login", "watched"] {
        for key in
            [format!("{limit}:10.1.2.3"), format!("10.9.9.9/{limit}/10.9.9.9"), format!("robot:{limit}")]
        {
            for hits in 1..=3 {
                talk.check(&format!("LIMIT {key} @{limit}"), "*5|:1|:1|:0|:0|:60000|");
                talk.check(&format!("HITS {key}"), &format!(":{hits}|"));
            }
        }
        let said = talk.info(&format!("limit_{limit}"));
        assert!(said.ends_with("allowed=9,denied=0,would_deny=0"), "{said}");
    }
    // A key after an exempt one is not.
    let replies = talk.send(
        b"LIMIT 10.0.0.1 @login\nLIMIT 11.0.0.1 @login\nLIMIT 11.0.0.1 @login\nLIMIT 10.0.0.1 @login\n",
        4,
    );
    let [allowed, denied] = ["*5|:1|:1|:0|:0|:60000|", "*5|:0|:1|:0|:900000|:900000|"];
    assert_eq!(barred(&replies), [allowed, allowed, denied, allowed].concat());
    // Many of one form, as in a pipeline.
    let get = |key: &str| format!("*3\r\n$5\r\nLIMIT\r\n$8\r\n{key}\r\n$6\r\n@login\r\n");
    let keys = ["12.0.0.1", "10.0.0.2", "12.0.0.1", "10.0.0.2"];
    let replies = talk.send(keys.map(get).concat().as_bytes(), 4);
    assert_eq!(barred(&replies), [allowed, allowed, denied, allowed].concat());
}
