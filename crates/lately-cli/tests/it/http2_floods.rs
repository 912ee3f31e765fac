//! Clients that flood the server with frames of HTTP/2 and read nothing, over HTTP and over gRPC. They are disconnected or held
//! back. Memory stays bounded, and others are served.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::running::{Running, serve_with_ceiling};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// `POST http://localhost/`, as RFC 7541 packs it.
const HEADERS: &[u8] = b"\x83\x86\x84\x41\x09localhost";

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const CEILING_BYTES: u64 = 32 << 20;
const RESIDENT_BYTES: u64 = CEILING_BYTES + CEILING_BYTES / 10 + (16 << 20);

/// Clients of each flood, and what each of them tries to send.
const CLIENTS: usize = 20;
const CLIENT_BYTES: usize = 2 << 20;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn data(flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(0, flags, stream, payload)
}

fn headers(flags: u8, stream: u32) -> Vec<u8> {
    frame(1, flags, stream, HEADERS)
}

/// What a flood sends in its turn of this number.
type Flood = fn(u32) -> Vec<u8>;

/// Each flood, and what it costs a server that does not guard against it.
const FLOODS: [(&str, Flood); 10] = [
    ("streams that are reset at once", |turn| {
        [headers(END_HEADERS | END_STREAM, 2 * turn + 1), frame(3, 0, 2 * turn + 1, &[0, 0, 0, 8])].concat()
    }),
    ("requests whose answers are not read", |turn| headers(END_HEADERS | END_STREAM, 2 * turn + 1)),
    ("requests whose bodies do not end", |turn| headers(END_HEADERS, 2 * turn + 1)),
    ("empty pieces of a body", |turn| match turn {
        0 => headers(END_HEADERS, 1),
        _ => data(0, 1, &[]),
    }),
    ("a head that does not end", |turn| match turn {
        0 => headers(0, 1),
        // A field of two bytes that is in no table.
        _ => frame(9, 0, 1, &b"\x00\x01a\x01b".repeat(2_000)),
    }),
    ("settings, each to be acknowledged", |_| frame(4, 0, 0, &[])),
    ("pings, each to be answered", |_| frame(6, 0, 0, b"8 bytes.")),
    ("windows that grow by a byte", |_| frame(8, 0, 0, &[0, 0, 0, 1])),
    ("priorities of streams that are not there", |turn| frame(2, 0, 2 * turn + 1, &[0, 0, 0, 0, 16])),
    ("frames of an unknown kind", |_| frame(99, 0, 0, &[7; 64])),
];

/// Sends a flood, until the server disconnects the client or takes no more.
fn sent(address: &str, flood: Flood) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.set_write_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let mut bytes = [PREFACE, &frame(4, 0, 0, &[])].concat();
    let mut turn = 0;
    while bytes.len() < CLIENT_BYTES {
        bytes.extend(flood(turn));
        turn += 1;
    }
    if let Err(error) = client.write_all(&bytes) {
        let expected = [ErrorKind::WouldBlock, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        assert!(expected.contains(&error.kind()), "{error}");
    }
    client
}

fn resident_bytes(server: &Running) -> u64 {
    server.info("used_memory_rss").parse().expect("a number")
}

#[test]
fn floods_of_frames_hold_nobody_up() {
    let (server, _folder) = serve_with_ceiling(CEILING_BYTES);
    for address in [&server.http, &server.grpc] {
        for (what, flood) in FLOODS {
            let clients: Vec<TcpStream> = (0..CLIENTS).map(|_| sent(address, flood)).collect();
            let resident = resident_bytes(&server);
            assert!(resident <= RESIDENT_BYTES, "{what} on {address}: {resident} bytes are resident");
            let answer = server.get("/healthz");
            assert!(answer.starts_with("HTTP/1.0 200 "), "{what} on {address}: {answer}");
            assert!(server.ask::<u64>("HIT k") > 0);
            drop(clients);
        }
    }
}
