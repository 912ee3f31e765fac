//! `lately serve`: its addresses, its end, and its errors.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::common::{Run, command, lately};
use crate::running::{FREE, PATIENCE, Running, serve, serve_in, serve_with, start, start_command};

/// Checks a refusal: nothing on standard output, and these texts in the error and the hint.
fn check_refused(run: &Run, error: &str, hint: &str) {
    assert_eq!((run.code, run.out.as_str()), (Some(2), ""), "{}", run.err);
    let (first, second) = run.err.trim_end().split_once('\n').expect("two lines");
    assert!(first.starts_with("lately: ") && first.contains(error), "{first}");
    assert_eq!(second, format!("hint: {hint}"));
}

fn check_stopped(run: &Run) {
    assert_eq!((run.code, run.out.as_str()), (Some(0), ""), "{}", run.err);
    assert!(run.err.ends_with("lately: stopped\n"), "{}", run.err);
}

fn ping(socket: &mut TcpStream) {
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.write_all(b"PING\r\n").expect("the server reads");
    let mut reply = [0; 7];
    socket.read_exact(&mut reply).expect("a reply");
    assert_eq!(&reply, b"+PONG\r\n");
}

fn check_healthy(server: &Running) {
    let answer = server.get("/healthz");
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"), "{answer}");
}

/// A server with one thread and a limit of this many open files.
fn serve_with_files(files: u32, more: &[&str]) -> Running {
    start_command(&mut command_with_files(files, more))
}

fn command_with_files(files: u32, more: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let limited = format!(r#"ulimit -n {files}; exec "$0" "$@""#);
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_lately")]);
    command.args([&FREE, &["--in-memory", "--threads", "1"][..], more].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn serve_logs_its_addresses_and_durability() {
    let server = serve();
    for address in [&server.resp, &server.http, &server.grpc] {
        assert!(address.starts_with("127.0.0.1:") && !address.ends_with(":0"), "{address}");
    }
    let (resp, http, grpc) = (server.resp.clone(), server.http.clone(), server.grpc.clone());
    ping(&mut TcpStream::connect(&resp).expect("it listens"));
    check_healthy(&server);
    server.signal("TERM");
    let run = server.ended();
    check_stopped(&run);
    for message in [
        format!("lately: serving RESP on {resp}, HTTP on {http} and gRPC on {grpc}\n"),
        "lately: counts are in memory only: they are gone when the server stops\n".to_owned(),
    ] {
        assert!(run.err.contains(&message), "{}", run.err);
    }
}

#[test]
fn a_signal_stops_the_server_after_the_replies() {
    for signal in ["TERM", "INT"] {
        let server = serve();
        let mut client = TcpStream::connect(&server.resp).expect("it listens");
        ping(&mut client);
        client.write_all(&b"HIT k\r\n".repeat(1_000)).expect("it reads");
        server.signal(signal);
        let mut replies = String::new();
        client.read_to_string(&mut replies).expect("replies, and the end");
        let expected: String = (1..=1_000).map(|hits| format!(":{hits}\r\n")).collect();
        assert!(replies == expected, "{signal}: {replies:.100}");
        let run = server.ended();
        check_stopped(&run);
        assert!(run.err.contains("lately: stopping: "), "{}", run.err);
    }
}

/// Symptom: a server whose standard error was a full pipe answered nobody, and did not stop. Cause: the thread that wrote a message waited for a
/// reader of the pipe. Fix: only a thread of its own waits.
#[test]
fn a_server_whose_messages_nobody_reads_serves_and_stops() {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let size = rustix::pipe::fcntl_setpipe_size(&writer, 4_096).expect("a small pipe");
    writer.write_all(&vec![b'.'; size]).expect("room");
    let mut child = Command::new(env!("CARGO_BIN_EXE_lately"))
        .args([&FREE[..], &["--in-memory"]].concat())
        .stdout(Stdio::piped())
        .stderr(writer)
        .spawn()
        .expect("the binary starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("text");
    let resp = line.strip_prefix("resp ").expect("an address").trim_end().to_owned();
    ping(&mut TcpStream::connect(&resp).expect("it listens"));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    drop(reader);
}

#[test]
fn shutdown_stops_the_server() {
    let server = serve();
    let mut client = TcpStream::connect(&server.resp).expect("it listens");
    client.write_all(b"PING\r\nSHUTDOWN\r\n").expect("it reads");
    let mut replies = String::new();
    client.read_to_string(&mut replies).expect("a reply, and the end");
    assert_eq!(replies, "+PONG\r\n");
    check_stopped(&server.ended());
}

#[test]
fn a_hang_up_without_a_config_is_noted() {
    let mut server = serve();
    server.signal("HUP");
    server.wait_for_message(
        "lately: config: there is no file to reload: the server was started without --config\n",
    );
    assert_eq!(server.ask::<String>("PING"), "PONG");
    server.signal("TERM");
    check_stopped(&server.ended());
}

/// Symptom: after file descriptors had run out, no client was accepted even when some were free again. Cause: the listener
/// waited until one of its own clients left. Fix: it retries after a while.
#[test]
fn clients_are_accepted_when_descriptors_are_free_again() {
    let server = serve_with(&["--threads", "1"]);
    server.limit_files(40);
    let connect = |address: &str| TcpStream::connect(address).expect("it listens");
    let mut first = connect(&server.resp);
    ping(&mut first);
    let others: Vec<TcpStream> = (0..60).map(|_| connect(&server.http)).collect();
    // Between these requests, the server polls its listeners.
    (0..100).for_each(|_| ping(&mut first));
    let mut last = connect(&server.resp);
    (0..100).for_each(|_| ping(&mut first));
    drop(others);
    ping(&mut last);
    ping(&mut first);
    server.signal("TERM");
    check_stopped(&server.ended());
}

/// Symptom: with a low limit of open files the server reported room for 0 clients, served some, and did not answer health
/// checks. Cause: it started without room for a client. Fix: it refuses to start.
#[test]
fn a_server_without_files_for_a_client_does_not_start() {
    // The server needs 64 files of its own, 64 for HTTP and 256 for gRPC, and 272 for clients that have no place yet and for probes.
    for files in [40, 656] {
        let run = command_with_files(files, &[]).output().expect("it ends");
        let error = String::from_utf8(run.stderr).expect("text");
        let expected = format!(
            "lately: serve: the limit of {files} open files is too low: the server needs 656, and one for each client\n\
             hint: raise it with ulimit -n 15456; 657 is the least\n"
        );
        assert_eq!((error, run.status.code()), (expected, Some(2)));
    }
    let server = serve_with_files(657, &[]);
    let mut client = TcpStream::connect(&server.resp).expect("it listens");
    ping(&mut client);
    check_healthy(&server);
    check_message(server, "leaves room for 1 of max_clients = 10000: raise it with ulimit -n 15456\n");
}

#[test]
fn flags_override_the_config() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, data) = (folder.path().join("lately.toml"), folder.path().join("data"));
    let text = "[server]\nresp = \"127.0.0.1:0\"\nhttp = \"192.0.2.1:1\"\nmax_clients = 7\n\n[[class]]\nmatch = \"ad:*\"\nwindow = \"1s\"\n";
    std::fs::write(&config, text).expect("room for a file");
    let (config, data) = (config.to_str().expect("UTF-8"), data.to_str().expect("UTF-8"));
    // The flag overrides the HTTP address of the file.
    let flags = ["serve", "--config", config, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
    let server = start(&[&flags[..], &["--data", data, "--threads", "2"]].concat());
    let found: Vec<String> = server.ask("CONFIG GET maxclients");
    assert_eq!(found, ["maxclients", "7"]);
    let now: Vec<u64> = server.ask("TIME");
    let past = now[0] - 30;
    for (key, hits) in [("ad:1", 0), ("other", 1)] {
        assert_eq!(server.ask::<u64>(&format!("HIT {key} AT {past}")), 1);
        assert_eq!(server.ask::<u64>(&format!("HITS {key}")), hits, "{key}");
    }
    server.signal("TERM");
    let run = server.ended();
    check_stopped(&run);
    let kept = format!("lately: counts are kept in {data}: a loss of power loses at most the last second\n");
    assert!(run.err.contains(&kept), "{}", run.err);
    assert!(std::fs::exists(data).expect("a folder to look into"));

    let everywhere = start(&[
        "serve",
        "--resp",
        "0.0.0.0:0",
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
        "--insecure",
        "--in-memory",
    ]);
    assert!(everywhere.resp.starts_with("0.0.0.0:"), "{}", everywhere.resp);
    let mut client = TcpStream::connect(format!("127.0.0.1:{}", everywhere.port())).expect("it listens");
    ping(&mut client);
}

#[test]
fn localhost_is_an_address_and_the_folder_path_is_absolute() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = command(&[
        "serve",
        "--resp",
        "localhost:0",
        "--http",
        "LOCALHOST:0",
        "--grpc",
        "127.0.0.1:0",
        "--data",
        "counts",
    ]);
    let mut server = start_command(command.current_dir(folder.path()));
    assert!(server.resp.starts_with("127.0.0.1:") && server.http.starts_with("127.0.0.1:"));
    let folder = folder.path().canonicalize().expect("a path");
    server.wait_for_message(&format!("lately: counts are kept in {}: ", folder.join("counts").display()));
}

#[test]
fn the_metrics_flag_sets_the_address() {
    let mut server = serve_with(&["--metrics", "127.0.0.1:0"]);
    let metrics = server.address("metrics ");
    let http = std::mem::replace(&mut server.http, metrics.clone());
    assert_ne!(http, metrics);
    check_healthy(&server);
    assert!(server.get("/metrics").contains("\nlately_keys 0\n"));
    assert!(server.get("/v1/dump").starts_with("HTTP/1.0 404 "));
    server.signal("TERM");
    let run = server.ended();
    check_stopped(&run);
    assert!(run.err.contains(&format!("lately: serving health and metrics on {metrics}\n")), "{}", run.err);
}

/// A folder of an earlier version, or of another tool, may be readable by other users.
#[test]
fn a_folder_open_to_others_is_logged() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("data");
    let is_logged = |mode: u32| {
        fs::create_dir_all(&folder).expect("made");
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("set");
        let server = serve_in(&folder, &[]);
        server.signal("TERM");
        let run = server.ended();
        check_stopped(&run);
        run.err.contains(&format!("data has mode {mode:o}: other users can list its files"))
    };
    assert!(!is_logged(0o700));
    assert!(is_logged(0o755));
    assert!(is_logged(0o710));
}

#[test]
fn a_bad_config_is_refused_with_line_and_column() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |text: &str, error: &str| {
        let config = folder.path().join("lately.toml");
        std::fs::write(&config, text).expect("room for a file");
        let config = config.to_str().expect("UTF-8");
        let error = format!("lately: config: {config}:{error}");
        check_refused(
            &lately(&["serve", "--config", config]),
            &error,
            "lately check FILE reads a config without a start",
        );
    };
    check(
        "[server]\nresp = \"localhost\"\n",
        "2:8: invalid address 'localhost': give a port, too: localhost:PORT",
    );
    check("[sever]\n", "1:2: unknown field `sever`");
    check("[[class]]\nmatch = \"a\"\nresolution = \"3s\"\n", "3:14: resolution 3s is none of");
    check(
        "[cluster]\nengine = \"nats\"\n",
        "2:10: unknown engine 'nats': give redis, postgres, kafka, peers or none",
    );
    check("a = \n", "1:5: ");
    let missing = folder.path().join("missing.toml");
    let missing = missing.to_str().expect("UTF-8");
    let run = lately(&["serve", "--config", missing]);
    check_refused(
        &run,
        &format!("lately: config: {missing}: No such file"),
        "lately check FILE reads a config without a start",
    );
}

#[test]
fn invalid_addresses_are_refused() {
    let insecure = "have clients log in, with password_file in [server] or a [[user]]; listen on 127.0.0.1 or ::1; or use --insecure if the network is trusted";
    for (flag, what) in [("--resp", "RESP"), ("--http", "HTTP"), ("--grpc", "gRPC")] {
        let args = ["serve", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
        let at = args.iter().position(|arg| *arg == flag).expect("a flag") + 1;
        let serve_at = |address: &str| {
            let mut args = args;
            args[at] = address;
            lately(&args)
        };
        let refusal = format!("lately: serve: refusing to listen on 0.0.0.0:0 for {what}: ");
        check_refused(&serve_at("0.0.0.0:0"), &refusal, insecure);
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = taken.local_addr().expect("bound").to_string();
        let in_use = format!("lately: serve: cannot listen on {address} for {what}: Address already in use");
        check_refused(
            &serve_at(&address),
            &in_use,
            "is another server running there? port 0 picks a free port",
        );
        assert_eq!(serve_at("localhost").code, Some(2));
    }
}

#[test]
fn invalid_flags_are_refused() {
    let usage = "usage: lately serve --data <DIR>";
    let run = lately(&["serve", "--data", "d", "--in-memory"]);
    check_refused(&run, "the argument '--data <DIR>' cannot be used with '--in-memory'", usage);
    for threads in ["0", "1025", "x"] {
        let run = lately(&["serve", "--threads", threads]);
        check_refused(&run, "give a number from 1 to 1024", "see lately serve --help");
    }
    let run = lately(&["serve", "--resp", "7379"]);
    check_refused(
        &run,
        "--resp <ADDR>: invalid address '7379': give an IP address, too, such as 127.0.0.1:7379",
        "see lately serve --help",
    );
    let run = lately(&["serve", "--durability", "often"]);
    check_refused(
        &run,
        "invalid value 'often' for '--durability <MODE>': give off, interval or always",
        "see lately serve --help",
    );
    for (flag, more) in [("--data", &["d"][..]), ("--repair", &[])] {
        let run = lately(&[&["serve", "--durability", "off", flag], more].concat());
        let hint = format!("use --durability interval, or leave {flag} out");
        check_refused(&run, &format!("{flag} needs a data folder, and durability is off"), &hint);
    }
    let server = serve_with(&["--threads", "1"]);
    assert_eq!(server.ask::<u64>("HIT k"), 1);
}

#[test]
fn threads_share_the_arenas_of_the_allocator() {
    let arenas = |threads: u64, variable: (&str, &str)| {
        let mut command = command(&[&FREE, &["--in-memory", "--threads", &threads.to_string()][..]].concat());
        command.env_remove("MALLOC_ARENA_MAX").env_remove("GLIBC_TUNABLES").envs([variable]);
        let server = start_command(&mut command);
        // Clients are assigned to the threads in turn. A thread has its arena when it has answered.
        (1..=threads).for_each(|count| assert_eq!(server.ask::<u64>("HIT k"), count));
        server.arenas()
    };
    // The first arena is not counted.
    let nothing = ("UNRELATED", "1");
    assert_eq!(arenas(16, nothing), 0);
    assert_eq!(arenas(17, nothing), 1);
    assert_eq!(arenas(40, nothing), 1);
    // Environment variables override this.
    assert_eq!(arenas(4, ("MALLOC_ARENA_MAX", "3")), 2);
    assert_eq!(arenas(4, ("GLIBC_TUNABLES", "glibc.malloc.arena_max=3")), 2);
}

#[test]
fn each_thread_stays_within_its_files() {
    let files = |threads: &str| serve_with(&["--threads", threads]).files();
    let (one, nine) = (files("1"), files("9"));
    assert!(one <= 64 && nine - one <= 8 * 2, "{one} and {nine}");
}

/// Symptom: with a low limit of open files, clients used those that HTTP and the journal need, although the server had
/// reported room for fewer; and accepting stalled for 10 ms whenever the file table grew. Fix: no more clients are accepted
/// than reported, and the table has its final size at the start.
#[test]
fn the_number_of_clients_follows_the_limit_of_files() {
    let server = serve_with_files(828, &[]);
    assert!(server.file_table() >= 828, "{}", server.file_table());
    let connect = || TcpStream::connect(&server.resp).expect("it listens");
    let mut clients: Vec<TcpStream> = (0..172).map(|_| connect()).collect();
    clients.iter_mut().for_each(ping);
    let mut refusal = String::new();
    connect().read_to_string(&mut refusal).expect("an error");
    assert_eq!(refusal, "-ERR max number of clients reached\r\n");
    check_healthy(&server);
    check_message(server, "leaves room for 172 of max_clients = 10000: raise it with ulimit -n 15456\n");
    // Clients of Redis come first: with 200 of them, 200 files are left for HTTP beyond those that it always has.
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lately.toml");
    fs::write(&config, "[server]\nmax_clients = 200\n").expect("a file");
    let server = serve_with_files(1056, &["--config", config.to_str().expect("text")]);
    check_healthy(&server);
    check_message(server, "leaves room for 104 connections of HTTP: raise it with ulimit -n 5656\n");
    // The largest number that a config can have.
    fs::write(&config, format!("[server]\nmax_clients = {}\n", usize::MAX)).expect("a file");
    let server = serve_with_files(828, &["--config", config.to_str().expect("text")]);
    check_message(server, &format!("leaves room for 172 of max_clients = {}: ", usize::MAX));
}

fn check_message(server: Running, what: &str) {
    server.signal("TERM");
    let run = server.ended();
    assert!(run.err.contains(what), "{}", run.err);
}
