"""`multilane errors` as a person uses it, against a real broker."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from broker.produce import Content, new_producer, send
from broker.reading import read_rows
from multilane import Admin, Consumer, TopicPartition
from multilane.cli import main
from multilane.clock import SystemClock
from multilane.commit import completion_map
from multilane.commit.sections import MOST_BYTES
from multilane.error_consumer.reading import GROUP_PREFIX, ErrorLog
from multilane.outcome.headers import ERROR_COUNT, ERROR_MESSAGE, RETRY_COUNT, TARGET_TOPIC
from multilane.types import Offset, OffsetAndMetadata

pytestmark = pytest.mark.broker

CLOCK = SystemClock()
HOUR = 3_600_000


class Shop:
    """An error topic with two partitions, and where its records came from."""

    def __init__(self, kafka, topic):
        self.bootstrap = kafka.bootstrap()
        self.error, self.retry, self.other = topic(2), topic(2), topic(2)
        self.now = int(CLOCK.wall() * 1_000)
        self._writer = new_producer(self.bootstrap)

    def fail(self, value, error, *, partition=0, target=None, key=b"k", age=0, more=()):
        headers = (
            ("a", b"1"),
            (RETRY_COUNT, b"2"),
            (ERROR_COUNT, b"3"),
            ("a", b"1"),
            (TARGET_TOPIC, (target or self.retry).encode()),
            (ERROR_MESSAGE, error.encode()),
            *more,
        )
        content = Content(value, key=key, headers=headers, timestamp=self.now - age)
        send(self._writer, self.error, [content], partition=partition)

    def run(self, *arguments, code=0):
        told = CliRunner().invoke(main.app, ["errors", *arguments, "--bootstrap-server", self.bootstrap])
        assert told.exit_code == code, told.output + repr(told.exception)
        return told.stdout

    def facts(self, *arguments, code=0):
        return json.loads(self.run(*arguments, "-o", "json", code=code))

    def replay(self, *arguments, code=0):
        (found,) = self.facts("replay", self.error, *arguments, code=code)
        return found

    def stored(self, topic, count):
        with Consumer({"bootstrap.servers": self.bootstrap, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign(TopicPartition(topic, p) for p in range(2))
            return read_rows(consumer, count)

    def size(self, topic):
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            return sum(end.offset for end in admin.offsets([(topic, 0), (topic, 1)]).values())


@pytest.fixture
def shop(kafka, topic):
    made = Shop(kafka, topic)
    made.fail(b"0", "ValueError: order 1 has no stock", age=2 * HOUR)
    made.fail(b"1", "TimeoutError: too late", key=b"slow")
    made.fail(b"2", "ValueError: order 22 has no stock", age=HOUR)
    made.fail(b"3", "ValueError: order 333 has no stock", partition=1, key=None)
    return made


def test_list_groups_by_error(shop):
    first, second = shop.facts("list", shop.error)
    assert (first["error"], first["count"], first["replayed"]) == ("ValueError: order # has no stock", 3, 0)
    assert first["partitions"] == [0, 1]
    assert first["first"] < first["last"]
    assert (second["error"], second["count"], second["example"]) == (
        "TimeoutError: too late",
        1,
        f"{shop.error}/0@1",
    )
    shown = " ".join(shop.run("list", shop.error).split())
    assert "4 records, 2 kinds of error" in shown


def test_list_reads_springs_headers(shop):
    headers = (("kafka_dlt-exception-fqcn", b"org.NoStock"), ("kafka_dlt-exception-message", b"none left"))
    send(new_producer(shop.bootstrap), shop.other, [Content(b"x", headers=headers)])
    (found,) = shop.facts("list", shop.other)
    assert found["error"] == "org.NoStock: none left"


def test_an_empty_topic(shop):
    assert shop.facts("list", shop.retry) == []
    assert "no records" in shop.run("list", shop.retry)


def test_show_one_record(shop):
    found = shop.facts("show", f"{shop.error}/1@0")
    assert (found["key"], found["value"]) == (None, {"size": 1, "text": "3"})
    assert [h["name"] for h in found["headers"]][:4] == ["a", RETRY_COUNT, ERROR_COUNT, "a"]
    assert (found["target"], found["replayed"]) == (shop.retry, False)
    assert "ValueError" in shop.run("show", f"{shop.error}/1@0")


@pytest.mark.parametrize("place", ["0@4", "0@999999", "7@0"])
def test_a_record_that_is_not_there_is_code_1(shop, place):
    shop.run("show", f"{shop.error}/{place}", code=1)


def test_without_execute_nothing_happens(shop):
    for _ in range(2):
        report = shop.replay("--allow-target", shop.retry)
        assert (report["executed"], report["replayed"], report["targets"]) == (False, 4, {shop.retry: 4})
    assert shop.size(shop.retry) == 0
    assert "Nothing was sent" in shop.run("replay", shop.error, "--to", shop.other)


def test_replayed_records_are_not_replayed_again(shop):
    report = shop.replay("--allow-target", shop.retry, "--execute")
    assert (report["replayed"], report["replayed_before"]) == (4, 0)
    rows = shop.stored(shop.retry, 4)
    by_value = {r.value: r for r in rows}
    assert by_value.keys() == {b"0", b"1", b"2", b"3"}
    assert by_value[b"3"].key is None
    assert by_value[b"1"].headers == (
        ("a", b"1"),
        (ERROR_COUNT, b"3"),
        ("a", b"1"),
        (TARGET_TOPIC, shop.retry.encode()),
        (ERROR_MESSAGE, b"TimeoutError: too late"),
    )
    assert [r.value for r in rows if r.key == b"k"] == [b"0", b"2"], "in the order of the log"
    again = shop.replay("--allow-target", shop.retry, "--execute")
    assert again["replayed"] == 0
    shop.fail(b"4", "new")
    third = shop.replay("--allow-target", shop.retry, "--execute")
    assert third["replayed"] == 1
    assert shop.size(shop.retry) == 5
    assert all(g["replayed"] == g["count"] for g in shop.facts("list", shop.error))


def test_what_was_replayed_here_and_there_is_marked(shop):
    for n in range(5, 30):
        shop.fail(b"%d" % n, "odd" if n % 2 else "even")
    report = shop.replay("--to", shop.other, "--error", "ODD", "--execute")
    assert (report["replayed"], report["not_wanted"]) == (13, 16)
    assert shop.facts("show", f"{shop.error}/0@3")["replayed"]
    assert not shop.facts("show", f"{shop.error}/0@4")["replayed"]
    rest = shop.replay("--to", shop.other, "--execute")
    assert (rest["replayed"], rest["replayed_before"]) == (16, 13)
    values = sorted(int(r.value) for r in shop.stored(shop.other, 29))
    assert values == [0, 1, 2, 3, *range(5, 30)]
    with ErrorLog({"bootstrap.servers": shop.bootstrap}, shop.error) as log:
        assert {(p.partition, m.frontier, m.runs) for p, m in log.marks().items()} == {(0, 28, ()), (1, 1, ())}
    with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
        told = admin.group_offsets(GROUP_PREFIX + shop.error)[TopicPartition(shop.error, 0)].metadata
        topic_id = admin.topics([shop.error])[shop.error].id
    assert completion_map.read(told, 28) == completion_map.CompletionMap((), completion_map.LogIdentity(0, topic_id))


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["--key", "slow"], [b"1"]),
        (["--partition", "1"], [b"3"]),
        (["--error", "no stock", "--partition", "0"], [b"0", b"2"]),
    ],
)
def test_filters(shop, arguments, values):
    shop.replay("--to", shop.other, *arguments, "--execute")
    assert sorted(r.value for r in shop.stored(shop.other, len(values))) == values
    assert shop.size(shop.other) == len(values)


def test_filters_by_time(shop):
    (_, timeouts) = shop.facts("list", shop.error)
    report = shop.replay("--to", shop.other, "--until", timeouts["first"])
    assert (report["replayed"], report["not_wanted"]) == (2, 2)
    report = shop.replay("--to", shop.other, "--since", timeouts["first"])
    assert (report["replayed"], report["not_wanted"]) == (2, 2)


def test_a_header_alone_does_not_choose(shop):
    """Whoever can write to an error topic must not be able to write to any other through us."""
    shop.fail(b"forged", "x", target="payments")
    report = shop.replay("--allow-target", shop.retry, "--execute", code=1)
    assert (report["replayed"], report["without_allowed_target"]) == (4, {"payments": 1})
    again = shop.replay("--allow-target", shop.retry, code=1)
    assert (again["replayed"], again["replayed_before"]) == (0, 0)
    assert shop.replay("--to", shop.other, "--execute")["replayed"] == 1
    assert [r.value for r in shop.stored(shop.other, 1)] == [b"forged"]


def test_a_rate_is_kept(shop):
    for n in range(20):
        shop.fail(b"r%d" % n, "x")
    began = CLOCK.monotonic()
    assert shop.replay("--to", shop.other, "--rate", "20/s", "--execute")["replayed"] == 24
    assert CLOCK.monotonic() - began >= 23 / 20
    assert shop.size(shop.other) == 24


def test_marks_that_do_not_fit_stop_the_replay_before_it_sends(shop, monkeypatch):
    """Every other record: marks that were left out would have records replayed twice."""
    monkeypatch.setattr("multilane.commit.completion_map._OVERHEAD", MOST_BYTES - 24)
    for n in range(40):
        shop.fail(b"%d" % n, "odd" if n % 2 else "even")
    options = ["--to", shop.other, "--error", "odd", "--execute", "--bootstrap-server", shop.bootstrap]
    told = CliRunner().invoke(main.app, ["errors", "replay", shop.error, *options])
    assert "more than can be marked" in str(told.exception)
    assert shop.size(shop.other) == 0


def test_marks_beyond_the_end_of_the_log_are_of_another_log(shop):
    with Consumer({"bootstrap.servers": shop.bootstrap, "group.id": GROUP_PREFIX + shop.error}) as consumer:
        consumer.assign([(shop.error, 0)])
        consumer.commit({TopicPartition(shop.error, 0): 900})
    assert shop.replay("--to", shop.other)["replayed"] == 4


@pytest.mark.parametrize("of_this_log", [True, False])
def test_marks_that_reach_beyond_the_log_are_void(shop, of_this_log, caplog):
    """An honest offset with a forged map: every future error would count as replayed."""
    place = TopicPartition(shop.error, 0)
    with Consumer({"bootstrap.servers": shop.bootstrap, "group.id": GROUP_PREFIX + shop.error}) as consumer:
        mark = completion_map.LogIdentity(0, consumer.topic_ids([shop.error])[shop.error]) if of_this_log else None
        text = completion_map.encode(1, ((2, 2**62),), mark)
        consumer.commit({place: OffsetAndMetadata(Offset(1), metadata=text)})
    assert shop.replay("--to", shop.other)["replayed"] == 4
    assert f"{place}: the replay marks do not match the log" in caplog.text


def test_marks_of_another_topic_of_the_same_name_are_void(shop, topic):
    place = TopicPartition(shop.error, 0)
    with Consumer({"bootstrap.servers": shop.bootstrap, "group.id": GROUP_PREFIX + shop.error}) as consumer:
        [other] = consumer.topic_ids([topic(1)]).values()
        text = completion_map.write(2, (), completion_map.LogIdentity(0, other))
        consumer.commit({place: OffsetAndMetadata(Offset(2), metadata=text)})
    assert shop.replay("--to", shop.other)["replayed"] == 4


def test_offsets_that_are_absent_do_not_scatter_the_marks(shop, kafka, topic):
    """Transactions leave offsets without a record behind."""
    name = topic(1)
    producer = new_producer(shop.bootstrap, transactional_id=f"t-{name}")
    producer.init_transactions(30)
    for n in range(5):
        producer.begin_transaction()
        producer.produce(name, b"%d" % n)
        producer.commit_transaction(30)
    (report,) = shop.facts("replay", name, "--to", shop.other, "--execute")
    assert report["replayed"] == 5
    with ErrorLog({"bootstrap.servers": shop.bootstrap}, name) as log:
        (marks,) = log.marks().values()
    assert (marks.frontier, marks.runs) == (9, ())


def test_a_properties_file_says_how_to_connect(shop, kafka, credentials, tmp_path):
    user, password = credentials
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    config = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    login = f'{module} required username="{user}" password="{quoted}";'.replace("\\", "\\\\")
    config.write_text(
        f"bootstrap.servers={kafka.bootstrap('SASL_SSL')}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={login}\nssl.truststore.type=PEM\nssl.truststore.location={kafka.certificates.ca}\n"
    )
    told = CliRunner().invoke(
        main.app,
        ["errors", "replay", shop.error, "--to", shop.other, "--execute", "--command-config", str(config)],
    )
    assert told.exit_code == 0, told.output
    assert shop.size(shop.other) == 4
