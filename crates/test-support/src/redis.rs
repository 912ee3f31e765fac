//! Real servers of Redis and Valkey.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{Certificates, until};

/// The programs whose servers tests start.
#[derive(Clone, Debug)]
pub struct RedisProgram(String);

impl RedisProgram {
    /// Redis. Without it, the calling test is skipped.
    ///
    /// # Panics
    /// It is missing, and `cargo xtask test` would have installed it.
    #[must_use]
    pub fn redis() -> Option<RedisProgram> {
        crate::has("redis-server").then(|| RedisProgram("redis-server".to_owned()))
    }

    /// Valkey. Without it, the calling test is skipped.
    ///
    /// # Panics
    /// It is missing, and `cargo xtask test` would have installed it.
    #[must_use]
    pub fn valkey() -> Option<RedisProgram> {
        let path = crate::installed("LATELY_TEST_VALKEY")?;
        Some(RedisProgram(path.to_string_lossy().into_owned()))
    }
}

/// A running server without persistence. It ends when it is dropped.
#[derive(Debug)]
pub struct RedisServer {
    program: RedisProgram,
    address: SocketAddr,
    child: Child,
    folder: TempDir,
    /// More arguments; `{port}` and `{other}` in them are free ports.
    more: Vec<String>,
}

impl RedisServer {
    /// Starts a server on a free port.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start() -> RedisServer {
        RedisServer::start_with(&[])
    }

    /// Starts a server on a free port with more arguments.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start_with(more: &[&str]) -> RedisServer {
        RedisServer::start_program(&RedisProgram("redis-server".to_owned()), more)
    }

    /// Starts the server of a program on a free port with more arguments. In these, `{port}` stands for its port, and
    /// `{other}` for another one that is free.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start_program(program: &RedisProgram, more: &[&str]) -> RedisServer {
        let folder = tempfile::tempdir().expect("a folder");
        // Another process may take the port before the server does: then it says so and ends, and the next port is tried.
        for _ in 0..20 {
            let (address, other) = (free_address(), free_address());
            let more = more.iter().map(|argument| {
                let argument = argument.replace("{port}", &address.port().to_string());
                argument.replace("{other}", &other.port().to_string())
            });
            let more: Vec<_> = more.collect();
            if let Some(child) = start(program, &folder, address, &more) {
                return RedisServer { program: program.clone(), address, child, folder, more };
            }
        }
        panic!("{} does not start", program.0);
    }

    /// Starts a server that serves over TLS only, with the certificate `cert.pem` of an authority, and with more arguments.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start_tls(program: &RedisProgram, certificates: &Certificates, more: &[&str]) -> RedisServer {
        let file = |name| certificates.file(name).to_string_lossy().into_owned();
        let (authority, certificate, key) = (file("ca.pem"), file("cert.pem"), file("key.pem"));
        let port = ["--port", "0", "--tls-port", "{port}", "--tls-ca-cert-file", &authority];
        let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
        RedisServer::start_program(program, &[&port[..], &files, more].concat())
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Ends it at once, as a power failure would. What it had in memory is lost.
    ///
    /// # Panics
    /// It has ended before.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Starts it again on the same port, empty.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart(&mut self) {
        let child = start(&self.program, &self.folder, self.address, &self.more);
        self.child = child.expect("the port is free again");
    }

    /// Sends it a signal, such as `STOP` or `CONT`.
    ///
    /// # Panics
    /// There is no program `kill`.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status().expect("kill");
        assert!(sent.success(), "kill -s {signal} {pid}");
    }

    /// Sends one command, words apart by blanks, and returns the first bytes of the answer.
    ///
    /// # Panics
    /// The server does not answer.
    #[must_use]
    pub fn command(&self, words: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.write_all(format!("{words}\r\n").as_bytes()).expect("it reads");
        let mut answer = [0; 4_096];
        let read = stream.read(&mut answer).expect("it answers");
        String::from_utf8_lossy(&answer[..read]).into_owned()
    }

    /// Sends one command that has to succeed.
    ///
    /// # Panics
    /// The server answers with an error.
    pub fn succeed(&self, words: &str) {
        let answer = self.command(words);
        assert!(!answer.starts_with('-'), "{words}: {answer}");
    }

    /// The bulk string that a command returns.
    fn text(&self, words: &str) -> String {
        let answer = self.command(words);
        answer.split_once("\r\n").map_or("", |(_, text)| text).trim_end().to_owned()
    }

    /// Whether a command has an answer with this in it.
    fn says(&self, words: &str, expected: &str) -> bool {
        self.command(words).contains(expected)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running Redis Cluster: three masters, and a replica of each.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Vec<RedisServer>,
}

/// The first slots of the masters, and the end.
const SLOTS: [u16; 4] = [0, 5_461, 10_923, 16_384];

impl RedisCluster {
    /// Starts six servers. A master that is away for a second is replaced.
    ///
    /// # Panics
    /// They do not start.
    #[must_use]
    pub fn start(program: &RedisProgram) -> RedisCluster {
        let arguments = ["--cluster-enabled", "yes", "--cluster-port", "{other}"];
        // A replica that has not heard of its master for long takes its place, too.
        let more = ["--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0"];
        let arguments = [&arguments[..], &more].concat();
        let servers: Vec<_> = (0..6).map(|_| RedisServer::start_program(program, &arguments)).collect();
        let (masters, replicas) = servers.split_at(3);
        for (epoch, server) in (1..).zip(&servers) {
            server.succeed(&format!("CLUSTER SET-CONFIG-EPOCH {epoch}"));
        }
        for (master, slots) in masters.iter().zip(SLOTS.windows(2)) {
            master.succeed(&format!("CLUSTER ADDSLOTSRANGE {} {}", slots[0], slots[1] - 1));
        }
        for server in &servers[1..] {
            let bus = server.text("CONFIG GET cluster-port");
            let bus = bus.lines().last().unwrap_or_default();
            servers[0].succeed(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", server.address.port()));
        }
        until("they know each other", || {
            servers.iter().all(|server| server.says("CLUSTER INFO", "cluster_known_nodes:6\r"))
        });
        for (replica, master) in replicas.iter().zip(masters) {
            let id = master.text("CLUSTER MYID");
            until("it follows", || replica.command(&format!("CLUSTER REPLICATE {id}")).starts_with('+'));
        }
        let cluster = RedisCluster { servers };
        let ports: Vec<_> =
            cluster.servers.iter().map(|server| format!(":{}\r", server.address.port())).collect();
        until("the cluster is complete", || {
            cluster.servers[3..].iter().all(|server| server.says("INFO replication", "master_link_status:up"))
                && cluster.servers.iter().all(|server| {
                    let slots = server.command("CLUSTER SLOTS");
                    server.says("CLUSTER INFO", "cluster_state:ok")
                        && ports.iter().all(|port| slots.contains(port))
                })
        });
        // Not before: a server gives up a meeting that takes longer, for good.
        for server in &cluster.servers {
            server.succeed("CONFIG SET cluster-node-timeout 1000");
        }
        cluster
    }

    /// The URLs of the masters.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.servers[..3].iter().map(RedisServer::url).collect()
    }

    /// What each server that answers knows of the others, for a test that fails.
    #[must_use]
    pub fn state(&self) -> String {
        let answers = self.servers.iter().map(|server| match TcpStream::connect(server.address) {
            Ok(_) => ["CLUSTER NODES", "INFO replication"].map(|words| server.command(words)).concat(),
            Err(error) => format!("{error}\n"),
        });
        answers.zip(&self.servers).map(|(answer, server)| format!("{}: {answer}", server.address)).collect()
    }

    /// The master of a third of the slots, as it was at the start.
    #[must_use]
    pub fn master(&self, third: usize) -> &RedisServer {
        &self.servers[third]
    }

    /// The replica of that master.
    #[must_use]
    pub fn replica(&self, third: usize) -> &RedisServer {
        &self.servers[third + 3]
    }

    /// Ends a master at once. What it had in memory is lost.
    ///
    /// # Panics
    /// It has ended before.
    pub fn kill_master(&mut self, third: usize) {
        self.servers[third].kill();
    }

    /// Which third has a slot at the start.
    #[must_use]
    pub fn third_of(slot: u16) -> usize {
        SLOTS.iter().rposition(|&first| first <= slot).unwrap_or(0)
    }

    /// Begins to move a slot from a master to another. Names that are there stay, until they are moved.
    ///
    /// # Panics
    /// The servers refuse.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let (from_id, to_id) =
            (self.servers[from].text("CLUSTER MYID"), self.servers[to].text("CLUSTER MYID"));
        self.servers[to].succeed(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"));
        self.servers[from].succeed(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"));
    }

    /// Moves the names of a slot.
    ///
    /// # Panics
    /// The servers refuse.
    pub fn move_names(&self, slot: u16, from: usize, to: usize) {
        let to_port = self.servers[to].address.port();
        loop {
            let answer = self.servers[from].command(&format!("CLUSTER GETKEYSINSLOT {slot} 10"));
            let names: Vec<_> = answer.split("\r\n").filter(|line| line.starts_with("lately:")).collect();
            if names.is_empty() {
                return;
            }
            let names = names.join(" ");
            self.servers[from].succeed(&format!("MIGRATE 127.0.0.1 {to_port} \"\" 0 5000 KEYS {names}"));
        }
    }

    /// Gives a slot to its new owner.
    ///
    /// # Panics
    /// The servers refuse.
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        let to_id = self.servers[to].text("CLUSTER MYID");
        for server in [to, from] {
            self.servers[server].succeed(&format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
        }
    }
}

/// The name of the master of a [`RedisSentinel`].
const MASTER: &str = "main";

/// A running master with a replica, and a Sentinel that watches them.
#[derive(Debug)]
pub struct RedisSentinel {
    master: RedisServer,
    replica: RedisServer,
    sentinel: RedisServer,
}

impl RedisSentinel {
    /// Starts the three. A master that is away for half a second is replaced.
    ///
    /// # Panics
    /// They do not start.
    #[must_use]
    pub fn start(program: &RedisProgram) -> RedisSentinel {
        let master = RedisServer::start_program(program, &["--repl-diskless-sync-delay", "0"]);
        let port = master.address.port();
        let replica = RedisServer::start_program(program, &["--replicaof", &format!("127.0.0.1 {port}")]);
        until("the replica follows", || replica.says("INFO replication", "master_link_status:up"));
        let folder = tempfile::tempdir().expect("a folder");
        // A Sentinel writes to its file.
        let file = folder.path().join("sentinel.conf");
        let lines = [
            format!("sentinel monitor {MASTER} 127.0.0.1 {port} 1"),
            format!("sentinel down-after-milliseconds {MASTER} 500"),
            format!("sentinel failover-timeout {MASTER} 2000"),
        ];
        std::fs::write(&file, lines.join("\n")).expect("room");
        let sentinel = start_sentinel(program, folder, &file.to_string_lossy());
        until("the Sentinel knows the replica", || {
            sentinel.says(&format!("SENTINEL REPLICAS {MASTER}"), &replica.address.port().to_string())
        });
        RedisSentinel { master, replica, sentinel }
    }

    /// The URL for clients. Of the two Sentinels that it names, the first is not there.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+sentinel://{},{}/{MASTER}", free_address(), self.sentinel.address)
    }

    /// The server that is the master at the start.
    #[must_use]
    pub fn master(&self) -> &RedisServer {
        &self.master
    }

    /// Its replica at the start.
    #[must_use]
    pub fn replica(&self) -> &RedisServer {
        &self.replica
    }

    /// The Sentinel.
    #[must_use]
    pub fn sentinel(&self) -> &RedisServer {
        &self.sentinel
    }

    /// Ends the master at once.
    ///
    /// # Panics
    /// It has ended before.
    pub fn kill_master(&mut self) {
        self.master.kill();
    }
}

fn start_sentinel(program: &RedisProgram, folder: TempDir, file: &str) -> RedisServer {
    for _ in 0..20 {
        let address = free_address();
        let port = address.port().to_string();
        let mut command = Command::new(&program.0);
        command.args([file, "--sentinel", "--bind", "127.0.0.1", "--port", &port, "--dir"]);
        command.arg(folder.path());
        if let Some(child) = ready(command, "+monitor") {
            let more = Vec::new();
            return RedisServer { program: program.clone(), address, child, folder, more };
        }
    }
    panic!("{} --sentinel does not start", program.0);
}

pub(crate) fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound")
}

/// A server that accepts connections; `None` if it ended before that.
fn start(program: &RedisProgram, folder: &TempDir, address: SocketAddr, more: &[String]) -> Option<Child> {
    let mut command = Command::new(&program.0);
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(folder.path()).args(more);
    ready(command, "ready to accept connections")
}

/// A server that has printed `line`; `None` if it ended before that.
fn ready(mut command: Command, line: &str) -> Option<Child> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the server's program");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut printed = String::new();
    while output.read_line(&mut printed).is_ok_and(|read| read > 0) {
        if printed.to_lowercase().contains(line) {
            // It logs on, and must not wait for a reader, nor end because there is none.
            std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
            return Some(child);
        }
        printed.clear();
    }
    let _ = child.wait();
    None
}
