//! Refunds on a key with many panes take no memory.

use crate::flood::pour;
use crate::restores::peak_bytes;
use crate::running::serve_with;

const PANES: u64 = 300_000;
const REFUNDS: u64 = 32;
/// A copy of the key's panes in the form in which they are written to a checkpoint takes eight times this.
const MOST_BYTES: u64 = 2 << 20;

/// Symptom: refunds on a key with 900,000 panes took 48 MiB of memory, which was not charged to the ceiling, and 230 ms
/// each. Cause: a refund made a list of all panes, and the key from the list again. Fix: it changes the newest panes only.
#[test]
fn refunds_on_a_long_key_take_no_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lately.toml");
    let class = "[[class]]\nmatch = \"long\"\nresolution = \"1ms\"\nexact = \"16m\"\nwindow = \"15m\"\nretain = \"1h\"\n";
    std::fs::write(&config, class).expect("a file");
    let server = serve_with(&["--config", config.to_str().expect("text")]);
    let first_ms = server.ask::<Vec<u64>>("TIME")[0] * 1_000 - PANES;
    let hit = |ms: u64| format!("HIT long 1 AT {}.{:03}\r\n", ms / 1_000, ms % 1_000);
    pour(&server, (first_ms..first_ms + PANES).map(hit));
    let used = |command: &str| 1_000_000 - server.ask::<Vec<i64>>(command)[2];
    assert_eq!(used("LIMIT long 1000000 30m COST 0"), 300_000);
    // The first turns the ring of a hot key into panes.
    assert_eq!(used("LIMIT long 1000000 30m"), 300_001);
    let before = peak_bytes(&server);
    for left in (300_001 - REFUNDS.cast_signed()..300_001).rev() {
        assert_eq!(used("LIMIT long 1000000 30m COST -1"), left);
    }
    let grown = peak_bytes(&server) - before;
    assert!(grown <= MOST_BYTES, "{grown} bytes");
    assert_eq!(server.ask::<u64>("HITS long 1h"), 300_001 - REFUNDS);
    assert_eq!(used("LIMIT long 1000000 30m COST -200000"), 100_001 - REFUNDS.cast_signed());
    assert_eq!(server.ask::<u64>("HITS long 1h"), 100_001 - REFUNDS);
}
