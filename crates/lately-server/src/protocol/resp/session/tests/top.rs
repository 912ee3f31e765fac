//! `TOP`.

use std::cmp::Reverse;

use lately::Pattern;
use proptest::prelude::*;

use super::*;

#[test]
fn top_returns_the_most_hit_keys() {
    let mut talk = Talk::new();
    talk.check_all(&[
        ("TOP 3", "*0|"),
        ("TOP 3 BOUNDS", "*1|:0|"),
        ("MHIT web:1 5 web:3 3 web:2 3 db 1", "*4|:5|:3|:3|:1|"),
        ("TOP 2", "*2|*2|$5|web:1|:5|*2|$5|web:2|:3|"),
        ("TOP 3 5m", "*3|*2|$5|web:1|:5|*2|$5|web:2|:3|*2|$5|web:3|:3|"),
        ("TOP 9 PREFIX db", "*1|*2|$2|db|:1|"),
        ("TOP 9 PREFIX nobody", "*0|"),
        ("TOP 0", "*0|"),
        ("TOP 0 BOUNDS", "*1|:5|"),
        ("TOP 1 BOUNDS", "*2|*4|$5|web:1|:5|:5|:5|:3|"),
        ("TOP 1 BOUNDS PREFIX db", "*2|*4|$2|db|:1|:1|:1|:0|"),
        // Nobody knows what was hit before the retention.
        ("TOP 1 8d BOUNDS", "*2|*4|$5|web:1|:5|:5|:-1|:-1|"),
    ]);
    talk.clock.advance(milliseconds(100_000));
    talk.check_all(&[
        ("HIT web:3", ":4|"),
        // Keys without hits in the window are not named.
        ("TOP 9 1m", "*1|*2|$5|web:3|:1|"),
        ("TOP 9 1m BOUNDS", "*2|*4|$5|web:3|:1|:1|:1|:0|"),
        ("TOP 1", "*1|*2|$5|web:1|:5|"),
        ("DEL web:1", ":1|"),
        ("TOP 1", "*1|*2|$5|web:3|:4|"),
    ]);
}

/// The window of each key is that of its class, and a class that keeps less than the window leaves the bound of the other
/// keys open.
#[test]
fn top_uses_the_classes_of_the_keys() {
    let short = lately::Settings::builder().window(lately::seconds(10)).retain(lately::hours(1));
    let classes = vec![(Pattern::new(b"s:*"), short.build().expect("valid"))];
    let mut talk = Talk::with(Config { classes, ..Config::default() });
    talk.check_all(&[("HIT s:1 9", ":9|"), ("HIT a 3", ":3|")]);
    talk.clock.advance(milliseconds(20_000));
    talk.check_all(&[
        ("TOP 9", "*1|*2|$1|a|:3|"),
        ("TOP 9 1m", "*2|*2|$3|s:1|:9|*2|$1|a|:3|"),
        ("TOP 1 1h BOUNDS PREFIX a", "*2|*4|$1|a|:3|:3|:3|:0|"),
        ("TOP 1 2h BOUNDS PREFIX a", "*2|*4|$1|a|:3|:3|:3|:-1|"),
    ]);
}

/// The window ends when the command began, however long the walk takes.
#[test]
fn the_window_of_a_long_walk_stays() {
    let mut talk = Talk::new();
    for n in 0..3_000 {
        talk.ask(&format!("HIT many:{n} {}", 3_000 - n));
    }
    let mut reply = talk.first_of("TOP 2 1s BOUNDS");
    while talk.flow == Flow::More {
        // Hits of now are not in the window, and those before stay in it.
        talk.clock.advance(milliseconds(1_000));
        talk.twin().ask("MHIT many:0 50 many:2999 5000 late 7000");
        let mut out = Vec::new();
        talk.flow = talk.session.resume(false, &mut Written::default(), &mut out);
        reply += &barred(&out);
    }
    assert_eq!(reply, "*3|*4|$6|many:0|:3000|:3000|:3000|*4|$6|many:1|:2999|:2999|:2999|:2998|");
}

/// With `top`, busy keys are looked at first: others are walked over only if these are not for sure the most-hit ones.
#[test]
fn top_of_busy_keys_walks_over_no_others() {
    for is_top in [false, true] {
        let settings = lately::Settings::builder().top(is_top).build().expect("valid");
        let classes = vec![(Pattern::new(b"many:*"), settings)];
        let mut talk = Talk::with(Config { classes, ..Config::default() });
        for n in 0..20_000 {
            talk.ask(&format!("HIT many:{n} {}", if n % 5_000 == 7 { 1_000 + n } else { 1 + n % 3 }));
        }
        let top = |talk: &mut Talk, command: &str| {
            let (mut reply, mut slices) = (talk.first_of(command), 1);
            while talk.flow == Flow::More {
                let mut out = Vec::new();
                talk.flow = talk.session.resume(false, &mut Written::default(), &mut out);
                reply += &barred(&out);
                slices += 1;
            }
            (reply, slices)
        };
        let (reply, few) = top(&mut talk, "TOP 2 PREFIX many:");
        assert_eq!(reply, "*2|*2|$10|many:15007|:16007|*2|$10|many:10007|:11007|");
        // No key has the prefix, and the class of others does not ask.
        let (reply, all) = top(&mut talk, "TOP 2 1s");
        assert_eq!(reply, "*2|*2|$10|many:15007|:16007|*2|$10|many:10007|:11007|");
        // The busy keys are not enough.
        let (reply, not_enough) = top(&mut talk, "TOP 5 PREFIX many:");
        assert!(
            reply.starts_with("*5|*2|$10|many:15007|:16007|") && reply.ends_with("|*2|$10|many:10001|:3|"),
            "{reply}"
        );
        assert!(
            all >= 20 && not_enough >= 20 && if is_top { few <= 3 } else { few >= 20 },
            "{few} {all} {not_enough}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Against the definition: all hits in a list, the hits of each key counted one by one, all keys sorted. With `top` the rows
    /// are the same, and the bound is at least that of the definition.
    #[test]
    fn top_is_the_sort_of_all_keys_by_their_hits(
        hits in prop::collection::vec((0..40_u64, 0..290_i64, 1..6_u64), 0..300),
        prefix in prop::sample::select(vec!["", "a", "b", "ab", "c"]),
        window in prop::sample::select(vec![1_i64, 7, 60, 300]),
        count in 0..50_usize,
        is_top in any::<bool>(),
    ) {
        let settings = lately::Settings::builder().top(is_top).build().expect("valid");
        let classes = vec![(Pattern::new(b"*"), settings)];
        let mut talk = Talk::with(Config { classes, ..Config::default() });
        let key = |number: u64| format!("{}{number}", ["a", "ab", "b"][usize::try_from(number % 3).expect("small")]);
        for &(number, ago_s, weight) in &hits {
            let at = i64::try_from(NOW_S).expect("small") - ago_s;
            talk.ask(&format!("HIT {} {weight} AT {at}", key(number)));
        }
        let mut expected: Vec<(Reverse<u64>, String)> = (0..40)
            .map(|number| {
                let of_key = hits.iter().filter(|hit| hit.0 == number && hit.1 < window);
                (Reverse(of_key.map(|hit| hit.2).sum::<u64>()), key(number))
            })
            .filter(|(hits, key)| hits.0 > 0 && key.starts_with(prefix))
            .collect();
        expected.sort();
        let others = expected.get(count).map_or(0, |(hits, _)| hits.0);
        expected.truncate(count);
        let mut reply = format!("*{}|", expected.len() + 1);
        for (Reverse(hits), key) in &expected {
            reply += &format!("*4|${}|{key}|:{hits}|:{hits}|:{hits}|", key.len());
        }
        let option = if prefix.is_empty() { String::new() } else { format!("PREFIX {prefix}") };
        let answer = talk.ask(&format!("TOP {count} {window} {option} BOUNDS"));
        let Some(bound) = answer.strip_prefix(&reply) else { panic!("{answer}, not {reply}") };
        let bound: u64 = bound.trim_matches([':', '|']).parse().expect("a number");
        prop_assert!(if is_top { bound >= others } else { bound == others }, "{bound}, not {others}");
    }
}
