//! An object store with the calls of S3 that Tansu makes. It is in the memory of this process, and outlives brokers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io, thread};

/// When all objects were written. Tansu keeps its own times.
const DATE: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
const LISTED_DATE: &str = "2026-01-01T00:00:00.000Z";

/// The objects by name, each with the number of its write.
#[derive(Default)]
struct Held {
    objects: BTreeMap<String, (u64, Vec<u8>)>,
    writes: u64,
}

/// A running store. It takes no more connections once it is dropped.
pub(crate) struct Objects {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects({})", self.address)
    }
}

impl Objects {
    pub(crate) fn start() -> Objects {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let is_over = Arc::<AtomicBool>::default();
        let (ends, held) = (Arc::clone(&is_over), Arc::<Mutex<Held>>::default());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Relaxed) {
                    return;
                }
                let held = Arc::clone(&held);
                // A broker that is killed leaves a connection without an end.
                thread::spawn(move || stream.and_then(|stream| serve(&stream, &held)));
            }
        });
        Objects { address, is_over }
    }

    /// What a client needs to know, as variables.
    pub(crate) fn variables(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ENDPOINT", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_DEFAULT_REGION", "here".to_owned()),
            ("AWS_ACCESS_KEY_ID", "any".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "any".to_owned()),
        ]
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

struct Request {
    method: String,
    /// The name of the object, or nothing for the bucket itself.
    name: String,
    query: HashMap<String, String>,
    /// Names are in lower case.
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    /// `None` at the end of the connection.
    fn read(stream: &mut impl BufRead) -> io::Result<Option<Request>> {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (_bucket, name) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let query = pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect();
        let (method, name) = (method.to_owned(), decoded(name));
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let len = headers.get("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
        let mut body = vec![0; len];
        stream.read_exact(&mut body)?;
        Ok(Some(Request { method, name, query, headers, body }))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (hex, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(hex, 16).expect("two digits"));
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).expect("UTF-8")
}

/// A status, the tag of the object, and a body.
type Reply = (&'static str, Option<u64>, Vec<u8>);

fn tag(write: u64) -> String {
    format!("\"{write}\"")
}

fn serve(stream: &TcpStream, held: &Mutex<Held>) -> io::Result<()> {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    while let Some(request) = Request::read(&mut reader)? {
        let (status, write, body) = lock(held).reply(&request);
        let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
        if let Some(write) = write {
            head += &format!("ETag: {}\r\nLast-Modified: {DATE}\r\n", tag(write));
        }
        let body = if request.method == "HEAD" { &[][..] } else { &body };
        writer.write_all(&[head.as_bytes(), b"\r\n", body].concat())?;
    }
    Ok(())
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Held {
    fn reply(&mut self, request: &Request) -> Reply {
        let held = self.objects.get(&request.name);
        let held_tag = held.map(|(write, _)| tag(*write));
        match (request.method.as_str(), held) {
            ("GET", _) if request.query.contains_key("list-type") => {
                ("200 OK", None, self.list(&request.query))
            }
            ("GET" | "HEAD", None) => {
                ("404 Not Found", None, b"<Error><Code>NoSuchKey</Code></Error>".to_vec())
            }
            ("GET" | "HEAD", Some((write, _)))
                if request.header("if-none-match").is_some()
                    && request.header("if-none-match") == held_tag.as_deref() =>
            {
                ("304 Not Modified", Some(*write), Vec::new())
            }
            ("GET" | "HEAD", Some((write, body))) if request.header("range").is_none() => {
                ("200 OK", Some(*write), body.clone())
            }
            ("PUT", _) => {
                let is_there = held.is_some();
                let is_other = request.header("if-match").is_some_and(|tag| Some(tag) != held_tag.as_deref());
                if is_other || request.header("if-none-match").is_some() && is_there {
                    return ("412 Precondition Failed", None, Vec::new());
                }
                self.writes += 1;
                self.objects.insert(request.name.clone(), (self.writes, request.body.clone()));
                ("200 OK", Some(self.writes), Vec::new())
            }
            ("DELETE", _) => {
                self.objects.remove(&request.name);
                ("204 No Content", None, Vec::new())
            }
            _ => ("501 Not Implemented", None, Vec::new()),
        }
    }

    fn list(&self, query: &HashMap<String, String>) -> Vec<u8> {
        let of = |name: &str| query.get(name).map_or("", String::as_str);
        let (prefix, delimiter) = (of("prefix"), of("delimiter"));
        let (mut listed, mut folders) = (String::new(), BTreeSet::new());
        for (name, (write, body)) in &self.objects {
            let Some(rest) = name.strip_prefix(prefix) else { continue };
            if let Some((folder, _)) = rest.split_once(delimiter).filter(|_| !delimiter.is_empty()) {
                folders.insert(format!("{prefix}{folder}{delimiter}"));
                continue;
            }
            listed += &format!(
                "<Contents><Key>{name}</Key><LastModified>{LISTED_DATE}</LastModified><ETag>{write}</ETag><Size>{}</Size></Contents>",
                body.len()
            );
        }
        for folder in folders {
            listed += &format!("<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>");
        }
        format!("<ListBucketResult>{listed}<IsTruncated>false</IsTruncated></ListBucketResult>").into_bytes()
    }
}
