"""What `lately count --json --top 0` has to print, worked out the plain way.

Usage: count_reference.py FILE KEY WINDOW_SECONDS AT, where KEY is a template of combined fields (a bare
name is the field alone) and AT is Unix seconds or `newest`. Times are whole seconds, and every second
that has a hit is tried as the end of a window.
"""

import json
import re
import sys
from collections import defaultdict
from datetime import datetime

LINE = re.compile(
    r'(?P<ip>\S+) \S+ (?P<user>[^\[]*) \[(?P<time>[^\]]+)\] '
    r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d+) (?P<bytes>\d+|-)'
)


def read(path, template):
    by_key = defaultdict(list)
    with open(path, encoding="utf-8") as log:
        for line in log:
            match = LINE.match(line)
            if match is None:
                continue
            fields = match.groupdict()
            request = fields["request"].split(" ")
            if len(request) > 1:
                fields["method"], fields["path"] = request[0], request[1].split("?")[0]
            elif "path" in template or "method" in template:
                continue
            at = datetime.strptime(fields["time"], "%d/%b/%Y:%H:%M:%S %z")
            by_key[template.format(**fields)].append(int(at.timestamp()))
    return by_key


def main():
    path, key, window, at = sys.argv[1:]
    by_key = read(path, key if "{" in key else "{" + key + "}")
    window = int(window)
    at = max(max(times) for times in by_key.values()) if at == "newest" else int(at)
    rows = []
    for key, times in by_key.items():
        ending = {end: sum(end - window < time <= end for time in times) for end in set(times)}
        peak = max(ending.values())
        peak_at = min(end for end, hits in ending.items() if hits == peak)
        hits = sum(at - window < time <= at for time in times)
        rows.append({"key": key, "hits": hits, "peak": peak, "peak_at": peak_at, "total": len(times)})
    rows.sort(key=lambda row: (-row["hits"], -row["peak"], -row["total"], row["key"].encode()))
    for row in rows:
        print(json.dumps(row, separators=(",", ":"), ensure_ascii=False))


main()
