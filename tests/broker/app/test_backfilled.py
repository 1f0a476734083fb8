"""A worker of a backfill against the real Kafka, without Spark: lanes, ends, failures; and what is to be done."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict

import pyarrow as pa
import pytest

from broker.produce import new_producer
from lane_world import turns
from multilane import Acknowledgement, Admin, TopicPartition
from multilane.engines.backfill import run as driver
from multilane.engines.backfill.progress import ProgressReport, new_progress
from multilane.engines.backfill.run import BackfillRequest
from multilane.engines.backfill.state_files import StateFiles
from multilane.engines.backfill.worker import BackfillTask
from multilane.engines.backfill.worker_app import BackfillWorkerApp
from multilane.errors import ChannelLost, ConfigError, DataLoss, NoHistory
from multilane.wire.records.record import Record

pytestmark = pytest.mark.broker

PATIENCE = 60.0


class History:
    """A worker over a shop's topic, and the book that a driver would keep."""

    def __init__(self, shop, monkeypatch, **consumer):
        self.shop, self._patch = shop, monkeypatch
        self.app = shop.app(**consumer)
        self.handled = []
        self._lock = threading.Lock()
        self.book = None

    def request(self, **asked):
        return BackfillRequest("shop:app", "orders", self.shop.folder / "state", **asked)

    def plan(self, **asked):
        """As the driver does it, up to Spark."""
        config = self.app.config.consumer("orders")
        with StateFiles(self.shop.folder / "state") as files:
            return driver._progress(self.request(**asked), files, config, self.app.config.cluster("main"))

    def worker(self) -> BackfillWorkerApp:
        self._patch.setattr("multilane.engines.backfill.worker_app.find_app", lambda target: self.app)
        return BackfillWorkerApp("shop:app")

    def run(self, worker=None, **more) -> None:
        self.book = self.book or self.plan(begin="earliest")
        mine = self.book.open_partitions
        starts = {p: self.book.positions[p] for p in mine}
        ends = {p: self.book.plan.offset_ranges[p][1] for p in mine}
        known = {"epochs": self.book.epochs, "topic_id": self.book.plan.topic_id}
        errand = BackfillTask("orders", self.shop.main, starts, ends, **known, **more)
        self.listed = []
        self.note((worker or self.worker()).run(errand, self.note))

    def note(self, report: ProgressReport) -> None:
        self.listed += self.book.note(report)

    def saw(self, record: Record) -> int:
        """Gives how often it was seen by now."""
        with self._lock:
            self.handled.append(record)
            return sum(other.offset == record.offset and other[1] == record[1] for other in self.handled)

    @property
    def values(self) -> list[int]:
        return sorted(int(record.value) for record in self.handled)

    def by_key(self) -> dict[bytes, list[int]]:
        found = defaultdict(list)
        for record in self.handled:
            found[record.key].append(record.offset)
        return found

    def assert_untouched(self) -> None:
        """The group does not even exist."""
        with Admin({"bootstrap.servers": self.shop.bootstrap}) as admin:
            assert f"{self.shop.main}.group" not in {group.id for group in admin.groups()}
        assert self.shop.committed() == {}


@pytest.fixture
def history(shop, monkeypatch):
    return lambda **consumer: History(shop, monkeypatch, **consumer)


def with_topics(shop, **more):
    return {"retry": shop.make_topic(2), "error": shop.make_topic(1), **more}


def test_history_is_handled_once_in_order_and_failures_stay_in_their_place(shop, history):
    shop.fill([f"k{i % 20}" for i in range(1_000)])
    topics = with_topics(shop, retryCount=2, retryBackoff={"delay": "50ms"})
    past = history(**topics)

    @past.app.listener("orders")
    async def index(record: Record) -> None:
        times = past.saw(record)
        if record.value == b"7" or (record.value == b"30" and times == 1):
            raise ValueError("not today")

    past.run()
    assert past.book.is_through
    assert Counter(past.values) == Counter({**dict.fromkeys(range(1_000), 1), 7: 3, 30: 2})
    for offsets in past.by_key().values():
        assert offsets == sorted(offsets), "a key waits for its failed record"
    assert [(one.attempts, one.error, one.text) for one in past.listed] == [(3, "ValueError", "not today")]
    assert past.book.records == 1_000
    assert shop.read_all(topics["retry"]) == shop.read_all(topics["error"]) == []
    past.assert_untouched()


def test_what_is_given_up_goes_to_the_error_topic_where_that_is_wanted(shop, history):
    shop.fill(["a", "b", "c"])
    topics = with_topics(shop)
    past = history(**topics)

    @past.app.listener("orders")
    def index(record: Record) -> None:
        past.saw(record)
        if record.key == b"b":
            raise ValueError("never")

    past.run(to_error_topic=True)
    [copy] = shop.read_all(topics["error"])
    assert copy.value == b"1"
    assert dict(copy.headers)["X-TargetTopic"] == topics["retry"].encode()
    assert past.values == [0, 1, 1, 2]
    assert len(past.listed) == 1
    assert shop.read_all(topics["retry"]) == []


def test_columns_with_a_batch_that_fails_once(shop, history):
    shop.fill([f"k{i % 50}" for i in range(2_000)])
    past = history(**with_topics(shop), batchSize=100)
    failing = iter([True])

    @past.app.listener("orders")
    async def index(batch: pa.RecordBatch) -> None:
        if next(failing, False):
            raise ValueError("not today")
        for row in batch.to_pylist():
            past.saw(Record("t", 0, row["offset"], 0, 0, row["key"], row["value"]))

    past.run()
    assert past.values == list(range(2_000))
    for offsets in past.by_key().values():
        assert offsets == sorted(offsets)


def test_records_that_are_acknowledged_by_hand_have_one_attempt(shop, history):
    shop.fill(["a", "b", "a"])
    past = history(**with_topics(shop, retryCount=3), ack="manual")

    @past.app.listener("orders")
    async def index(record: Record, acknowledgement: Acknowledgement) -> None:
        past.saw(record)
        if record.key == b"b":
            acknowledgement.reject(ValueError("never"))
        else:
            acknowledgement.acknowledge()

    past.run()
    assert past.book.is_through
    assert past.values == [0, 1, 2]
    assert [one.error for one in past.listed] == ["ValueError"]


def test_a_stop_and_a_resumption_handle_everything_once(shop, history):
    shop.fill([f"k{i}" for i in range(600)])
    past = history(virtualPartitionCount=3)
    worker = past.worker()

    @past.app.listener("orders")
    async def index(record: Record) -> None:
        past.saw(record)
        if len(past.handled) == 200:
            worker.stop()
        await turns()  # else nobody else has one

    past.run(worker)
    assert not past.book.is_through
    assert 200 <= past.book.records < 600
    past.run()
    assert past.book.is_through
    assert past.values == list(range(600))


def half_done(shop, history, tamper):
    """A backfill of which records 0 and 2 are settled, whose state somebody has changed since."""
    shop.fill(["a", "b", "c", "d"], partitions=1)
    past = history()
    past.book = past.plan(begin="earliest")
    past.book.note(ProgressReport({0: (1, ((2, 2),))}, 2, (), {0: 0}))
    with StateFiles(shop.folder / "state") as files:
        files.save(past.book)
    for name in ("plan.json", "progress.json"):
        path = shop.folder / "state" / name
        path.write_text(json.dumps(tamper(json.loads(path.read_text()))))
    return past


@pytest.mark.parametrize(
    ("change", "places"),
    [
        ({}, {0: (1, ((2, 2),))}),
        ({"epochs": {"0": 3}}, {0: (0, ())}),
        ({"epochs": {}}, {0: (1, ((2, 2),))}),
    ],
    ids=["as it was", "an epoch that the log does not have", "of a version without epochs"],
)
def test_places_are_held_against_the_log_before_they_are_believed(shop, history, caplog, change, places):
    past = half_done(shop, history, lambda told: told | (change if "places" in told else {}))
    found = past.plan()
    assert found.positions == places
    assert ("0: the saved progress does not match the log" in caplog.text) == (places == {0: (0, ())})
    assert found.epochs.get(0, 0) == 0


def test_a_log_that_ends_before_the_range_was_cut(shop, history):
    past = half_done(shop, history, lambda told: told | ({"stretches": {"0": [0, 9]}} if "stretches" in told else {}))
    with pytest.raises(DataLoss, match="now ends at 4, but this backfill goes to 9: the log was truncated"):
        past.plan()


@pytest.mark.parametrize("place", [[3, [[1, 2]]], [1, [[2, 900]]], [900, []]])
def test_places_that_nobody_writes_are_damaged(shop, history, place):
    past = half_done(shop, history, lambda told: told | ({"places": {"0": place}} if "places" in told else {}))
    with pytest.raises(ConfigError, match="damaged"):
        past.plan()


def test_when_the_driver_is_gone_the_work_is_given_up(shop, history):
    shop.fill(["a"] * 50)
    past = history()
    worker = past.worker()

    @past.app.listener("orders")
    async def index(record: Record) -> None:
        past.saw(record)
        worker.abort()

    with pytest.raises(ChannelLost, match="the driver of this backfill is gone"):
        past.run(worker)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_a_log_that_ends_with_markers_and_aborted_records(shop, history, level):
    shop.fill(["a", "b"], partitions=1)
    producer = new_producer(shop.bootstrap, transactional_id=f"{shop.main}-1")
    producer.init_transactions(30)
    for number, end in ((2, producer.commit_transaction), (3, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(shop.main, b"%d" % number, b"c")
        producer.flush(30)
        end(30)
    past = history(properties={"isolation.level": level})

    @past.app.listener("orders")
    async def index(record: Record) -> None:
        past.saw(record)

    past.run()
    assert past.book.plan.offset_ranges == {0: (0, 6)}
    assert past.book.is_through
    assert past.values == ([0, 1, 2] if level == "read_committed" else [0, 1, 2, 3])


def test_only_what_was_asked_for_and_nothing_that_came_later(shop, history):
    shop.fill([f"k{i}" for i in range(40)], partitions=1)
    past = history()

    @past.app.listener("orders")
    async def index(record: Record) -> None:
        past.saw(record)

    past.book = past.plan(begin={0: 10}, end={0: 30})
    past.run()
    assert past.values == list(range(10, 30))


# --- what is to be done ----------------------------------------------------------------------------------------------


def fill_at(shop, *times: int) -> None:
    from multilane.client.produce.producer import Producer

    shop.main = shop.make_topic(1)
    with Producer({"bootstrap.servers": shop.bootstrap}) as producer:
        producer.send_many([(shop.main, b"v", b"k", (), 0, time) for time in times]).result(30)


def test_times(shop, history):
    fill_at(shop, 1_000, 2_000, 3_000, 4_000)
    past = history()
    for begin, end, offset_range in ((2_000, 4_000, (1, 3)), (1_500, None, (1, 4)), ("earliest", 9_000, (0, 4))):
        past.shop.folder = shop.folder / str(begin)
        assert past.plan(begin=begin, end=end).plan.offset_ranges == {0: offset_range}
    past.shop.folder = shop.folder / "never"
    with pytest.raises(NoHistory, match="has no records from 1970-01-01T00:00:09"):
        past.plan(begin=9_000)


def test_the_range_is_fixed_when_it_is_begun(shop, history):
    fill_at(shop, 1_000, 2_000)
    past = history()
    assert past.plan(begin="earliest").plan.offset_ranges == {0: (0, 2)}
    shop.fill(["k"], topic=shop.main)
    assert past.plan().plan.offset_ranges == {0: (0, 2)}
    assert past.plan(begin="earliest", end="latest").plan.offset_ranges == {0: (0, 2)}
    with pytest.raises(ConfigError, match="has a backfill from earliest, not 1970-01-01T00:00:01"):
        past.plan(begin=1_000)


def test_what_cannot_be_begun(shop, history):
    fill_at(shop, 1_000)
    past = history()
    with pytest.raises(ConfigError, match="set --from to start one"):
        past.plan()
    with pytest.raises(ConfigError, match="omit --failed-only"):
        past.plan(begin="earliest", failed_only=True)
    with pytest.raises(ConfigError, match="has no partition 7: it has 1"):
        past.plan(begin={7: 0})
    with pytest.raises(ConfigError, match="now ends at 1, but --to is 5"):
        past.plan(begin="earliest", end={0: 5})


def test_another_topic_or_group_is_refused(shop, history):
    fill_at(shop, 1_000)
    history().plan(begin="earliest")
    with pytest.raises(ConfigError, match=r"of group .*, not other\. To continue it"):
        history(groupId="other").plan()
    before = shop.main
    fill_at(shop, 1_000)
    with pytest.raises(ConfigError, match=f"of (group|topic) {before}"):
        history().plan()


def test_a_topic_that_was_deleted_and_made_again_is_another_one(shop, history):
    fill_at(shop, 1_000)
    past = history()
    past.plan(begin="earliest")
    with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
        admin.delete_topics([shop.main])
        admin.create_topics({shop.main: 1})
    with pytest.raises(ConfigError, match="a topic of the same name that was deleted since"):
        past.plan()


def test_records_that_were_deleted_before_they_were_read(shop, history):
    shop.fill([f"k{i}" for i in range(10)], partitions=1)
    past = history()

    @past.app.listener("orders")
    async def index(record: Record) -> None:
        past.saw(record)

    past.book = past.plan(begin="earliest")
    with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
        admin.delete_records({TopicPartition(shop.main, 0): 6})
    with pytest.raises(DataLoss, match="With --skip-deleted the backfill continues where the log begins now"):
        past.run()
    with pytest.raises(DataLoss, match="now begins at 6, but offset 0 is next"):
        past.plan()
    past.run(skips_deleted=True)
    assert past.values == [6, 7, 8, 9]
    assert past.plan(skips_deleted=True).positions == {0: (6, ())}


def test_those_that_failed_once_more(shop, history):
    shop.fill([f"k{i}" for i in range(30)], partitions=1)
    past = history()
    broken = [True]

    @past.app.listener("orders")
    async def index(record: Record) -> None:
        if record.offset in (3, 17, 29) and broken[0]:
            raise ValueError("the database is away")
        past.saw(record)

    past.book = past.plan(begin="earliest")
    with pytest.raises(ConfigError, match="--failed-only needs a finished backfill"):
        past.plan(failed_only=True)
    past.run()
    assert past.book.failed == {(0, 3), (0, 17), (0, 29)}
    with StateFiles(shop.folder / "state") as files:
        files.list_failed(past.book, past.listed)
        files.save(past.book)
    broken[0] = False
    past.book = past.plan(failed_only=True)
    assert (past.book.pass_number, past.book.remaining) == (2, 3)
    assert past.plan().remaining == past.plan(failed_only=True).remaining == 3, "one that was ended goes on"
    past.handled.clear()
    past.run()
    assert past.book.is_through
    with StateFiles(shop.folder / "state") as files:
        files.save(past.book)
    with pytest.raises(ConfigError, match="no record has failed"):
        past.plan(failed_only=True)
    assert past.values == [3, 17, 29]
    assert past.listed == []


def test_the_state_is_not_begun_when_nothing_can_be_planned(shop, history):
    fill_at(shop, 1_000)
    past = history()
    with pytest.raises(NoHistory):
        past.plan(begin="latest")
    with StateFiles(shop.folder / "state") as files:
        assert files.plan() is None
    assert new_progress(past.plan(begin="earliest").plan).remaining == 1
