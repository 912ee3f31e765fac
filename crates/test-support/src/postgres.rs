//! Real servers of PostgreSQL.

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::redis::free_address;
use crate::until;

/// The user "nobody" of Debian. The server does not run as root.
const NOBODY: u32 = 65_534;

/// The folder with the programs of PostgreSQL.
#[derive(Clone, Debug)]
pub struct PostgresPrograms(PathBuf);

impl PostgresPrograms {
    /// The newest version that is installed. Without one, the calling test is skipped.
    ///
    /// # Panics
    /// It is missing, and `cargo xtask test` would have installed it.
    #[must_use]
    pub fn find() -> Option<PostgresPrograms> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let folders = versions.map(|version| version.path().join("bin"));
        let newest = folders.filter(|folder| folder.join("initdb").is_file()).max();
        if newest.is_none() {
            crate::programs::lacks("PostgreSQL");
        }
        newest.map(PostgresPrograms)
    }

    /// A command that does not run as root.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.0.join(program));
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

fn is_root() -> bool {
    // The owner of this process.
    std::fs::metadata("/proc/self").expect("Linux has it").uid() == 0
}

/// A running server with a user `lately` and a database `counts`. It ends when it is dropped.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PostgresPrograms,
    address: SocketAddr,
    child: Child,
    folder: TempDir,
}

impl PostgresServer {
    /// Starts a server with an empty database on a free port.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start(programs: &PostgresPrograms) -> PostgresServer {
        let folder = folder();
        let made = programs
            .command("initdb")
            .args(["-A", "trust", "-U", "lately", "-E", "UTF8", "--no-sync", "--no-instructions", "-D"])
            .arg(folder.path().join("data"))
            .status();
        assert!(made.expect("initdb").success(), "initdb");
        let server = PostgresServer::serve(programs, folder);
        server.run_in("postgres", "CREATE DATABASE counts").expect("it is its own user");
        server
    }

    /// Starts a standby of this server.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn standby(&self) -> PostgresServer {
        let folder = folder();
        let port = self.address.port().to_string();
        let copied = self
            .programs
            .command("pg_basebackup")
            .args(["-h", "127.0.0.1", "-p", &port, "-U", "lately", "-c", "fast", "-R", "--no-sync", "-D"])
            .arg(folder.path().join("data"))
            .status();
        assert!(copied.expect("pg_basebackup").success(), "pg_basebackup");
        PostgresServer::serve(&self.programs, folder)
    }

    fn serve(programs: &PostgresPrograms, folder: TempDir) -> PostgresServer {
        // Another process may take the port before the server does.
        for _ in 0..20 {
            let address = free_address();
            if let Some(child) = run(programs, folder.path(), address) {
                return PostgresServer { programs: programs.clone(), address, child, folder };
            }
        }
        panic!("PostgreSQL does not start");
    }

    /// The URL of the database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://lately@{}/counts", self.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it at once, as a power failure would.
    ///
    /// # Panics
    /// It has ended before.
    pub fn kill(&mut self) {
        // Its processes end with it, and nothing is written.
        self.signal("QUIT");
        self.child.wait().expect("it ends");
    }

    /// Starts it again on the same port.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart(&mut self) {
        self.child = run(&self.programs, self.folder.path(), self.address).expect("the port is free again");
    }

    /// Makes a standby the server that takes writes.
    ///
    /// # Panics
    /// It is no standby.
    pub fn promote(&self) {
        // A standby cancels statements that stand in the way of what it still replays. So this one does not wait for
        // the end, and is sent again.
        until("the standby takes writes", || {
            let _ = self.run_in("counts", "SELECT pg_promote(false)");
            self.run_in("counts", "SELECT pg_is_in_recovery()").is_ok_and(|answer| answer.trim() == "f")
        });
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

    /// Runs a statement in the database. Returns the rows: a line for each, with `|` between columns.
    ///
    /// # Panics
    /// The server refuses it.
    #[must_use]
    pub fn rows(&self, statement: &str) -> String {
        self.run_in("counts", statement).unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// Runs a statement that has to succeed.
    ///
    /// # Panics
    /// The server refuses it.
    pub fn succeed(&self, statement: &str) {
        let _ = self.rows(statement);
    }

    fn run_in(&self, database: &str, statement: &str) -> Result<String, String> {
        psql(&self.programs, self.address, database, statement)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal("CONT");
            self.signal("QUIT");
            let _ = self.child.wait();
        }
    }
}

/// A running PgBouncer before a server. Each transaction may get another connection. It ends when it is dropped.
#[derive(Debug)]
pub struct PostgresPooler {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl PostgresPooler {
    /// Starts one. Without the program, the calling test is skipped.
    ///
    /// # Panics
    /// It does not start, or is missing, and `cargo xtask test` would have installed it.
    #[must_use]
    pub fn start(server: &PostgresServer) -> Option<PostgresPooler> {
        if !crate::has("pgbouncer") {
            return None;
        }
        let folder = folder();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("users"), "\"lately\" \"\"\n").expect("room");
        let port = server.address.port();
        for _ in 0..20 {
            let address = free_address();
            let config = format!(
                "[databases]\ncounts = host=127.0.0.1 port={port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
                 auth_type = trust\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = 3\nunix_socket_dir =\n",
                address.port(),
                file("users").display()
            );
            std::fs::write(file("config"), config).expect("room");
            let mut command = Command::new("pgbouncer");
            if is_root() {
                command.uid(NOBODY).gid(NOBODY);
            }
            command.arg(file("config")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().expect("pgbouncer");
            let mut has_ended = false;
            until("PgBouncer answers or ends", || {
                has_ended = child.try_wait().expect("its child").is_some();
                has_ended || psql(&server.programs, address, "counts", "SELECT 1").is_ok()
            });
            if !has_ended {
                return Some(PostgresPooler { child, address, _folder: folder });
            }
        }
        panic!("PgBouncer does not start");
    }

    /// The URL of the database of the server behind it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://lately@{}/counts", self.address)
    }
}

impl Drop for PostgresPooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An empty folder that the server may use.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    if is_root() {
        chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("this is root");
    }
    folder
}

/// A server that answers; `None` if it ended before that.
fn run(programs: &PostgresPrograms, folder: &Path, address: SocketAddr) -> Option<Child> {
    let port = address.port().to_string();
    let mut command = programs.command("postgres");
    command.args(["-p", &port, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k"]).arg(folder);
    let mut child = command.arg("-D").arg(folder.join("data")).spawn().expect("the server's program");
    let mut has_ended = false;
    until("PostgreSQL answers or ends", || {
        has_ended = child.try_wait().expect("its child").is_some();
        has_ended || psql(programs, address, "postgres", "SELECT 1").is_ok()
    });
    (!has_ended).then_some(child)
}

/// Runs a statement as the user `lately`.
fn psql(
    programs: &PostgresPrograms,
    address: SocketAddr,
    database: &str,
    statement: &str,
) -> Result<String, String> {
    let url = format!("postgres://lately@{address}/{database}");
    let mut command = programs.command("psql");
    command.args(["-X", "-A", "-t", "-c", statement, &url]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.output().expect("psql");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
