"""How schemathesis writes the bodies that are no JSON."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(_context, value):
    return value if isinstance(value, bytes) else (json.dumps(value) + "\n").encode()


@schemathesis.serializer("application/vnd.lately.dump")
def dump(_context, value):
    return value if isinstance(value, bytes) else json.dumps(value).encode()
