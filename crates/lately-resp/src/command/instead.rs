//! Commands of Redis that Lately does not have, and what to use instead.

use crate::args::ArgList;
use crate::error::{CommandError, echo};
use crate::limits::MAX_ECHOED_BYTES;

/// The error of a request whose command is not in the table.
pub(super) fn unknown_command(args: ArgList<'_>) -> CommandError {
    let name = echo(until_nul(args.get(0).unwrap_or_default()));
    let mut quoted: Vec<u8> = Vec::new();
    for arg in args.from(1).iter() {
        if quoted.len() >= MAX_ECHOED_BYTES {
            break;
        }
        let room = MAX_ECHOED_BYTES - quoted.len();
        quoted.push(b'\'');
        quoted.extend_from_slice(&until_nul(arg)[..until_nul(arg).len().min(room)]);
        quoted.extend_from_slice(b"' ");
    }
    let (args, instead) = (String::from_utf8_lossy(&quoted).into_owned(), instead_of(&name));
    CommandError::UnknownCommand { name, args, instead }
}

/// Redis prints C strings here.
fn until_nul(bytes: &[u8]) -> &[u8] {
    memchr::memchr(0, bytes).map_or(bytes, |end| &bytes[..end])
}

/// What to use instead of a command, in brackets. Empty for an unknown name, or one without a counterpart.
fn instead_of(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let advice = INSTEAD.iter().find(|(names, _)| names.contains(&name.as_str()));
    advice.map_or_else(String::new, |(_, advice)| format!("({advice})"))
}

const INSTEAD: &[(&[&str], &str)] = &[
    (
        &["incr", "incrby", "incrbyfloat", "increx", "hincrby", "zincrby", "hincrbyfloat"],
        "use HIT key [count]: it counts hits and returns those of the last window",
    ),
    (
        &[
            "set",
            "setex",
            "psetex",
            "setnx",
            "getset",
            "mset",
            "msetnx",
            "append",
            "setrange",
            "setbit",
            "bitop",
            "bitfield",
            "copy",
            "rename",
            "renamenx",
            "move",
            "lset",
            "linsert",
            "lmove",
            "rpoplpush",
            "lpushx",
            "rpushx",
            "blmove",
            "brpoplpush",
            "smove",
            "sdiffstore",
            "sinterstore",
            "sunionstore",
            "zdiffstore",
            "zinterstore",
            "zunionstore",
            "zrangestore",
            "geosearchstore",
            "geoadd",
            "pfmerge",
        ],
        "keys hold hits and no values: use HIT key [count] to count",
    ),
    (
        &[
            "zadd",
            "xadd",
            "lpush",
            "rpush",
            "hset",
            "hmset",
            "hsetnx",
            "xgroup",
            "xclaim",
            "xautoclaim",
            "xack",
            "xsetid",
        ],
        "use HIT key [count] [AT time]: a key holds hits and their times",
    ),
    (
        &[
            "get",
            "getex",
            "getrange",
            "strlen",
            "zcard",
            "zcount",
            "llen",
            "xlen",
            "hlen",
            "getbit",
            "bitcount",
            "bitpos",
            "bitfield_ro",
            "substr",
            "lcs",
            "hexists",
            "hstrlen",
            "sismember",
            "smismember",
            "zscore",
            "zmscore",
            "zrank",
            "zrevrank",
            "zlexcount",
            "lpos",
            "lindex",
            "touch",
            "object",
        ],
        "use HITS key [window]: it returns the hits of a window",
    ),
    (
        &["pfadd", "sadd"],
        "use HIT with a member, then UNIQ: it counts distinct members, if the class of the key has `unique = true`",
    ),
    (
        &["pfcount", "scard", "unique", "sunion", "sinter", "sintercard", "sdiff", "zintercard"],
        "use UNIQ key [window]: it returns the distinct members of the hits in a window",
    ),
    (
        &["mget", "hget", "hmget", "hgetall", "hvals"],
        "use MHITS window key [key ...]: it returns the hits of several keys",
    ),
    (
        &[
            "zrange",
            "zrangebyscore",
            "zrevrange",
            "xrange",
            "lrange",
            "xrevrange",
            "xread",
            "xreadgroup",
            "xpending",
            "xinfo",
            "zrevrangebyscore",
            "zrangebylex",
            "zrevrangebylex",
        ],
        "use SERIES key window step: it returns the hits of each step",
    ),
    (
        &[
            "decr",
            "decrby",
            "zrem",
            "zremrangebyscore",
            "zremrangebyrank",
            "ltrim",
            "xtrim",
            "lpop",
            "rpop",
            "blpop",
            "brpop",
            "blmpop",
            "lmpop",
            "bzmpop",
            "zmpop",
            "bzpopmax",
            "bzpopmin",
            "zpopmax",
            "zpopmin",
            "spop",
            "hdel",
            "srem",
            "lrem",
            "xdel",
            "zremrangebylex",
        ],
        "hits leave the window by themselves: HITS key [window] returns those that are in it, DEL forgets a key",
    ),
    (
        &["expire", "pexpire", "expireat", "pexpireat", "persist", "expiretime", "pexpiretime"],
        "hits expire by themselves: the window is an argument of HITS and LIMIT, `retain` of a [[class]] in the config says how long keys stay",
    ),
    (
        &["psubscribe", "ssubscribe", "punsubscribe", "sunsubscribe"],
        "the one channel is that of alerts: use SUBSCRIBE lately:alerts",
    ),
    (
        &["publish", "spublish", "pubsub"],
        "messages are of alerts, and the server sends them: SUBSCRIBE lately:alerts",
    ),
    (
        &[
            "zinter",
            "zunion",
            "zdiff",
            "sort",
            "sort_ro",
            "zrandmember",
            "hrandfield",
            "srandmember",
            "smembers",
            "hkeys",
        ],
        "use TOP count [window] [PREFIX prefix]: it returns the keys with the most hits",
    ),
    (&["hscan", "sscan", "zscan"], "use SCAN cursor [MATCH pattern]: it lists keys"),
    (
        &[
            "geodist",
            "geohash",
            "geopos",
            "georadius",
            "georadius_ro",
            "georadiusbymember",
            "georadiusbymember_ro",
            "geosearch",
        ],
        "keys hold hits and no places: put the place into the key and use HIT key [count]",
    ),
    (
        &["slowlog", "latency"],
        "the server keeps no latencies: `lately bench` measures them, and [otlp] sends spans of requests over HTTP and gRPC",
    ),
    (&["monitor"], "use `lately top` on the command line: it shows the busiest keys"),
    (
        &[
            "role",
            "replicaof",
            "slaveof",
            "failover",
            "psync",
            "sync",
            "replconf",
            "wait",
            "waitaof",
            "migrate",
        ],
        "nodes that share counts are in [cluster] of the config",
    ),
    (
        &["module", "debug", "pfdebug", "pfselftest", "lolwut", "swapdb"],
        "there is nothing like it: use COMMAND to list all commands",
    ),
    (
        &["asking", "readonly", "readwrite", "restore-asking"],
        "each server answers for all keys: connect without the cluster mode of the client",
    ),
    (&["getdel", "unlink"], "use DEL key [key ...]"),
    (&["keys", "randomkey"], "use SCAN cursor [MATCH pattern]"),
    (
        &[
            "eval",
            "evalsha",
            "eval_ro",
            "evalsha_ro",
            "fcall",
            "fcall_ro",
            "script",
            "function",
            "watch",
            "unwatch",
        ],
        "use LIMIT key max window: it checks and counts in one step; MLIMIT does so for several keys",
    ),
    (
        &["throttle", "gcra"],
        "use CL.THROTTLE key max_burst count_per_period period [quantity], or LIMIT key max window",
    ),
    (&["save", "bgrewriteaof"], "use BGSAVE"),
    (&["memory"], "use INFO memory"),
    (&["dump", "restore"], "use lately dump and lately restore on the command line"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::find_command;

    #[test]
    fn advice_covers_each_missing_command_once() {
        let names: Vec<&str> = INSTEAD.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        for name in &names {
            assert!(find_command(name.as_bytes()).is_none(), "{name} is there");
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
        assert_eq!(instead_of("BGrewriteAOF"), "(use BGSAVE)");
        assert_eq!(instead_of("nosuch"), "");
        // Each command of Redis 7.
        for name in include_str!("redis_commands.txt").split_whitespace() {
            assert!(find_command(name.as_bytes()).is_some() || !instead_of(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn advice_names_existing_commands() {
        for (_, advice) in INSTEAD {
            let words = advice.split([' ', ':', ',']);
            for word in
                words.filter(|word| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase()))
            {
                let is_other = ["MATCH", "AT", "PREFIX", "HTTP"].contains(&word);
                assert!(is_other || find_command(word.as_bytes()).is_some(), "{word}");
            }
        }
    }
}
