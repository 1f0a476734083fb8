"""Spans as OpenTelemetry's own SDK sees them."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lane_world import World, record_of, until
from multilane.lanes.threads import Threads
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.listener import Listener
from multilane.listeners.opentelemetry import OpenTelemetryTracer
from multilane.listeners.signature import read_signature
from multilane.listeners.window import Window
from multilane.wire.records.record import Record

ORIGIN = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "a very private thing"


@pytest.fixture
def spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter, InterceptorChain("g", span="orders", tracers=[OpenTelemetryTracer(provider.get_tracer("t"))])
    provider.shutdown()


def listener(function, interceptors, window=None):
    return Listener(function, read_signature(function), window or Window(), interceptors, Threads("lane"))


async def test_a_span_links_to_where_its_record_came_from(spans):
    exporter, interceptors = spans

    async def handle(record: Record) -> None: ...

    record = record_of("a", 7, headers=(("traceparent", ORIGIN), ("X-RetryCount", b"2")))
    await listener(handle, interceptors).call_one(record)
    (span,) = exporter.get_finished_spans()
    assert (span.name, span.kind, span.parent) == ("process t", trace.SpanKind.CONSUMER, None)
    assert [f"{link.context.trace_id:032x}" for link in span.links] == ["0af7651916cd43dd8448eb211c80319c"]
    attributes = dict(span.attributes)
    assert attributes["messaging.system"] == "kafka"
    assert attributes["messaging.destination.partition.id"] == "3"
    assert (attributes["messaging.kafka.offset"], attributes["messaging.consumer.group.name"]) == (7, "g")
    assert (attributes["multilane.listener"], attributes["multilane.retry.count"]) == ("orders", 2)


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_the_span_is_current_in_the_function(spans, kind):
    exporter, interceptors = spans
    found = []

    async def coroutine(record: Record) -> None:
        found.append(trace.get_current_span().get_span_context().span_id)

    def function(record: Record) -> None:
        found.append(trace.get_current_span().get_span_context().span_id)

    await listener(coroutine if kind == "coroutine" else function, interceptors).call_one(record_of("a", 0))
    assert found == [exporter.get_finished_spans()[0].context.span_id]
    assert not trace.get_current_span().get_span_context().is_valid


async def test_an_error_is_recorded_by_its_type_alone(spans):
    exporter, interceptors = spans

    async def handle(record: Record) -> None:
        raise ValueError(SECRET)

    record = record_of("a", 0, headers=(("traceparent", b"\xff?"), ("X-RetryCount", b"9" * 40)))
    with pytest.raises(ValueError, match=SECRET):
        await listener(handle, interceptors).call_one(record)
    (span,) = exporter.get_finished_spans()
    assert span.attributes["error.type"] == "ValueError"
    assert not span.status.is_ok
    assert SECRET not in span.to_json()
    assert span.links == ()


async def test_a_batch_has_a_span_for_each_record_and_leaves_nothing_current(spans):
    exporter, interceptors = spans

    async def handle(records: list[Record]) -> dict[Record, Exception]:
        return {records[1]: KeyError("no")}

    await listener(handle, interceptors, Window(3, 1.0)).call_many([record_of("a", i) for i in range(3)])
    ended = {span.attributes["messaging.kafka.offset"]: span.status.is_ok for span in exporter.get_finished_spans()}
    assert ended == {0: True, 1: False, 2: True}
    assert not trace.get_current_span().get_span_context().is_valid


async def test_lanes_live_on_with_spans_around_their_calls(spans):
    exporter, interceptors = spans

    async def handle(record: Record) -> None: ...

    async with World(handle, lanes=1, interceptors=interceptors) as world:
        (lane,) = world.pool._lanes
        task = lane.task
        await world.give(*"abc")
        await until(lambda: world.is_done)
        assert lane.task is task
        assert len(exporter.get_finished_spans()) == 3
