//! `lately backtest` against an independent program.

use crate::common::{access_log, has, lately, python};
use test_support::Rng;

/// Runs both programs, which must print the same rows and sums. Returns the rows.
fn compare(log: &str, key: &str, limits: &[&str], lockout: Option<&str>) -> String {
    let mut args = vec!["backtest", log, "--json", "--top", "0", "--key", key];
    limits.iter().for_each(|limit| args.extend(["--limit", limit]));
    lockout.iter().for_each(|lockout| args.extend(["--lockout", lockout]));
    let run = lately(&args);
    assert_eq!(run.code, Some(0), "{args:?}: {}", run.err);
    let expected =
        python("backtest_reference.py", &[&[log, key, lockout.unwrap_or("none")], limits].concat());
    assert_eq!(expected.code, Some(0), "{args:?}: {}", expected.err);
    assert!(run.out.lines().count() > 10, "{args:?}: too few rows for a comparison");
    for (row, (found, expected)) in run.out.lines().zip(expected.out.lines()).enumerate() {
        assert_eq!(found, expected, "{args:?}, row {}", row + 1);
    }
    assert_eq!(run.out.lines().count(), expected.out.lines().count(), "{args:?}");
    let sums = run.err.lines().nth(1).and_then(|line| line.strip_prefix("lately: backtest: "));
    assert_eq!(sums, expected.err.lines().next(), "{args:?}");
    run.out
}

/// Two hours of logins, in unordered JSON lines: 30 users with typing errors, `robot` with steady attempts, `volley` with
/// bursts of attempts, and `patient` with fewer than five a minute.
fn brute_force() -> String {
    const START_MS: u64 = 1_431_857_103_000;
    const LENGTH_MS: u64 = 2 * 3_600_000;
    let mut rng = Rng::new(5);
    let mut tries: Vec<(u64, String)> = Vec::new();
    for user in 0..30 {
        for from_ms in (START_MS..START_MS + LENGTH_MS).step_by(1_200_000) {
            let first_ms = from_ms + rng.below(600_000);
            let mistakes = 1 + rng.below(3);
            tries.extend((0..mistakes).map(|mistake| (first_ms + mistake * 7_000, format!("user-{user}"))));
        }
    }
    let mut steady = |name: &str, pause_ms: u64, spread_ms: u64| {
        let mut at_ms = START_MS + 600_000;
        while at_ms < START_MS + LENGTH_MS {
            tries.push((at_ms, name.to_owned()));
            at_ms += pause_ms + rng.below(spread_ms);
        }
    };
    steady("robot", 800, 3_000);
    steady("patient", 15_000, 2_000);
    for burst in 0..12 {
        let from_ms = START_MS + burst * 600_000;
        tries.extend((0..40).map(|attempt| (from_ms + attempt / 3, "volley".to_owned())));
    }
    // Several workers write their lines with different delays.
    tries.sort_by_cached_key(|&(at_ms, _)| at_ms + rng.below(30_000));
    let line = |(at_ms, name): &(u64, String)| {
        format!("{{\"ip\":\"{name}\",\"time\":{}.{:03}}}\n", at_ms / 1_000, at_ms % 1_000)
    };
    tries.iter().map(line).collect()
}

#[test]
fn brute_force_denials_match_an_independent_program() {
    if !has("python3") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("login.jsonl");
    std::fs::write(&path, brute_force()).expect("a file");
    let log = path.to_str().expect("a readable path");
    // Users with typing errors are not denied. The fast limit denies the robots; only the slow limit denies the patient one.
    let denied = |rows: &str| {
        let denied = rows.lines().filter(|row| !row.ends_with(":null}"));
        let key = |row: &str| row.split('"').nth(3).expect("a key").to_owned();
        let mut keys: Vec<String> = denied.map(key).collect();
        keys.sort_unstable();
        keys
    };
    let (fast, slow) = ("5/1m", "100/3600");
    for lockout in [None, Some("15m"), Some("1ms"), Some("1d")] {
        assert_eq!(denied(&compare(log, "ip", &[fast], lockout)), ["robot", "volley"], "{lockout:?}");
        assert_eq!(denied(&compare(log, "ip", &[fast, slow], lockout)), ["patient", "robot", "volley"]);
    }
    compare(log, "ip", &["10/12ms"], None);
    compare(log, "ip", &["1/1ms", "2/5"], Some("6ms"));
    compare(log, "ip", &["0/1m"], Some("1h"));
}

#[test]
fn every_decision_on_a_real_log_matches() {
    if !has("python3") {
        return;
    }
    let log = access_log();
    let log = log.path.as_str();
    for lockout in [None, Some("15m")] {
        compare(log, "ip", &["10/1m"], lockout);
        compare(log, "ip", &["5/10", "100/1d"], lockout);
    }
    compare(log, "{ip} {status}", &["3/1"], Some("30s"));
    compare(log, "path", &["20/1h", "2/2s"], None);
}
