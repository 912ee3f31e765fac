//! `TOP`.

use super::*;

#[test]
fn top() {
    let all = Top { count: 10, window: None, prefix: b"", has_bounds: false };
    check("TOP 10", Command::Top(all));
    check("top 0", Command::Top(Top { count: 0, ..all }));
    check("TOP 10000 5m", Command::Top(Top { count: 10_000, window: Some(span("5m")), ..all }));
    check("TOP 10 prefix a:", Command::Top(Top { prefix: b"a:", ..all }));
    check("TOP 10 1h BOUNDS", Command::Top(Top { window: Some(span("1h")), has_bounds: true, ..all }));
    let options = Top { window: Some(span("1h")), prefix: b"a:", has_bounds: true, ..all };
    check("TOP 10 1h PREFIX a: BOUNDS", Command::Top(options));
    check("TOP 10 1h bounds prefix a:", Command::Top(options));
    // What begins with the word of an option is one.
    check("TOP 10 PREFIX bounds BOUNDS", Command::Top(Top { prefix: b"bounds", has_bounds: true, ..all }));
    check_error("TOP", &arity("top"));
    for k in ["ten", "-1", "10001", "1.5", ""] {
        let line = if k.is_empty() { "TOP ''".to_owned() } else { format!("TOP {k}") };
        check_error(&line, &format!("ERR invalid k '{k}': give how many keys are wanted, 0 to 10000"));
    }
    let duration = |line, text| check_error(line, &format!("ERR {}", span_error(text)));
    duration("TOP 10 5x", "5x");
    duration("TOP 10 0", "0");
    for (line, word) in [("TOP 10 5m 1h", "1h"), ("TOP 10 BOUNDS 5m", "5m"), ("TOP 10 PREFIX a b", "b")] {
        let before = format!("{}: one window comes before PREFIX and BOUNDS", unexpected(word));
        check_error(line, &before);
    }
    check_error("TOP 10 PREFIX", "ERR PREFIX needs what keys begin with, such as server:, after it");
    check_error("TOP 10 PREFIX ''", "ERR invalid prefix '': give 1 to 1024 bytes that keys begin with");
    let (most, more) = ("p".repeat(1_024), "p".repeat(1_025));
    check(&format!("TOP 1 PREFIX {most}"), Command::Top(Top { count: 1, prefix: most.as_bytes(), ..all }));
    let cut = &more[..128];
    check_error(
        &format!("TOP 1 PREFIX {more}"),
        &format!("ERR invalid prefix '{cut}': give 1 to 1024 bytes that keys begin with"),
    );
    check_error("TOP 1 PREFIX a PREFIX b", &twice("PREFIX"));
    check_error("TOP 1 BOUNDS BOUNDS", &twice("BOUNDS"));
}

/// The error about a text that is no duration.
fn span_error(text: &str) -> String {
    text.parse::<Span>().expect_err("no duration").to_string()
}
