//! A Redis Cluster of six.

use std::cell::RefCell;
use std::process::{Command, Stdio};
use std::time::Instant;

use lately_engines::{Block, Engine, EngineError, Redis};
use test_support::{RedisCluster, RedisProgram, RedisServer, has, print_uncaptured};

use crate::node::{KEYS, Node};
use crate::{LEVELS, START_MS, check, known, run, write};

fn conforms(program: &RedisProgram) {
    let cluster = RedisCluster::start(program);
    run(check(Redis::new(&cluster.urls()).expect("URLs")));
    // One address is enough, that of a replica, too.
    run(check(Redis::new(&[cluster.replica(1).url()]).expect("a URL")));
}

#[test]
fn a_redis_cluster_conforms() {
    let Some(program) = RedisProgram::redis() else { return };
    conforms(&program);
}

#[test]
fn a_valkey_cluster_conforms() {
    let Some(program) = RedisProgram::valkey() else { return };
    conforms(&program);
}

/// A master dies, and its replica lacks writes that the master has acknowledged.
fn survives_a_failover(program: &RedisProgram) {
    let mut cluster = RedisCluster::start(program);
    let urls = cluster.urls();
    let mut node = Node::new(&urls);
    run(async {
        while !node.hit(0..KEYS).await {}
        cluster.replica(0).signal("STOP");
        cluster.master(0).succeed("CLIENT KILL TYPE replica");
        // Half of the keys are not hit again. Only what is sent again brings these back.
        for _ in 0..20 {
            assert!(node.hit(0..KEYS).await);
        }
        let life = node.engine.life();
        cluster.kill_master(0);
        cluster.replica(0).signal("CONT");
        assert!(!node.hit(0..KEYS / 2).await, "it is away");
        let mut failed = 1;
        while !node.hit(0..KEYS / 2).await {
            failed += 1;
        }
        assert_ne!(node.engine.life(), life, "after {failed} attempts");
        node.check(&urls).await;
    });
}

#[test]
fn counts_survive_the_failover_of_a_cluster() {
    let Some(program) = RedisProgram::redis() else { return };
    survives_a_failover(&program);
}

#[test]
fn counts_survive_the_failover_of_a_valkey_cluster() {
    let Some(program) = RedisProgram::valkey() else { return };
    survives_a_failover(&program);
}

#[test]
fn commands_follow_a_slot_that_moves() {
    let Some(program) = RedisProgram::redis() else { return };
    let cluster = RedisCluster::start(&program);
    let urls = cluster.urls();
    // `foo` has slot 12182, as the specification says.
    let (slot, key) = (12_182, b"foo");
    let from = RedisCluster::third_of(slot);
    let to = (from + 1) % 3;
    let mut engine = Redis::new(&urls).expect("URLs");
    let (old, new) = (known(0, START_MS, 3), known(0, START_MS + 3_600_000, 5));
    let blocks = [&old, &new].map(|known| Block::of(key, known.levels, known.cell));
    let writes = [&old, &new].map(|known| write(key, known));
    run(async {
        // All servers are connected, and the old block is there.
        engine.claim("a", "one", &|_| false, std::time::Duration::from_secs(60)).await.expect("it answers");
        engine.send(&writes[..1]).await.expect("it answers");
        let life = engine.life();
        cluster.begin_move(slot, from, to);
        engine.send(&writes).await.expect("the new block is made at the new owner");
        assert!(cluster.master(from).command(&format!("CLUSTER COUNTKEYSINSLOT {slot}")).starts_with(":1\r"));
        assert!(cluster.master(to).command(&format!("CLUSTER COUNTKEYSINSLOT {slot}")).starts_with(":1\r"));
        let expected = [vec![old.clone()], vec![new.clone()]];
        assert_eq!(engine.read(&blocks).await.expect("it answers"), expected);
        cluster.move_names(slot, from, to);
        engine.send(&writes).await.expect("both are at the new owner");
        assert_eq!(engine.read(&blocks).await.expect("it answers"), expected);
        cluster.end_move(slot, from, to);
        assert_eq!(engine.read(&blocks).await.expect("it answers"), expected);
        engine.send(&writes).await.expect("it answers");
        assert_eq!(Redis::new(&urls).expect("URLs").read(&blocks).await.expect("it answers"), expected);
        assert_eq!(engine.life(), life, "a slot that moves loses nothing");
    });
}

/// The keys of a node that is busy while slots move.
const BUSY_KEYS: usize = 5_000;

/// Sends counts of all keys of a busy node until slots of the first master have moved to the second. No write may fail. Prints how
/// many writes a second the engine took meanwhile.
#[expect(clippy::disallowed_methods, reason = "the rate is printed, and no check depends on it")]
async fn write_while_slots_move(
    cluster: &RedisCluster,
    begin: impl FnOnce(&str, &str),
    mut has_moved: impl FnMut() -> bool,
) {
    let urls = cluster.urls();
    let mut node = Node::with_keys(&urls, BUSY_KEYS);
    while !node.hit(0..BUSY_KEYS).await {}
    let id = |third| cluster.master(third).command("CLUSTER MYID").lines().nth(1).expect("an id").to_owned();
    let (life, begun, before) = (node.engine.life(), Instant::now(), node.writes);
    begin(&id(0), &id(1));
    loop {
        assert!(node.hit(0..BUSY_KEYS).await, "no command fails");
        if has_moved() {
            break;
        }
    }
    let (took, writes) = (begun.elapsed(), node.writes - before);
    let each_second = writes as f64 / took.as_secs_f64();
    print_uncaptured(&format!("{writes} writes in {took:.1?} while slots moved: {each_second:.0}/s"));
    assert!(node.hit(0..BUSY_KEYS).await);
    assert_eq!(node.engine.life(), life, "a slot that moves loses nothing");
    node.check(&urls).await;
}

#[test]
fn counts_survive_resharding() {
    let Some(program) = RedisProgram::redis() else { return };
    if !has("redis-cli") {
        return;
    }
    let cluster = RedisCluster::start(&program);
    let reshard = RefCell::new(None);
    let begin = |from: &str, to: &str| {
        let mut command = Command::new("redis-cli");
        command
            .args(["--cluster", "reshard", &cluster.master(0).address().to_string()])
            .args(["--cluster-from", from, "--cluster-to", to])
            .args(["--cluster-slots", "1500", "--cluster-yes"])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        reshard.replace(Some(command.spawn().expect("redis-cli")));
    };
    let has_moved = || {
        let ended = reshard.borrow_mut().as_mut().expect("it has begun").try_wait().expect("it runs");
        assert!(ended.is_none_or(|ended| ended.success()), "redis-cli: {ended:?}");
        ended.is_some()
    };
    run(write_while_slots_move(&cluster, begin, has_moved));
}

#[test]
fn counts_survive_the_slot_migration_of_valkey() {
    let Some(program) = RedisProgram::valkey() else { return };
    let cluster = RedisCluster::start(&program);
    let begin = |_: &str, to: &str| {
        cluster.master(0).succeed(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 3000 NODE {to}"));
    };
    let has_moved = || cluster.master(0).command("CLUSTER SLOTS").contains(":3001\r");
    run(write_while_slots_move(&cluster, begin, has_moved));
}

#[test]
fn a_cluster_without_some_slots_is_named() {
    let Some(program) = RedisProgram::redis() else { return };
    let arguments = ["--cluster-enabled", "yes", "--cluster-port", "{other}"];
    let server = RedisServer::start_program(&program, &arguments);
    let mut engine = Redis::new(&[server.url()]).expect("a URL");
    let known = known(0, START_MS, 3);
    // Slot 12182.
    let write = write(b"foo", &known);
    run(async {
        let error = engine.send(std::slice::from_ref(&write)).await.expect_err("no slots");
        assert!(matches!(error, EngineError::ClusterDown(_)), "{error}");
        assert!(error.to_string().ends_with("slot 12182 has no server"), "{error}");
        server.succeed("CLUSTER ADDSLOTSRANGE 0 16383");
        while engine.send(std::slice::from_ref(&write)).await.is_err() {}
        server.succeed("CLUSTER DELSLOTS 5");
        test_support::until("the cluster is down", || {
            server.command("CLUSTER INFO").contains("cluster_state:fail")
        });
        let error = engine.send(std::slice::from_ref(&write)).await.expect_err("not all slots");
        assert!(matches!(error, EngineError::ClusterDown(_)), "{error}");
        assert!(error.to_string().contains(&server.address().to_string()), "{error}");
    });
}

#[test]
fn servers_that_are_no_cluster_are_named() {
    let Some(program) = RedisProgram::redis() else { return };
    let servers = [(); 2].map(|()| RedisServer::start_program(&program, &[]));
    let mut engine = Redis::new(&servers.each_ref().map(RedisServer::url)).expect("URLs");
    let block = Block { key: b"k", levels: LEVELS, width_ms: 1_000, number: 1 };
    let error = run(engine.read(&[block])).expect_err("no cluster").to_string();
    assert!(
        error.ends_with("answered: it is no part of a Redis Cluster, so give its address alone"),
        "{error}"
    );
}
