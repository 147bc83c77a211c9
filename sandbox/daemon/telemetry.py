"""Export events as OpenTelemetry over OTLP: a span and a log record for each operation. It needs the extra `otel`.

Batches, retries and their limits are those of the SDK, in threads of its own. Headers, such as a token of the
collector, come from its own variables (`OTEL_EXPORTER_OTLP_HEADERS`). Sessions are ours: those of the SDK read each
answer whole into memory, without a deadline, and take a redirect, which they do not follow, for success.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import requests

from sandbox.agent.json_lines import neutralise_values, write_line
from sandbox.daemon.receiver_settings import missing_extra_error
from sandbox.daemon.receivers import EventReceiver
from sandbox.forges.first_answer import FirstAnswerSession
from sandbox.lazy_module import LazyModule
from sandbox.models import HomeEvent
from sandbox.version import __version__

if TYPE_CHECKING:
    from opentelemetry import _logs as log_values
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http import _log_exporter as log_exporter
    from opentelemetry.exporter.otlp.proto.http import trace_exporter
    from opentelemetry.sdk import _logs as logs
    from opentelemetry.sdk import resources
    from opentelemetry.sdk import trace as traces
    from opentelemetry.sdk._logs import export as log_batches
    from opentelemetry.sdk.trace import export as batches
else:  # an extra, imported if the settings name a collector
    log_values = LazyModule("opentelemetry._logs")
    trace = LazyModule("opentelemetry.trace")
    log_exporter = LazyModule("opentelemetry.exporter.otlp.proto.http._log_exporter")
    trace_exporter = LazyModule("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    logs = LazyModule("opentelemetry.sdk._logs")
    resources = LazyModule("opentelemetry.sdk.resources")
    traces = LazyModule("opentelemetry.sdk.trace")
    log_batches = LazyModule("opentelemetry.sdk._logs.export")
    batches = LazyModule("opentelemetry.sdk.trace.export")

_SCOPE = "sandbox"
_FLUSH_MS = 30_000
_BATCH = 500
"""Of the 2,048 that the SDK keeps; it drops what is more."""


class _CollectorSession(FirstAnswerSession):
    """Of an answer only its head counts. Proxies and CA files come from the
    environment, as with the SDK's own session; ~/.netrc does not: it would replace the token among the headers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = True
        self.auth = lambda request: request

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Raises: `requests.HTTPError` for a redirect."""
        answer = super().send(request, **{**options, "stream": True})
        answer.close()
        if 300 <= answer.status_code < 400:
            raise requests.HTTPError(f"status {answer.status_code}: redirects are not followed")
        return answer


class Telemetry(EventReceiver):
    """A collector. `url`: without `/v1/...`."""

    def __init__(self, url: str) -> None:
        """Raises: `invalid_input` without the extra."""
        base = url.rstrip("/")
        try:
            resource = resources.Resource.create({"service.name": "space-sandbox", "service.version": __version__})
            self._traces = traces.TracerProvider(resource=resource, shutdown_on_exit=False)
            self._logs = logs.LoggerProvider(resource=resource, shutdown_on_exit=False)
            self._traces.add_span_processor(
                batches.BatchSpanProcessor(
                    trace_exporter.OTLPSpanExporter(endpoint=f"{base}/v1/traces", session=_CollectorSession())
                )
            )
            self._logs.add_log_record_processor(
                log_batches.BatchLogRecordProcessor(
                    log_exporter.OTLPLogExporter(endpoint=f"{base}/v1/logs", session=_CollectorSession())
                )
            )
        except ImportError as error:
            raise missing_extra_error(str(error)) from error

        self._queued = 0
        super().__init__(f"telemetry-{hashlib.sha256(url.encode()).hexdigest()[:16]}")

    def wants(self, event: HomeEvent) -> bool:
        """See `EventReceiver`."""
        return True

    def hand_on(self, event: HomeEvent) -> bool:
        """See `EventReceiver`. The SDK sends it with others, at `flush` at the latest."""
        self._export_record(event, self._export_span(event))
        self._queued += 1
        return self._queued < _BATCH or self.flush()

    def flush(self) -> bool:
        """See `EventReceiver`. What the collector refuses, or does not take within the SDK's retries, is given up."""
        self._queued = 0
        return self._traces.force_flush(_FLUSH_MS) and self._logs.force_flush(_FLUSH_MS)

    def end(self) -> None:
        """See `EventReceiver`."""
        self._traces.shutdown()
        self._logs.shutdown()

    def _export_span(self, event: HomeEvent) -> trace.SpanContext:
        operation = event.operation
        span = self._traces.get_tracer(_SCOPE, __version__).start_span(
            f"sandbox {operation.operation}",
            start_time=_in_ns(operation.at),
            attributes=_describe(event),
        )
        if operation.result != "ok":
            span.set_status(trace.StatusCode.ERROR, operation.result)
        span.end(_in_ns(operation.at + timedelta(seconds=operation.duration_s)))
        return span.get_span_context()

    def _export_record(self, event: HomeEvent, context: trace.SpanContext) -> None:
        failed = event.operation.result != "ok"
        record = log_values.LogRecord(
            timestamp=_in_ns(event.at),
            context=trace.set_span_in_context(trace.NonRecordingSpan(context)),
            severity_number=log_values.SeverityNumber.WARN if failed else log_values.SeverityNumber.INFO,
            severity_text="WARN" if failed else "INFO",
            body=write_line(event),
            attributes=_describe(event),
            event_name=f"sandbox.{event.kind.value}",
        )
        self._logs.get_logger(_SCOPE, __version__).emit(record)


def _describe(event: HomeEvent) -> dict[str, str]:
    """The attributes that a person searches for."""
    operation = event.operation
    known = {
        "event": event.id,
        "kind": event.kind.value,
        "operation": operation.operation,
        "actor": operation.actor.value,
        "result": operation.result,
        "task": event.task_id or "",
        "names": " ".join(neutralise_values(list(operation.names))),
    }
    return {f"sandbox.{name}": value for name, value in known.items() if value}


def _in_ns(at: datetime) -> int:
    """Nanoseconds since 1970, as OpenTelemetry counts."""
    return int(at.timestamp() * 1e6) * 1000
