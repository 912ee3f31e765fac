//! A server that hangs up in the middle, to count what a client does then.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A server that knows `HELLO` and `CLUSTER SLOTS`, and closes the connection at a write.
pub(crate) struct Faulty {
    pub(crate) address: SocketAddr,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    writes: AtomicUsize,
}

impl Faulty {
    /// Starts it, on a thread that ends with the test.
    pub(crate) fn start(is_cluster: bool) -> Faulty {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::<Seen>::default();
        let ours = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                ours.connections.fetch_add(1, Relaxed);
                let _ = serve(stream, address, is_cluster, &ours);
            }
        });
        Faulty { address, seen }
    }

    /// How many connections and writes it has seen.
    pub(crate) fn seen(&self) -> (usize, usize) {
        (self.seen.connections.load(Relaxed), self.seen.writes.load(Relaxed))
    }
}

fn serve(mut stream: TcpStream, address: SocketAddr, is_cluster: bool, seen: &Seen) -> std::io::Result<()> {
    let mut requests = BufReader::new(stream.try_clone()?);
    loop {
        let words = request(&mut requests)?;
        let mode = if is_cluster { "$7\r\ncluster" } else { "$10\r\nstandalone" };
        let answer = match words.first().map(String::as_str) {
            Some("HELLO") => format!("*2\r\n$4\r\nmode\r\n{mode}\r\n"),
            Some("CLUSTER") => {
                let port = address.port();
                format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$2\r\nid\r\n")
            }
            Some("ZADD") => {
                seen.writes.fetch_add(1, Relaxed);
                return Ok(());
            }
            _ => "+OK\r\n".to_owned(),
        };
        stream.write_all(answer.as_bytes())?;
    }
}

/// One request: an array of bulk strings.
fn request(from: &mut impl BufRead) -> std::io::Result<Vec<String>> {
    let number = |from: &mut dyn BufRead| -> std::io::Result<usize> {
        let mut line = String::new();
        from.read_line(&mut line)?;
        line.trim_end()
            .get(1..)
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| std::io::Error::other("end"))
    };
    let mut words = Vec::new();
    for _ in 0..number(from)? {
        let mut word = vec![0; number(from)? + 2];
        from.read_exact(&mut word)?;
        words.push(String::from_utf8_lossy(&word[..word.len() - 2]).into_owned());
    }
    Ok(words)
}
