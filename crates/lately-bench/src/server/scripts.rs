//! Scripts that count and limit hits in a window with Redis.

use crate::server::failure::Failure;
use crate::server::process::Process;

/// An expiring counter: a fixed window of five minutes from the first hit.
pub(crate) const INCR_EXPIRE: &str = "local n = redis.call('INCR', KEYS[1]) \
    if n == 1 then redis.call('EXPIRE', KEYS[1], 300) end \
    return n";

/// A sorted set with a member per hit: the exact sliding window, five minutes.
pub(crate) const SORTED_SET: &str = "local t = redis.call('TIME') \
    local now = t[1] * 1000000 + t[2] \
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - 300000000)) \
    redis.call('ZADD', KEYS[1], string.format('%.0f', now), string.format('%.0f', now)) \
    redis.call('EXPIRE', KEYS[1], 300) \
    return redis.call('ZCARD', KEYS[1])";

/// A hash with a field per second: our answer, to the second.
pub(crate) const HASH: &str = "local now = tonumber(redis.call('TIME')[1]) \
    redis.call('HINCRBY', KEYS[1], now, 1) \
    redis.call('EXPIRE', KEYS[1], 300) \
    local fields = redis.call('HGETALL', KEYS[1]) \
    local sum = 0 \
    for i = 1, #fields, 2 do \
    if tonumber(fields[i]) > now - 300 then sum = sum + tonumber(fields[i + 1]) \
    else redis.call('HDEL', KEYS[1], fields[i]) end end \
    return sum";

/// A script that decides a hit of a key by a limit and a window in seconds. It returns 1 and counts the hit,
/// or 0.
pub(crate) struct Deciding {
    pub(crate) text: &'static str,
    /// The command that returns how many hits of a key count.
    count: &'static str,
}

/// An expiring counter that counts at most the limit.
pub(crate) const DECIDING_COUNTER: Deciding = Deciding {
    text: "local n = tonumber(redis.call('GET', KEYS[1]) or '0') \
        if n >= tonumber(ARGV[1]) then return 0 end \
        if redis.call('INCR', KEYS[1]) == 1 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end \
        return 1",
    count: "GET",
};

/// A sliding log: a sorted set with a member per allowed hit.
pub(crate) const DECIDING_SET: Deciding = Deciding {
    text: "local t = redis.call('TIME') \
        local now = t[1] * 1000000 + t[2] \
        local start = now - tonumber(ARGV[2]) * 1000000 \
        redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', start)) \
        if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end \
        local member = string.format('%.0f', now) \
        redis.call('ZADD', KEYS[1], member, member) \
        redis.call('EXPIRE', KEYS[1], ARGV[2]) \
        return 1",
    count: "ZCARD",
};

impl Deciding {
    /// Whether the script works: of four hits with a limit of two, two are allowed and counted.
    pub(crate) fn check(&self, server: &Process) -> Result<(), Failure> {
        let (mut connection, key) = (server.connect()?, "probe");
        let mut verdicts: Vec<i64> = Vec::new();
        for _ in 0..4 {
            verdicts
                .push(redis::cmd("EVAL").arg(self.text).arg(&["1", key, "2", "60"]).query(&mut connection)?);
        }
        let counted: i64 = redis::cmd(self.count).arg(key).query(&mut connection)?;
        redis::cmd("DEL").arg(key).exec(&mut connection)?;
        if verdicts == [1, 1, 0, 0] && counted == 2 {
            return Ok(());
        }
        let count = self.count;
        Err(Failure::new(format!(
            "the script that is counted by {count} said {verdicts:?} and counted {counted}"
        )))
    }
}

/// Loads a script into the server, and returns the request that runs it on a key.
pub(crate) fn load(server: &Process, script: &str) -> Result<String, Failure> {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(script);
    let digest: String = command.query(&mut server.connect()?)?;
    Ok(format!("EVALSHA {digest} 1 {{key}}"))
}
