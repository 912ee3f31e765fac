//! How people count hits in a window with Redis today: scripts.

use crate::server::failure::Failure;
use crate::server::process::Process;

/// A counter that expires: a fixed window of five minutes from the first hit.
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

/// A hash with a field per second: what ours answers, to the second.
pub(crate) const HASH: &str = "local now = tonumber(redis.call('TIME')[1]) \
    redis.call('HINCRBY', KEYS[1], now, 1) \
    redis.call('EXPIRE', KEYS[1], 300) \
    local fields = redis.call('HGETALL', KEYS[1]) \
    local sum = 0 \
    for i = 1, #fields, 2 do \
    if tonumber(fields[i]) > now - 300 then sum = sum + tonumber(fields[i + 1]) \
    else redis.call('HDEL', KEYS[1], fields[i]) end end \
    return sum";

/// Has the server keep a script, and gives the request that runs it on a key.
pub(crate) fn load(server: &Process, script: &str) -> Result<String, Failure> {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(script);
    let digest: String = command.query(&mut server.connect()?)?;
    Ok(format!("EVALSHA {digest} 1 {{key}}"))
}
