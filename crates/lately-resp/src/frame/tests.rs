//! Requests, whole and in pieces. The error texts are those of Redis 7.0.15, where it has one.

use proptest::prelude::*;

use super::*;
use crate::request::write_request;
use stream::{SMALL, read_all, read_in_pieces};

mod stream;

#[test]
fn requests_parse() {
    let check = |stream: &str, expected: &[&[&str]]| {
        let (requests, error) = read_all(stream.as_bytes(), &Limits::default());
        assert_eq!(error, None, "{stream}");
        let expected: Vec<Vec<Vec<u8>>> = expected
            .iter()
            .map(|request| request.iter().map(|arg| arg.as_bytes().to_vec()).collect())
            .collect();
        assert_eq!(requests, expected, "{}", stream.escape_debug());
    };
    check("", &[]);
    check("*1\r\n$4\r\nPING\r\n", &[&["PING"]]);
    check("*2\r\n$3\r\nHIT\r\n$0\r\n\r\n", &[&["HIT", ""]]);
    check("*1\r\n$4\r\na\r\nb\r\n", &[&["a\r\nb"]]);
    check("*10\r\n", &[]);
    check("PING\r\nPING\nECHO 'a b'\r\n", &[&["PING"], &["PING"], &["ECHO", "a b"]]);
    check("*1\r\n$1\r\na\r\nPING\r\n*1\r\n$1\r\nb\r\n", &[&["a"], &["PING"], &["b"]]);
    // Empty requests are skipped.
    check("*0\r\n*-1\r\n*-5\r\n\r\n\n   \r\nPING\r\n", &[&["PING"]]);
    check("PING\r\r\n", &[&["PING"]]);
    for whole in ["*2\r\n$4\r\nECHO\r\n$12\r\nhello, world\r\n", "ECHO \"a b\"\r\n", "*0\r\n"] {
        for cut in 0..whole.len() {
            check(&whole[..cut], &[]);
        }
    }
}

#[test]
fn protocol_errors_have_the_words_of_redis() {
    let check = |stream: &str, expected: &str| {
        let (_, error) = read_all(stream.as_bytes(), &Limits::default());
        assert_eq!(error.as_deref(), Some(expected), "{:.40}", stream.escape_debug());
    };
    let long = "1".repeat(70_000);
    for count in ["a", "", "-", "01", "+1", " 1", "2147483648", "1x", "99999999999999999999"] {
        check(&format!("*{count}\r\n"), "ERR Protocol error: invalid multibulk length");
    }
    for length in ["-1", "abc", "+4", "04", " 4", ""] {
        check(&format!("*1\r\n${length}\r\n"), "ERR Protocol error: invalid bulk length");
    }
    check(
        "*1\r\n$536870913\r\n",
        "ERR Protocol error: invalid bulk length 536870913: a bulk string has at most 1048576 bytes",
    );
    check("*1\rxPING\r\n", "ERR Protocol error: invalid multibulk length");
    check("*1\r\nx4\r\n", "ERR Protocol error: expected '$', got 'x'");
    check("*1\r\nx", "ERR Protocol error: expected '$', got 'x'");
    check("*2\r\n$4\r\nPING\r\n:1\r\n", "ERR Protocol error: expected '$', got ':'");
    check("*1\r\n$4\r\nPINGXX", "ERR Protocol error: expected CRLF after bulk string");
    check(&long, "ERR Protocol error: too big inline request");
    check(&format!("*{long}"), "ERR Protocol error: too big mbulk count string");
    check(&format!("*1\r\n${long}"), "ERR Protocol error: too big bulk count string");
    for quotes in ["PING \"abc\r\n", "PING \"abc\"d\r\n", "PING 'abc\r\n", "PING a\"b c\"d\r\n"] {
        check(quotes, "ERR Protocol error: unbalanced quotes in request");
    }
}

/// Symptom: commands ran that a website had put into the session id of a TLS handshake, which a browser sent
/// to this port. Cause: a line of any bytes was an unknown command, and the line after it the next command.
/// Fix: bytes that are not text close the connection.
#[test]
fn bytes_of_other_protocols_run_nothing() {
    let tls = "ERR Protocol error: TLS handshake: this port speaks the Redis protocol without TLS";
    let nul = "ERR Protocol error: NUL in inline request: this port speaks the Redis protocol without TLS";
    let check = |stream: &[u8], before: usize, expected: &str| {
        let cuts: Vec<usize> = (0..stream.len()).collect();
        for cuts in [&[], cuts.as_slice()] {
            let (requests, error) = read_in_pieces(stream, cuts, &Limits::default());
            assert_eq!((requests.len(), error.as_deref()), (before, Some(expected)), "{stream:?}");
        }
    };
    let mut hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec();
    hello.extend_from_slice(&[b'R'; 32]);
    hello.extend_from_slice(b"\x20\r\nFLUSHALL\r\n....................\x00\x3e\x13\x02");
    check(&hello, 0, tls);
    check(&hello[1..], 0, nul);
    check(b"\x16", 0, tls);
    check(b"\x16\r\nPING\r\n", 0, tls);
    check(b"PING\r\n\x16\x03\x01", 1, tls);
    check(b"\0", 0, nul);
    check(b"\0PING\r\nPING\r\n", 0, nul);
    check(b"PING\nPING a\0\nPING\n", 1, nul);
    check(b"PING \"a\0b\"\r\nPING\r\n", 0, nul);
    check(b"PING \"\0\nPING\r\n", 0, nul);
    check(&[[b'x'; 65_536].as_slice(), b"\0"].concat(), 0, nul);
    check(b" \0", 0, nul);
    let http =
        "ERR Protocol error: HTTP request: this port speaks the Redis protocol, HTTP has a port of its own";
    for line in [
        "DEL /login HTTP/1.1\r",
        "del /login HTTP/1.0",
        "FLUSHALL / http/1.1\r",
        "HIT /a  HTTP/2",
        "GET / HTTP/1.1 \r",
    ] {
        check(format!("{line}\nHost: evil.example\r\n\r\n").as_bytes(), 0, http);
        check(format!("PING\r\n{line}\nPING\r\n").as_bytes(), 1, http);
    }

    let (requests, error) =
        read_all(b"*1\r\n$2\r\n\x16\0\r\nECHO \"\\x00\\x16\" \x16\r\n", &Limits::default());
    let expected =
        vec![vec![b"\x16\0".to_vec()], vec![b"ECHO".to_vec(), b"\0\x16".to_vec(), b"\x16".to_vec()]];
    assert_eq!((requests, error), (expected, None));
}

#[test]
fn each_bound_holds_at_the_bound_and_one_past_it() {
    let check = |stream: &str, expected: Option<&str>| {
        let (_, error) = read_all(stream.as_bytes(), &SMALL);
        assert_eq!(error.as_deref(), expected, "{stream}");
    };
    check("*1\r\n$8\r\n12345678\r\n", None);
    check(
        "*1\r\n$9\r\n",
        Some("ERR Protocol error: invalid bulk length 9: a bulk string has at most 8 bytes"),
    );
    check("*3\r\n", None);
    check("*4\r\n", Some("ERR Protocol error: invalid multibulk length"));
    check(&"x".repeat(16), None);
    check(&format!("{}\n", "x".repeat(16)), None);
    check(&"x".repeat(17), Some("ERR Protocol error: too big inline request"));
    check(&format!("{}\n", "x".repeat(17)), Some("ERR Protocol error: too big inline request"));
    check(&format!("*{}", "1".repeat(15)), None);
    check(&format!("*{}", "1".repeat(16)), Some("ERR Protocol error: too big mbulk count string"));
    check(&format!("*1\r\n${}", "1".repeat(15)), None);
    check(&format!("*1\r\n${}", "1".repeat(16)), Some("ERR Protocol error: too big bulk count string"));
    // The count has 4 bytes, and two arguments have 28. A third argument of two bytes takes the remaining 8.
    let two = "$8\r\n12345678\r\n".repeat(2);
    check(&format!("*3\r\n{two}$2\r\nab\r\n"), None);
    let too_big = "ERR Protocol error: too big request, a request has at most 40 bytes";
    check(&format!("*3\r\n{two}$3\r\n"), Some(too_big));
}

#[test]
fn the_bounds_a_server_uses() {
    let limits = Limits::default();
    let bulk = |bytes: usize| format!("*1\r\n${bytes}\r\n{}\r\n", "x".repeat(bytes));
    assert_eq!(read_all(bulk(1_048_576).as_bytes(), &limits).0.len(), 1);
    assert!(read_all(bulk(1_048_577).as_bytes(), &limits).1.is_some());

    let many = |count: usize| format!("*{count}\r\n{}", "$0\r\n\r\n".repeat(count));
    assert_eq!(read_all(many(1_048_576).as_bytes(), &limits).0[0].len(), 1_048_576);
    assert!(read_all(many(1_048_577).as_bytes(), &limits).1.is_some());

    let line = |bytes: usize| format!("{}\n", "x".repeat(bytes));
    assert_eq!(read_all(line(65_536).as_bytes(), &limits).0.len(), 1);
    assert!(read_all(line(65_537).as_bytes(), &limits).1.is_some());

    // 63 full bulk strings and one that ends with the last byte allowed.
    let full = format!("$1048576\r\n{}\r\n", "x".repeat(1_048_576));
    let head = format!("*64\r\n{}", full.repeat(63));
    let room = 67_108_864 - head.len() - "$1047804\r\n\r\n".len();
    let last = |bytes: usize| format!("{head}${bytes}\r\n{}\r\n", "x".repeat(bytes));
    assert_eq!(last(room).len(), 67_108_864);
    assert_eq!(read_all(last(room).as_bytes(), &limits).0.len(), 1);
    assert_eq!(
        read_all(last(room + 1).as_bytes(), &limits).1.as_deref(),
        Some("ERR Protocol error: too big request, a request has at most 67108864 bytes")
    );
}

#[test]
fn a_partial_request_resumes_without_rereading() {
    let mut stream = Vec::new();
    write_request(&mut stream, &[b"DEL".as_slice(), b"a", b"b"]);
    let mut args = Args::new();
    assert_eq!(parse_request(&stream[..20], &SMALL, &mut args), Ok(Parsed::Incomplete));
    assert_eq!((args.progress.position, args.progress.missing), (20, 1));
    // Parsed bytes are overwritten, to show that they are not read again.
    let mut blotted = stream.clone();
    blotted[1..13].fill(b'?');
    assert_eq!(parse_request(&blotted, &SMALL, &mut args), Ok(Parsed::Complete { consumed: stream.len() }));
    assert_eq!(args.list(&stream).iter().collect::<Vec<_>>(), [b"DEL".as_slice(), b"a", b"b"]);

    assert_eq!(parse_request(&stream[..20], &SMALL, &mut args), Ok(Parsed::Incomplete));
    args.reset();
    assert_eq!(parse_request(b"*1\r\n$1\r\nx\r\n", &SMALL, &mut args), Ok(Parsed::Complete { consumed: 11 }));
    assert_eq!(args.list(b"*1\r\n$1\r\nx\r\n").iter().collect::<Vec<_>>(), [b"x"]);
}

#[test]
fn memory_of_a_large_request_is_given_back() {
    let mut args = Args::new();
    let large = format!("*5000\r\n{}", "$1\r\nx\r\n".repeat(5_000));
    assert!(matches!(
        parse_request(large.as_bytes(), &Limits::default(), &mut args),
        Ok(Parsed::Complete { .. })
    ));
    assert!(args.ranges.capacity() >= 5_000);
    assert!(matches!(parse_request(b"PING\n", &Limits::default(), &mut args), Ok(Parsed::Complete { .. })));
    assert!(args.ranges.capacity() < 5_000);
}

/// Requests of clients, with a few bytes that make inline commands and errors.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let array = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..8), 0..4).prop_map(
        |args: Vec<Vec<u8>>| {
            let mut out = Vec::new();
            write_request(&mut out, &args.iter().map(Vec::as_slice).collect::<Vec<_>>());
            out
        },
    );
    let noise = proptest::collection::vec(
        prop_oneof![
            4 => proptest::sample::select(b"*$\r\n0123'\"\\ xaP\0\x16".to_vec()),
            1 => any::<u8>(),
        ],
        0..12,
    );
    let inline = "[a-z]{1,4}( [a-z]{1,3}){0,3}\r?\n".prop_map(String::into_bytes);
    let foreign = "[\0\x16]?[a-z]{0,20}[\0\x16]?[a-z]{0,3}\n".prop_map(String::into_bytes);
    proptest::collection::vec(prop_oneof![4 => array, 2 => inline, 1 => foreign, 1 => noise], 0..6)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn cuts_change_nothing(stream in streams(), cuts in proptest::collection::vec(any::<usize>(), 0..12)) {
        for limits in [Limits::default(), SMALL] {
            prop_assert_eq!(read_in_pieces(&stream, &cuts, &limits), read_all(&stream, &limits));
        }
    }

    #[test]
    fn byte_by_byte_changes_nothing(stream in streams()) {
        let cuts: Vec<usize> = (0..stream.len()).collect();
        prop_assert_eq!(read_in_pieces(&stream, &cuts, &SMALL), read_all(&stream, &SMALL));
    }

    #[test]
    fn any_bytes_parse_or_are_refused(stream in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (requests, _) = read_all(&stream, &SMALL);
        prop_assert!(requests.iter().all(|request| !request.is_empty()));
    }

    #[test]
    fn written_requests_are_read_back(
        args in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..20)
    ) {
        let mut stream = Vec::new();
        write_request(&mut stream, &args.iter().map(Vec::as_slice).collect::<Vec<_>>());
        prop_assert_eq!(read_all(&stream, &Limits::default()), (vec![args], None));
    }
}
