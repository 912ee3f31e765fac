//! One server.

use std::time::Duration;

use lately_engines::{Block, Engine, EngineError, List, Redis};
use test_support::{RedisProgram, RedisServer};

use crate::{LEVELS, START_MS, check, known, run, write};

#[test]
fn redis_conforms() {
    let Some(program) = RedisProgram::redis() else { return };
    let server = RedisServer::start_program(&program, &[]);
    run(check(Redis::new(&[server.url()]).expect("a URL")));
}

#[test]
fn valkey_conforms() {
    let Some(program) = RedisProgram::valkey() else { return };
    let server = RedisServer::start_program(&program, &[]);
    run(check(Redis::new(&[server.url()]).expect("a URL")));
}

#[test]
fn a_claim_ends_unless_it_is_renewed() {
    let Some(program) = RedisProgram::redis() else { return };
    let server = RedisServer::start_program(&program, &[]);
    let mut engine = Redis::new(&[server.url()]).expect("a URL");
    run(async {
        assert_eq!(
            engine.claim("a", "one", &|_| false, Duration::from_secs(60)).await.expect("it answers"),
            None
        );
        assert!(server.command("PEXPIRE lately:node:a 1").starts_with(":1"));
        while engine
            .claim("a", "two", &|_| false, Duration::from_secs(60))
            .await
            .expect("it answers")
            .is_some()
        {}
        let held = engine.claim("a", "one", &|_| false, Duration::from_secs(60)).await.expect("it answers");
        assert_eq!(held.as_deref(), Some("two"));
    });
}

#[test]
fn the_list_of_nodes_ends_unless_it_is_renewed() {
    let Some(program) = RedisProgram::redis() else { return };
    let server = RedisServer::start_program(&program, &[]);
    let mut engine = Redis::new(&[server.url()]).expect("a URL");
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
    run(async {
        assert_eq!(engine.texts(List::Nodes).await.expect("it answers"), []);
        engine.set_text(List::Nodes, "a", Some("1"), hour).await.expect("it takes it");
        engine.set_text(List::Nodes, "b", Some("2"), minute).await.expect("it takes it");
        let left_ms: u64 = server.command("PTTL lately:nodes").trim()[1..].parse().expect("a number");
        assert!((1..=60_000).contains(&left_ms), "{left_ms}");
        engine.set_text(List::Nodes, "a", None, minute).await.expect("it takes it");
        engine.set_text(List::Nodes, "b", None, minute).await.expect("it takes it");
        assert!(server.command("EXISTS lately:nodes").starts_with(":0"));
    });
}

#[test]
fn a_server_that_is_back_is_used_again() {
    let Some(program) = RedisProgram::redis() else { return };
    let mut server = RedisServer::start_program(&program, &[]);
    let mut engine = Redis::new(&[server.url()]).expect("a URL");
    let known = known(0, START_MS, 3);
    let write = write(b"k", &known);
    run(async {
        engine.send(std::slice::from_ref(&write)).await.expect("it is there");
        server.kill();
        let failed = engine.send(std::slice::from_ref(&write)).await.expect_err("it is gone");
        assert!(matches!(failed, EngineError::Away(_)), "{failed}");
        // Nothing is tried again behind our back: a second call fails as well, at once.
        assert!(engine.read(&[write.block]).await.is_err());
        server.restart();
        assert_eq!(engine.read(&[write.block]).await.expect("it is back"), [vec![]]);
        engine.send(std::slice::from_ref(&write)).await.expect("it is back");
        assert_eq!(engine.read(&[write.block]).await.expect("it is back")[0].len(), 1);
    });
}

#[test]
fn what_no_node_wrote_is_left_out_and_named() {
    let Some(program) = RedisProgram::redis() else { return };
    let server = RedisServer::start_program(&program, &[]);
    let mut engine = Redis::new(&[server.url()]).expect("a URL");
    let block = Block { key: b"k", levels: LEVELS, width_ms: 1_000, number: 1 };
    run(async {
        assert!(server.command("ZADD lately:7:1000:1:{k} 1.5 abc").starts_with(":1"));
        assert_eq!(engine.read(&[block]).await.expect("it is left out"), [vec![]]);
        let warning = engine.warning().expect("it is named");
        assert_eq!(warning, "'lately:7:1000:1:{k}' holds what no node wrote: abc with a score of 1.5");
        assert!(server.command("DEL lately:7:1000:1:{k}").starts_with(":1"));
        assert!(server.command("SET lately:7:1000:1:{k} x").starts_with("+OK"));
        let error = engine.read(&[block]).await.expect_err("it is not ours").to_string();
        assert!(error.contains("WRONGTYPE"), "{error}");
    });
}

/// The nodes have to send again what somebody deleted.
#[test]
fn a_flush_of_the_server_begins_another_life() {
    let Some(program) = RedisProgram::redis() else { return };
    let server = RedisServer::start_program(&program, &[]);
    let mut engine = Redis::new(&[server.url()]).expect("a URL");
    let minute = Duration::from_secs(60);
    run(async {
        engine.claim("a", "one", &|_| false, minute).await.expect("it answers");
        let life = engine.life();
        engine.claim("a", "one", &|_| false, minute).await.expect("it answers");
        assert_eq!(engine.life(), life);
        server.succeed("FLUSHALL");
        engine.claim("a", "one", &|_| false, minute).await.expect("it answers");
        assert_ne!(engine.life(), life);
    });
}

#[test]
fn a_block_that_is_written_again_has_its_time_to_live_again() {
    let Some(program) = RedisProgram::redis() else { return };
    let mut server = RedisServer::start_program(&program, &[]);
    let mut engine = Redis::new(&[server.url()]).expect("a URL");
    let known = known(0, START_MS, 3);
    let write = write(b"k", &known);
    let write = std::slice::from_ref(&write);
    let lasts = |server: &RedisServer| {
        let name = server.command("RANDOMKEY");
        let name = name.lines().nth(1).expect("it is there").to_owned();
        server.command(&format!("PEXPIRETIME {name}"))
    };
    let expected = format!(":{}\r\n", START_MS + 1_000_000_000);
    run(async {
        for _ in 0..3 {
            engine.send(write).await.expect("it is there");
            assert_eq!(lasts(&server), expected);
        }
        server.kill();
        server.restart();
        assert!(engine.send(write).await.is_err());
        engine.send(write).await.expect("it is back");
        assert_eq!(lasts(&server), expected);
    });
}
