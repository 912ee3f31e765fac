"""A receiver of Prometheus remote write 1.0 and 2.0 and of OTLP. It decompresses and reads messages without Lately's code or definitions,
checks what the specifications demand of a sender, and prints each request as a line of JSON. Arguments are the answers to the first
requests, such as 503; later ones are taken."""

import http.server
import json
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

F = descriptor_pb2.FieldDescriptorProto
MESSAGES = {
    "Label": [("name", 1, F.TYPE_STRING), ("value", 2, F.TYPE_STRING)],
    "Sample": [("value", 1, F.TYPE_DOUBLE), ("timestamp", 2, F.TYPE_INT64)],
    "Series1": [("labels", 1, ["Label"]), ("samples", 2, ["Sample"])],
    "Request1": [("timeseries", 1, ["Series1"])],
    "Metadata": [("type", 1, F.TYPE_INT32), ("help_ref", 3, F.TYPE_UINT32), ("unit_ref", 4, F.TYPE_UINT32)],
    "Series2": [("labels_refs", 1, [F.TYPE_UINT32]), ("samples", 2, ["Sample"]), ("metadata", 5, "Metadata")],
    "Request2": [("symbols", 4, [F.TYPE_STRING]), ("timeseries", 5, ["Series2"])],
}


def classes():
    file = descriptor_pb2.FileDescriptorProto(name="write.proto", package="write", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            label = F.LABEL_REPEATED if isinstance(kind, list) else F.LABEL_OPTIONAL
            kind = kind[0] if isinstance(kind, list) else kind
            if isinstance(kind, str):
                message.field.add(name=field, number=number, label=label, type=F.TYPE_MESSAGE, type_name=f".write.{kind}")
            else:
                message.field.add(name=field, number=number, label=label, type=kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"write.{name}")) for name in ("Request1", "Request2")]


Request1, Request2 = classes()


def decompressed(data):
    """Snappy's block format: a length, then literals and copies of earlier bytes."""

    def number(place, count):
        return int.from_bytes(data[place : place + count], "little")

    length, place, shift = 0, 0, 0
    while True:
        byte = data[place]
        length |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            break
    out = bytearray()
    while place < len(data):
        tag = data[place]
        place += 1
        if tag & 3 == 0:
            size = tag >> 2
            if size >= 60:
                count = size - 59
                size, place = number(place, count), place + count
            out += data[place : place + size + 1]
            place += size + 1
            continue
        if tag & 3 == 1:
            size, offset, place = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | data[place], place + 1
        else:
            count = 2 if tag & 3 == 2 else 4
            size, offset, place = (tag >> 2) + 1, number(place, count), place + count
        assert 0 < offset <= len(out), offset
        for _ in range(size):
            out.append(out[-offset])
    assert len(out) == length, (len(out), length)
    return bytes(out)


def checked(labels):
    names = [name for name, _ in labels]
    assert names == sorted(set(names)) and all(value for _, value in labels), labels
    return dict(labels)


def written(body):
    rows = []
    for series in Request1.FromString(decompressed(body)).timeseries:
        labels = checked([(label.name, label.value) for label in series.labels])
        (sample,) = series.samples
        rows.append({"labels": labels, "value": sample.value, "at": sample.timestamp})
    return rows


def symbolized(body):
    request = Request2.FromString(decompressed(body))
    symbols = list(request.symbols)
    assert symbols[0] == "" and len(set(symbols)) == len(symbols), symbols
    rows = []
    for series in request.timeseries:
        texts = [symbols[place] for place in series.labels_refs]
        labels = checked(list(zip(texts[::2], texts[1::2], strict=True)))
        (sample,) = series.samples
        # A gauge, with a help.
        assert series.metadata.type == 2 and symbols[series.metadata.help_ref] and not series.metadata.unit_ref
        rows.append({"labels": labels, "value": sample.value, "at": sample.timestamp})
    return rows


def exported(body):
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    assert resource.resource.attributes[0].value.string_value == "lately", resource
    (scope,) = resource.scope_metrics
    (metric,) = scope.metrics
    # Deltas, which only grow.
    assert metric.sum.aggregation_temporality == 1 and metric.sum.is_monotonic and metric.description, metric
    rows = []
    for point in metric.sum.data_points:
        labels = {pair.key: pair.value.string_value for pair in point.attributes} | {"__name__": metric.name}
        assert 0 < point.start_time_unix_nano < point.time_unix_nano, point
        width = (point.time_unix_nano - point.start_time_unix_nano) // 1_000_000
        rows.append({"labels": labels, "value": float(point.as_int), "at": point.time_unix_nano // 1_000_000, "width": width})
    return rows


VERSION = "x-prometheus-remote-write-version"
READERS = {
    ("application/x-protobuf", "0.1.0", "snappy"): ("remote-write", written),
    ("application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0", "snappy"): ("remote-write-2", symbolized),
    ("application/x-protobuf", None, None): ("otlp", exported),
}
answers = sys.argv[1:]


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        protocol, read = READERS[self.headers["content-type"], self.headers[VERSION], self.headers["content-encoding"]]
        rows = read(body)
        status = int(answers.pop(0)) if answers else 200
        of_interest = {name: self.headers[name] for name in ("authorization", "x-scope-orgid", "user-agent")}
        line = {"protocol": protocol, "path": self.path, "headers": of_interest, "status": status, "samples": rows}
        print(json.dumps(line), flush=True)
        self.send_response(status)
        self.send_header("content-length", "0")
        if status == 200:
            self.send_header("x-prometheus-remote-write-samples-written", str(len(rows)))
        self.end_headers()

    def log_message(self, *_):
        pass


# One request after the other, so that the answers are those of the arguments.
server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
