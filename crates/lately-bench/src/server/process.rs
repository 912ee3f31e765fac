//! A server process: started on a free port, killed when its handle is dropped.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use lately_load::Stopwatch;
use tempfile::TempDir;

use crate::folder;
use crate::memory::resident_of;
use crate::options::Options;
use crate::server::failure::Failure;
use crate::server::nothing::Way;

/// How long a server may take to listen.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// The note on figures without throttlecrab-server.
pub(crate) const THROTTLECRAB_MISSING: &str =
    "not measured: not installed: cargo install throttlecrab-server --root target/rivals";

/// A running server; killed when dropped.
pub(crate) struct Process {
    pub(crate) address: SocketAddr,
    child: Child,
    /// Kept open: a server that writes to a closed pipe may end.
    out: Option<BufReader<ChildStdout>>,
    /// Its files, if it has any.
    _folder: Option<TempDir>,
}

impl Process {
    /// `lately serve`, in memory only, and with as much memory as the run needs.
    pub(crate) fn lately(options: &Options) -> Result<Process, Failure> {
        Process::ours(options, &["--in-memory".as_ref()])
    }

    /// The same with its counts in a folder, which is kept.
    pub(crate) fn lately_in(folder: &Path, durability: &str, options: &Options) -> Result<Process, Failure> {
        let words = ["--data".as_ref(), folder.as_os_str(), "--durability".as_ref(), durability.as_ref()];
        Process::ours(options, &words)
    }

    /// `lately serve` with these options.
    pub(crate) fn ours(options: &Options, more: &[&OsStr]) -> Result<Process, Failure> {
        Process::lately_at(&lately_binary(options)?, more)
    }

    /// `lately serve` of this binary, with these options.
    pub(crate) fn lately_at(binary: &Path, more: &[&OsStr]) -> Result<Process, Failure> {
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("lately.toml");
        fs::write(&config, "[memory]\nceiling = \"8GiB\"\n")?;
        Process::announced(serve(binary, &config).args(more), Some(folder))
    }

    /// `lately serve` with a config, and these options.
    pub(crate) fn ours_with(options: &Options, config: &Path, more: &[&str]) -> Result<Process, Failure> {
        Process::announced(serve(&lately_binary(options)?, config).args(more), None)
    }

    /// The server without work.
    pub(crate) fn nothing(way: Way) -> Result<Process, Failure> {
        let way = match way {
            Way::Tokio => "tokio",
            Way::Queue => "queue",
            Way::Axum => "axum",
        };
        Process::announced(Command::new(std::env::current_exe()?).args(["--nothing", way]), None)
    }

    /// `redis-server` with these arguments, without persistence by default.
    pub(crate) fn redis(more: &[&str]) -> Result<Process, Failure> {
        let address = free_address()?;
        let folder = folder::on_disk()?;
        let port = address.port().to_string();
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--dir"])
            .arg(folder.path())
            .args(more);
        Process::listening(&mut command, address, Some(folder))
    }

    /// `redis-server` with an append-only file that is synced by `appendfsync`. It is never rewritten, which
    /// would take a core during a round.
    pub(crate) fn redis_appending(fsync: &str) -> Result<Process, Failure> {
        Process::redis(&["--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0"])
    }

    /// `throttlecrab-server`, if it is installed.
    pub(crate) fn throttlecrab() -> Option<Result<Process, Failure>> {
        let program = throttlecrab_program()?;
        Some(free_address().and_then(|address| {
            let mut command = Command::new(program);
            command.args([
                "--redis",
                "--redis-host",
                "127.0.0.1",
                "--redis-port",
                &address.port().to_string(),
            ]);
            Process::listening(&mut command, address, None)
        }))
    }

    /// The same over HTTP.
    pub(crate) fn throttlecrab_http() -> Option<Result<Process, Failure>> {
        let program = throttlecrab_program()?;
        Some(free_address().and_then(|address| {
            let port = address.port().to_string();
            let mut command = Command::new(program);
            command.args(["--http", "--http-host", "127.0.0.1", "--http-port", &port]);
            Process::listening(&mut command, address, None)
        }))
    }

    /// A server whose first line has its address.
    fn announced(command: &mut Command, folder: Option<TempDir>) -> Result<Process, Failure> {
        let mut process = Process::start(command.stdout(Stdio::piped()), folder)?;
        let Some(out) = process.child.stdout.take() else { return Err(Failure::new("no pipe")) };
        let (mut out, mut line) = (BufReader::new(out), String::new());
        out.read_line(&mut line)?;
        let address = line.strip_prefix("resp ").and_then(|address| address.trim_end().parse().ok());
        process.address =
            address.ok_or_else(|| Failure::new(format!("{} did not say where it serves", words(command))))?;
        process.out = Some(out);
        Ok(process)
    }

    /// A server that listens at `address`. Connects repeatedly until it does.
    pub(crate) fn listening(
        command: &mut Command,
        address: SocketAddr,
        folder: Option<TempDir>,
    ) -> Result<Process, Failure> {
        let mut process = Process::start(command.stdout(Stdio::null()), folder)?;
        process.address = address;
        let watch = Stopwatch::start();
        while TcpStream::connect(address).is_err() {
            if process.child.try_wait()?.is_some() || watch.elapsed() > START_PATIENCE {
                return Err(Failure::new(format!("{} does not listen on {address}", words(command))));
            }
            std::thread::yield_now();
        }
        Ok(process)
    }

    fn start(command: &mut Command, folder: Option<TempDir>) -> Result<Process, Failure> {
        let child = command
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Failure::new(format!("{} did not start: {error}", words(command))))?;
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Ok(Process { address, child, out: None, _folder: folder })
    }

    /// The HTTP address of our server, from its second line.
    pub(crate) fn http_address(&mut self) -> Result<SocketAddr, Failure> {
        self.next_address("http")
    }

    /// The gRPC address of our server, from its third line.
    pub(crate) fn grpc_address(&mut self) -> Result<SocketAddr, Failure> {
        self.next_address("grpc")
    }

    fn next_address(&mut self, protocol: &str) -> Result<SocketAddr, Failure> {
        let mut line = String::new();
        self.out.as_mut().ok_or_else(|| Failure::new("no pipe"))?.read_line(&mut line)?;
        let address = line.strip_prefix(protocol).and_then(|address| address.trim().parse().ok());
        address.ok_or_else(|| Failure::new(format!("the server did not say where it serves {protocol}")))
    }

    /// The processor time of all its threads, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> Result<u64, Failure> {
        let mut sum = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            let spent = text.split(' ').next().and_then(|spent| spent.parse::<u64>().ok());
            sum += spent.ok_or_else(|| Failure::new("schedstat: no number"))?;
        }
        Ok(sum)
    }

    /// Its resident memory without its program, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<f64, Failure> {
        resident_of(self.child.id()).map_err(Failure::new)
    }

    /// A connection for preparing the server.
    pub(crate) fn connect(&self) -> Result<redis::Connection, Failure> {
        Ok(redis::Client::open(format!("redis://{}/", self.address))?.get_connection()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.out = None;
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The path of `program` on the PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

/// The path of `throttlecrab-server`: on the PATH, or where `cargo xtask bench` installs it, in `rivals`
/// beside the build folder of this program.
pub(crate) fn throttlecrab_program() -> Option<PathBuf> {
    let name = "throttlecrab-server";
    let installed = || {
        let ours = std::env::current_exe().ok()?;
        let path = ours.parent()?.parent()?.join("rivals/bin").join(name);
        path.is_file().then_some(path)
    };
    find(name).or_else(installed)
}

/// The binary of the option, or the one beside ours.
pub(crate) fn lately_binary(options: &Options) -> Result<PathBuf, Failure> {
    let path = match &options.lately {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.parent().unwrap_or(Path::new(".")).join("lately"),
    };
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::new(format!("{} is not there: build it with cargo build --release", path.display())))
}

/// `lately serve` of this binary on free ports.
fn serve(binary: &Path, config: &Path) -> Command {
    let mut command = Command::new(binary);
    command.args(["serve", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]);
    command.arg("--config").arg(config);
    command
}

fn words(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// A port that was free a moment ago, for servers that cannot choose one themselves.
pub(crate) fn free_address() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
