//! Hash slots: the server of a cluster for each key.

use std::collections::BTreeSet;

use redis::Value;

use super::address::Host;
use crate::Server;

/// Slots of a cluster.
const SLOTS: u16 = 16_384;

/// The servers of all slots. A single server has all of them.
#[derive(Default, Debug)]
pub(super) struct Slots {
    ranges: Vec<Range>,
    /// The replicas of the owners.
    replicas: Vec<Host>,
}

#[derive(Debug)]
struct Range {
    first: u16,
    last: u16,
    owner: Host,
    id: String,
}

impl Slots {
    /// All slots on one server.
    pub(super) fn single(host: Host) -> Slots {
        let id = host.to_string();
        Slots { ranges: vec![Range { first: 0, last: SLOTS - 1, owner: host, id }], replicas: Vec::new() }
    }

    /// Parses the answer to `CLUSTER SLOTS`: `[first, last, [host, port, id, …], replica, …]` for each range.
    pub(super) fn read(answer: &Value, from: &Host) -> Option<Slots> {
        let mut slots = Slots::default();
        for range in array(answer)? {
            let [first, last, owner, replicas @ ..] = array(range)? else { return None };
            let (owner, id) = server(owner, from)?;
            slots.ranges.push(Range { first: number(first)?, last: number(last)?, owner, id });
            let replicas = replicas.iter().filter_map(|replica| Some(server(replica, from)?.0));
            slots.replicas.extend(replicas);
        }
        Some(slots)
    }

    /// The owner of a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&Host> {
        let mut ranges = self.ranges.iter();
        ranges.find(|range| (range.first..=range.last).contains(&slot)).map(|range| &range.owner)
    }

    /// The owners of all slots.
    pub(super) fn owners(&self) -> BTreeSet<&Host> {
        self.ranges.iter().map(|range| &range.owner).collect()
    }

    /// Each owner with its slots.
    pub(super) fn of_each(&self) -> Vec<Server> {
        let mut servers: Vec<Server> = Vec::new();
        let mut ranges: Vec<&Range> = self.ranges.iter().collect();
        ranges.sort_unstable_by_key(|range| (&range.owner, range.first));
        for Range { first, last, owner, .. } in ranges {
            let name = owner.to_string();
            match servers.last_mut().filter(|server| server.name == name) {
                Some(server) => server.slots.push((*first, *last)),
                None => servers.push(Server { name, slots: vec![(*first, *last)] }),
            }
        }
        servers
    }

    /// The replicas of these.
    pub(super) fn replicas(&self) -> &[Host] {
        &self.replicas
    }

    /// The identities of the owners. While they stay the same, no replica has taken over.
    pub(super) fn ids(&self) -> BTreeSet<&str> {
        self.ranges.iter().map(|range| range.id.as_str()).collect()
    }
}

fn array(value: &Value) -> Option<&[Value]> {
    if let Value::Array(values) = value { Some(values) } else { None }
}

fn number(value: &Value) -> Option<u16> {
    if let Value::Int(number) = value { u16::try_from(*number).ok() } else { None }
}

pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// A server and its identity. A server that does not know its own name has the one in `from`.
fn server(value: &Value, from: &Host) -> Option<(Host, String)> {
    let [name, port, id, ..] = array(value)? else { return None };
    let name = text(name).filter(|name| !["", "?"].contains(name)).unwrap_or(&from.name);
    Some((Host { name: name.to_owned(), port: number(port)? }, text(id)?.to_owned()))
}

/// The slot of a key in the engine: that of the text between its first braces, if that is not empty.
pub(super) fn slot(name: &[u8]) -> u16 {
    let tag = name.iter().position(|&byte| byte == b'{').and_then(|open| {
        let tag = &name[open + 1..];
        let length = tag.iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &tag[..length])
    });
    crc16(tag.unwrap_or(name)) % SLOTS
}

/// CRC-16/XMODEM, as in the specification of Redis Cluster.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| crc << 8 ^ CRC_OF_BYTE[usize::from(crc >> 8) ^ usize::from(byte)])
}

const CRC_OF_BYTE: [u16; 256] = {
    let mut table = [0; 256];
    let (mut index, mut high) = (0, 0_u16);
    while index < table.len() {
        let (mut crc, mut bit) = (high << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        (index, high) = (index + 1, high + 1);
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // The first from the specification, the others from `CLUSTER KEYSLOT`.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (name, expected) in [
            (&b"foo"[..], 12182),
            (b"lately:1000:1:{foo}", 12182),
            (b"{foo}{bar}", 12182),
            (b"a{}foo", 16_292),
            (b"a{foo", 113),
            (b"", 0),
        ] {
            assert_eq!(slot(name), expected, "{}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn owners_are_read() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let server = |name: &str, port, id| {
            Value::Array(vec![bulk(name), Value::Int(port), bulk(id), Value::Array(vec![])])
        };
        let range = |first, last, servers: &[Value]| {
            Value::Array([&[Value::Int(first), Value::Int(last)], servers].concat())
        };
        let answer = Value::Array(vec![
            range(0, 99, &[server("10.0.0.1", 1, "a"), server("10.0.0.2", 2, "b")]),
            range(200, 299, &[server("", 3, "c")]),
            range(300, 16_383, &[server("10.0.0.1", 1, "a")]),
        ]);
        let asked = Host { name: "10.0.0.9".to_owned(), port: 9 };
        let slots = Slots::read(&answer, &asked).expect("ranges");
        let owner = |slot| slots.owner(slot).map(Host::to_string);
        assert_eq!(owner(99).as_deref(), Some("10.0.0.1:1"));
        assert_eq!(owner(200).as_deref(), Some("10.0.0.9:3"));
        assert_eq!(owner(16_383).as_deref(), Some("10.0.0.1:1"));
        assert_eq!(owner(100), None);
        assert_eq!((slots.owners().len(), slots.replicas().len()), (2, 1));
        assert_eq!(slots.ids(), BTreeSet::from(["a", "c"]));
        let of_each: Vec<_> = slots.of_each().into_iter().map(|server| (server.name, server.slots)).collect();
        assert_eq!(
            of_each,
            [
                ("10.0.0.1:1".to_owned(), vec![(0, 99), (300, 16_383)]),
                ("10.0.0.9:3".to_owned(), vec![(200, 299)]),
            ]
        );
        for wrong in [Value::Int(1), Value::Array(vec![Value::Int(1)]), range(0, 70_000, &[])] {
            assert!(Slots::read(&wrong, &asked).is_none(), "{wrong:?}");
        }
    }
}
