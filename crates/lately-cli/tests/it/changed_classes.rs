//! Hits are loaded into a class with other panes: after a change of the config, from a dump of a folder, and from a dump over
//! HTTP.

use std::fs;
use std::path::Path;

use crate::common::lately;
use crate::running::{Running, serve_in};

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn run(args: &[&str]) {
    let run = lately(args);
    assert_eq!(run.code, Some(0), "{args:?}: {}", run.err);
}

/// A server in a folder, with one class of this resolution for all keys.
fn serve_class(folder: &Path, resolution: &str) -> Running {
    let config = folder.with_extension("toml");
    let class = format!("[[class]]\nmatch = \"*\"\nresolution = \"{resolution}\"\n");
    fs::write(&config, class).expect("written");
    serve_in(folder, &["--config", text(&config)])
}

fn stop(server: Running) {
    server.signal("TERM");
    assert_eq!(server.ended().code, Some(0));
}

/// Hits of `hot` in each second of the last 400, and of `few` in three.
fn fill(server: &Running) -> u64 {
    let now: Vec<u64> = server.ask("TIME");
    for ago in (0..400).rev() {
        server.ask::<u64>(&format!("HIT hot 2 AT {}", now[0] - ago));
    }
    for ago in [90_000, 7_000, 3] {
        server.ask::<u64>(&format!("HIT few 5 AT {}", now[0] - ago));
    }
    now[0]
}

/// Checks counts and a limit, and then adds late hits. This must work with any panes.
fn assert_counts(server: &Running, filled: u64, hits: &mut u64) {
    let week: Vec<i64> = server.ask("HITS hot 7d BOUNDS");
    assert_eq!(week[..3], [800 + hits.cast_signed(); 3], "all hits of the week are known");
    let minutes: Vec<u64> = server.ask("HITS hot 100 BOUNDS");
    assert!(minutes[1] <= minutes[0] && minutes[0] <= minutes[2], "{minutes:?}");
    let few: Vec<u64> = server.ask("HITS few 1d 7d");
    assert_eq!(few, [10, 15]);
    // The window of the limit contains all the recent hits.
    let allowed = (0..10).filter(|_| server.ask::<Vec<i64>>("LIMIT hot 700 1h")[0] == 1).count();
    assert_eq!(allowed, 0, "800 hits came in the last hour");
    for late in 1..=40 {
        let answer: u64 = server.ask(&format!("HIT hot 1 AT {}", filled - late * 61));
        assert!(answer >= 1);
    }
    *hits += 40;
    let now: Vec<u64> = server.ask("TIME");
    assert!(server.ask::<u64>(&format!("HIT hot 1 AT {}", now[0])) >= 1);
    *hits += 1;
    assert_eq!(server.ask::<String>("BGSAVE"), "Background saving started");
}

/// Symptom: wrong counts, limits that allowed everything, checkpoints that could not be read. Cause: panes of one class
/// were taken for those of another. Fix: they are converted to the grid of the new class.
#[test]
fn hits_stay_right_in_classes_with_other_panes() {
    let root = tempfile::tempdir().expect("a folder");
    let (folder, dump) = (root.path().join("counts"), root.path().join("dump"));
    let server = serve_class(&folder, "1s");
    let (filled, mut hits) = (fill(&server), 0);
    stop(server);
    for (step, resolution) in ["1m", "10ms", "6h", "1s", "1ms", "5m"].into_iter().enumerate() {
        if step % 2 == 1 {
            // A dump of the folder is restored to another folder.
            run(&["dump", "--data", text(&folder), "--output", text(&dump)]);
            fs::remove_dir_all(&folder).expect("removed");
            run(&["restore", "--data", text(&folder), text(&dump)]);
        }
        let server = serve_class(&folder, resolution);
        assert_counts(&server, filled, &mut hits);
        // A dump of the server is restored to a server with the default class, which is then stopped and started.
        run(&["dump", "--server", &server.resp, "--output", text(&dump)]);
        let other = root.path().join(format!("other-{step}"));
        let copy = serve_in(&other, &[]);
        run(&["restore", "--server", &copy.resp, text(&dump)]);
        assert_counts(&copy, filled, &mut hits.clone());
        stop(copy);
        let copy = serve_in(&other, &[]);
        let week: Vec<u64> = copy.ask("HITS hot 7d BOUNDS");
        assert_eq!(week[..3], [800 + hits + 41; 3]);
        stop(copy);
        stop(server);
    }
}
