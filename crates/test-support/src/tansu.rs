//! Tansu, a broker for clients of Kafka.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::objects::Objects;
use crate::redis::free_address;
use crate::until;

/// A running broker. It ends when it is dropped.
#[derive(Debug)]
pub struct Tansu {
    program: PathBuf,
    address: SocketAddr,
    child: Child,
    /// What outlives a kill. Without it, topics are in the memory of the broker.
    objects: Option<Objects>,
}

impl Tansu {
    /// Starts a broker on a free port. Without the program, the calling test is skipped.
    ///
    /// # Panics
    /// It does not start, or is missing, and `cargo xtask test` would have installed it.
    #[must_use]
    pub fn start() -> Option<Tansu> {
        Tansu::behind(None)
    }

    /// Starts a broker that tells clients to connect to `door`, which passes on what they send. Without the program, the calling
    /// test is skipped.
    ///
    /// # Panics
    /// It does not start, or is missing, and `cargo xtask test` would have installed it.
    #[must_use]
    pub fn behind(door: Option<SocketAddr>) -> Option<Tansu> {
        let program = PathBuf::from(crate::installed("LATELY_TEST_TANSU")?);
        let address = free_address();
        let child = start(&program, address, door.unwrap_or(address), None);
        Some(Tansu { program, address, child, objects: None })
    }

    /// Starts a broker that has its topics in an object store, and can be started again. Without the program, the calling test is
    /// skipped.
    ///
    /// # Panics
    /// It does not start, or is missing, and `cargo xtask test` would have installed it.
    #[must_use]
    pub fn with_objects() -> Option<Tansu> {
        let program = PathBuf::from(crate::installed("LATELY_TEST_TANSU")?);
        let (address, objects) = (free_address(), Objects::start());
        let child = start(&program, address, address, Some(&objects));
        Some(Tansu { program, address, child, objects: Some(objects) })
    }

    /// Kills a broker that has its topics in an object store.
    ///
    /// # Panics
    /// Its topics are in memory.
    pub fn kill(&mut self) {
        assert!(self.objects.is_some(), "its topics would be lost");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, at the same address.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart(&mut self) {
        self.kill();
        self.child = start(&self.program, self.address, self.address, self.objects.as_ref());
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Creates a topic.
    ///
    /// # Panics
    /// It cannot be created.
    pub fn create_topic(&self, name: &str, partitions: u32) {
        let mut command = Command::new(&self.program);
        command.args(["topic", "create", "--broker", &format!("tcp://{}", self.address), name]);
        command.args(["--partitions", &partitions.to_string()]).stdin(Stdio::null());
        let output = command.output().expect("tansu");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn start(program: &PathBuf, address: SocketAddr, door: SocketAddr, objects: Option<&Objects>) -> Child {
    let [url, door] = [address, door].map(|address| format!("tcp://{address}"));
    let mut command = Command::new(program);
    command.args(["broker", "--silent", "--listener-url", &url, "--advertised-listener-url", &door]);
    let storage = if objects.is_some() { "s3://tansu/" } else { "memory://tansu/" };
    command.args(["--storage-engine", storage]).envs(objects.into_iter().flat_map(Objects::variables));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("tansu");
    until("the broker listens", || TcpStream::connect(address).is_ok());
    child
}

impl Drop for Tansu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
