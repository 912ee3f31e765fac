//! A running `lately serve`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue};

use crate::common::{Run, command};

/// The time after which a test fails instead of waiting longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The time after which polling fails. Disks may stall for half a minute.
const LONG_PATIENCE: Duration = Duration::from_secs(120);

/// Arguments for free ports.
pub(crate) const FREE: [&str; 7] =
    ["serve", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];

/// A server on free ports; killed when dropped.
pub(crate) struct Running {
    pub(crate) resp: String,
    pub(crate) http: String,
    pub(crate) grpc: String,
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
    messages: String,
}

/// Polls until a condition holds. Returns whether it did in time.
#[expect(clippy::disallowed_methods, reason = "the longest that a test may take is no time of the product")]
pub(crate) fn becomes(mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < LONG_PATIENCE {
        if is_so() {
            return true;
        }
    }
    false
}

/// A server on free loopback ports.
pub(crate) fn serve() -> Running {
    serve_with(&[])
}

/// A server with more arguments, in memory only.
pub(crate) fn serve_with(more: &[&str]) -> Running {
    start(&[&FREE, &["--in-memory"][..], more].concat())
}

/// A server on free loopback ports that keeps its counts in a folder, and has loaded them.
pub(crate) fn serve_in(folder: &Path, more: &[&str]) -> Running {
    start(&[&FREE, &["--data", folder.to_str().expect("text")][..], more].concat()).loaded()
}

/// A server with a memory ceiling. The folder has the config file, and is removed when it is dropped.
pub(crate) fn serve_with_ceiling(ceiling_bytes: u64) -> (Running, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lately.toml");
    std::fs::write(&config, format!("[memory]\nceiling = {ceiling_bytes}\n")).expect("a file");
    (serve_with(&["--config", config.to_str().expect("text")]), folder)
}

/// Runs `lately` with `args`, which must name free ports, until it has printed its addresses.
pub(crate) fn start(args: &[&str]) -> Running {
    start_command(&mut command(args))
}

/// Runs a command that starts `lately serve`.
pub(crate) fn start_command(command: &mut Command) -> Running {
    let mut child = command.stdin(Stdio::null()).spawn().expect("the binary starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut err = BufReader::new(child.stderr.take().expect("a pipe"));
    let address = |name: &str| {
        let mut line = String::new();
        out.read_line(&mut line).expect("text");
        let address = line.strip_prefix(name).and_then(|rest| rest.strip_suffix('\n'));
        address.map(str::to_owned).unwrap_or_else(|| {
            let mut messages = String::new();
            _ = err.read_to_string(&mut messages);
            panic!("no line that starts with '{name}': '{line}'; messages: {messages}")
        })
    };
    let [resp, http, grpc] = ["resp ", "http ", "grpc "].map(address);
    Running { resp, http, grpc, child, out, err, messages: String::new() }
}

impl Running {
    /// The address on the next line of standard output.
    pub(crate) fn address(&mut self, name: &str) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("text");
        let address = line.strip_prefix(name).and_then(|rest| rest.strip_suffix('\n'));
        address.expect(&line).to_owned()
    }

    pub(crate) fn port(&self) -> &str {
        self.resp.rsplit_once(':').expect("a port").1
    }

    /// A connection without a timeout. With one, a read fails when the machine is paused (signal(7), EINTR), and the client
    /// does not repeat it.
    pub(crate) fn connect(&self) -> Connection {
        let client = redis::Client::open(format!("redis://{}/", self.resp)).expect("an address");
        client.get_connection().expect("the server listens")
    }

    /// Sends a command on a new connection. Its words are separated by spaces.
    pub(crate) fn ask<T: FromRedisValue>(&self, line: &str) -> T {
        words(line).query(&mut self.connect()).expect(line)
    }

    /// A value of `INFO`.
    pub(crate) fn info(&self, field: &str) -> String {
        let [value] = self.infos([field]);
        value
    }

    /// Several fields of one `INFO`.
    pub(crate) fn infos<const N: usize>(&self, fields: [&str; N]) -> [String; N] {
        let info: String = self.ask("INFO");
        fields.map(|field| {
            let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            value.expect(field).to_owned()
        })
    }

    /// Waits until the server has loaded its counts. It may listen before that.
    pub(crate) fn loaded(self) -> Running {
        assert!(becomes(|| self.info("loading") == "0"), "loading does not end");
        self
    }

    /// The HTTP answer for a path, including its head.
    pub(crate) fn get(&self, path: &str) -> String {
        self.request(&format!("GET {path} HTTP/1.0\r\n\r\n"))
    }

    /// The same of a `POST` without a body, with the header that keys need.
    pub(crate) fn post(&self, path: &str) -> String {
        self.request(&format!("POST {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"))
    }

    /// The same with a body.
    pub(crate) fn post_body(&self, path: &str, body: &str) -> String {
        let length = body.len();
        self.request(&format!(
            "POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }

    fn request(&self, request: &str) -> String {
        let mut socket = TcpStream::connect(&self.http).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// The number of arenas of the allocator, without the first one. Each has 64 MiB of addresses, from a multiple of that on: first what is
    /// in use, then the rest, without access. Other memory may start at such a multiple, too.
    pub(crate) fn arenas(&self) -> usize {
        const ARENA_BYTES: u64 = 64 << 20;
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).expect("a process");
        let range = |line: &str| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
        };
        let is_arena = |(used, rest): &(&str, &str)| {
            let (Some((start, used_end)), Some((rest_start, end))) = (range(used), range(rest)) else {
                return false;
            };
            let is_one_range = used_end == rest_start && start + ARENA_BYTES == end;
            let has_access =
                used.contains(" rw-p 00000000 00:00 0") && rest.contains(" ---p 00000000 00:00 0");
            start.is_multiple_of(ARENA_BYTES) && is_one_range && has_access
        };
        maps.lines().zip(maps.lines().skip(1)).filter(is_arena).count()
    }

    /// The number of open files.
    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("a process").count()
    }

    /// The resident memory of the process without pages of its program.
    pub(crate) fn own_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a process");
        let anonymous: Option<u64> = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:")?.strip_suffix("kB")?.trim().parse().ok());
        1_024 * anonymous.unwrap_or_else(|| panic!("no size in {status}"))
    }

    /// The pages of the program and of other files that are resident, and the most that was resident of everything.
    pub(crate) fn file_and_peak_bytes(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a process");
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a size");
            line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
        };
        (bytes("RssFile:"), bytes("VmHWM:"))
    }

    /// The size of the process's file table.
    pub(crate) fn file_table(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a process");
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")?.trim().parse().ok());
        size.expect("a size")
    }

    /// Lowers the limit of open files of the running server.
    pub(crate) fn limit_files(&self, files: u64) {
        let pid = self.child.id().try_into().expect("a process id");
        rlimit::prlimit(pid, rlimit::Resource::NOFILE, Some((files, files)), None)
            .expect("a limit is lowered");
    }

    /// Sends a signal, such as TERM.
    /// Limits the size of the files that the server writes. Returns the error if that is not allowed.
    pub(crate) fn limit_file_bytes(&self, most: &str) -> Result<(), String> {
        let pid = self.child.id().to_string();
        let output = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={most}:")]).output();
        let output = output.map_err(|error| format!("prlimit: {error}"))?;
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Ok(()) } else { Err(why) }
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success(), "{kill}");
    }

    /// Waits for a message that contains `part`.
    pub(crate) fn wait_for_message(&mut self, part: &str) {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert_ne!(
                self.err.read_line(&mut line).expect("text"),
                0,
                "it ended without the message '{part}'"
            );
            self.messages.push_str(&line);
        }
    }

    /// Waits for the end. Returns the output after the addresses, all messages, and the exit code.
    pub(crate) fn ended(mut self) -> Run {
        let mut run = Run { out: String::new(), err: std::mem::take(&mut self.messages), code: None };
        self.out.read_to_string(&mut run.out).expect("text");
        self.err.read_to_string(&mut run.err).expect("text");
        run.code = self.child.wait().expect("it ends").code();
        run
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A command from a line of words.
pub(crate) fn words(line: &str) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    line.split(' ').for_each(|word| _ = command.arg(word));
    command
}

/// What other threads do while something is waited for: a piece with each look, so that they leave time to others.
pub(crate) struct Flow(Vec<SyncSender<()>>);

impl Flow {
    /// Nothing flows yet.
    pub(crate) fn new() -> Flow {
        Flow(Vec::new())
    }

    /// One more thread does a piece for each thing that it gets. It ends with the flow.
    pub(crate) fn pieces(&mut self) -> Receiver<()> {
        let (sender, receiver) = sync_channel(1);
        self.0.push(sender);
        receiver
    }

    /// As [`becomes`].
    pub(crate) fn becomes(&self, mut is_so: impl FnMut() -> bool) -> bool {
        becomes(|| {
            self.0.iter().for_each(|pieces| _ = pieces.try_send(()));
            is_so()
        })
    }
}
