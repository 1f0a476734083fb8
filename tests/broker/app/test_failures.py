"""Failed records on a real Kafka: retry topics, error topics, the error consumer, and order per key."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from broker.app.conftest import running
from lane_world import until
from multilane.client.produce.producer import Producer
from multilane.listeners.context import Context
from multilane.metrics.observer import Counts
from multilane.outcome.next_step import RetryPolicy, attempt
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker]


async def test_a_record_is_tried_one_plus_n_times_one_plus_m_and_then_has_its_last_step(shop):
    shop.fill(["bad", "good", "bad2"], partitions=1)
    retry, error = shop.make_topic(1), shop.make_topic(1)
    app = shop.app(
        retry=retry,
        error=error,
        retryCount=3,
        cluster={
            "errorConfig": {
                "groupId": f"{shop.main}.errors",
                "cron": "@every 1s",
                "maxErrorCount": 2,
                "closeConsumerWhenThereIsNoMessage": "1s",
                "closeConsumerWhenMessageIsNew": "1ms",
            }
        },
    )
    attempts: dict[bytes | None, list[int]] = defaultdict(list)
    ended: list[tuple[bytes | None, str]] = []
    retry_policy = RetryPolicy(shop.main, retry, error, 3, 2)

    @app.listener("orders")
    async def handle(record: Record) -> None:
        attempts[record.key].append(attempt(record, retry_policy))
        if record.key != b"good":
            raise ValueError("never")

    @app.last_step
    async def last_step(context: Context, record: Record, error: BaseException) -> None:
        ended.append((record.key, type(error).__name__))

    async with running(app) as task:
        await until(lambda: len(ended) == 2 or task.done(), 40)
    await task
    assert attempts == {b"bad": list(range(1, 11)), b"bad2": list(range(1, 11)), b"good": [1]}
    assert Counter(key for key, _ in ended) == {b"bad": 1, b"bad2": 1}


async def test_what_cannot_be_decoded_goes_to_the_error_topic_with_its_bytes(shop):
    shop.fill(["a"], partitions=1)
    retry, error = shop.make_topic(1), shop.make_topic(1)
    app = shop.app(retry=retry, error=error, retryCount=5)
    called = []

    @app.listener("orders")
    async def handle(order: dict[str, int]) -> None:
        called.append(order)

    async with running(app) as task:
        await until(lambda: sum(shop.committed().values()) >= 1 or task.done())
    await task
    (found,) = shop.read_all(error)
    assert (found.value, found.key, called) == (b"0", b"a", [])
    headers = dict(found.headers)
    assert headers["X-TargetTopic"] == retry.encode()
    assert b"cannot be decoded" in headers["X-ErrorMessage"]
    assert shop.read_all(retry) == []


async def test_a_copy_that_was_there_before_the_group_is_not_passed_over(shop):
    """Another member may have stored it a moment before this one looks where a new group begins: at the end."""
    retry = shop.fill(["early", "bird"], partitions=1)
    shop.fill(["old"], partitions=1)
    app = shop.app(retry=retry, retryCount=1, offsetInitial="newest")
    handled = []

    @app.listener("orders")
    async def handle(record: Record) -> None:
        handled.append((record.topic, record.key))

    async with running(app) as task:
        await until(lambda: len(handled) >= 2 or task.done())
    await task
    assert handled == [(retry, b"early"), (retry, b"bird")]


async def test_a_copy_may_be_as_large_as_its_topic_takes(shop):
    """The bound for messages of the application's own stood before it: the record was held up for ever."""
    shop.main, error = (
        shop.make_topic(1, **{"max.message.bytes": "6000000"}),
        shop.make_topic(1, **{"max.message.bytes": "6000000"}),
    )
    with Producer({"bootstrap.servers": shop.bootstrap, "max.request.size": 6_000_000}) as producer:
        producer.send(shop.main, bytes(5_000_000), b"large").result(30)
    app = shop.app(error=error, cluster={"producerConfig": {"maxMessageBytes": "1mb"}})

    @app.listener("orders")
    async def handle(record: Record) -> None:
        raise ValueError("no")

    async with running(app) as task:
        await until(lambda: sum(shop.committed().values()) >= 1 or task.done())
    await task
    (found,) = shop.read_all(error)
    assert (found.key, len(found.value)) == (b"large", 5_000_000)


async def test_a_retry_waits_for_its_time_and_holds_up_nobody(shop):
    shop.fill(["slow", *[f"k{i}" for i in range(50)]], partitions=1)
    app = shop.app(retry=shop.make_topic(1), retryCount=1, retryBackoff={"delay": "1500ms"})
    from multilane.clock import SystemClock

    clock, times, others = SystemClock(), [], []

    @app.listener("orders")
    async def handle(record: Record) -> None:
        if record.key != b"slow":
            others.append(clock.monotonic())
            return
        times.append(clock.monotonic())
        if len(times) == 1:
            raise ValueError("once")

    async with running(app) as task:
        await until(lambda: len(times) == 2 or task.done())
    await task
    assert len(others) == 50
    assert times[1] - times[0] >= 1.4
    assert max(others) < times[1]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
async def test_order_per_key_survives_retry(shop, protocol):
    shop.fill([f"k{i % 5}" for i in range(400)], partitions=2)
    app = shop.app(
        retry=shop.make_topic(2),
        retryCount=4,
        retryOrder="key",
        groupProtocol=protocol,
        retryBackoff={"delay": "20ms"},
    )
    tries: Counter[int] = Counter()
    succeeded: dict[bytes | None, list[int]] = defaultdict(list)

    @app.listener("orders")
    async def handle(record: Record) -> None:
        number = int(record.value or b"")
        tries[number] += 1
        if number % 37 == 0 and tries[number] < 3:
            raise ValueError("twice")
        succeeded[record.key].append(number)

    async with running(app) as task:
        await until(lambda: sum(map(len, succeeded.values())) >= 400 or task.done())
    await task
    for key, numbers in succeeded.items():
        assert numbers == sorted(numbers), key
    assert sum(map(len, succeeded.values())) == 400


async def test_own_functions_for_the_retry_and_error_topics(shop):
    shop.fill(["a", "b"], partitions=1)
    seen: list[tuple[str, bytes | None]] = []

    async def on_retry(record: Record) -> None:
        seen.append(("retry", record.key))
        raise ValueError("again")

    async def on_error(record: Record) -> None:
        seen.append(("error", record.key))

    app = shop.app(
        retry=shop.make_topic(1),
        error=shop.make_topic(1),
        retryCount=1,
        cluster={
            "errorConfig": {
                "groupId": f"{shop.main}.errors",
                "cron": "@every 1s",
                "closeConsumerWhenThereIsNoMessage": "1s",
                "closeConsumerWhenMessageIsNew": "1ms",
            }
        },
    )

    @app.listener("orders", retry=on_retry, error=on_error)
    async def handle(record: Record) -> None:
        seen.append(("main", record.key))
        raise ValueError("first")

    async with running(app) as task:
        await until(lambda: len(seen) >= 6 or task.done(), 40)
    await task
    assert Counter(seen) == Counter((topic, key) for topic in ("main", "retry", "error") for key in (b"a", b"b"))


async def test_interceptors_of_the_app_and_of_one_listener(shop):
    shop.fill(["a"], partitions=1)
    told: list[str] = []

    class Tells:
        def __init__(self, name: str) -> None:
            self.name = name

        def on_consume(self, context, record):
            told.append(f"{self.name} consumes")

        def on_error(self, context, record, error):
            told.append(f"{self.name} sees {type(error).__name__} in {context['Z-GroupID'] == f'{shop.main}.group'}")

    from multilane.runtime.registration import Interceptors

    app = shop.app(onFailure="drop")
    app.intercept(Tells("app"))
    app.intercept_errors(Tells("app"))

    @app.listener("orders", interceptors=Interceptors(consume=(Tells("own"),)))
    async def handle(record: Record) -> None:
        told.append("handles")
        raise ValueError("no")

    async with running(app) as task:
        await until(lambda: len(told) >= 4 or task.done())
    await task
    assert told == ["app consumes", "own consumes", "handles", "app sees ValueError in True"]


@pytest.mark.parametrize("batch", [False, True])
async def test_without_a_place_to_go_a_record_is_retried_in_place_and_never_committed_past(shop, batch):
    """The minimal configuration committed past a failed record after one line in the log."""
    shop.fill([None, "bad", "a", "bad", "b", None], partitions=1)
    keys = {"batchSize": 3, "consumeBatchListenerLatency": "50ms"} if batch else {}
    app = shop.app(retryBackoff={"delay": "50ms"}, **keys)
    handled: list[int] = []
    mended: list[bool] = []

    def fails(record: Record) -> bool:
        handled.append(record.offset)
        return record.offset in (0, 1) and not mended

    async def one(record: Record) -> None:
        if fails(record):
            raise ConnectionError("no answer")

    async def several(records: list[Record]) -> dict[Record, Exception]:
        return {record: ConnectionError("no answer") for record in records if fails(record)}

    app.listener("orders")(several if batch else one)
    async with running(app) as task:
        await until(lambda: task.done() or (min(map(handled.count, (0, 1))) > 2 and {2, 4, 5} <= set(handled)))
        await until(lambda: shop.committed() or task.done())
        assert set(shop.committed().values()) == {0}
        mended.append(True)
        await until(lambda: set(shop.committed().values()) == {6} or task.done())
    await task
    assert handled.index(3) > 1, "the next of its key comes after it"
    assert shop.committed() == {f"{shop.main}-0": 6}


async def test_a_record_is_dropped_where_that_is_written(shop):
    shop.fill(["bad", "a"], partitions=1)
    app = shop.app(onFailure="drop")

    @app.listener("orders")
    async def handle(record: Record) -> None:
        if record.key == b"bad":
            raise ValueError("never")

    async with running(app) as task:
        await until(lambda: set(shop.committed().values()) == {2} or task.done())
    await task
    assert shop.committed() == {f"{shop.main}-0": 2}


@pytest.mark.parametrize("kind", ["single", "plain", "batch", "error topic alone"])
async def test_in_an_outage_nothing_goes_to_the_error_topic_and_all_is_handled_after_it(shop, kind):
    """Retries were used up within a second, and everything was in the error topic."""
    shop.fill([f"k{n}" for n in range(300)], partitions=2)
    retry, error = shop.make_topic(2), shop.make_topic(1)
    keys = {"error": error, "retryBackoff": {"delay": "100ms", "kind": "exponential", "maximum": "200ms"}}
    keys |= {} if kind == "error topic alone" else {"retry": retry, "retryCount": 2}
    keys |= {"batchSize": 20, "consumeBatchListenerLatency": "20ms"} if kind == "batch" else {}
    counts = Counts()
    app = shop.app(**keys)
    app.observer = counts
    handled: Counter[bytes | None] = Counter()
    is_down = [True]

    def call(record: Record) -> None:
        if is_down:
            raise ConnectionError("refused")
        handled[record.value] += 1

    async def one(record: Record) -> None:
        call(record)

    async def several(records: list[Record]) -> None:
        for record in records:
            call(record)

    app.listener("orders")({"plain": call, "batch": several}.get(kind, one))
    async with running(app) as task:
        await until(lambda: counts.by("result", "lanes.outage.probes").get("failed", 0) >= 3 or task.done())
        held = len(shop.read_all(error))
        is_down.clear()
        await until(lambda: len(handled) + held == 300 or task.done(), 60)
        await until(lambda: counts.by("state", "lanes.outage") == {"paused": 1, "resumed": 1} or task.done())
    await task
    assert held == len(shop.read_all(error)) == 0
    assert set(handled.values()) == {1}
