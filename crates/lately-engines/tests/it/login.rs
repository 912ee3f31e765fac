//! TLS, users, and servers that refuse.

use std::time::Duration;

use lately_engines::{Engine, EngineError, List, Redis};
use test_support::{Certificates, RedisCluster, RedisProgram, RedisServer, has, until};

use crate::{START_MS, check, known, run, write};

/// What a node does, until something fails.
async fn work(engine: &mut Redis) -> Result<(), EngineError> {
    let known = known(0, START_MS, 3);
    let write = write(b"k", &known);
    engine.claim("a", "one", &|_| false, Duration::from_secs(60)).await?;
    engine.send(std::slice::from_ref(&write)).await?;
    engine.read(&[write.block]).await?;
    engine.set_text(List::Nodes, "a", Some("status"), Duration::from_secs(60)).await?;
    engine.texts(List::Nodes).await?;
    engine.set_text(List::Nodes, "a", None, Duration::from_secs(60)).await
}

fn error(url: &str) -> EngineError {
    run(work(&mut Redis::new(&[url]).expect("a URL"))).expect_err("it is refused")
}

/// The permissions that the guide names.
const PERMISSIONS: &str = "~lately:* +zadd +zrange +pexpireat +pexpire +set +get +hset +hdel +hgetall";
const OF_A_CLUSTER: &str = "+cluster|slots +asking";
const WITH_AN_UPSTREAM: &str = "+sadd +spop +scard +scan";

#[test]
fn a_user_needs_few_permissions() {
    let Some(program) = RedisProgram::redis() else { return };
    let server = RedisServer::start_program(&program, &[]);
    server.succeed(&format!("ACL SETUSER lately on >p@ss {PERMISSIONS} {WITH_AN_UPSTREAM}"));
    let address = server.address();
    run(check(Redis::new(&[format!("redis://lately:p%40ss@{address}")]).expect("a URL")));
    assert_eq!(server.command("ACL LOG"), "*0\r\n");
}

#[test]
fn a_user_of_a_cluster_needs_few_permissions() {
    let Some(program) = RedisProgram::redis() else { return };
    let cluster = RedisCluster::start(&program);
    for third in 0..3 {
        for server in [cluster.master(third), cluster.replica(third)] {
            server.succeed(&format!(
                "ACL SETUSER lately on >pw {PERMISSIONS} {WITH_AN_UPSTREAM} {OF_A_CLUSTER}"
            ));
        }
    }
    let urls =
        cluster.urls().iter().map(|url| url.replace("redis://", "redis://lately:pw@")).collect::<Vec<_>>();
    run(check(Redis::new(&urls).expect("URLs")));
    // A slot is on its way, so a new block takes ASKING.
    let slot = 12_182;
    let from = RedisCluster::third_of(slot);
    cluster.begin_move(slot, from, (from + 1) % 3);
    let known = known(0, START_MS, 3);
    let master = cluster.master((from + 1) % 3);
    let error = run(async {
        let mut engine = Redis::new(&urls).expect("URLs");
        engine.send(&[write(b"foo", &known)]).await.expect("it may");
        master.succeed("ACL SETUSER lately -asking");
        engine.send(&[write(b"foo", &known)]).await.expect_err("it may not").to_string()
    });
    let expected =
        format!("user 'lately' may not run ASKING on {}: ACL SETUSER lately +asking", master.address());
    assert_eq!(error, expected);
    cluster.master(0).succeed("ACL SETUSER lately -cluster|slots");
    let url = cluster.master(0).url().replace("redis://", "redis://lately:pw@");
    let error = run(work(&mut Redis::new(&[url]).expect("a URL"))).expect_err("it may not").to_string();
    assert!(error.starts_with("user 'lately' may not run CLUSTER SLOTS on "), "{error}");
    assert!(error.ends_with(": ACL SETUSER lately +cluster|slots"), "{error}");
}

#[test]
fn a_missing_permission_is_named() {
    let Some(program) = RedisProgram::redis() else { return };
    let server = RedisServer::start_program(&program, &[]);
    let address = server.address();
    for missing in ["zadd", "zrange", "pexpireat", "pexpire", "set", "get", "hset", "hdel", "hgetall"] {
        server.succeed("FLUSHALL");
        server.succeed(&format!("ACL SETUSER lately reset on >secret {PERMISSIONS} -{missing}"));
        let error = error(&format!("redis://lately:secret@{address}"));
        assert!(matches!(error, EngineError::Permission { .. }), "{error}");
        let name = missing.to_uppercase();
        let expected =
            format!("user 'lately' may not run {name} on {address}: ACL SETUSER lately +{missing}");
        assert_eq!(error.to_string(), expected);
    }
    server.succeed(&format!("ACL SETUSER lately resetkeys ~lately:node:* {}", "+@all"));
    let error = error(&format!("redis://lately:secret@{address}")).to_string();
    let expected =
        format!("user 'lately' may not use the keys of ZADD on {address}: ACL SETUSER lately ~lately:*");
    assert_eq!(error, expected);
}

#[test]
fn a_wrong_password_is_named_and_not_shown() {
    let Some(program) = RedisProgram::redis() else { return };
    let server = RedisServer::start_program(&program, &["--requirepass", "right"]);
    let address = server.address();
    let check = |login: &str, expected: &str| {
        let error = error(&format!("redis://{login}{address}"));
        assert!(matches!(error, EngineError::Login { .. }), "{error}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("{address} refuses user {expected}")), "{text}");
        assert!(!text.contains("secret") && !format!("{error:?}").contains("secret"), "{error:?}");
    };
    check("", "'default': it wants a password");
    check(":secret@", "'default': the user or the password is wrong");
    check("me:secret@", "'me': the user or the password is wrong");
    let open = RedisServer::start_program(&program, &[]);
    let error = error(&format!("redis://:secret@{}", open.address()));
    assert!(matches!(error, EngineError::Login { .. }), "{error}");
    assert!(error.to_string().ends_with("or the server wants none"), "{error}");
    assert!(run(work(&mut Redis::new(&[format!("redis://:right@{address}")]).expect("a URL"))).is_ok());
}

#[test]
fn a_server_that_takes_no_writes_is_named() {
    let Some(program) = RedisProgram::redis() else { return };
    let master = RedisServer::start_program(&program, &[]);
    let server = RedisServer::start_program(&program, &[]);
    let address = server.address();
    let replicate = format!("REPLICAOF 127.0.0.1 {}", master.address().port());
    type IsKind = fn(&EngineError) -> bool;
    let checks: [(&str, &str, IsKind, &str); 3] = [
        (
            "CONFIG SET maxmemory 1",
            "CONFIG SET maxmemory 0",
            |error| matches!(error, EngineError::Full { .. }),
            "is out of memory: raise its maxmemory",
        ),
        (
            "CONFIG SET min-replicas-to-write 1",
            "CONFIG SET min-replicas-to-write 0",
            |error| matches!(error, EngineError::TooFewReplicas { .. }),
            "takes no writes, because too few replicas follow it",
        ),
        (
            &replicate,
            "REPLICAOF NO ONE",
            |error| matches!(error, EngineError::ReadOnly { .. }),
            "is a replica and takes no writes",
        ),
    ];
    run(async {
        let mut engine = Redis::new(&[server.url()]).expect("a URL");
        for (set, unset, is_kind, expected) in checks {
            work(&mut engine).await.expect("it works");
            server.succeed(set);
            let error = work(&mut engine).await.expect_err(set);
            assert!(is_kind(&error), "{error:?}");
            assert_eq!(error.to_string(), format!("{address} {expected}"));
            server.succeed(unset);
            work(&mut engine).await.expect("it works again");
        }
        // It cannot save to a folder that is gone.
        std::fs::remove_dir(server.folder()).expect("it is empty");
        server.succeed("CONFIG SET save \"3600 1000000\"");
        server.succeed("BGSAVE");
        until("it has failed", || server.command("INFO persistence").contains("rdb_last_bgsave_status:err"));
        let error = work(&mut engine).await.expect_err("it cannot save");
        assert!(matches!(error, EngineError::Unsaved { .. }), "{error:?}");
        let expected = format!("{address} takes no writes, because it cannot save its data: see its log");
        assert_eq!(error.to_string(), expected);
    });
}

/// A server that was a replica for a moment has another's data.
#[test]
fn a_server_that_became_a_replica_begins_another_life() {
    let Some(program) = RedisProgram::redis() else { return };
    let master = RedisServer::start_program(&program, &[]);
    let server = RedisServer::start_program(&program, &[]);
    run(async {
        let mut engine = Redis::new(&[server.url()]).expect("a URL");
        work(&mut engine).await.expect("it works");
        let life = engine.life();
        server.succeed(&format!("REPLICAOF 127.0.0.1 {}", master.address().port()));
        work(&mut engine).await.expect_err("a replica");
        server.succeed("REPLICAOF NO ONE");
        work(&mut engine).await.expect("it works");
        assert_ne!(engine.life(), life);
    });
}

fn tls(program: &RedisProgram, certificates: &Certificates, clients: &str) -> RedisServer {
    RedisServer::start_tls(program, certificates, &["--tls-auth-clients", clients])
}

#[test]
fn redis_conforms_over_tls() {
    let (Some(program), true) = (RedisProgram::redis(), has("openssl")) else { return };
    let certificates = Certificates::make();
    let file = |name| certificates.file(name).to_string_lossy().into_owned();
    let (authority, certificate, key) = (file("ca.pem"), file("cert.pem"), file("key.pem"));
    let server = tls(&program, &certificates, "no");
    let port = server.address().port();
    let url = format!("rediss://127.0.0.1:{port}?ca={authority}");
    run(check(Redis::new(&[url]).expect("a URL")));
    // The certificate is checked: who signed it, and for which name.
    for (url, expected) in [
        (format!("rediss://127.0.0.1:{port}"), "certificate"),
        (format!("rediss://localhost:{port}?ca={authority}"), "certificate"),
        (format!("redis://127.0.0.1:{port}"), ""),
    ] {
        let error = error(&url);
        assert!(matches!(error, EngineError::Away(_)), "{url}: {error:?}");
        assert!(error.to_string().contains(expected), "{url}: {error}");
    }
    let server = tls(&program, &certificates, "yes");
    let port = server.address().port();
    let url = format!("rediss://127.0.0.1:{port}?ca={authority}");
    assert!(matches!(error(&url), EngineError::Away(_)));
    run(check(Redis::new(&[format!("{url}&cert={certificate}&key={key}")]).expect("a URL")));
    // A file that is none of certificates.
    let wrong =
        Redis::new(&[format!("{url}&cert={key}&key={certificate}")]).expect_err("swapped").to_string();
    assert!(wrong.contains("its files: "), "{wrong}");
}
