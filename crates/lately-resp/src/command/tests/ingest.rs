//! `INGEST`.

use super::*;
use crate::command::Stretch;

#[test]
fn ingest_takes_a_batch_of_a_source() {
    let source = Source::new(b"log").expect("a name");
    check("INGEST log", Command::Position { source });
    with_args("ingest log 10 40 a 2 1700000000 b 0 1700000000.25", |args| match Command::parse(args) {
        Ok(Command::Ingest(stretch @ Stretch { from: 10, to: 40, .. })) => {
            assert_eq!(stretch.source, source);
            let expected: [(&[u8], u64, i64); 2] =
                [(b"a", 2, 1_700_000_000_000), (b"b", 0, 1_700_000_000_250)];
            assert!(stretch.hits().map(|(key, count, at)| (key, count, at.as_millis())).eq(expected));
        }
        other => panic!("{other:?}"),
    });
    with_args("INGEST log 7 7", |args| {
        let parsed = Command::parse(args);
        assert!(matches!(parsed, Ok(Command::Ingest(stretch)) if stretch.hits().count() == 0), "{parsed:?}");
    });
    for line in ["INGEST", "INGEST log 0", "INGEST log 0 1 a", "INGEST log 0 1 a 1", "INGEST log 0 1 a 1 1 b"]
    {
        check_error(line, &arity("ingest"));
    }
    check_error("INGEST log -1 1", &not_a_count("position", "-1"));
    check_error("INGEST log 0 x", &not_a_count("position", "x"));
    check_error("INGEST log 2 1", "ERR the stretch ends at 1, before it begins at 2");
    check_error("INGEST log 0 1 a x 1", &not_a_count("count", "x"));
    check_error("INGEST log 0 1 '' 1 1", &invalid_key(0));
}

#[test]
fn a_batch_of_a_source_has_bounds() {
    let name = |len: usize| "s".repeat(len);
    check(
        &format!("INGEST {}", name(256)),
        Command::Position { source: Source::new(name(256).as_bytes()).expect("a name") },
    );
    let too_long = "ERR invalid source of 257 bytes: a source has 1 to 256 bytes";
    check_error(&format!("INGEST {}", name(257)), too_long);
    check_error("INGEST ''", "ERR invalid source of 0 bytes: a source has 1 to 256 bytes");
    check_many("INGEST log 0 1", 3 * 16_384, "1", None);
    check_many("INGEST log 0 1", 3 * 16_385, "1", Some("ERR INGEST takes at most 16384 keys"));
}
