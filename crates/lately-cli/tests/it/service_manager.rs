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
