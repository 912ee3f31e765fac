//! A running server, and a client that sends and receives bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use lately::{Clock, ManualClock, Timestamp};
use lately_server::{Config, Reloader, Server, ServerError, Stopper};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// The time of the clock.
pub(crate) const NOW_S: u64 = 1_700_000_040;

/// The time after which a test fails instead of waiting longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server.
pub(crate) struct Running {
    pub(crate) resp: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) stopper: Stopper,
    pub(crate) reloader: Reloader,
    runtime: Runtime,
    run: JoinHandle<Result<(), ServerError>>,
}

/// A config with free ports on loopback.
pub(crate) fn config() -> Config {
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    Config { resp: free, http: free, grpc: free, ..Config::default() }
}

pub(crate) fn standing_clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_seconds(NOW_S).expect("in range")))
}

impl Running {
    pub(crate) fn start() -> Running {
        Running::with(config(), standing_clock())
    }

    pub(crate) fn with(config: Config, clock: Arc<dyn Clock>) -> Running {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
        let server = runtime.block_on(Server::bind(config, clock)).expect("a free port");
        let (resp, http, stopper) = (server.resp_address(), server.http_address(), server.stopper());
        let (grpc, metrics, reloader) = (server.grpc_address(), server.metrics_address(), server.reloader());
        let run = runtime.spawn(server.run());
        Running { resp, http, grpc, metrics, stopper, reloader, runtime, run }
    }

    /// Runs a client.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await }).expect("in time")
    }

    pub(crate) fn connect(&self) -> Wire {
        Wire::connect(self.resp)
    }

    /// Waits for `run` to end.
    pub(crate) fn ended(self) {
        let Running { runtime, run, .. } = self;
        let ended = runtime.block_on(async { tokio::time::timeout(PATIENCE, run).await });
        ended.expect("the server ends").expect("the server does not panic").expect("it stops in order");
    }
}

/// A connection.
pub(crate) struct Wire(TcpStream);

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Wire {
        let socket = TcpStream::connect(address).expect("the server listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        socket.set_nodelay(true).expect("no delay");
        Wire(socket)
    }

    /// The same connection, for another thread.
    pub(crate) fn other(&self) -> Wire {
        Wire(self.0.try_clone().expect("a file descriptor"))
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Sends a byte of urgent data.
    #[cfg(target_os = "linux")]
    pub(crate) fn send_urgent(&mut self) {
        let sent = socket2::SockRef::from(&self.0).send_out_of_band(b"!");
        assert_eq!(sent.expect("the server reads"), 1);
    }

    /// Sends like `send`. Returns whether the connection is still open.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).is_ok()
    }

    /// Closes the sending side.
    pub(crate) fn finish(&self) {
        self.0.shutdown(Shutdown::Write).expect("open until now");
    }

    /// Reads as many bytes as expected, and compares them.
    pub(crate) fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut got = vec![0; expected.len()];
        self.0.read_exact(&mut got).expect("a reply");
        assert!(
            got == expected,
            "got {:.200}, expected {:.200}",
            got.escape_ascii().to_string(),
            expected.escape_ascii().to_string()
        );
    }

    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) {
        self.send(request);
        self.expect(expected);
    }

    /// A line of a reply, without its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("a line");
            line.push(byte[0]);
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).expect("text")
    }

    /// Reads a whole reply and adds its bytes to `out`.
    pub(crate) fn reply(&mut self, out: &mut Vec<u8>) {
        let line = self.line();
        write!(out, "{line}\r\n").expect("memory");
        let count = || line[1..].parse::<usize>().unwrap_or(0);
        match line.as_bytes()[0] {
            b'$' | b'=' if line != "$-1" => {
                let start = out.len();
                out.resize(start + count() + 2, 0);
                self.0.read_exact(&mut out[start..]).expect("a reply");
            }
            b'*' => (0..count()).for_each(|_| self.reply(out)),
            b'%' => (0..2 * count()).for_each(|_| self.reply(out)),
            _ => {}
        }
    }

    /// Sends a request. Returns the integer of its reply.
    pub(crate) fn number(&mut self, request: &str) -> u64 {
        self.send(request);
        let line = self.line();
        line.strip_prefix(':').and_then(|number| number.parse().ok()).expect(&line)
    }

    /// Reads `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Vec<u8> {
        let mut taken = vec![0; count];
        self.0.read_exact(&mut taken).expect("more comes");
        taken
    }

    /// Reads everything up to the end of the connection.
    pub(crate) fn rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).expect("the server closes the connection");
        rest
    }

    /// Reads like `rest`, but in small pieces, so that the socket buffers stay full for long.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let mut part = [0; 256];
        loop {
            match self.0.read(&mut part).expect("the server closes the connection") {
                0 => return rest,
                count => rest.extend_from_slice(&part[..count]),
            }
        }
    }

    /// Closes both sides, for all owners of the connection.
    pub(crate) fn close(self) {
        // An error means that it is already closed.
        let _ = self.0.shutdown(Shutdown::Both);
    }

    /// Reads everything up to the end of the connection, and compares it.
    pub(crate) fn expect_rest(self, expected: impl AsRef<[u8]>) {
        let rest = self.rest();
        assert!(
            rest == expected.as_ref(),
            "got {:.200}, expected {:.200}",
            rest.escape_ascii().to_string(),
            expected.as_ref().escape_ascii().to_string()
        );
    }
}

/// Pseudo-random numbers, the same in every run.
pub(crate) struct Lots(u64);

impl Lots {
    pub(crate) fn from_seed(seed: u64) -> Lots {
        Lots(seed)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}
