//! TLS on both ports, with certificates of clients, and reloads.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lately_server::Config;
use lately_server::config::Tls;
use lately_server::limits::HANDSHAKE_TIMEOUT;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use test_support::{Certificates, has, until};

use crate::common::{Running, Wire, config, standing_clock};

type Client = StreamOwned<ClientConnection, TcpStream>;

fn server(certificates: &Certificates, client_ca: Option<PathBuf>) -> Running {
    server_with(config(), certificates, client_ca)
}

fn server_with(config: Config, certificates: &Certificates, client_ca: Option<PathBuf>) -> Running {
    let (cert, key) = (certificates.file("cert.pem"), certificates.file("key.pem"));
    let tls = Some(Tls { cert, key, client_ca });
    Running::with(Config { tls, ..config }, standing_clock())
}

/// A client with this certificate, if any, that trusts the authority.
fn client(address: SocketAddr, certificates: &Certificates, own: Option<&str>) -> Client {
    client_offering(&[], address, certificates, own)
}

/// The same, which offers these protocols.
fn client_offering(
    protocols: &[&str],
    address: SocketAddr,
    certificates: &Certificates,
    own: Option<&str>,
) -> Client {
    let read = |name: &str| fs::read(certificates.file(name)).expect(name);
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(&read("ca.pem")).expect("a certificate");
    roots.add(authority).expect("a certificate");
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let chain =
                vec![CertificateDer::from_pem_slice(&read(&format!("{name}.pem"))).expect("a certificate")];
            let key = PrivateKeyDer::from_pem_slice(&read(&format!("{name}-key.pem"))).expect("a key");
            builder.with_client_auth_cert(chain, key).expect("a pair")
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let name = "127.0.0.1".try_into().expect("a name");
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("valid"), socket)
}

/// Sends a request, and reads as many bytes as are expected.
fn ask(client: &mut Client, request: &str, expected: &str) -> io::Result<()> {
    client.write_all(request.as_bytes())?;
    let mut got = vec![0; expected.len()];
    client.read_exact(&mut got)?;
    assert_eq!(String::from_utf8_lossy(&got), expected);
    Ok(())
}

#[test]
fn both_ports_speak_tls() {
    if !has("openssl") {
        return;
    }
    let certificates = Certificates::make();
    let server = server(&certificates, None);
    let mut resp = client(server.resp, &certificates, None);
    ask(&mut resp, "PING\r\nHIT a\r\n", "+PONG\r\n:1\r\n").expect("it answers");
    let mut http = client(server.http, &certificates, None);
    http.write_all(b"POST /v1/hit/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("it reads");
    let mut answer = String::new();
    http.read_to_string(&mut answer).expect("it ends TLS");
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("{\"key\":\"a\",\"hits\":2}"),
        "{answer}"
    );
    // A client without TLS gets no answer, and others go on.
    for address in [server.resp, server.http] {
        let mut plain = Wire::connect(address);
        plain.send("PING\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let rest = plain.rest();
        assert!(!rest.starts_with(b"+") && !rest.starts_with(b"HTTP"), "{}", rest.escape_ascii());
    }
    ask(&mut resp, "HITS a\r\n", ":2\r\n").expect("it answers");
    // The end of TLS is answered with the rest of the replies.
    resp.write_all(b"PING\r\nQUIT\r\n").expect("it reads");
    let mut rest = String::new();
    resp.read_to_string(&mut rest).expect("it ends TLS");
    assert_eq!(rest, "+PONG\r\n+OK\r\n");
}

/// Symptom: with 64 clients that did not finish their handshake, `/healthz` had no answer for 10 s. Cause: a connection counted as
/// waiting for its client only after the handshake. Fix: it counts as such from the start.
#[test]
fn unfinished_handshakes_do_not_block_others() {
    if !has("openssl") {
        return;
    }
    let certificates = Certificates::make();
    // Then a listener has 64 connections.
    let low = Config { ceiling_bytes: 32 << 20, ..config() };
    let server = server_with(low, &certificates, None);
    for address in [server.http, server.grpc] {
        let half = |bytes: &[u8]| {
            let mut half = TcpStream::connect(address).expect("it listens");
            half.write_all(bytes).expect("the system takes it");
            half.set_nonblocking(true).expect("it can be set");
            half
        };
        // The start of a record with a handshake message.
        let mut open: Vec<_> = (0..64).map(|_| half(b"\x16\x03\x01")).collect();
        // Each keeps its place: one that comes before the last of the others still needs one of theirs.
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut http = client_offering(&[], address, &certificates, None);
            http.sock.set_read_timeout(Some(HANDSHAKE_TIMEOUT / 2)).expect("a timeout");
            while http.conn.is_handshaking() {
                http.conn.complete_io(&mut http.sock).expect("it has a place before the others time out");
            }
            clients.push(http);
            open.push(half(b""));
        }
        let is_open = |mut half: &TcpStream| {
            half.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        assert!(open.last().is_some_and(is_open), "the newest stays");
        let gone = open[..64].iter().filter(|half| !is_open(half)).count();
        assert!(gone >= clients.len(), "{gone} of those that were there first have gone");
    }
}

/// Clients of gRPC insist that HTTP/2 is agreed on. Those of HTTP may agree on either version, or offer none.
#[test]
fn clients_agree_on_a_version_of_http() {
    if !has("openssl") {
        return;
    }
    let certificates = Certificates::make();
    let server = server(&certificates, None);
    let offered = ["h2", "http/1.1"];
    for address in [server.grpc, server.http] {
        let mut client = client_offering(&offered, address, &certificates, None);
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("it reads");
        let mut frame = [0; 9];
        client.read_exact(&mut frame).expect("it answers");
        assert_eq!((client.conn.alpn_protocol(), frame[3]), (Some(&b"h2"[..]), 4), "its settings come first");
    }
    for offered in [&offered[1..], &[]] {
        let mut http = client_offering(offered, server.http, &certificates, None);
        http.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        let mut answer = String::new();
        http.read_to_string(&mut answer).expect("it ends TLS");
        assert_eq!(http.conn.alpn_protocol(), offered.first().map(|name| name.as_bytes()));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

/// A client that reads late gets every byte once: replies that the socket does not take are encrypted once only.
#[test]
fn long_replies_are_whole() {
    if !has("openssl") {
        return;
    }
    const TIMES: usize = 200;
    let certificates = Certificates::make();
    let server = server(&certificates, None);
    let mut plain = Vec::new();
    let open = Running::start();
    let mut wire = open.connect();
    wire.send("COMMAND DOCS\r\n");
    wire.reply(&mut plain);
    let mut late = client(server.resp, &certificates, None);
    late.write_all("COMMAND DOCS\r\n".repeat(TIMES).as_bytes()).expect("it reads");
    late.write_all(b"QUIT\r\n").expect("it reads");
    // Another client is served meanwhile.
    ask(&mut client(server.resp, &certificates, None), "PING\r\n", "+PONG\r\n").expect("it answers");
    let mut got = Vec::new();
    late.read_to_end(&mut got).expect("it ends TLS");
    assert_eq!(got.len(), plain.len() * TIMES + 5);
    assert!(got.chunks(plain.len()).take(TIMES).all(|reply| reply == plain));
    // And a long request in many records.
    let keys: usize = 10_000;
    let mut request = format!("*{}\r\n$4\r\nMHIT\r\n", 2 * keys + 1);
    (0..keys).for_each(|key| request += &format!("$6\r\nk{key:05}\r\n$1\r\n1\r\n"));
    let expected = format!("*{keys}\r\n{}", ":1\r\n".repeat(keys));
    ask(&mut client(server.resp, &certificates, None), &request, &expected).expect("it answers");
}

#[test]
fn clients_need_a_certificate_of_the_authority() {
    if !has("openssl") {
        return;
    }
    let (certificates, others) = (Certificates::make(), Certificates::make());
    certificates.sign("good", 1);
    certificates.sign("expired", -1);
    others.sign("foreign", 1);
    for suffix in [".pem", "-key.pem"] {
        let name = format!("foreign{suffix}");
        fs::copy(others.file(&name), certificates.file(&name)).expect("room");
    }
    let server = server(&certificates, Some(certificates.file("ca.pem")));
    for own in [None, Some("expired"), Some("foreign")] {
        for address in [server.resp, server.http] {
            let mut client = client(address, &certificates, own);
            let error = ask(&mut client, "PING\r\n", "+PONG\r\n").expect_err("refused").to_string();
            assert!(error.contains("alert") || error.contains("reset"), "{own:?}: {error}");
        }
    }
    let mut good = client(server.resp, &certificates, Some("good"));
    ask(&mut good, "PING\r\n", "+PONG\r\n").expect("it answers");
    let mut good = client(server.http, &certificates, Some("good"));
    ask(&mut good, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 OK\r\n")
        .expect("it answers");
}

/// The name in the certificate that the server shows.
fn shown(client: &mut Client) -> Vec<u8> {
    ask(client, "PING\r\n", "+PONG\r\n").expect("it answers");
    client.conn.peer_certificates().expect("it has one")[0].to_vec()
}

#[test]
fn a_certificate_is_replaced_while_clients_are_connected() {
    if !has("openssl") {
        return;
    }
    let certificates = Certificates::make();
    certificates.sign("next", 1);
    let file = |name: &str| certificates.file(name);
    let text = format!(
        "[server]\ntls = {{ cert = \"{}\", key = \"{}\" }}\n[storage]\ndurability = \"off\"\n",
        file("cert.pem").display(),
        file("key.pem").display()
    );
    fs::write(file("lately.toml"), text).expect("room");
    let free = config();
    let loaded = Config::load(&file("lately.toml")).expect("valid");
    let server = Running::with(
        Config { resp: free.resp, http: free.http, grpc: free.grpc, ..loaded },
        standing_clock(),
    );
    let mut old = client(server.resp, &certificates, None);
    let before = shown(&mut old);
    // Half a change is refused: the key does not fit.
    fs::copy(file("next.pem"), file("cert.pem")).expect("room");
    server.reloader.reload();
    assert_eq!(shown(&mut client(server.resp, &certificates, None)), before);
    fs::copy(file("next-key.pem"), file("key.pem")).expect("room");
    until("the certificate is new", || shown(&mut client(server.resp, &certificates, None)) != before);
    assert_eq!(shown(&mut old), before);
    let next = fs::read(file("next.pem")).expect("a file");
    let next = CertificateDer::from_pem_slice(&next).expect("a certificate");
    assert_eq!(shown(&mut client(server.resp, &certificates, None)), next.to_vec());
}

#[test]
fn bad_files_are_no_start() {
    if !has("openssl") {
        return;
    }
    let (certificates, others) = (Certificates::make(), Certificates::make());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let check = |cert: PathBuf, key: PathBuf, client_ca: Option<PathBuf>, expected: &str| {
        let tls = Some(Tls { cert, key, client_ca });
        let bound =
            runtime.block_on(lately_server::Server::bind(Config { tls, ..config() }, standing_clock()));
        let error = bound.map(|_| ()).expect_err(expected).to_string();
        assert!(error.contains(expected) && !error.contains("PRIVATE"), "{error}");
    };
    let (cert, key) = (certificates.file("cert.pem"), certificates.file("key.pem"));
    check(key.clone(), key.clone(), None, "key.pem: no certificate in PEM");
    check(cert.clone(), cert.clone(), None, "cert.pem: no private key in PEM");
    check(cert.clone(), key.clone(), Some(key.clone()), "key.pem: no certificate in PEM");
    let foreign = others.file("key.pem");
    let reason = format!("cert.pem: the key in {} belongs to another certificate", foreign.display());
    check(cert.clone(), foreign, None, &reason);
    let odd = certificates.file("odd.pem");
    std::fs::write(&odd, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").expect("written");
    check(cert.clone(), odd, None, "odd.pem: TLS takes keys of RSA from 2,048 bits on");
    check(cert, certificates.file("gone"), None, "gone: No such file");
}
