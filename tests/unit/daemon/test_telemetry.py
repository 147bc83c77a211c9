"""OpenTelemetry: what a collector gets over OTLP."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
import requests
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from sandbox.config import ServeSettings
from sandbox.daemon import telemetry
from sandbox.daemon.telemetry import Telemetry
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import HomeEventKind
from tests.unit.daemon.event_receiver import Receiver, make_event

NANOSECONDS = 1_000_000_000


def test_a_collector_gets_a_span_and_a_record_of_each_operation(receiver: Receiver) -> None:
    exporter = Telemetry(f"http://127.0.0.1:{receiver.server.server_port}/")
    assert exporter.hand_on(make_event(HomeEventKind.PUSH, 1))
    assert exporter.hand_on(make_event(HomeEventKind.PUSH, 2, result="push_rejected"))
    assert exporter.flush()
    assert receiver.received.qsize() == 2, "what is flushed has been sent: its place is stored then"
    exporter.end()
    bodies = {path: body for path, _, body in (receiver.received.get(timeout=60) for _ in range(2))}
    (resource,) = ExportTraceServiceRequest.FromString(bodies["/v1/traces"]).resource_spans
    passed, failed = resource.scope_spans[0].spans
    assert {a.key: a.value.string_value for a in resource.resource.attributes}["service.name"] == "space-sandbox"
    assert passed.name == "sandbox push"
    assert passed.end_time_unix_nano - passed.start_time_unix_nano == 1.5 * NANOSECONDS
    assert (passed.status.code, failed.status.code, failed.status.message) == (0, 2, "push_rejected")
    attributes = {a.key: a.value.string_value for a in passed.attributes}
    assert attributes["sandbox.event"] == "home/1"
    assert "\u202e" not in attributes["sandbox.names"], "guest text is neutralised"
    (logged,) = ExportLogsServiceRequest.FromString(bodies["/v1/logs"]).resource_logs
    records = logged.scope_logs[0].log_records
    assert [(r.event_name, r.severity_text, r.span_id) for r in records] == [
        ("sandbox.push", "INFO", passed.span_id),
        ("sandbox.push", "WARN", failed.span_id),
    ]
    assert records[0].body.string_value.isascii()


def test_more_events_than_the_sdk_keeps_are_sent(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a week without a daemon."""
    monkeypatch.setattr(telemetry, "_BATCH", 2)
    exporter = Telemetry(f"http://127.0.0.1:{receiver.server.server_port}/")
    for number in (1, 2):
        assert exporter.hand_on(make_event(HomeEventKind.PUSH, number))
    assert receiver.received.qsize() == 2, "without a flush of ours, and before the SDK's own time"
    exporter.end()


def test_an_answer_without_end_costs_a_collector_its_events_and_us_nothing() -> None:
    """It is not read: 64 MiB would be in memory at once, and a byte now and then would have no deadline."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread:
        sent = thread.submit(_send_what_is_taken, server)
        exporter = Telemetry(f"http://127.0.0.1:{server.getsockname()[1]}")
        exporter._logs.shutdown()
        assert exporter.hand_on(make_event(HomeEventKind.PUSH, 1))
        exporter.end()
        assert sent.result(60) < 64, "MiB"


def _send_what_is_taken(server: socket.socket) -> int:
    """An answer of 64 MiB; how many MiB were taken."""
    connection, _ = server.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n")
        for number in range(64):
            try:
                connection.sendall(bytes(1 << 20))
            except OSError:
                return number
    return 64


@pytest.mark.slow
@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "control"])
def test_an_answer_that_comes_byte_by_byte_has_the_deadline_of_its_request(is_ours: bool) -> None:
    """Control: for the library's own session each byte is in time."""
    session = telemetry._CollectorSession() if is_ours else requests.Session()
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread:
        thread.submit(_answer_slowly, server)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(requests.Timeout) if is_ours else nullcontext():
            session.post(url, timeout=0.6)


def _answer_slowly(server: socket.socket) -> None:
    """In 1.2 s."""
    connection, _ = server.accept()
    with connection, suppress(OSError):
        connection.recv(1 << 16)
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":
            connection.sendall(bytes([byte]))
            time.sleep(0.03)


def test_a_redirect_is_a_failure_that_is_logged(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.statuses = [307, 302]
    exporter = Telemetry(f"http://127.0.0.1:{receiver.server.server_port}")
    assert exporter.hand_on(make_event(HomeEventKind.PUSH, 1))
    assert exporter.flush()
    exporter.end()
    assert sorted(path for path, _, _ in receiver.received.queue) == ["/v1/logs", "/v1/traces"], "nothing elsewhere"
    assert caplog.text.count("redirects are not followed") == 2


def test_the_token_among_the_headers_is_not_replaced_by_a_netrc(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password words\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer token")
    exporter = Telemetry(f"http://127.0.0.1:{receiver.server.server_port}")
    assert exporter.hand_on(make_event(HomeEventKind.PUSH, 1))
    exporter.end()
    assert receiver.received.get(timeout=60)[1]["authorization"] == "Bearer token"


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent:
        def __getattr__(self, _name: str) -> object:
            raise ImportError("No module named 'opentelemetry.sdk'")

    monkeypatch.setattr(telemetry, "resources", Absent())
    with pytest.raises(SandboxError) as caught:
        Telemetry("http://127.0.0.1:1")
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert "space-sandbox[otel]" in caught.value.hint


@pytest.mark.parametrize("url", ["http://collector.example/", "ftp://localhost/", "https://user@example.org/"])
def test_only_https_and_this_host_are_collectors(url: str) -> None:
    with pytest.raises(ValueError, match="otlp_url"):
        ServeSettings.model_validate({"otlp_url": url})
