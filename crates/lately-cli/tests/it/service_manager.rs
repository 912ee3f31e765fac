//! What `lately serve` sends to the service manager that started it.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::command;
use crate::running::{FREE, PATIENCE, Running, start_command};

/// A service manager's socket.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
    folder: tempfile::TempDir,
}

impl Manager {
    fn new() -> Manager {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        Manager { socket, path, folder }
    }

    /// The next message.
    fn message(&self) -> String {
        self.socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut message = [0; 256];
        let bytes = self.socket.recv(&mut message).expect("a message");
        String::from_utf8(message[..bytes].to_vec()).expect("text")
    }

    fn has_no_message(&self) -> bool {
        self.socket.set_nonblocking(true).expect("a mode");
        self.socket.recv(&mut [0; 256]).is_err()
    }
}

fn serve_command(path: &Path, more: &[&str]) -> Command {
    let mut command = command(&[&FREE, more].concat());
    command.env("NOTIFY_SOCKET", path);
    command
}

fn serve(path: &Path) -> Running {
    start_command(&mut serve_command(path, &["--in-memory"]))
}

#[test]
fn the_service_manager_hears_of_the_start_and_the_stop() {
    for by_signal in [true, false] {
        let manager = Manager::new();
        let server = serve(&manager.path);
        assert_eq!(manager.message(), "READY=1\n");
        if by_signal {
            server.signal("TERM");
        } else {
            // The server ends the connection instead of a reply.
            let mut connection = server.connect();
            assert!(redis::cmd("SHUTDOWN").query::<()>(&mut connection).is_err());
        }
        assert_eq!(manager.message(), "STOPPING=1\n", "by a signal: {by_signal}");
        assert_eq!(server.ended().code, Some(0));
        assert!(manager.has_no_message());
    }
}

/// The unit of `Type=notify-reload` waits for the second message.
#[test]
fn the_service_manager_hears_of_a_reload() {
    let manager = Manager::new();
    let config = manager.folder.path().join("lately.toml");
    let write = |text: &str| std::fs::write(&config, text).expect("a file");
    write("");
    let path = config.to_str().expect("text");
    let server = start_command(&mut serve_command(&manager.path, &["--in-memory", "--config", path]));
    assert_eq!(manager.message(), "READY=1\n");
    // A config that is refused is a reload that has ended, too.
    for text in ["[[limit]]\nname = \"a\"\nmax = 1\nwindow = \"1m\"\n", "["] {
        write(text);
        server.signal("HUP");
        let message = manager.message();
        let at = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap_or_else(|| panic!("{message}"));
        assert!(at.trim_end().parse::<u64>().is_ok_and(|at| at > 0), "{message}");
        assert_eq!(manager.message(), "READY=1\n");
        // The limits are there once it is ready.
        assert_eq!(server.ask::<Vec<i64>>("LIMIT k @a PEEK")[..2], [1, 1]);
    }
    server.signal("TERM");
    assert_eq!(manager.message(), "STOPPING=1\n");
    assert_eq!(server.ended().code, Some(0));
    assert!(manager.has_no_message());
}

#[test]
fn a_start_that_fails_is_never_ready() {
    let manager = Manager::new();
    let folder = manager.folder.path().join("data");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("checkpoint-0000000001"), "damaged").expect("a file");
    let data = folder.to_str().expect("text");
    let output = serve_command(&manager.path, &["--data", data]).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(manager.message(), "STOPPING=1\n");
    assert!(manager.has_no_message());
}

#[test]
fn a_service_manager_that_is_gone_is_logged() {
    let manager = Manager::new();
    let path = manager.path.clone();
    drop(manager);
    let mut server = serve(&path);
    server.wait_for_message(
        "lately: NOTIFY_SOCKET: the service manager was not reached: No such file or directory",
    );
    assert_eq!(server.ask::<u64>("HIT k"), 1);
    server.signal("TERM");
    assert_eq!(server.ended().code, Some(0));
}
