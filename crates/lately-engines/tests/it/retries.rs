//! The client repeats nothing by itself. A write that failed may have been applied, so whoever sent it decides.

use lately_engines::{Engine, EngineError, Redis};

use crate::faults::Faulty;
use crate::{START_MS, known, run, write};

fn check(is_cluster: bool) {
    let server = Faulty::start(is_cluster);
    let mut engine = Redis::new(&[format!("redis://{}", server.address)]).expect("a URL");
    let known = known(0, START_MS, 3);
    let write = write(b"k", &known);
    run(async {
        let mut lives = Vec::new();
        for attempts in 1..4 {
            let error = engine.send(std::slice::from_ref(&write)).await.expect_err("it hangs up");
            assert!(matches!(error, EngineError::Away(_)), "{error}");
            assert_eq!(server.seen(), (attempts, attempts), "connections and writes");
            lives.push(engine.life());
        }
        lives.dedup();
        assert_eq!(lives.len(), 3, "each lost connection begins another life");
    });
}

#[test]
fn a_write_that_failed_is_not_repeated() {
    check(false);
}

#[test]
fn a_write_to_a_cluster_that_failed_is_not_repeated() {
    check(true);
}
