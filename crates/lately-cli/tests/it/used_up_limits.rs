//! Limits that are used up stay used up after a start.

use std::fs;

use crate::running::{Running, serve_in};

const KEYS: u32 = 100;

fn run(server: &Running, commands: impl Iterator<Item = String>) -> Vec<Vec<i64>> {
    let mut pipeline = redis::pipe();
    for command in commands {
        let mut words = command.split(' ');
        let command = pipeline.cmd(words.next().expect("a command"));
        words.for_each(|word| _ = command.arg(word));
    }
    pipeline.query(&mut server.connect()).expect("answers")
}

fn limits(key: u32) -> String {
    format!("LIMIT limited:{key} 2 1h")
}

fn throttles(key: u32) -> String {
    format!("CL.THROTTLE throttled:{key} 1 2 3600")
}

/// Symptom: after a start, a flood of new keys reopened all limits that had been used up. Cause: the eviction guards of their
/// keys were not saved.
#[test]
fn a_flood_after_a_kill_reopens_no_limit() {
    let root = tempfile::tempdir().expect("a folder");
    let (folder, config) = (root.path().join("counts"), root.path().join("lately.toml"));
    fs::write(&config, "[memory]\nceiling = \"4MiB\"\n").expect("written");
    let args = ["--config", config.to_str().expect("text")];
    let server = serve_in(&folder, &args);
    for _ in 0..2 {
        let limited = run(&server, (0..KEYS).map(limits));
        assert!(limited.iter().all(|reply| reply[0] == 1), "{limited:?}");
        let throttled = run(&server, (0..KEYS).map(throttles));
        assert!(throttled.iter().all(|reply| reply[0] == 0), "{throttled:?}");
    }
    server.signal("KILL");
    drop(server);
    let server = serve_in(&folder, &args);
    for first in (0..100_000).step_by(2_000) {
        let mut command = redis::cmd("MHIT");
        (first..first + 2_000).for_each(|key| _ = command.arg(format!("flood:{key}")).arg(1));
        let counted: Vec<u64> = command.query(&mut server.connect()).expect("counted");
        assert_eq!(counted.len(), 2_000);
    }
    assert_ne!(server.info("evicted_keys"), "0");
    assert!(run(&server, (0..KEYS).map(limits)).iter().all(|reply| reply[0] == 0));
    assert!(run(&server, (0..KEYS).map(throttles)).iter().all(|reply| reply[0] == 1));
}
