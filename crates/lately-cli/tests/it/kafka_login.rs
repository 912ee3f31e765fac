//! Brokers of Kafka that want TLS, a user and a password. Tansu has neither together: a proxy before it has both.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use test_support::{Certificates, Tansu};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::cluster::all_say;
use crate::common::command;
use crate::running::{FREE, Running, becomes, start};

/// What a client sends to log in as `me`: SASL PLAIN, RFC 4616.
const LOGIN: &[u8] = b"\0me\0p@ss";
/// Kinds of requests of Kafka.
const VERSIONS: u16 = 18;
const HANDSHAKE: u16 = 17;
const AUTHENTICATE: u16 = 36;

/// The proxy.
struct Door {
    address: SocketAddr,
    certificates: Certificates,
    listener: TcpListener,
    runtime: Runtime,
}

impl Door {
    fn new() -> Door {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        Door { address, certificates: Certificates::make(), listener, runtime }
    }

    /// Passes on to a broker what clients send that show a certificate of the authority and log in.
    fn open(self, broker: SocketAddr) -> (Certificates, Runtime) {
        let Door { certificates, listener, runtime, .. } = self;
        let path = |name| certificates.file(name);
        let pem = |name| CertificateDer::from_pem_file(path(name)).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(pem("ca.pem")).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let key = PrivateKeyDer::from_pem_file(path("key.pem")).expect("a key");
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier.build().expect("a verifier"))
            .with_single_cert(vec![pem("cert.pem")], key)
            .expect("a config");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // Clients that may not come in are disconnected.
                    let mut client = acceptor.accept(socket).await.ok()?;
                    let mut broker = TcpStream::connect(broker).await.ok()?;
                    let may_enter = logs_in(&mut client, &mut broker).await?;
                    if may_enter {
                        copy_bidirectional(&mut client, &mut broker).await.ok()?;
                    }
                    Some(())
                });
            }
        });
        (certificates, runtime)
    }
}

/// Answers a client until it has logged in. Whether it may enter; `None` if it has gone.
async fn logs_in(client: &mut TlsStream<TcpStream>, broker: &mut TcpStream) -> Option<bool> {
    loop {
        let request = frame(client).await?;
        let number = |at: usize| u16::from_be_bytes([request[at], request[at + 1]]);
        let (kind, version) = (number(0), number(2));
        let mut answer = request[4..8].to_vec();
        match kind {
            VERSIONS => {
                send(broker, &request).await?;
                answer = frame(broker).await?;
            }
            HANDSHAKE => answer.extend_from_slice(b"\0\0\0\0\0\x01\0\x05PLAIN"),
            AUTHENTICATE => {
                let may_enter = request.windows(LOGIN.len() + 1).any(|part| {
                    // The length is before it, in two or four bytes.
                    usize::from(part[0]) == LOGIN.len() && &part[1..] == LOGIN
                });
                let (error, why): (u16, &[u8]) = if may_enter { (0, b"") } else { (58, b"wrong password") };
                answer.extend_from_slice(&error.to_be_bytes());
                answer.extend_from_slice(&u16::try_from(why.len()).ok()?.to_be_bytes());
                answer.extend_from_slice(why);
                answer.extend_from_slice(&0_u32.to_be_bytes());
                if version > 0 {
                    answer.extend_from_slice(&0_u64.to_be_bytes());
                }
                send(client, &answer).await?;
                return Some(may_enter);
            }
            _ => return Some(false),
        }
        send(client, &answer).await?;
    }
}

async fn frame(from: &mut (impl AsyncReadExt + Unpin)) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(from.read_u32().await.ok()?).ok()?];
    from.read_exact(&mut bytes).await.ok()?;
    Some(bytes)
}

async fn send(to: &mut (impl AsyncWriteExt + Unpin), bytes: &[u8]) -> Option<()> {
    to.write_u32(u32::try_from(bytes.len()).ok()?).await.ok()?;
    to.write_all(bytes).await.ok()?;
    to.flush().await.ok()
}

/// A server that counts the topic of these brokers.
fn node(folder: &std::path::Path, url: &str) -> Running {
    let config = folder.join("lately.toml");
    let text = format!(
        "[cluster]\nengine = \"kafka\"\nnode = \"a\"\nurls = [\"{url}\"]\ntopic = \"hits\"\nsession = \"1s\"\nflush = \"100ms\"\n"
    );
    std::fs::write(&config, text).expect("a file");
    start(&[&FREE, &["--config", config.to_str().expect("text"), "--in-memory"][..]].concat())
}

#[test]
fn brokers_want_a_certificate_a_user_and_a_password() {
    let door = Door::new();
    let Some(tansu) = Tansu::behind(Some(door.address)) else { return };
    tansu.create_topic("hits", 2);
    let address = door.address;
    let (certificates, _runtime) = door.open(tansu.address());
    let file = |name: &str| certificates.file(name).to_string_lossy().into_owned();
    let (ca, cert, key) = (file("ca.pem"), file("cert.pem"), file("key.pem"));
    let url = |password: &str, files: &str| format!("kafka+ssl://me:{password}@{address}?{files}");
    let right = url("p%40ss", &format!("ca={ca}&cert={cert}&key={key}"));
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("access.log");
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    std::fs::write(&log, format!("{{\"time\":{now},\"ip\":\"10.0.0.1\"}}\n").repeat(3)).expect("a file");
    let produce = |url: &str| {
        let args = ["produce", log.to_str().expect("text"), "--topic", "hits", "--key", "{ip}"];
        let output = command(&args).env("LATELY_BROKERS", url).output().expect("it runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let (code, message) = produce(&right);
    assert_eq!(code, Some(0), "{message}");
    assert!(message.ends_with("3 records written to hits\n"), "{message}");
    let server = node(folder.path(), &right);
    assert!(all_say(&[&server], "HITS 10.0.0.1 1h", 3));
    drop(server);
    // Who is wrong is said, and why; a password is not.
    for (wrong, expected) in [
        (url("wrong", &format!("ca={ca}&cert={cert}&key={key}")), "wrong password"),
        (url("p%40ss", &format!("ca={cert}&cert={cert}&key={key}")), "certificate verify failed"),
        (url("p%40ss", &format!("ca={ca}")), "SSL"),
    ] {
        let (code, message) = produce(&wrong);
        assert!(code != Some(0) && message.contains(expected), "{expected}: {message}");
        assert!(!message.contains("p%40ss") && !message.contains("p@ss"), "{message}");
        let mut server = node(folder.path(), &wrong);
        server.wait_for_message(expected);
        assert!(becomes(|| server.get("/readyz").ends_with("degraded: engine\n")));
        assert_eq!(server.ask::<u64>("HIT own"), 1);
    }
}
