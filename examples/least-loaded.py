"""Sends each request to the server that had the least work lately.

Requests differ in cost, so servers that take turns do not have the same load. Each request is counted with its cost, and
COOLEST names the server with the least in the last minute. Any number of proxies share these counts.
"""

import os
import random

import redis

server = redis.Redis(port=int(os.environ["PORT"]), decode_responses=True)
backends = ["app-1", "app-2", "app-3", "app-4"]
# Most requests are cheap, few are very expensive. The same ones in each run.
random.seed(1)
costs = [round(10 * random.paretovariate(1.3)) for _ in range(1000)]

turns = dict.fromkeys(backends, 0)
for number, cost in enumerate(costs):
    turns[backends[number % len(backends)]] += cost

for cost in costs:
    [[backend, _]] = server.execute_command("COOLEST", 1, "WINDOW", "1m", *backends)
    server.execute_command("HIT", backend, cost)
coolest = {backend: server.execute_command("HITS", backend, "1m") for backend in backends}

mean = sum(costs) / len(backends)
for name, loads in [("in turns", turns), ("the coolest", coolest)]:
    print(f"{name:<12} {' '.join(f'{load:6}' for load in loads.values())}   the busiest has {max(loads.values()) / mean:.2f} of the mean")
