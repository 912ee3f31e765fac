//! `lately dump` and `lately restore`: from a server and a folder, to a server and a folder.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::{Run, lately, lately_reading};
use crate::running::{Running, serve, serve_in, words};

fn run(args: &[&str]) -> Run {
    let run = lately(args);
    assert_eq!(run.code, Some(0), "{args:?}: {}", run.err);
    run
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// A few keys with hits of many ages, one of them deleted.
fn fill(server: &Running) {
    let now: Vec<u64> = server.ask("TIME");
    for key in 0..300 {
        for ago in [0, 7, 400, 7_200, 400_000] {
            let at = now[0] - ago - key % 50;
            assert!(server.ask::<u64>(&format!("HIT key:{key} {} AT {at}", 1 + key % 3)) > 0);
        }
    }
    assert_eq!(server.ask::<u64>("DEL key:7"), 1);
    assert_eq!(server.ask::<u64>("HIT key:7 5"), 5);
}

/// The counts of all keys over many windows, as of one time.
fn counts(server: &Running, at: u64) -> Vec<Vec<u64>> {
    let all = |key: u64| server.ask(&format!("HITS key:{key} 5m 1h 1d 6d AT {at}"));
    (0..300).map(all).collect()
}

#[test]
fn a_dump_of_a_server_is_restored_to_another_and_to_a_folder() {
    let root = tempfile::tempdir().expect("a folder");
    let (dump, again) = (root.path().join("dump"), root.path().join("again"));
    let (original, copy) = (serve(), serve());
    fill(&original);
    let now: Vec<u64> = original.ask("TIME");
    let wanted = counts(&original, now[0]);
    run(&["dump", "--server", &original.resp, "--output", text(&dump)]);
    assert_eq!(run(&["restore", "--server", &copy.resp, text(&dump)]).err, "lately: 300 keys restored\n");
    assert_eq!(counts(&copy, now[0]), wanted);

    let folder = root.path().join("folder");
    run(&["restore", "--data", text(&folder), text(&dump)]);
    let served = serve_in(&folder, &[]);
    assert_eq!(counts(&served, now[0]), wanted);
    served.signal("TERM");
    assert_eq!(served.ended().code, Some(0));
    run(&["dump", "--data", text(&folder), "-o", text(&again)]);
    run(&["restore", "--server", &copy.resp, "--replace", text(&again)]);
    assert_eq!(counts(&copy, now[0]), wanted);
}

/// Each thousand keys has other counts.
#[test]
fn a_million_restored_keys_equal_the_original_key_by_key() {
    const KEYS: u64 = 1_000_000;
    const AT_ONCE: usize = 8_000;
    let root = tempfile::tempdir().expect("a folder");
    let dump = root.path().join("dump");
    let (original, copy) = (serve(), serve());
    let ask = |server: &Running, command: &redis::Cmd| -> Vec<u64> {
        command.query(&mut server.connect()).expect("an answer")
    };
    let chunks = || (0..KEYS).step_by(AT_ONCE).map(|start| start..start + AT_ONCE as u64);
    for keys in chunks() {
        let mut command = redis::cmd("MHIT");
        keys.for_each(|key| _ = command.arg(format!("key:{key}")).arg(1 + key % 1_000));
        ask(&original, &command);
    }
    run(&["dump", "--server", &original.resp, "--output", text(&dump)]);
    let restored = run(&["restore", "--server", &copy.resp, text(&dump)]).err;
    assert_eq!(restored, "lately: 1000000 keys restored\n");
    for keys in chunks() {
        let wanted: Vec<u64> = keys.clone().map(|key| 1 + key % 1_000).collect();
        let mut command = redis::cmd("MHITS");
        command.arg("1d");
        keys.for_each(|key| _ = command.arg(format!("key:{key}")));
        let [original, copy] = [&original, &copy].map(|server| ask(server, &command));
        assert_eq!(original, copy);
        assert_eq!(copy, wanted);
    }
}

#[test]
fn a_restore_survives_a_kill() {
    let root = tempfile::tempdir().expect("a folder");
    let (dump, folder) = (root.path().join("dump"), root.path().join("folder"));
    let original = serve();
    fill(&original);
    run(&["dump", "--server", &original.resp, "-o", text(&dump)]);
    let copy = serve_in(&folder, &[]);
    run(&["restore", "--server", &copy.resp, text(&dump)]);
    assert_eq!(copy.ask::<u64>("HIT key:7"), 6);
    let now: Vec<u64> = copy.ask("TIME");
    let wanted = counts(&copy, now[0]);
    copy.signal("KILL");
    drop(copy);
    assert_eq!(counts(&serve_in(&folder, &[]), now[0]), wanted);
}

#[test]
fn a_refused_restore_changes_nothing() {
    let root = tempfile::tempdir().expect("a folder");
    let dump = root.path().join("dump");
    let server = serve();
    fill(&server);
    run(&["dump", "--server", &server.resp, "-o", text(&dump)]);
    let bytes = fs::read(&dump).expect("a dump");
    let refused = |bytes: &[u8], replace: &[&str], cause: &str| {
        let args = [&["restore", "--server", &server.resp][..], replace].concat();
        let run = lately_reading(&args, bytes);
        assert_eq!((run.code, run.out.as_str()), (Some(2), ""), "{}", run.err);
        assert!(run.err.contains(cause), "{}", run.err);
    };
    let before: u64 = server.ask("HITS key:1 1d");
    server.ask::<u64>("HIT key:1 10");
    refused(&bytes, &[], "the server has 300 keys");
    refused(&bytes[..bytes.len() - 9], &["--replace"], "it ends early, at byte ");
    refused(&bytes[..bytes.len() / 2], &["--replace"], "it ends early, at byte ");
    refused(b"no dump", &["--replace"], "it is no dump of lately");
    refused(b"", &["--replace"], "it is no dump of lately");
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    refused(&flipped, &["--replace"], "it is damaged at byte ");
    let mut newer = bytes;
    newer[7] = 9;
    refused(&newer, &["--replace"], "another version: its format is 9, this one reads those up to 3");
    assert_eq!(server.ask::<u64>("HITS key:1 1d"), before + 10);
}

/// A dump of a folder is made without its config. It still has the narrow panes and the old hits of each class.
#[test]
fn a_folder_is_dumped_with_any_classes() {
    let root = tempfile::tempdir().expect("a folder");
    let path = |name: &str| root.path().join(name);
    let config = path("lately.toml");
    let classes = [
        "[[class]]\nmatch = 'old:*'\nretain = '60d'",
        "[[class]]\nmatch = 'fine:*'\nresolution = '10ms'\nwindow = '10s'\nexact = '2h'\nretain = '2h'",
    ];
    fs::write(&config, classes.join("\n")).expect("written");
    let start = |folder: &str| serve_in(&path(folder), &["--config", text(&config)]);
    let server = start("data");
    let now = server.ask::<Vec<u64>>("TIME")[0];
    for key in 0..20 {
        for (name, ago) in [("old", 20 * 86_400), ("old", 59 * 86_400), ("fine", 0), ("fine", 5_000)] {
            for step in 0..40 {
                let at = now - ago - key * step;
                assert!(server.ask::<u64>(&format!("HIT {name}:{key} AT {at}.{:03}", step * 17)) < 1_000);
            }
        }
    }
    let all = |server: &Running| {
        let old = |key| server.ask::<Vec<u64>>(&format!("HITS old:{key} 1h 21d 58d 60d AT {now}"));
        let fine = |key| {
            let windows: String = (1..40).map(|n| format!(" {}ms", n * 70)).collect();
            [now, now - 5_000].map(|at| server.ask::<Vec<u64>>(&format!("HITS fine:{key}{windows} AT {at}")))
        };
        (0..20).map(|key| (old(key), fine(key))).collect::<Vec<_>>()
    };
    let wanted = all(&server);
    server.signal("TERM");
    server.ended();
    let before = fs::read_dir(path("data")).expect("a folder").count();
    assert_eq!(
        run(&["dump", "--data", text(&path("data")), "-o", text(&path("d"))]).err,
        "lately: 40 keys dumped\n"
    );
    let own = lately(&["dump", "--data", text(&path("data")), "-o", text(&path("data/log-0000000001"))]);
    assert!(own.code == Some(2) && own.err.contains("it is in the folder that is dumped"), "{}", own.err);
    assert_eq!(fs::read_dir(path("data")).expect("a folder").count(), before);
    run(&["restore", "--data", text(&path("copy")), text(&path("d"))]);
    run(&["dump", "--data", text(&path("copy")), "-o", text(&path("again"))]);
    run(&["restore", "--data", text(&path("copy")), "--replace", text(&path("again"))]);
    assert_eq!(all(&start("copy")), wanted);
    assert_eq!(all(&start("data")), wanted);
}

#[test]
fn a_dump_replaces_only_plain_files() {
    let root = tempfile::tempdir().expect("a folder");
    let path = |name: &str| root.path().join(name);
    let server = serve();
    let dump = |to: &Path| lately(&["dump", "--server", &server.resp, "-o", text(to)]);
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(dump(&path("new")).code, Some(0));
    assert_eq!(mode(&path("new")), 0o600);
    fs::remove_file(path("new")).expect("removed");
    // A device is written to, not replaced.
    assert_eq!(dump(Path::new("/dev/null")).code, Some(0));
    assert!(!fs::metadata("/dev/null").expect("it is there").is_file());
    // The target of a link is replaced. Only the owner may read a dump, even if it replaces a file that others may read.
    fs::write(path("real"), "old").expect("written");
    fs::set_permissions(path("real"), fs::Permissions::from_mode(0o666)).expect("set");
    std::os::unix::fs::symlink(path("real"), path("link")).expect("a link");
    assert_eq!(dump(&path("link")).code, Some(0));
    assert!(fs::read(path("real")).expect("there").starts_with(b"lately"));
    assert_eq!(mode(&path("real")), 0o600);
    assert!(fs::symlink_metadata(path("link")).expect("there").is_symlink());
    let refused = |to: &Path, expected: &str| {
        let run = dump(to);
        assert!(run.code == Some(2) && run.err.contains(expected), "{}", run.err);
    };
    refused(root.path(), "it is a folder");
    std::os::unix::fs::symlink(path("none"), path("dangling")).expect("a link");
    refused(&path("dangling"), "it is a link to nothing");
    fs::remove_file(path("dangling")).expect("removed");
    refused(&path("none/dump"), "No such file or directory");
    let full = lately(&["dump", "--server", &server.resp, "-o", "/dev/full"]);
    assert!(full.err.starts_with("lately: /dev/full: No space left on device"), "{}", full.err);
    assert_eq!(fs::read_dir(root.path()).expect("a folder").count(), 2);
}

/// If the server is behind a tunnel, another server may listen at the HTTP port that it reports.
#[test]
fn another_server_is_not_dumped() {
    let root = tempfile::tempdir().expect("a folder");
    let (server, other) = (serve(), serve());
    let dump = root.path().join("dump");
    for what in [&["dump", "-o"][..], &["restore", "--replace"]] {
        fs::write(&dump, "").expect("written");
        let run = lately(&[what, &[text(&dump), "--server", &server.resp, "--http", &other.http]].concat());
        assert_eq!(run.code, Some(2), "{}", run.err);
        assert!(run.err.contains("this is not the server") && run.err.contains("--http"), "{}", run.err);
        run_with_own_http(&server, &dump);
    }
}

fn run_with_own_http(server: &Running, dump: &Path) {
    run(&["dump", "--server", &server.resp, "--http", &server.http, "-o", text(dump)]);
    // Without --server there is no other one to be.
    run(&["dump", "--http", &server.http, "-o", text(dump)]);
    run(&["restore", "--http", &server.http, "--replace", text(dump)]);
}

/// Symptom: hits that were acknowledged during an upload were gone. Cause: the server checked that it had no keys before
/// the upload.
#[test]
fn hits_during_an_upload_are_not_replaced() {
    let root = tempfile::tempdir().expect("a folder");
    let dump = root.path().join("dump");
    let (original, server) = (serve(), serve());
    fill(&original);
    run(&["dump", "--server", &original.resp, "-o", text(&dump)]);
    let bytes = fs::read(&dump).expect("a dump");
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let mut socket = TcpStream::connect(&server.http).expect("it listens");
    let length = bytes.len();
    write!(
        socket,
        "POST /v1/restore HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
    )
    .expect("sent");
    // The server accepts the upload: it has already checked for keys, or is about to.
    let mut wanted = [0; 25];
    socket.read_exact(&mut wanted).expect("an answer");
    assert_eq!(&wanted, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(first).expect("sent");
    assert!(server.ask::<u64>("HIT key:1 7") >= 7);
    socket.write_all(rest).expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 409 "), "{answer}");
    assert!(server.ask::<u64>("HITS key:1 1d") >= 7);
}

/// A server, a file name and a dump contain control characters and line ends.
#[test]
fn messages_have_no_control_characters() {
    let run = lately(&["restore", "a\u{1b}[2J\nhint: b\u{202e}", "--data", "c"]);
    assert_eq!(
        run.err,
        "lately: a\\u{1b}[2J\\nhint: b\\u{202e}: No such file or directory (os error 2)\nhint: give a file that lately dump wrote\n"
    );
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a client");
        let mut request = [0; 1 << 10];
        // Answers the commands of the handshake with errors, until another one comes.
        while let Ok(count) = socket.read(&mut request)
            && count > 0
        {
            let commands = String::from_utf8_lossy(&request[..count]).matches('*').count();
            socket.write_all("-ERR \u{1b}]0;x\u{7}\r\n".repeat(commands).as_bytes()).expect("it reads");
        }
    });
    let run = lately(&["hit", "k", "--server", &address]);
    assert_eq!(run.code, Some(2));
    assert!(run.err.contains(r"\u{1b}]0;x\u{7}") && !run.err.contains('\u{1b}'), "{}", run.err);
    server.join().expect("no panic");
}

#[test]
fn missing_and_used_folders_are_refused() {
    let root = tempfile::tempdir().expect("a folder");
    let missing = root.path().join("missing");
    let refused = lately(&["dump", "--data", text(&missing)]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("there is no such folder") && !missing.exists(), "{}", refused.err);
    let folder = root.path().join("folder");
    let server = serve_in(&folder, &[]);
    let dump = root.path().join("dump");
    run(&["dump", "--server", &server.resp, "-o", text(&dump)]);
    for args in [&["dump"][..], &["restore", text(&dump)]] {
        let run = lately(&[args, &["--data", text(&folder)]].concat());
        assert_eq!(run.code, Some(2));
        assert!(run.err.contains("is in use by another process\nhint: "), "{}", run.err);
    }
    assert_eq!(server.ask::<u64>("HIT k"), 1);
    let run = lately(&["restore", text(&missing)]);
    assert!(run.err.contains("No such file"), "{}", run.err);
    // Empty and other folders are refused, and nothing is left behind.
    let empty = root.path().join("empty");
    fs::create_dir(&empty).expect("made");
    let run = lately(&["dump", "--data", text(&empty)]);
    assert!(run.code == Some(2) && run.err.contains("there are no counts in it"), "{}", run.err);
    assert_eq!(fs::read_dir(&empty).expect("a folder").count(), 0);
    let run = lately_reading(&["restore", "--data", text(&missing)], b"no dump");
    assert!(run.code == Some(2) && run.err.contains("no dump of lately") && !missing.exists(), "{}", run.err);
}

/// Pairs of keys are hit together. If a dump had a part of a batch, one key of a pair would have more hits than the other.
#[test]
fn a_dump_has_no_partial_batch() {
    let root = tempfile::tempdir().expect("a folder");
    for server in [serve(), serve_in(&root.path().join("data"), &[])] {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut connection = server.connect();
                for round in 0_u64.. {
                    let mut pipeline = redis::pipe();
                    for pair in 0..50 {
                        let (a, b) = (
                            format!("a:{}", (round * 7 + pair) % 500),
                            format!("b:{}", (round * 7 + pair) % 500),
                        );
                        pipeline.cmd("MHIT").arg(a).arg(1).arg(b).arg(1).ignore();
                    }
                    pipeline.exec(&mut connection).expect("hits");
                    if stop.load(Relaxed) {
                        break;
                    }
                }
            });
            for n in 0..5 {
                let dump = root.path().join(format!("dump-{n}"));
                run(&["dump", "--server", &server.resp, "-o", text(&dump)]);
                let copy = serve();
                run(&["restore", "--server", &copy.resp, text(&dump)]);
                let mut asking = copy.connect();
                for pair in 0..500 {
                    let hits: Vec<u64> =
                        words(&format!("MHITS 1d a:{pair} b:{pair}")).query(&mut asking).expect("hits");
                    assert_eq!(hits[0], hits[1], "pair {pair} of dump {n}");
                }
            }
            stop.store(true, Relaxed);
        });
    }
}

/// Accepts a client, and reads its request up to the body.
fn accept_request(listener: &std::net::TcpListener) -> TcpStream {
    let (mut socket, _) = listener.accept().expect("a client");
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("a request");
        request.extend(byte);
    }
    socket
}

/// A server restores nothing before it has the end of a dump, so an upload that it ends changes nothing.
#[test]
fn an_upload_ended_by_the_server_changes_nothing() {
    let server = serve();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let http = listener.local_addr().expect("bound").to_string();
    let ending = std::thread::spawn(move || {
        let mut socket = accept_request(&listener);
        socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").expect("it reads");
        socket.read_exact(&mut [0; 1 << 10]).expect("it sends");
        // Unread input makes the system reset the connection.
    });
    let run = lately_reading(&["restore", "--server", &server.resp, "--http", &http], &vec![0; 64 << 20]);
    ending.join().expect("it ends");
    assert_eq!(run.code, Some(2));
    assert!(run.err.starts_with(&format!("lately: {http}: ")), "{}", run.err);
    assert!(run.err.ends_with("\nhint: nothing was changed\n"), "{}", run.err);
}

/// Compose files and systemd units often set a variable to an empty value.
#[test]
fn an_empty_address_in_the_environment_is_ignored() {
    let run = crate::client_runs::ask("", &crate::client_runs::words("dump --http 127.0.0.1:1"));
    // There is no server at the default address, or one with its HTTP listener elsewhere.
    assert_eq!(run.code, Some(2), "{}", run.err);
    assert!(run.err.starts_with("lately: 127.0.0.1:"), "{}", run.err);
}

#[test]
fn a_resp_port_given_for_http_is_reported() {
    let root = tempfile::tempdir().expect("a folder");
    let server = serve();
    let dump = root.path().join("dump");
    run(&["dump", "--server", &server.resp, "-o", text(&dump)]);
    let hint = "\nhint: does the server listen for HTTP there? --http names another address\n";
    let refused = lately(&["dump", "-o", text(&dump), "--server", &server.resp, "--http", &server.resp]);
    let expected = format!("lately: {}: what listens there does not speak HTTP{hint}", server.resp);
    assert_eq!((refused.err, refused.code), (expected, Some(2)));
    let refused = lately(&["restore", text(&dump), "--server", &server.resp, "--http", &server.resp]);
    assert!(refused.code == Some(2) && refused.err.ends_with(hint), "{}", refused.err);
}

/// When the server cuts a dump, the hint gives the likely reason, which the client cannot see.
#[test]
fn a_cut_dump_gets_a_hint() {
    let server = serve();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let http = listener.local_addr().expect("bound").to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let good = folder.path().join("good.dump");
    lately(&["dump", "--server", &server.resp, "--http", &server.http, "-o", text(&good)]);
    let whole = std::fs::read(&good).expect("a dump");
    let ending = std::thread::spawn(move || {
        let mut socket = accept_request(&listener);
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n40008\r\n";
        socket.write_all(&[&head[..], &whole[..8], &[0; 0x40000], b"\r\n"].concat()).expect("it reads");
    });
    let run = lately(&["dump", "--server", &server.resp, "--http", &http, "-o", "/dev/null"]);
    ending.join().expect("it ends");
    assert_eq!(run.code, Some(2));
    let hint = "\nhint: the dump is incomplete: try again; a server ends one that is read slower than 32000 B/s, or than 1000000 B/s when others wait\n";
    assert!(run.err.starts_with("lately: dump: ") && run.err.ends_with(hint), "{}", run.err);
}

/// Symptom: with a wrong port in `--http`, a web page was saved as a dump, with success. Fix: the first bytes are checked.
#[test]
fn an_answer_other_than_a_dump_is_an_error() {
    let server = serve();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let http = listener.local_addr().expect("bound").to_string();
    let answering = std::thread::spawn(move || {
        let mut socket = accept_request(&listener);
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n<html></html>";
        socket.write_all(answer).expect("it reads");
    });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("counts.dump");
    let run = lately(&["dump", "--server", &server.resp, "--http", &http, "-o", text(&file)]);
    answering.join().expect("it ends");
    assert_eq!(run.code, Some(2), "{}", run.err);
    assert!(
        run.err
            .starts_with("lately: dump: the HTTP address answered with something else than a dump\nhint: "),
        "{}",
        run.err
    );
    assert!(!file.exists());
}
