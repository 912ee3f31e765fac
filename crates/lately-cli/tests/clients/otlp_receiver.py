"""A receiver of OTLP over HTTP. It reads messages with OpenTelemetry's own definitions, and prints each as a line of JSON."""

import http.server
import json
import threading

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def metrics(body):
    message = ExportMetricsServiceRequest.FromString(body)
    (resource,) = message.resource_metrics
    (scope,) = resource.scope_metrics
    rows = []
    for metric in scope.metrics:
        kind = metric.WhichOneof("data")
        data = getattr(metric, kind)
        if kind == "sum":
            assert data.is_monotonic and data.aggregation_temporality == 2, metric
        assert metric.description and data.data_points, metric
        for point in data.data_points:
            assert 0 < point.start_time_unix_nano <= point.time_unix_nano, point
            value = getattr(point, point.WhichOneof("value"))
            rows.append({"name": metric.name, "kind": kind, "labels": attributes(point.attributes), "value": value})
    return {"resource": attributes(resource.resource.attributes), "scope": scope.scope.name, "metrics": rows}


def spans(body):
    message = ExportTraceServiceRequest.FromString(body)
    (resource,) = message.resource_spans
    (scope,) = resource.scope_spans
    rows = []
    for span in scope.spans:
        assert span.start_time_unix_nano < span.end_time_unix_nano, span
        rows.append({
            "name": span.name,
            "kind": span.kind,
            "trace": span.trace_id.hex(),
            "parent": span.parent_span_id.hex(),
            "is_new": len(span.span_id) == 8 and span.span_id != span.parent_span_id,
            "flags": span.flags,
            "status": span.status.code,
            "attributes": attributes(span.attributes),
        })
    return {"resource": attributes(resource.resource.attributes), "scope": scope.scope.name, "spans": rows}


printing = threading.Lock()


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.headers["content-type"] == "application/x-protobuf", self.headers
        line = json.dumps({"/v1/metrics": metrics, "/v1/traces": spans}[self.path](body)) + "\n"
        # Each request has a thread of its own.
        with printing:
            print(line, end="", flush=True)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
