//! Counts in a data folder: over stops, repairs and starts.

use std::io::Write;
use std::path::Path;

use crate::common::lately;
use crate::running::{FREE, Running, serve, serve_in, start};

fn stop(server: Running) -> String {
    server.signal("TERM");
    let run = server.ended();
    assert_eq!(run.code, Some(0), "{}", run.err);
    run.err
}

/// The newest segment of the log.
fn newest_log(folder: &Path) -> std::path::PathBuf {
    let names = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let logs =
        names.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log-")));
    logs.max().expect("a log")
}

#[test]
fn a_stop_keeps_everything() {
    let root = tempfile::tempdir().expect("a folder");
    for durability in ["interval", "always"] {
        let folder = root.path().join(durability);
        let more = ["--durability", durability];
        let server = serve_in(&folder, &more);
        let now: Vec<u64> = server.ask("TIME");
        assert_eq!(server.ask::<u64>("HIT k 5"), 5);
        assert_eq!(server.ask::<u64>(&format!("HIT k 2 AT {}", now[0] - 4_000)), 2);
        assert_eq!(server.ask::<Vec<u64>>("MHIT gone 1 other 3"), [1, 3]);
        assert_eq!(server.ask::<u64>("DEL gone"), 1);
        stop(server);
        let server = serve_in(&folder, &more);
        assert_eq!(server.ask::<Vec<u64>>("HITS k 5m 1d"), [5, 7]);
        assert_eq!(server.ask::<Vec<u64>>("MHITS 1d gone other"), [0, 3]);
        assert_eq!(server.ask::<String>("FLUSHALL"), "OK");
        assert_eq!(server.ask::<u64>("HIT new"), 1);
        stop(server);
        let server = serve_in(&folder, &more);
        assert_eq!(server.ask::<Vec<u64>>("MHITS 1d k other new"), [0, 0, 1]);
        assert_eq!(server.info("durability"), durability);
    }
}

/// With `always`, the counters also wait for the disk. When a client has its reply, the counters include its hits.
#[test]
fn counters_include_acknowledged_hits() {
    let root = tempfile::tempdir().expect("a folder");
    let config = root.path().join("lately.toml");
    std::fs::write(&config, "[[limit]]\nname = \"login\"\nmax = 1\nwindow = \"1d\"\n").expect("a file");
    let config = config.to_str().expect("text");
    for durability in ["interval", "always"] {
        let server =
            serve_in(&root.path().join(durability), &["--durability", durability, "--config", config]);
        let fields = ["total_hits", "denied_hits", "refused_hits", "limit_login"];
        for (request, expected) in [
            ("HIT k 5", ["5", "0", "0", "allowed=0,denied=0"]),
            ("MHIT a 1 b 2", ["8", "0", "0", "allowed=0,denied=0"]),
            ("LIMIT l @login", ["9", "0", "0", "allowed=1,denied=0"]),
            ("LIMIT l @login", ["9", "1", "0", "allowed=1,denied=1"]),
            ("LIMIT m 1 1d COST 2 LOCKOUT 1d", ["9", "3", "0", "allowed=1,denied=1"]),
            ("CL.THROTTLE t 5 1 60 3", ["12", "3", "0", "allowed=1,denied=1"]),
            ("CL.THROTTLE t 5 1 60 -1", ["12", "3", "0", "allowed=1,denied=1"]),
        ] {
            server.ask::<redis::Value>(request);
            let [hits, denied, refused, login] = server.infos(fields);
            let counters = [hits.as_str(), &denied, &refused];
            assert_eq!(counters, expected[..3], "{durability}: {request}");
            assert!(login.contains(expected[3]), "{durability}: {request}: {login}");
        }
        stop(server);
    }
}

#[test]
fn members_of_hits_are_kept() {
    let root = tempfile::tempdir().expect("a folder");
    let config = root.path().join("lately.toml");
    std::fs::write(&config, "[[class]]\nmatch = \"seen:*\"\nunique = true\n").expect("a file");
    let more = ["--config", config.to_str().expect("text")];
    let folder = root.path().join("data");
    let server = serve_in(&folder, &more);
    for member in 0..5_000 {
        server.ask::<u64>(&format!("HIT seen:many MEMBER {member}"));
    }
    assert_eq!(server.ask::<u64>("HIT seen:few MEMBER x"), 1);
    assert_eq!(server.ask::<u64>("HIT seen:gone MEMBER x"), 1);
    assert_eq!(server.ask::<u64>("DEL seen:gone"), 1);
    let many: u64 = server.ask("UNIQ seen:many 1d");
    assert!((4_800..5_200).contains(&many), "{many}");
    // From the log, then from a checkpoint.
    server.signal("KILL");
    drop(server);
    for few in [2, 3] {
        let server = serve_in(&folder, &more);
        assert_eq!(server.ask::<u64>("UNIQ seen:many 1d"), many);
        assert_eq!(server.ask::<u64>("UNIQ seen:gone 1d"), 0);
        let run = lately(&["hit", "seen:few", "--member", &few.to_string(), "--server", &server.resp]);
        assert_eq!(run.code, Some(0), "{}", run.err);
        assert_eq!(server.ask::<u64>("HIT seen:few MEMBER x"), 2 * few - 1);
        assert_eq!(server.ask::<u64>("UNIQ seen:few 1d"), few);
        stop(server);
    }
}

#[test]
fn ids_of_hits_are_kept() {
    let root = tempfile::tempdir().expect("a folder");
    let config = root.path().join("lately.toml");
    std::fs::write(&config, "[[class]]\nmatch = \"once:*\"\ndedupe = \"1d\"\n").expect("a file");
    let more = ["--config", config.to_str().expect("text")];
    let folder = root.path().join("data");
    let server = serve_in(&folder, &more);
    assert_eq!(server.ask::<u64>("HIT once:a ID 1"), 1);
    assert_eq!(server.ask::<u64>("HIT once:a ID 2"), 2);
    assert_eq!(server.ask::<u64>("HIT once:gone ID 1"), 1);
    assert_eq!(server.ask::<u64>("DEL once:gone"), 1);
    // From the log, then from a checkpoint.
    server.signal("KILL");
    drop(server);
    for kill in [true, false] {
        let server = serve_in(&folder, &more);
        assert_eq!(server.ask::<u64>("HIT once:a ID 1"), 2);
        let run = lately(&["hit", "once:a", "--id", "2", "--server", &server.resp]);
        assert_eq!((run.out.as_str(), run.code), ("2\n", Some(0)), "{}", run.err);
        if kill {
            assert_eq!(server.ask::<u64>("HIT once:gone ID 1"), 1);
        }
        assert_eq!(server.ask::<u64>("HIT once:gone ID 1"), 1);
        stop(server);
    }
}

#[test]
fn limits_and_lockouts_are_kept() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("data");
    let server = serve_in(&folder, &[]);
    let limit = |server: &Running, rest: &str| server.ask::<Vec<i64>>(&format!("LIMIT {rest}"));
    assert_eq!(limit(&server, "k 3 1d COST 2")[..3], [1, 3, 1]);
    assert_eq!(limit(&server, "l 1 1d")[..3], [1, 1, 0]);
    assert_eq!(limit(&server, "l 1 1d LOCKOUT 1d")[..3], [0, 1, 0]);
    server.signal("KILL");
    drop(server);
    let server = serve_in(&folder, &[]);
    assert_eq!(limit(&server, "k 3 1d PEEK")[..3], [1, 3, 1]);
    assert_eq!(limit(&server, "k 3 1d COST 2")[0], 0);
    // The window is short and has no hits any more, so it is the lockout that denies.
    let [allowed, _, remaining, retry_ms, _] = limit(&server, "l 1 1ms PEEK")[..] else {
        panic!("five integers")
    };
    assert_eq!((allowed, remaining), (0, 0));
    assert!(retry_ms > 86_000_000, "{retry_ms}");
}

#[test]
fn two_servers_cannot_share_a_folder() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("data");
    let server = serve_in(&folder, &[]);
    let run = lately(&[&FREE, &["--data", folder.to_str().expect("text")][..]].concat());
    assert_eq!((run.code, run.out.as_str()), (Some(2), ""));
    assert!(
        run.err.contains("data is in use by another process\nhint: two servers cannot share"),
        "{}",
        run.err
    );
    assert_eq!(server.ask::<u64>("HIT k"), 1);
}

#[test]
fn bgsave_and_lastsave() {
    let root = tempfile::tempdir().expect("a folder");
    let server = serve_in(&root.path().join("data"), &[]);
    let now: Vec<u64> = server.ask("TIME");
    assert_eq!(server.ask::<u64>("HIT k"), 1);
    assert_eq!(server.ask::<String>("BGSAVE"), "Background saving started");
    while server.info("rdb_saves") == "0" {}
    assert!(server.ask::<u64>("LASTSAVE") >= now[0]);
    server.signal("KILL");
    drop(server);
    assert_eq!(serve_in(&root.path().join("data"), &[]).ask::<u64>("HITS k"), 1);
    let memory = serve();
    let mut connection = memory.connect();
    let error = redis::cmd("BGSAVE").exec(&mut connection).expect_err("nothing to save to");
    assert!(error.to_string().contains("counts are in memory only"), "{error}");
}

#[test]
fn a_torn_end_is_cut_and_logged() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("data");
    let server = serve_in(&folder, &[]);
    assert_eq!(server.ask::<u64>("HIT k"), 1);
    server.signal("KILL");
    drop(server);
    let log = newest_log(&folder);
    let mut file = std::fs::OpenOptions::new().append(true).open(&log).expect("the log");
    file.write_all(b"the beginning of a record").expect("written");
    let server = serve_in(&folder, &[]);
    assert_eq!(server.ask::<u64>("HITS k"), 1);
    let messages = stop(server);
    assert!(
        messages.contains("ended in the middle of a record: 25 bytes were cut off at byte "),
        "{messages}"
    );
    let again = stop(serve_in(&folder, &[]));
    assert!(!again.contains("cut off"), "{again}");
}

#[test]
fn a_repair_keeps_the_undamaged_keys() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("data");
    let server = serve_in(&folder, &["--durability", "always"]);
    for key in ["first", "second", "third", "fourth"] {
        assert_eq!(server.ask::<u64>(&format!("HIT {key}")), 1);
    }
    stop(server);
    let log = newest_log(&folder);
    let mut bytes = std::fs::read(&log).expect("the log");
    let place = bytes.windows(6).rposition(|six| six == b"second").expect("the key");
    bytes[place] ^= 1;
    std::fs::write(&log, &bytes).expect("written");
    let data = folder.to_str().expect("text");
    let run = lately(&[&FREE, &["--data", data][..]].concat());
    assert_eq!((run.code, run.out.as_str()), (Some(2), ""));
    let (name, hint) = (log.display(), "start without what is lost: add --repair");
    assert!(
        run.err.contains(&format!("{name} is damaged at byte ")) && run.err.contains(hint),
        "{}",
        run.err
    );
    let copy = root.path().join("copy");
    std::fs::create_dir(&copy).expect("a folder");
    for file in std::fs::read_dir(&folder).expect("a folder").map(|file| file.expect("a file")) {
        std::fs::copy(file.path(), copy.join(file.file_name())).expect("a copy");
    }
    let messages = stop(serve_in(
        &copy,
        &["--repair", "--node", "a", "--cluster", "peer://127.0.0.1:1", "--peer", "127.0.0.1:0"],
    ));
    assert!(messages.contains("the other nodes may still count hits that are lost here"), "{messages}");
    let server = serve_in(&folder, &["--repair"]);
    assert_eq!(server.ask::<Vec<u64>>("MHITS 1d first second third fourth"), [1, 0, 1, 1]);
    assert_eq!(server.info("rdb_saves"), "1", "the folder is whole before the server is ready");
    let messages = stop(server);
    assert!(messages.contains("bytes were left out") && !messages.contains("other nodes"), "{messages}");
    let server = serve_in(&folder, &[]);
    assert_eq!(server.ask::<Vec<u64>>("MHITS 1d first second third fourth"), [1, 0, 1, 1]);
    assert!(server.get("/readyz").starts_with("HTTP/1.0 200 OK\r\n"));
}

#[test]
fn memory_of_the_journal_is_charged() {
    let root = tempfile::tempdir().expect("a folder");
    let server = serve_in(&root.path().join("data"), &[]);
    assert_eq!(server.ask::<u64>("HIT k"), 1);
    // The memory is sampled several times a second.
    while server.info("used_memory_journal") == "0" {}
    let number = |field: &str| server.info(field).parse::<u64>().expect("a number");
    assert!(number("used_memory_journal") < 1 << 20);
    assert!(number("used_memory") > number("used_memory_journal"));
}

/// The config file names a folder and turns durability off, and a flag turns it on: counts are kept in that folder.
#[test]
fn a_flag_for_durability_keeps_the_folder_of_the_file() {
    let root = tempfile::tempdir().expect("a folder");
    let [folder, config] = ["elsewhere", "lately.toml"].map(|name| root.path().join(name));
    let text = format!("[storage]\npath = {folder:?}\ndurability = \"off\"\n");
    std::fs::write(&config, text).expect("written");
    let config = config.to_str().expect("text");
    let server = start(&[&FREE, &["--config", config, "--durability", "always"][..]].concat());
    assert_eq!(server.ask::<u64>("HIT k"), 1);
    assert!(folder.is_dir());
}

#[test]
fn a_start_with_a_lower_ceiling_keeps_to_it() {
    const KEYS: usize = 60_000;
    let root = tempfile::tempdir().expect("a folder");
    let [folder, config] = ["data", "lately.toml"].map(|name| root.path().join(name));
    let server = serve_in(&folder, &[]);
    for first in (0..KEYS).step_by(1_000) {
        let pairs: String = (first..first + 1_000).map(|key| format!(" k:{key:012} 1")).collect();
        assert_eq!(server.ask::<Vec<u64>>(&format!("MHIT{pairs}")).len(), 1_000);
    }
    server.signal("KILL");
    drop(server);
    std::fs::write(&config, "[memory]\nceiling = \"1MiB\"\n").expect("written");
    let server = serve_in(&folder, &["--config", config.to_str().expect("text")]);
    let number = |field: &str| server.info(field).parse::<usize>().expect("a number");
    let used_bytes = number("used_memory");
    assert!(used_bytes <= (1 << 20) + 4_096, "{used_bytes} bytes");
    // The memory of connections and of the journal may evict some more keys between two requests.
    let look = || (number("evicted_keys"), server.ask::<usize>("DBSIZE"), number("evicted_keys"));
    let (evicted, keys, _) = std::iter::repeat_with(look).find(|look| look.0 == look.2).expect("in time");
    assert_eq!(keys + evicted, KEYS);
    assert_eq!(server.ask::<u64>("HIT new"), 1);
    let messages = stop(server);
    assert!(!messages.contains("lately: 60000 keys loaded"), "{messages}");
    assert!(messages.contains("keys were left out: the memory ceiling of 1048576 bytes"), "{messages}");
}
