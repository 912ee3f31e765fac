//! Real Redis servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A running `redis-server` without persistence. It ends when it is dropped.
#[derive(Debug)]
pub struct RedisServer {
    address: SocketAddr,
    child: Child,
    folder: TempDir,
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
        let folder = tempfile::tempdir().expect("a folder");
        // Another process may take the port before the server does: then it says so and ends, and the next port is tried.
        for _ in 0..20 {
            let address = free_address();
            if let Some(child) = start(&folder, address, more) {
                return RedisServer { address, child, folder };
            }
        }
        panic!("redis-server does not start");
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
        self.child = start(&self.folder, self.address, &[]).expect("the port is free again");
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
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound")
}

/// A server that accepts connections; `None` if it ended before that.
fn start(folder: &TempDir, address: SocketAddr, more: &[&str]) -> Option<Child> {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(folder.path()).args(more);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for line in lines.map_while(Result::ok) {
        if line.to_lowercase().contains("ready to accept connections") {
            return Some(child);
        }
    }
    let _ = child.wait();
    None
}
