//! Clients that flood the server with frames of HTTP/2 and read nothing, over HTTP and over gRPC. They are disconnected or held
//! back. Memory stays bounded, and others are served.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::flood::pour;
use crate::running::{Running, serve_with, serve_with_ceiling};

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

/// A request of this many streams on a connection, with a stream window of no bytes: the client takes no answer.
fn held_streams(streams: u32, request: &dyn Fn(u32) -> Vec<u8>) -> Vec<u8> {
    // INITIAL_WINDOW_SIZE is 0.
    let start = [PREFACE, &frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])].concat();
    (0..streams).fold(start, |bytes, stream| [bytes, request(2 * stream + 1)].concat())
}

/// The head of a request with this method, as RFC 7541 packs it, and this path.
fn head_of(method: u8, path: &str, more: &[u8]) -> Vec<u8> {
    let length = u8::try_from(path.len()).expect("it is short");
    assert!(length < 127);
    [&[method, 0x86, 0x04, length], path.as_bytes(), b"\x41\x09localhost", more].concat()
}

/// Symptom: 64 connections with 64 streams of HTTP/2 each, or 256 with 64 streams of gRPC, whose answers the clients did not take,
/// took 170 to 290 MiB at a ceiling of 32 MiB, and keys were evicted. Cause: only connections were bounded, and streams were not
/// charged. Fix: requests in progress have a bounded number of places, and are charged.
#[test]
fn streams_whose_answers_are_not_taken_stay_below_the_ceiling() {
    const GET: u8 = 0x82;
    const POST: u8 = 0x83;
    const STREAMS: u32 = 64;
    const KEYS: u64 = 2_000;
    let calls = b"\x0f\x10\x10application/grpc\x00\x02te\x08trailers";
    let get = |path: &str| {
        let head = head_of(GET, path, &[]);
        held_streams(STREAMS, &|stream| frame(1, END_HEADERS | END_STREAM, stream, &head))
    };
    let call = |path: &str, flags: u8, message: &[u8]| {
        let head = head_of(POST, path, calls);
        held_streams(STREAMS, &|stream| {
            [frame(1, END_HEADERS, stream, &head), data(flags, stream, message)].concat()
        })
    };
    let (server, _folder) = serve_with_ceiling(CEILING_BYTES);
    let bytes = |field: &str| server.info(field).parse::<u64>().expect("a number");
    for number in 0..KEYS {
        server.ask::<u64>(&format!("HIT key:{number}"));
    }
    let watch = call("/grpc.health.v1.Health/Watch", END_STREAM, &[0; 5]);
    let check = call("/grpc.health.v1.Health/Check", END_STREAM, &[0; 5]);
    let stream = call("/lately.v1.Lately/HitStream", 0, b"\0\0\0\0\x03\x0a\x01k");
    let half = call("/lately.v1.Lately/Hit", 0, &[&[0, 0, 0, 200, 0][..], &[b'x'; 1_000]].concat());
    let cases = [
        ("series", &server.http, 64, get("/v1/series/key:1?window=1d&step=1s")),
        ("metrics", &server.http, 64, get("/metrics")),
        ("short answers", &server.http, 64, get("/healthz")),
        ("health", &server.grpc, 256, watch),
        ("checks", &server.grpc, 256, check),
        ("hits", &server.grpc, 256, stream),
        ("half a message", &server.grpc, 256, half),
    ];
    rlimit::increase_nofile_limit(4_096).expect("a limit on open files");
    for (what, address, connections, request) in cases {
        let clients: Vec<TcpStream> = (0..connections)
            .map(|_| {
                let mut client = TcpStream::connect(address).expect("it listens");
                // An error says that the server has closed it for another one.
                let _ = client.write_all(&request);
                client
            })
            .collect();
        for _ in 0..50 {
            let answer = server.get("/healthz");
            assert!(answer.starts_with("HTTP/1.0 200 "), "{what}: {answer}");
            let resident = resident_bytes(&server);
            assert!(resident <= RESIDENT_BYTES, "{what}: {resident} bytes are resident");
            // Connections have an eighth of the ceiling, and requests another.
            assert!(bytes("used_memory_connections") <= CEILING_BYTES / 4, "{what}");
        }
        assert!(bytes("used_memory_connections") > 0, "{what}");
        assert_eq!(bytes("evicted_keys"), 0, "{what}");
        drop(clients);
    }
}

/// The next frame: its kind, its flags, and its stream.
fn next_frame(client: &mut TcpStream) -> (u8, u8, u32) {
    let mut head = [0; 9];
    client.read_exact(&mut head).expect("the connection goes on");
    let [a, b, c, kind, flags, stream @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    client.read_exact(&mut payload).expect("the connection goes on");
    (kind, flags, u32::from_be_bytes(stream))
}

/// Symptom: at a ceiling of 16 MiB, 64 clients of HTTP and 64 of gRPC with a connection each took 13 MiB. Cause: all routes were copied
/// for each connection, 58 KiB. Fix: connections share the routes, and what is left is charged.
#[test]
fn many_connections_take_little_memory() {
    const CONNECTIONS: u64 = 60;
    const CONNECTION_BYTES: u64 = 80 << 10;
    // Below 147 MiB, there are fewer.
    let (server, _folder) = serve_with_ceiling(160 << 20);
    let calls = b"\x0f\x10\x10application/grpc\x00\x02te\x08trailers";
    let call = head_of(0x83, "/grpc.health.v1.Health/Check", calls);
    let requests = [
        (&server.http, frame(1, END_HEADERS | END_STREAM, 1, &head_of(0x82, "/healthz", &[]))),
        (&server.grpc, [frame(1, END_HEADERS, 1, &call), data(END_STREAM, 1, &[0; 5])].concat()),
    ];
    for (address, request) in requests {
        let answered = || {
            let mut client = TcpStream::connect(address).expect("it listens");
            client.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
            client.write_all(&[PREFACE, &frame(4, 0, 0, &[]), &request].concat()).expect("it reads");
            // The answer ends with its head or its body.
            while !matches!(next_frame(&mut client), (0 | 1, flags, 1) if flags & END_STREAM != 0) {}
            client
        };
        let first = answered();
        let before_bytes = server.own_bytes();
        let charged_bytes = || server.info("used_memory_connections").parse::<u64>().expect("a number");
        let charged_before = charged_bytes();
        let clients: Vec<TcpStream> = (0..CONNECTIONS).map(|_| answered()).collect();
        let more_bytes = server.own_bytes().saturating_sub(before_bytes);
        assert!(more_bytes <= CONNECTIONS * CONNECTION_BYTES, "{more_bytes} bytes on {address}");
        assert!(charged_bytes() >= charged_before + CONNECTIONS * (48 << 10), "{}", charged_bytes());
        drop((first, clients));
    }
}

/// Symptom: at a ceiling of 16 MiB, floods of members, of calls and of requests for many keys took 30 MiB, without the pages of the
/// program, and reopened limits. Cause: connections were not charged, and the server looked for memory beyond the ceiling too
/// rarely. Fix: they are charged, low ceilings have fewer, and near the bound the server looks every 10 ms.
#[test]
fn floods_of_all_kinds_at_once_stay_below_a_low_ceiling() {
    const CEILING_BYTES: u64 = 16 << 20;
    /// The memory of the process that is not accounted for: 16 MiB, without the pages of its program.
    const BASE_BYTES: u64 = 5 << 20;
    const CLIENTS: u32 = 64;
    const HITS: u64 = 60_000;
    const LIMITS: u64 = 50;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lately.toml");
    let classes = "[[class]]\nmatch = \"i:*\"\ndedupe = \"1h\"\n[[class]]\nmatch = \"m:*\"\nunique = true\n";
    std::fs::write(&config, format!("[memory]\nceiling = {CEILING_BYTES}\n{classes}")).expect("a file");
    let server = serve_with(&["--config", config.to_str().expect("text")]);
    for number in 0..LIMITS {
        assert_eq!(server.ask::<Vec<i64>>(&format!("LIMIT half:{number} 10 1h COST 5"))[2], 5);
    }
    pour(&server, (0..20_000).map(|number| format!("HIT k:{number} 2\r\n")));
    let start = [PREFACE, &frame(4, 0, 0, &[])].concat();
    let calls = b"\x0f\x10\x10application/grpc\x00\x02te\x08trailers";
    let call = |stream: u32, number: u32| {
        // A key of 16 bytes, and a limit of 100 an hour.
        let given = b"\x1a\x07\x08\x64\x10\x80\xdd\xdb\x01";
        let message = [&[0x0a, 16][..], format!("{number:016x}").as_bytes(), given].concat();
        let length = u8::try_from(message.len()).expect("it is short");
        let head = head_of(0x83, "/lately.v1.Lately/Limit", calls);
        let body = [&[0, 0, 0, 0, length][..], &message].concat();
        [frame(1, END_HEADERS, stream, &head), data(END_STREAM, stream, &body)].concat()
    };
    let (server, start) = (&server, &start);
    let most_bytes = std::thread::scope(|scope| {
        let ids = scope.spawn(|| pour(server, (0..HITS).map(|n| format!("HIT i:{n:016x} ID {n:016x}\r\n"))));
        let members =
            scope.spawn(|| pour(server, (0..HITS).map(|n| format!("HIT m:{n:016x} MEMBER {n:016x}\r\n"))));
        let calling = scope.spawn(|| {
            for round in 0..20 {
                let mut clients = Vec::new();
                for client_number in 0..CLIENTS {
                    let mut client = TcpStream::connect(&server.grpc).expect("it listens");
                    let first = (round * CLIENTS + client_number) * 8;
                    let calls = (0..8).map(|turn| call(2 * turn + 1, first + turn));
                    let bytes: Vec<u8> = start.iter().copied().chain(calls.flatten()).collect();
                    // An error says that the server has closed it for another one.
                    let _ = client.write_all(&bytes);
                    clients.push(client);
                }
            }
        });
        let asking = scope.spawn(|| {
            let head = head_of(0x82, "/v1/top?k=10000", &[]);
            let requests = (0..24).flat_map(|turn| frame(1, END_HEADERS | END_STREAM, 2 * turn + 1, &head));
            let bytes: Vec<u8> = start.iter().copied().chain(requests).collect();
            for _ in 0..20 {
                let mut clients = Vec::new();
                for _ in 0..CLIENTS {
                    let mut client = TcpStream::connect(&server.http).expect("it listens");
                    let _ = client.write_all(&bytes);
                    clients.push(client);
                }
            }
        });
        calling.join().and(asking.join()).expect("no panic");
        ids.join().expect("no panic").max(members.join().expect("no panic"))
    });
    let bound = CEILING_BYTES + CEILING_BYTES / 10 + BASE_BYTES;
    assert!(most_bytes <= bound, "{most_bytes} bytes resident: {bound} is the bound");
    for number in 0..LIMITS {
        assert_eq!(server.ask::<Vec<i64>>(&format!("LIMIT half:{number} 10 1h PEEK"))[2], 5, "{number}");
    }
}

/// A client may send requests before it has the settings of the server. Those beyond the bound are refused, and the connection
/// goes on.
#[test]
fn streams_beyond_the_bound_are_refused_by_themselves() {
    const STREAMS: u32 = 64;
    let (server, _folder) = serve_with_ceiling(2 * CEILING_BYTES);
    let mut client = TcpStream::connect(&server.http).expect("it listens");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let request = |turn| [headers(END_HEADERS, 2 * turn + 1), data(END_STREAM, 2 * turn + 1, b"x")].concat();
    let requests: Vec<u8> = (0..STREAMS).flat_map(request).collect();
    client.write_all(&[PREFACE, &frame(4, 0, 0, &[]), &requests].concat()).expect("it reads");
    let (mut answered, mut refused) = (BTreeSet::new(), BTreeSet::new());
    while answered.len() + refused.len() < STREAMS as usize {
        let mut head = [0; 9];
        client.read_exact(&mut head).expect("the connection goes on");
        let [a, b, c, kind, _, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        client.read_exact(&mut payload).expect("the connection goes on");
        let stream = u32::from_be_bytes(stream);
        match kind {
            1 => _ = answered.insert(stream),
            // REFUSED_STREAM
            3 if payload == [0, 0, 0, 7] => _ = refused.insert(stream),
            7 => panic!("GOAWAY {}", payload.escape_ascii()),
            _ => {}
        }
    }
    assert!(answered.len() >= 16 && !refused.is_empty(), "{answered:?} {refused:?}");
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
