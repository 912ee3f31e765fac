"""What `lately backtest --json --top 0` has to print, worked out the plain way.

Usage: backtest_reference.py FILE KEY LOCKOUT LIMIT..., where KEY is a template of fields (a bare name is the
field alone), LOCKOUT a duration or `none`, and LIMIT is MAX/WINDOW. The log is JSON lines with the time in
`time`, or combined. Rows go to standard output, the sums to standard error. Each request is decided by a look
at all that were allowed before it.
"""

import json
import re
import sys
from collections import defaultdict
from datetime import datetime
from decimal import Decimal

LINE = re.compile(
    r'(?P<ip>\S+) \S+ (?P<user>[^\[]*) \[(?P<time>[^\]]+)\] '
    r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d+) (?P<bytes>\d+|-)'
)
UNIT_MS = {"ms": 1, "s": 1_000, "": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(duration):
    number, unit = re.fullmatch(r"(\d+)([a-z]*)", duration).groups()
    return int(number) * UNIT_MS[unit]


def fields_of(line, template):
    """The fields of a line with its time in milliseconds as `at`, or None."""
    if line.startswith("{"):
        fields = json.loads(line, parse_float=Decimal)
        fields["at"] = int(fields["time"] * 1_000)
        return fields
    match = LINE.match(line)
    if match is None:
        return None
    fields = match.groupdict()
    request = fields["request"].split(" ")
    if len(request) > 1:
        fields["method"], fields["path"] = request[0], request[1].split("?")[0]
    elif "path" in template or "method" in template:
        return None
    at = datetime.strptime(fields["time"], "%d/%b/%Y:%H:%M:%S %z")
    fields["at"] = int(at.timestamp()) * 1_000
    return fields


def read(path, template):
    with open(path, encoding="utf-8") as log:
        found = [fields_of(line, template) for line in log if line.strip()]
    return [(fields["at"], template.format(**fields)) for fields in found if fields is not None]


def main():
    path, key, lockout, *limits = sys.argv[1:]
    requests = read(path, key if "{" in key else "{" + key + "}")
    limits = [(int(limit.split("/")[0]), milliseconds(limit.split("/")[1])) for limit in limits]
    lockout = None if lockout == "none" else milliseconds(lockout)
    allowed, denied, locked_until = defaultdict(list), defaultdict(list), {}
    lockouts = 0
    # Python's sort keeps the order of equals.
    for at, key in sorted(requests, key=lambda request: request[0]):
        if at < locked_until.get(key, 0):
            denied[key].append(at)
        elif all(sum(past > at - window for past in allowed[key]) + 1 <= most for most, window in limits):
            allowed[key].append(at)
        else:
            denied[key].append(at)
            if lockout is not None:
                locked_until[key] = at + lockout
                lockouts += 1
    rows = []
    for key in {key for _, key in requests}:
        first = denied[key][0] if denied[key] else None
        if first is not None:
            first = first // 1_000 if first % 1_000 == 0 else first / 1_000
        row = {"key": key, "allowed": len(allowed[key]), "denied": len(denied[key]), "first_denied_at": first}
        rows.append(row)
    rows.sort(key=lambda row: (-row["denied"], -row["allowed"], row["key"].encode()))
    for row in rows:
        print(json.dumps(row, separators=(",", ":"), ensure_ascii=False))
    total, keys = sum(row["denied"] for row in rows), sum(row["denied"] > 0 for row in rows)
    sums = f"{total} of {len(requests)} requests and {keys} of {len(rows)} keys would have been denied"
    print(sums + ("" if lockout is None else f", with {lockouts} lockouts"), file=sys.stderr)


main()
