"""redis-py with its defaults against a Lately server: `redis_py.py HOST PORT`.

Prints `ok N checks`, or the first difference, and exits 1. Warnings are errors; so are log records at WARNING or above.
Flushes the server's keys. The server has a limit `login`, of one in an hour, that nobody has asked for yet, and an alert `busy`, above two
hits of `alerted:*` in an hour.
"""

import json
import logging
import sys
import time
import warnings

import redis

warnings.simplefilter("error")

CHECKS = 0
LOGGED = []


class Collect(logging.Handler):
    def emit(self, record):
        LOGGED.append(f"{record.name}: {record.getMessage()}")


def check(what, got, expected):
    """Equal, and of the same type: True is no integer and 1.0 is none either."""
    global CHECKS
    CHECKS += 1
    if got != expected or type(got) is not type(expected):
        raise SystemExit(f"{what}: got {got!r}, expected {expected!r}")


def check_that(what, holds, got):
    global CHECKS
    CHECKS += 1
    if not holds:
        raise SystemExit(f"{what}: got {got!r}")


def check_error(client, command, start):
    """redis-py takes `ERR ` off the text."""
    try:
        reply = client.execute_command(*command)
    except redis.ResponseError as error:
        check_that(f"{command}: error starts {start!r}", str(error).startswith(start), str(error))
        return
    raise SystemExit(f"{command}: got {reply!r}, expected an error that starts {start!r}")


def counting(run):
    check("PING", run.ping(), True)
    check("HIT k", run.execute_command("HIT", "k"), 1)
    check("HIT k 5", run.execute_command("HIT", "k", 5), 6)
    check("HITS k", run.execute_command("HITS", "k"), 6)
    check("HITS k 1m 5m", run.execute_command("HITS", "k", "1m", "5m"), [6, 6])
    bounds = run.execute_command("HITS", "k", "5m", "BOUNDS")
    check("HITS k 5m BOUNDS: integers", [type(value) for value in bounds], [int] * 4)
    check("HITS k 5m BOUNDS: exact", bounds[:3], [6, 6, 6])
    check_that("HITS k 5m BOUNDS: cell of some milliseconds", bounds[3] > 0, bounds)
    check("HITS k STALENESS", run.execute_command("HITS", "k", "STALENESS"), [6, 0])
    check("HITS k BY ORIGIN", run.execute_command("HITS", "k", "BY", "ORIGIN"), [[b"local", 6]])
    check("MHIT a 1 b 2", run.execute_command("MHIT", "a", 1, "b", 2), [1, 2])
    check("MHITS 5m a b none", run.execute_command("MHITS", "5m", "a", "b", "none"), [1, 2, 0])
    check("RATE k 5m", run.execute_command("RATE", "k", "5m"), 0.02)
    series = run.execute_command("SERIES", "k", "5m", "1m")
    starts = [int(start) for start, _ in series]
    check("SERIES k 5m 1m: sum", sum(hits for _, hits in series), 6)
    check("SERIES k 5m 1m: oldest first", starts, sorted(set(starts)))
    check("SERIES k 5m 1m: aligned", [start % 60 for start in starts], [0] * len(starts))


def event_time(run):
    past = int(time.time()) - 60
    check("HIT k 1 AT a minute ago", run.execute_command("HIT", "k", 1, "AT", past), 1)
    check("HITS k AT a minute ago", run.execute_command("HITS", "k", "5m", "AT", past), 1)
    check("HITS k 30s", run.execute_command("HITS", "k", "30s"), 6)
    check("HITS k 5m", run.execute_command("HITS", "k", "5m"), 7)


def limits(run):
    check("LIMIT", run.execute_command("LIMIT", "limited", 3, "1h", "COST", 2), [1, 3, 1, 0, 3_600_000])
    denied = run.execute_command("LIMIT", "limited", 3, "1h", "COST", 2)
    check("LIMIT: denied", denied[:3], [0, 3, 1])
    check_that("LIMIT: retry after", 3_500_000 < denied[3] <= denied[4] <= 3_600_000, denied)
    check("LIMIT: never", run.execute_command("LIMIT", "limited", 3, "1h", "COST", 4)[3], -1)
    check("LIMIT PEEK", run.execute_command("LIMIT", "limited", 3, "1h", "PEEK")[:3], [1, 3, 1])
    check("HITS of what was allowed", run.execute_command("HITS", "limited"), 2)
    check_error(run, ["LIMIT", "limited", 3, "8d"], "invalid window 8d: hits of this key are kept for 7d")
    check("LIMIT by name", run.execute_command("LIMIT", "named", "@login"), [1, 1, 0, 0, 3_600_000])
    check("LIMIT by name: denied", run.execute_command("LIMIT", "named", "@login")[:3], [0, 1, 0])
    check("LIMIT by name PEEK", run.execute_command("LIMIT", "other", "@login", "PEEK")[:3], [1, 1, 1])
    check_error(run, ["LIMIT", "named", "@nosuch"], "no such limit 'nosuch': the config has login")
    said = run.info("limits")["limit_login"]
    check("INFO limits", (said["allowed"], said["denied"], said["would_deny"]), (1, 1, 0))
    check("HITS DENIED", run.execute_command("HITS", "limited", "DENIED"), 6)
    both = ["MLIMIT", "limited", 4, "1h", "both", 2, "1d"]
    check("MLIMIT", run.execute_command(*both), [1, [1, 4, 1, 0, 3_600_000], [1, 2, 1, 0, 86_400_000]])
    denied = run.execute_command(*both, "COST", 2)
    check("MLIMIT: denied", [denied[0], *(limit[:3] for limit in denied[1:])], [0, [0, 4, 1], [0, 2, 1]])
    check("CL.THROTTLE", run.execute_command("CL.THROTTLE", "rate", 15, 30, 60), [0, 16, 15, -1, 2])
    check("CL.THROTTLE: denied", run.execute_command("CL.THROTTLE", "rate", 15, 30, 60, 17), [1, 16, 15, -1, 2])
    coolest = run.execute_command("COOLEST", 2, "limited", "both", "nobody")
    check("COOLEST", coolest, [[b"nobody", 0], [b"both", 1]])
    top = run.execute_command("TOP", 1, "5m", "PREFIX", "both", "BOUNDS")
    check("TOP", top, [[b"both", 1, 1, 1], 0])
    check("DEL limited named both rate", run.delete("limited", "named", "both", "rate"), 4)


def keys(run):
    check("EXISTS k none", run.exists("k", "none"), 1)
    check("TYPE k", run.type("k"), b"hits")
    check("TYPE none", run.type("none"), b"none")
    ttl = run.ttl("k")
    check_that("TTL k: about the retention, a week", 604_000 <= ttl <= 612_000, ttl)
    check("TTL none", run.ttl("none"), -2)
    check("DEL k none", run.delete("k", "none"), 1)
    check("EXISTS k", run.exists("k"), 0)
    check("HITS k after DEL", run.execute_command("HITS", "k"), 0)
    names = {f"scan:{number}" for number in range(500)}
    for name in sorted(names):
        run.execute_command("HIT", name)
    # SCAN may return a key twice, as in Redis.
    check("SCAN", {key.decode() for key in run.scan_iter()}, names | {"a", "b"})
    check("SCAN MATCH COUNT", {key.decode() for key in run.scan_iter("scan:*", count=7)}, names)
    check("DBSIZE", run.dbsize(), 502)


def pipelines(run):
    for key, transaction in [("queued", True), ("piped", False)]:
        pipe = run.pipeline(transaction=transaction)
        for _ in range(1000):
            pipe.execute_command("HIT", key)
        check(f"1000 HITs, transaction={transaction}", pipe.execute(), list(range(1, 1001)))
        check(f"HITS {key}", run.execute_command("HITS", key), 1000)


def errors(run):
    run.execute_command("HIT", "e")
    check_error(run, ["NONESUCH", "e"], "unknown command")
    check_error(run, ["HIT"], "wrong number of arguments for 'hit' command")
    check_error(run, ["HITS", "e", "5 parsecs"], "")
    check_error(run, ["HIT", "e", "-1"], "")
    check_error(run, ["HIT", "e", "1", "AT", "1"], "LATE ")
    check_error(run, ["HIT", "e", "1", "AT", int(time.time()) + 3600], "FUTURE ")
    check("HITS e after refused hits", run.execute_command("HITS", "e", "7d"), 1)
    pipe = run.pipeline(transaction=False)
    pipe.execute_command("HIT", "e").execute_command("NONESUCH").execute_command("HIT", "e")
    first, refused, last = pipe.execute(raise_on_error=False)
    check("an error in a pipeline leaves its neighbours", [first, last], [2, 3])
    check("an error in a pipeline", type(refused), redis.ResponseError)


def alerts(run):
    check("ALERTS: none", run.execute_command("ALERTS"), [])
    with run.pubsub() as feed:
        feed.subscribe("lately:alerts")
        subscribed = feed.get_message(timeout=10)
        check("SUBSCRIBE", [subscribed["type"], subscribed["data"]], ["subscribe", 1])
        run.execute_command("HIT", "alerted:a", 3)
        message = feed.get_message(timeout=10)
        check("message", [message["type"], message["channel"]], ["message", b"lately:alerts"])
        event = json.loads(message["data"])
        named = [event["type"], event["data"]["name"], event["data"]["keys"]]
        check("event", named, ["alert.started", "busy", [{"key": "alerted:a", "hits": 3, "share": 1.0}]])
        feed.ping()
        check("PING of a subscriber", feed.get_message(timeout=10)["type"], "pong")
        feed.unsubscribe()
        check("UNSUBSCRIBE", feed.get_message(timeout=10)["type"], "unsubscribe")
    active = run.execute_command("ALERTS")[0]
    fields = active if isinstance(active, dict) else dict(zip(active[::2], active[1::2]))
    check("ALERTS", [fields[b"name"], fields[b"state"], fields[b"hits"]], [b"busy", b"firing", 3])


def about_clients(run):
    check("COMMAND GETKEYS", run.command_getkeys("MLIMIT", "a", "5", "1m", "b", "5", "1m", "PEEK"), ["a", "b"])
    mine = run.client_id()
    listed = run.client_list(client_id=[mine, mine + 1_000_000])
    check("CLIENT LIST ID", [client["id"] for client in listed], [str(mine)])
    check("CLIENT LIST cmd and multi", [listed[0]["cmd"], listed[0]["multi"]], ["client|list", "-1"])
    check("CLIENT LIST TYPE", len(run.client_list(_type="normal")), 1)
    check("CLIENT LIST TYPE of none", run.client_list(_type="replica"), [])
    info = run.info()
    check("INFO blocked_clients", info["blocked_clients"], 0)
    check("INFO used_memory_human", info["used_memory_human"][-1] in "BKMG", True)
    check("INFO instantaneous_ops_per_sec", info["instantaneous_ops_per_sec"] >= 0, True)
    check("INFO used_cpu_user", info["used_cpu_user"] >= 0, True)


def main():
    host, port = sys.argv[1], int(sys.argv[2])
    logging.getLogger().addHandler(Collect(level=logging.WARNING))
    with redis.Redis(host=host, port=port) as run:
        check("FLUSHALL", run.flushall(), True)
        counting(run)
        event_time(run)
        limits(run)
        keys(run)
        pipelines(run)
        errors(run)
        about_clients(run)
        alerts(run)
        check("FLUSHALL", run.flushall(), True)
        check("DBSIZE after FLUSHALL", run.dbsize(), 0)
    check("log records", LOGGED, [])
    print(f"ok {CHECKS} checks")


main()
