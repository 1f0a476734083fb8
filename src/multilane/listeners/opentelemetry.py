"""Spans around the handling of records, through the OpenTelemetry API.

Thread: loop; the span is current while the user's function runs, on any thread.

Makes a span of kind consumer for each record and attempt, with a link to the context in the record's headers. Copies in
retry and error topics keep these headers, so every attempt links to the same origin. Never puts keys, values or error
texts into attributes: only the error's type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from multilane.listeners.context import GROUP, Context
from multilane.outcome.headers import ERROR_COUNT, RETRY_COUNT, last_value

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer
    from opentelemetry.util.types import Attributes

    from multilane.listeners.interceptors import End
    from multilane.wire.records.record import Headers, Record

_NAME: Final = "multilane"


class OpenTelemetryTracer:
    """For `app.trace(OpenTelemetryTracer())`. Uses the global tracer provider unless a tracer is given."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer(_NAME)

    def start(self, context: Context, name: str, record: Record) -> End:
        span = self._tracer.start_span(
            f"process {record.topic}",
            kind=SpanKind.CONSUMER,
            links=_links(record.headers),
            attributes=_attributes(context, name, record),
        )
        token = otel_context.attach(trace.set_span_in_context(span))

        def end(error: BaseException | None) -> None:
            otel_context.detach(token)
            if error is not None:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR))
            span.end()

        return end


def _links(headers: Headers) -> list[Link]:
    carrier = {name: value.decode(errors="replace") for name, value in headers if value is not None}
    origin = trace.get_current_span(propagate.extract(carrier)).get_span_context()
    return [Link(origin)] if origin.is_valid else []


def _attributes(context: Context, name: str, record: Record) -> Attributes:
    attributes: dict[str, Any] = {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": record.topic,
        "messaging.destination.partition.id": str(record.partition),
        "messaging.consumer.group.name": str(context.get(GROUP, "")),
        "messaging.kafka.offset": record.offset,
        "messaging.message.body.size": len(record.value or b""),
        "multilane.listener": name,
    }
    if record.value is None:
        attributes["messaging.kafka.message.tombstone"] = True
    for header, key in ((RETRY_COUNT, "multilane.retry.count"), (ERROR_COUNT, "multilane.error.count")):
        value = last_value(record.headers, header)
        if value is not None and value.isdigit() and len(value) < 10:
            attributes[key] = int(value)
    return attributes
