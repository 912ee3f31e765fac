//! A master that Sentinels name.

use lately_engines::{Block, Engine, Redis};
use test_support::{RedisProgram, RedisSentinel, until};

use crate::node::{KEYS, Node};
use crate::{LEVELS, check, run};

#[test]
fn a_master_that_a_sentinel_names_conforms() {
    let Some(program) = RedisProgram::redis() else { return };
    let servers = RedisSentinel::start(&program);
    run(check(Redis::new(&[servers.url()]).expect("a URL")));
    assert!(servers.master().command("DBSIZE") != ":0\r\n");
}

#[test]
fn a_master_that_a_sentinel_of_valkey_names_conforms() {
    let Some(program) = RedisProgram::valkey() else { return };
    let servers = RedisSentinel::start(&program);
    run(check(Redis::new(&[servers.url()]).expect("a URL")));
}

/// The master dies, and its replica lacks writes that the master has acknowledged.
#[test]
fn counts_survive_the_failover_of_a_sentinel() {
    let Some(program) = RedisProgram::redis() else { return };
    let mut servers = RedisSentinel::start(&program);
    let urls = [servers.url()];
    let mut node = Node::new(&urls);
    run(async {
        while !node.hit(0..KEYS).await {}
        servers.replica().signal("STOP");
        servers.master().succeed("CLIENT KILL TYPE replica");
        for _ in 0..20 {
            assert!(node.hit(0..KEYS).await);
        }
        let life = node.engine.life();
        servers.kill_master();
        servers.replica().signal("CONT");
        assert!(!node.hit(0..KEYS / 2).await, "it is away");
        while !node.hit(0..KEYS / 2).await {}
        assert_ne!(node.engine.life(), life);
        node.check(&urls).await;
    });
}

/// Both servers live on, and the old master becomes a replica.
#[test]
fn a_planned_failover_begins_another_life() {
    let Some(program) = RedisProgram::redis() else { return };
    let servers = RedisSentinel::start(&program);
    let urls = [servers.url()];
    let mut node = Node::new(&urls);
    run(async {
        while !node.hit(0..KEYS).await {}
        let life = node.engine.life();
        until("the replica is known to follow", || {
            servers.sentinel().command("SENTINEL FAILOVER main").starts_with('+')
        });
        while node.engine.life() == life {
            node.hit(0..KEYS).await;
        }
        while !node.hit(0..KEYS).await {}
        assert!(servers.replica().command("ROLE").contains("master"));
        node.check(&urls).await;
    });
}

/// A master that lives on, out of sight of the Sentinels, is left when they name another.
#[test]
fn another_master_is_noticed_without_a_lost_connection() {
    let Some(program) = RedisProgram::redis() else { return };
    let servers = RedisSentinel::start(&program);
    let mut engine = Redis::new(&[servers.url()]).expect("a URL");
    let minute = std::time::Duration::from_secs(60);
    run(async {
        assert_eq!(engine.claim("a", "one", &|_| false, minute).await.expect("it answers"), None);
        let life = engine.life();
        servers.replica().succeed("REPLICAOF NO ONE");
        let port = servers.replica().address().port();
        servers.sentinel().succeed("SENTINEL REMOVE main");
        // The Sentinel is away or knows no master: the one that is known is used on.
        assert_eq!(engine.claim("a", "one", &|_| false, minute).await.expect("it answers"), None);
        assert_eq!(engine.life(), life);
        servers.sentinel().succeed(&format!("SENTINEL MONITOR main 127.0.0.1 {port} 1"));
        assert_eq!(engine.claim("a", "one", &|_| false, minute).await.expect("it answers"), None);
        assert_ne!(engine.life(), life);
        assert!(servers.replica().command("GET lately:node:a").contains("one"));
    });
}

#[test]
fn what_sentinels_do_not_know_is_named() {
    let Some(program) = RedisProgram::redis() else { return };
    let servers = RedisSentinel::start(&program);
    let block = Block { key: b"k", levels: LEVELS, width_ms: 1_000, number: 1 };
    let refused = |url: String| {
        run(Redis::new(&[url]).expect("a URL").read(&[block])).expect_err("it is wrong").to_string()
    };
    let address = servers.sentinel().address();
    let expected = format!("{address} answered: no master 'other' is known");
    assert_eq!(refused(format!("redis+sentinel://{address}/other")), expected);
    let expected = format!("{address} answered: it is a Sentinel: give redis+sentinel://HOST:PORT/MASTER");
    assert_eq!(refused(format!("redis://{address}")), expected);
    let master = servers.master().address();
    let error = refused(format!("redis+sentinel://{master}/main"));
    assert!(error.starts_with(&format!("{master} answered: ")) && error.contains("SENTINEL"), "{error}");
}
