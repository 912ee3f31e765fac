"""redis-py over TLS, as a user with a certificate: HOST PORT FOLDER."""

import sys

import redis

host, port, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
checks = 0


def check(got, expected):
    global checks
    assert got == expected, f"{got!r}, expected {expected!r}"
    checks += 1


def client(**more):
    return redis.Redis(
        host=host,
        port=port,
        ssl=True,
        ssl_ca_certs=f"{folder}/ca.pem",
        decode_responses=True,
        **more,
    )


own = {"ssl_certfile": f"{folder}/web.pem", "ssl_keyfile": f"{folder}/web-key.pem"}
web = client(username="web", password="w-secret", **own)
check(web.execute_command("HIT", "web:1"), 1)
check(web.execute_command("ACL", "WHOAMI"), "web")
pipeline = web.pipeline()
for _ in range(100):
    pipeline.execute_command("HIT", "web:2")
check(pipeline.execute(), list(range(1, 101)))
for refused, kind in [
    (lambda: web.execute_command("HIT", "other"), redis.exceptions.NoPermissionError),
    (lambda: web.flushall(), redis.exceptions.NoPermissionError),
    (lambda: client(**own).ping(), redis.exceptions.AuthenticationError),
    (lambda: client(username="web", password="no", **own).ping(), redis.exceptions.AuthenticationError),
    (lambda: client(username="web", password="w-secret").ping(), redis.exceptions.ConnectionError),
]:
    try:
        refused()
    except kind:
        checks += 1
    else:
        raise AssertionError(f"no {kind}")
print(f"ok {checks} checks")
