//! The encoder of replies, for the connection's version of the protocol. Version 2 has no maps, sets,
//! doubles, booleans, typed nulls, or pushes.

use std::fmt::Display;
use std::io::Write as _;

use crate::decimal::{push_five, push_len, push_line};

/// The version of the protocol a connection speaks. Connections start in version 2.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Protocol {
    /// RESP2.
    #[default]
    V2,
    /// RESP3, after `HELLO 3`.
    V3,
}

impl Protocol {
    /// 2 or 3.
    #[must_use]
    pub fn version(self) -> i64 {
        match self {
            Protocol::V2 => 2,
            Protocol::V3 => 3,
        }
    }
}

/// Appends replies to a buffer.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Encoder<'a> {
    /// An encoder that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Encoder<'a> {
        Encoder { out, protocol }
    }

    /// The version of the protocol.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// `+text`. Newlines in it become spaces.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', &text);
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// `-text`, where the text starts with its code, such as `ERR`. Newlines in it become spaces.
    pub fn error(&mut self, text: impl Display) {
        self.line(b'-', &text);
    }

    /// An integer.
    pub fn integer(&mut self, value: i64) {
        push_line(self.out, b':', value);
    }

    /// An array of five integers.
    #[inline]
    pub fn five_integers(&mut self, values: [i64; 5]) {
        push_five(self.out, values);
    }

    /// A string of any bytes.
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        push_len(self.out, b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Text for people to read, such as that of `INFO`: a verbatim string, in version 2 a bulk string.
    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::V2 => self.bulk(text),
            Protocol::V3 => {
                const FORMAT: &[u8] = b"txt:";
                push_len(self.out, b'=', FORMAT.len() + text.len());
                self.out.extend_from_slice(FORMAT);
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// No value; in version 2 the null bulk string.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::V2 => b"$-1\r\n",
            Protocol::V3 => b"_\r\n",
        });
    }

    /// The head of an array; `len` replies follow.
    pub fn array(&mut self, len: usize) {
        push_len(self.out, b'*', len);
    }

    /// The head of a map; `len` keys follow, each with its value. In version 2 a flat array.
    pub fn map(&mut self, len: usize) {
        match self.protocol {
            Protocol::V2 => push_len(self.out, b'*', len * 2),
            Protocol::V3 => push_len(self.out, b'%', len),
        }
    }

    /// The head of a set; `len` members follow. In version 2 an array.
    pub fn set(&mut self, len: usize) {
        self.aggregate(b'~', len);
    }

    /// The head of a push, which answers no request; `len` replies follow. In version 2 an array.
    pub fn push(&mut self, len: usize) {
        self.aggregate(b'>', len);
    }

    /// A double, in the fewest digits that parse to the same value; in version 2 a bulk string. Other values
    /// are `inf`, `-inf` or `nan`.
    pub fn double(&mut self, value: f64) {
        let text = double_text(value);
        match self.protocol {
            Protocol::V2 => self.bulk(text),
            Protocol::V3 => self.line(b',', &text),
        }
    }

    /// A boolean; in version 2 the integer 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.protocol, value) {
            (Protocol::V2, true) => b":1\r\n",
            (Protocol::V2, false) => b":0\r\n",
            (Protocol::V3, true) => b"#t\r\n",
            (Protocol::V3, false) => b"#f\r\n",
        });
    }

    fn aggregate(&mut self, marker: u8, len: usize) {
        match self.protocol {
            Protocol::V2 => push_len(self.out, b'*', len),
            Protocol::V3 => push_len(self.out, marker, len),
        }
    }

    /// A newline inside a line would let a client's text look like another reply.
    fn line(&mut self, marker: u8, text: &dyn Display) {
        self.out.push(marker);
        let start = self.out.len();
        write!(self.out, "{text}").expect("writing to memory does not fail");
        for byte in &mut self.out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }
}

fn double_text(value: f64) -> String {
    const PLAIN: std::ops::Range<f64> = 1e-5..1e17;
    if value.is_nan() {
        "nan".to_owned()
    } else if value == 0.0 || value.is_infinite() || PLAIN.contains(&value.abs()) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(write: impl Fn(&mut Encoder<'_>), v2: &str, v3: &str) {
        for (protocol, expected) in [(Protocol::V2, v2), (Protocol::V3, v3)] {
            let mut out = b"before".to_vec();
            write(&mut Encoder::new(&mut out, protocol));
            assert_eq!(out.strip_prefix(b"before").expect("kept").escape_ascii().to_string(), expected);
        }
    }

    fn check_same(write: impl Fn(&mut Encoder<'_>), expected: &str) {
        check(write, expected, expected);
    }

    #[test]
    fn types_of_both_versions() {
        let ok_and_pong = |e: &mut Encoder<'_>| {
            e.ok();
            e.simple("PONG");
        };
        check_same(ok_and_pong, r"+OK\r\n+PONG\r\n");
        check_same(|e| e.error("ERR no"), r"-ERR no\r\n");
        check_same(|e| e.integer(i64::MIN), r":-9223372036854775808\r\n");
        check_same(|e| e.integer(0), r":0\r\n");
        check_same(|e| e.bulk(b"a\r\n\x00\xff"), r"$5\r\na\r\n\x00\xff\r\n");
        check_same(|e| e.bulk(""), r"$0\r\n\r\n");
        check_same(|e| e.array(0), r"*0\r\n");
        check_same(|e| e.array(12), r"*12\r\n");
    }

    #[test]
    fn types_of_version_3_only() {
        let null_in_array = |e: &mut Encoder<'_>| {
            e.array(1);
            e.null();
        };
        check(null_in_array, r"*1\r\n$-1\r\n", r"*1\r\n_\r\n");
        check(|e| e.map(7), r"*14\r\n", r"%7\r\n");
        check(|e| e.set(2), r"*2\r\n", r"~2\r\n");
        check(|e| e.push(3), r"*3\r\n", r">3\r\n");
        check(|e| e.boolean(true), r":1\r\n", r"#t\r\n");
        check(|e| e.boolean(false), r":0\r\n", r"#f\r\n");
        check(|e| e.verbatim("a:1"), r"$3\r\na:1\r\n", r"=7\r\ntxt:a:1\r\n");
        check(|e| e.double(1.5), r"$3\r\n1.5\r\n", r",1.5\r\n");
    }

    #[test]
    fn a_newline_in_a_line_is_made_harmless() {
        check_same(|e| e.error("ERR 'a\r\n+OK\r\n'"), r"-ERR \'a  +OK  \'\r\n");
        check_same(|e| e.simple("a\nb\rc"), r"+a b c\r\n");
    }

    #[test]
    fn doubles_are_short_and_read_back() {
        let check = |value: f64, expected: &str| {
            assert_eq!(double_text(value), expected);
            let back: f64 = expected.parse().expect(expected);
            assert!(back == value || (back.is_nan() && value.is_nan()), "{expected}");
        };
        check(0.0, "0");
        check(-0.0, "-0");
        check(10.0, "10");
        check(0.1, "0.1");
        check(1.0 / 3.0, "0.3333333333333333");
        check(-2.5, "-2.5");
        check(0.00001, "0.00001");
        check(0.0000012, "1.2e-6");
        check(1e16, "10000000000000000");
        check(1e17, "1e17");
        check(f64::MAX, "1.7976931348623157e308");
        check(f64::MIN_POSITIVE, "2.2250738585072014e-308");
        check(f64::INFINITY, "inf");
        check(f64::NEG_INFINITY, "-inf");
        check(f64::NAN, "nan");
    }
}
