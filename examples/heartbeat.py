"""Notices hosts that are silent.

Each host counts a hit now and then. The server has an alert for each host that has no hit in its window, and publishes when
it starts and ends. Here web-2 falls silent, and comes back.
"""

import json
import os

import redis

server = redis.Redis(port=int(os.environ["PORT"]))
alerts = server.pubsub(ignore_subscribe_messages=True)
alerts.subscribe("lately:alerts")


def beat_until(hosts, text, event):
    """Has hosts send heartbeats until an alert starts or ends. Ends if it is another one."""
    print(text, flush=True)
    while True:
        for host in hosts:
            server.execute_command("HIT", f"beat:{host}")
        message = alerts.get_message(timeout=0.2)
        if message:
            break
    got = json.loads(message["data"])
    if (got["type"], got["data"]["name"]) != event:
        raise SystemExit(f"unexpected: {got}")
    print(f"  {got['data']['name']}:", "silent" if got["type"] == "alert.started" else "back again", flush=True)


beat_until(["web-1"], "web-1 sends heartbeats, web-2 does not", ("alert.started", "web-2"))
beat_until(["web-1", "web-2"], "both send heartbeats", ("alert.ended", "web-2"))
