//! Data centres whose engines are not one plain server: a Redis Cluster, a master that Sentinels name, and servers over TLS with
//! users. Each test ends with the exact counts on every node.

use test_support::{Certificates, RedisCluster, RedisProgram, RedisSentinel, RedisServer};

use crate::common::has;
use crate::data_centres::{all_have, all_say, hit_all};
use crate::running::{Running, becomes, serve_with};

/// A node of a data centre.
fn node(name: &str, local: &[String], global: &[String]) -> Running {
    let local = local.iter().flat_map(|url| ["--cluster", url]);
    let global = global.iter().flat_map(|url| ["--upstream", url]);
    serve_with(&local.chain(global).chain(["--node", name]).collect::<Vec<_>>())
}

/// Whether each node reaches both of its engines and all is sent, asked until it is so.
fn all_sent(nodes: &[Running]) -> bool {
    let fields =
        ["lately_engine_ok", "lately_unsent_keys", "lately_upstream_ok", "lately_upstream_waiting_blocks"];
    nodes.iter().all(|node| becomes(|| node.infos(fields) == ["1", "0", "1", "0"]))
}

/// Whether a key that is deleted in one data centre is deleted in all.
fn deletes(nodes: &[Running]) -> bool {
    nodes.iter().for_each(|node| _ = node.ask::<u64>("HIT deleted 5"));
    let hits = 5 * nodes.len() as u64;
    let is_counted = all_say(nodes, "HITS deleted 7d", hits);
    nodes[0].ask::<u64>("DEL deleted");
    is_counted && all_say(nodes, "HITS deleted 7d", 0)
}

#[test]
fn data_centres_count_together_on_redis_clusters() {
    let Some(program) = RedisProgram::redis() else { return };
    let [mut global, mut local] = [(); 2].map(|()| RedisCluster::start(&program));
    let other = RedisServer::start();
    let start = |name, local: &[String]| node(name, local, &global.urls());
    let nodes = [start("eu-1", &local.urls()), start("eu-2", &local.urls()), start("us-1", &[other.url()])];
    nodes.iter().for_each(hit_all);
    assert!(all_have(&nodes, 3));
    assert!(deletes(&nodes));
    // A master of the engine that all share is killed, and its replica lacks its last writes.
    global.replica(0).signal("STOP");
    global.master(0).succeed("CLIENT KILL TYPE replica");
    nodes.iter().for_each(hit_all);
    assert!(all_have(&nodes, 6));
    global.kill_master(0);
    global.replica(0).signal("CONT");
    nodes.iter().for_each(hit_all);
    assert!(all_have(&nodes, 9));
    // The same in a data centre.
    local.replica(1).signal("STOP");
    local.master(1).succeed("CLIENT KILL TYPE replica");
    nodes.iter().for_each(hit_all);
    assert!(all_have(&nodes, 12));
    local.kill_master(1);
    local.replica(1).signal("CONT");
    nodes.iter().for_each(hit_all);
    assert!(all_have(&nodes, 15));
    assert!(all_sent(&nodes));
    // A node that starts later has nothing but what the engines have.
    let late = [node("us-2", &[other.url()], &[global.urls().swap_remove(1)])];
    assert!(all_have(&late, 15));
}

#[test]
fn data_centres_count_together_on_masters_that_sentinels_name() {
    let Some(program) = RedisProgram::redis() else { return };
    let [mut global, mut local] = [(); 2].map(|()| RedisSentinel::start(&program));
    let other = RedisServer::start();
    let start = |name, local: String| node(name, &[local], &[global.url()]);
    let nodes = [start("eu-1", local.url()), start("us-1", other.url()), start("us-2", other.url())];
    nodes.iter().for_each(hit_all);
    assert!(all_have(&nodes, 3));
    assert!(deletes(&nodes));
    for (servers, rounds) in [(&mut global, 3), (&mut local, 9)] {
        servers.replica().signal("STOP");
        servers.master().succeed("CLIENT KILL TYPE replica");
        nodes.iter().for_each(hit_all);
        assert!(all_have(&nodes, rounds + 3));
        servers.kill_master();
        servers.replica().signal("CONT");
        nodes.iter().for_each(hit_all);
        assert!(all_have(&nodes, rounds + 6));
    }
    assert!(all_sent(&nodes));
    let late = [node("us-3", &[other.url()], &[global.url()])];
    assert!(all_have(&late, 15));
}

/// The permissions that the guide names.
const USER: [&str; 18] = [
    "--user",
    "lately",
    "on",
    ">p@ss",
    "~lately:*",
    "+zadd",
    "+zrange",
    "+pexpireat",
    "+pexpire",
    "+set",
    "+get",
    "+hset",
    "+hdel",
    "+hgetall",
    "+sadd",
    "+spop",
    "+scard",
    "+scan",
];

#[test]
fn data_centres_count_together_over_tls_with_users() {
    let (Some(program), true) = (RedisProgram::redis(), has("openssl")) else { return };
    let certificates = Certificates::make();
    let file = |name| certificates.file(name).to_string_lossy().into_owned();
    let more = [&["--tls-auth-clients", "yes", "--user", "default", "off"][..], &USER].concat();
    let start = || RedisServer::start_tls(&program, &certificates, &more);
    let url = |server: &RedisServer| {
        let (authority, certificate, key) = (file("ca.pem"), file("cert.pem"), file("key.pem"));
        let address = server.address();
        vec![format!("rediss://lately:p%40ss@{address}?ca={authority}&cert={certificate}&key={key}")]
    };
    let (mut global, mut local) = (start(), [start(), start()]);
    let nodes = [(0, "eu-1"), (0, "eu-2"), (1, "us-1")]
        .map(|(centre, name)| node(name, &url(&local[centre]), &url(&global)));
    nodes.iter().for_each(hit_all);
    assert!(all_have(&nodes, 3));
    assert!(deletes(&nodes));
    // All come back empty.
    global.kill();
    local.iter_mut().for_each(RedisServer::kill);
    nodes.iter().for_each(hit_all);
    assert!(nodes.iter().all(|node| becomes(|| node.info("lately_upstream_ok") == "0")));
    local.iter_mut().for_each(RedisServer::restart);
    global.restart();
    assert!(all_have(&nodes, 6));
    assert!(all_sent(&nodes));
    let late = [node("us-2", &url(&local[1]), &url(&global))];
    assert!(all_have(&late, 6));
    let shown: String = late[0].ask("INFO");
    assert!(!shown.contains("p@ss") && !shown.contains("p%40ss"), "{shown}");
}
