//! PostgreSQL.

use std::time::Duration;

use lately::Timestamp;
use lately_engines::{Block, Engine, EngineError, List, Postgres, Write};
use test_support::{PostgresPooler, PostgresPrograms, PostgresServer};

use crate::{LEVELS, START_MS, check, known, run, write};

fn engine(server: &PostgresServer) -> Postgres {
    Postgres::new(&[server.url()]).expect("a URL")
}

#[test]
fn postgres_conforms() {
    let Some(programs) = PostgresPrograms::find() else { return };
    let server = PostgresServer::start(&programs);
    run(check(engine(&server)));
}

/// Each statement may run on another connection to the server.
#[test]
fn postgres_behind_a_pooler_conforms() {
    let Some(programs) = PostgresPrograms::find() else { return };
    let mut server = PostgresServer::start(&programs);
    let Some(pooler) = PostgresPooler::start(&server) else { return };
    let engine = || Postgres::new(&[pooler.url()]).expect("a URL");
    run(check(engine()));
    // The connection to the pooler stays when the server fails, so the claim has to notice.
    let (mut engine, minute) = (engine(), Duration::from_secs(60));
    run(async {
        engine.claim("a", "one", &|_| false, minute).await.expect("it answers");
        let life = engine.life();
        server.kill();
        server.restart();
        while engine.claim("a", "one", &|_| false, minute).await.is_err() {}
        assert!(engine.life() > life, "what was sent may be lost");
    });
}

#[test]
fn a_claim_ends_and_a_new_server_is_a_new_life() {
    let Some(programs) = PostgresPrograms::find() else { return };
    let server = PostgresServer::start(&programs);
    let mut engine = engine(&server);
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
    run(async {
        assert_eq!(engine.claim("a", "one", &|_| false, minute).await.expect("it answers"), None);
        let held = engine.claim("a", "two", &|_| false, minute).await.expect("it answers");
        assert_eq!(held.as_deref(), Some("one"));
        assert_eq!(engine.claim("a", "two", &|held| held == "one", minute).await.expect("it answers"), None);
        server.succeed("UPDATE lately.node SET until = now()");
        assert_eq!(engine.claim("a", "three", &|_| false, minute).await.expect("it answers"), None);
        let life = engine.life();
        assert_eq!(engine.claim("a", "three", &|_| false, minute).await.expect("it answers"), None);
        assert_eq!(engine.life(), life);
        server.succeed("DELETE FROM lately.node");
        assert_eq!(engine.claim("a", "three", &|_| false, minute).await.expect("it answers"), None);
        assert!(engine.life() > life, "somebody has emptied the tables");
        engine.set_text(List::Nodes, "a", Some("1"), hour).await.expect("it takes it");
        server.succeed("UPDATE lately.list SET until = now()");
        assert_eq!(engine.texts(List::Nodes).await.expect("it answers"), []);
    });
}

#[test]
fn partitions_are_dropped_when_they_are_over() {
    let Some(programs) = PostgresPrograms::find() else { return };
    let server = PostgresServer::start(&programs);
    let mut engine = engine(&server);
    let minute = Duration::from_secs(60);
    let tables = || {
        server.rows(
            "SELECT count(*) FROM pg_inherits WHERE inhparent = 'lately.virtual_counter_1000'::regclass",
        )
    };
    let (old, new) = (known(0, START_MS - 10 * 3_600_000, 3), known(0, START_MS, 4));
    run(async {
        engine.send(&[write(b"k", &old), write(b"k", &new)]).await.expect("it takes them");
        assert_eq!(tables(), "2");
        engine.claim("a", "one", &|_| false, minute).await.expect("it answers");
        assert_eq!(tables(), "2");
        server.succeed("UPDATE lately.partition SET keep_until_ms = 0 WHERE number = (SELECT min(number) FROM lately.partition)");
        engine.claim("a", "one", &|_| false, minute).await.expect("it answers");
        assert_eq!(tables(), "1");
        let blocks = [&old, &new].map(|known| Block::of(b"k", LEVELS, known.cell));
        assert_eq!(engine.read(&blocks).await.expect("it answers"), [vec![], vec![new.clone()]]);
        // Another node may have dropped the partition that a late count is for.
        server.succeed("UPDATE lately.partition SET keep_until_ms = 0");
        let mut other = Postgres::new(&[server.url()]).expect("a URL");
        other.claim("b", "two", &|_| false, minute).await.expect("it answers");
        assert_eq!(tables(), "0");
        let life = engine.life();
        engine.send(&[write(b"k", &new)]).await.expect_err("it is missing");
        assert!(engine.life() > life);
        engine.send(&[write(b"k", &new)]).await.expect("it is created again");
        assert_eq!(tables(), "1");
    });
}

#[test]
fn a_server_that_is_back_is_used_again() {
    let Some(programs) = PostgresPrograms::find() else { return };
    let mut server = PostgresServer::start(&programs);
    let mut engine = engine(&server);
    let known = known(0, START_MS, 3);
    let write = write(b"k", &known);
    run(async {
        engine.send(std::slice::from_ref(&write)).await.expect("it is there");
        let life = engine.life();
        server.kill();
        let failed = engine.send(std::slice::from_ref(&write)).await.expect_err("it is gone");
        assert!(matches!(failed, EngineError::Away(_)), "{failed}");
        assert!(engine.life() > life);
        server.restart();
        engine.send(std::slice::from_ref(&write)).await.expect("it is back");
        assert_eq!(engine.read(&[write.block]).await.expect("it is back"), [vec![known.clone()]]);
    });
}

#[test]
fn a_standby_takes_over() {
    let Some(programs) = PostgresPrograms::find() else { return };
    let mut server = PostgresServer::start(&programs);
    let standby = server.standby();
    // The standby first: it takes no writes yet.
    let mut engine = Postgres::new(&[standby.url(), server.url()]).expect("URLs");
    let counts: Vec<_> = (1..=50).map(|hits| known(0, START_MS, hits)).collect();
    run(async {
        for known in &counts[..25] {
            engine.send(&[write(b"k", known)]).await.expect("it takes it");
        }
        let life = engine.life();
        server.kill();
        standby.promote();
        for known in &counts[25..] {
            while engine.send(&[write(b"k", known)]).await.is_err() {}
        }
        assert!(engine.life() > life, "what was sent may be lost");
        let last = &counts[49];
        let told = engine.read(&[Block::of(b"k", LEVELS, last.cell)]).await.expect("it answers");
        assert_eq!(told, [vec![last.clone()]]);
    });
}

#[test]
fn a_missing_permission_is_named() {
    let Some(programs) = PostgresPrograms::find() else { return };
    let server = PostgresServer::start(&programs);
    server.succeed("CREATE USER web");
    let url = server.url().replace("lately@", "web@");
    let refused = |expected: &str| {
        let mut engine = Postgres::new(&[&url]).expect("a URL");
        let known = known(0, START_MS, 3);
        let failed = run(engine.send(&[write(b"k", &known)])).expect_err("it may not");
        assert_eq!(failed.to_string().replace(&server.address().to_string(), "HOST"), expected);
    };
    refused(
        "user 'web' may not use the database counts on HOST/counts: GRANT CREATE ON DATABASE \"counts\" TO \"web\"",
    );
    server.succeed("GRANT CREATE ON DATABASE counts TO web");
    let mut engine = Postgres::new(&[&url]).expect("a URL");
    let known = known(0, START_MS, 3);
    run(engine.send(&[write(b"k", &known)])).expect("it may now");
    server.succeed("CREATE USER other");
    let mut engine = Postgres::new(&[url.replace("web@", "other@")]).expect("a URL");
    let failed = run(engine.send(&[write(b"k", &known)])).expect_err("it may not");
    assert!(failed.to_string().starts_with("user 'other' may not use the schema lately"), "{failed}");
    let mut engine = Postgres::new(&[url.replace("web@", "nobody@")]).expect("a URL");
    let failed = run(engine.read(&[write(b"k", &known).block])).expect_err("there is none");
    assert!(matches!(failed, EngineError::Login { .. }), "{failed}");
}

/// Hits are in cells of all widths, and each is once in the view.
#[test]
fn views_have_each_hit_once() {
    let Some(programs) = PostgresPrograms::find() else { return };
    let server = PostgresServer::start(&programs);
    let mut engine = engine(&server);
    let wide = |by: usize, start_ms: i64, counted: u64| lately_engines::Known {
        cell: lately::Cell::of(start_ms, 60_000),
        ..known(by, start_ms, counted)
    };
    let mut deleted = known(1, START_MS + 1_000, 9);
    (deleted.tally.deleted, deleted.removed) = (2, 2);
    let counts = [
        known(0, START_MS, 3),
        known(0, START_MS + 1_000, 4),
        // Not all hits are in the wide cell yet.
        wide(0, START_MS, 5),
        deleted,
        // Only the wide cell is kept still.
        wide(0, START_MS - 60_000, 6),
    ];
    let keep_until = Timestamp::from_millis(START_MS + 1_000_000_000).expect("a time");
    let writes: Vec<Write<'_>> = counts
        .iter()
        .map(|known| Write {
            block: Block::of(b"login:\xc3\xa4", LEVELS, known.cell),
            keep_until,
            counts: vec![known],
        })
        .collect();
    run(engine.send(&writes)).expect("it takes them");
    assert_eq!(
        server
            .rows("SELECT key, minute AT TIME ZONE 'UTC', hits FROM lately.hits_per_minute ORDER BY minute"),
        "login:\u{e4}|2099-12-31 23:59:00|6\nlogin:\u{e4}|2100-01-01 00:00:00|14"
    );
    assert_eq!(server.rows("SELECT sum(hits) FROM lately.hits_per_hour"), "20");
}
