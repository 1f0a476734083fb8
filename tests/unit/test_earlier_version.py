"""What an earlier version wrote into Kafka, into files and onto connections is read as it was meant.

The samples and what wrote them: `tests/data/earlier_version/README.md`.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from multilane.app.control import controlled
from multilane.audit.completeness import AuditFile, OpenRange, SessionFile
from multilane.audit.folder import AuditFolder
from multilane.audit.manifest import read_manifest, read_session_file
from multilane.audit.reading import read_files
from multilane.client.group.membership import Identity
from multilane.clock import SystemClock
from multilane.commit.completion_map import CompletionMap, LogIdentity, read
from multilane.commit.ledger import CommitPoint, Ledger
from multilane.engines.backfill.messages import FromTask, ToTask
from multilane.engines.backfill.progress import BackfillPlan, BackfillProgress, ProgressReport, report_from
from multilane.engines.backfill.state_files import StateFiles
from multilane.engines.backfill.worker import BackfillTask, task_from
from multilane.engines.batches.lease_coordinator import members_from
from multilane.engines.batches.messages import (
    FromDriver,
    FromWorker,
    HeldRecord,
    LogReset,
    PartitionLease,
    TaskLease,
    ToDriver,
    ToWorker,
    held_from,
    lease_from,
    retries_from,
    task_lease_from,
)
from multilane.engines.channel.channel import WELCOME, MessageChannel
from multilane.engines.channel.signing import DRIVER, MEMBER, MessageSigner, Transcript
from multilane.engines.continuous.messages import FailureStage, FromMember, ToMember
from multilane.error_consumer import reading
from multilane.error_consumer.reading import GROUP_PREFIX, ErrorLog
from multilane.lanes.assignment import Start
from multilane.lanes.begun import Name
from multilane.lanes.consumer_overrides import ConsumerOverrides, overrides_from
from multilane.lanes.crashes import Crash, OpenCall
from multilane.lanes.dead_tables import crashes_in
from multilane.lanes.intake import Intake
from multilane.lanes.progress import Progress
from multilane.outcome.error_policy import republished_headers
from multilane.outcome.failure_headers import error_in, target_in
from multilane.outcome.headers import ERROR_CLASS, SUSPECTED_POISON, error_count, error_stack, last_value, retry_count
from multilane.outcome.in_place import ExhaustedRecord
from multilane.outcome.next_step import RetryPolicy, attempt
from multilane.runtime.crash_watch import CrashWatch
from multilane.spark.offset_spec import epochs_in, from_json, ids_in
from multilane.types import Offset, OffsetAndMetadata, TopicPartition
from multilane.wire.records.record import Record

SAMPLES = Path(__file__).parents[1] / "data" / "earlier_version"
TOPIC_ID = UUID("6ab1b5c2-7c1d-4f0e-9a55-0d2f3c4b5a69")
ORDERS, RETRY = TopicPartition("orders", 2), TopicPartition("orders-retry", 2)
PATIENCE = 10.0


def sample(name):
    return json.loads((SAMPLES / name).read_text())


# --- commits ---------------------------------------------------------------------------------------------------------


def test_completion_maps():
    runs = ((1007, 1007), (1010, 1149), (70000, 70002))
    assert [read(one["metadata"], one["offset"]) for one in sample("commits.json")] == [
        CompletionMap(runs),
        CompletionMap(runs, LogIdentity(7, TOPIC_ID)),
        CompletionMap(runs, LogIdentity(300)),
        CompletionMap(),
    ]


def test_replay_marks(monkeypatch):
    partition = TopicPartition("orders-error", 0)
    monkeypatch.setattr(reading, "misfits", lambda consumer, claims: {})  # it would ask brokers

    class Committed:
        def __init__(self, one):
            self._at = OffsetAndMetadata(Offset(one["offset"]), metadata=one["metadata"])

        def committed(self, partitions):
            return dict.fromkeys(partitions, self._at)

    found = []
    for one in sample("replay_marks.json"):
        assert one["group"] == GROUP_PREFIX + partition.topic
        log = object.__new__(ErrorLog)  # without a connection
        log.partitions, log._begins, log._epochs = (partition,), {partition: 0}, {}
        log._consumer = Committed(one)
        marks = log.marks()[partition]
        found.append((marks.frontier, marks.runs, log._epochs[partition]))
    assert found == [(25, ((30, 30), (41, 45)), 5), (25, ((30, 30), (41, 45)), -1), (46, (), 5)]


def test_offsets_in_a_checkpoint_of_the_source():
    trees = sample("source_offsets.json")
    first, second, bills = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("bills", 0)
    assert from_json(trees["initial"]) == {first: 0, second: 40}
    assert from_json(trees["latest"]) == {first: 120, second: 90, bills: 3}
    assert [ids_in(tree) for tree in trees.values()] == [{"orders": str(TOPIC_ID)}] * 2
    assert [epochs_in(tree) for tree in trees.values()] == [{}, {first: 4}]


# --- headers ---------------------------------------------------------------------------------------------------------


def test_headers_of_copies():
    retry_policy = RetryPolicy("orders", "orders-retry", "orders-error", retry_count=2)
    found = {}
    for name, copy in sample("headers.json").items():
        headers = tuple((header, base64.b64decode(value)) for header, value in copy["headers"])
        record = Record(copy["topic"], 2, 3, 0, 0, b"k", b"v", headers)
        kind, poison = last_value(headers, ERROR_CLASS), last_value(headers, SUSPECTED_POISON)
        counts = (retry_count(headers), error_count(headers), attempt(record, retry_policy))
        found[name] = (copy["topic"], counts, error_in(headers), kind, error_stack(headers), target_in(headers), poison)
        assert headers[0] == ("trace", b"\x00\xff")
    failed, stack = "ValueError: no stock", "ValueError: no stock"
    died = "the process died 3 times while handling this record, at least once with no other call running"
    exhausted = f"{failed}; reached the maximum retry count of 2"
    poisoned, module = f"SuspectedPoison: {died}; it was not handled again", "multilane.outcome.poison.SuspectedPoison"
    assert found == {
        "retry": ("orders-retry", (0, 0, 2), failed, b"ValueError", stack, None, None),
        "retry again": ("orders-retry", (1, 0, 3), failed, b"ValueError", stack, None, None),
        "follower": ("orders-retry", (-1, 0, 1), "", None, None, None, None),
        "error": ("orders-error", (0, 1, 3), exhausted, b"ValueError", stack, "orders-retry", None),
        "poison": (
            "orders-error", (0, 1, 3), poisoned, module.encode(), f"{module}: {died}", "orders-retry", b"3",
        ),
    }  # fmt: skip


def test_an_error_copy_goes_back_without_what_ends_its_round():
    headers = tuple((name, base64.b64decode(value)) for name, value in sample("headers.json")["poison"]["headers"])
    assert [name for name, _ in republished_headers(headers)] == [
        "trace", "X-ErrorCount", "X-TargetTopic", "X-ErrorMessage", "X-ErrorClass", "X-ErrorStack",
    ]  # fmt: skip


# --- the audit -------------------------------------------------------------------------------------------------------

GROUP = "shop.orders"
ENDED, KILLED = "0123456789abcdef", "fedcba9876543210"
BEGAN = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def test_an_audit_folder():
    found = read_files(AuditFolder(str(SAMPLES / "audit"), GROUP), GROUP)
    names = [f"{ENDED}-{n}" for n in ("000000000000-merged", "000000000000", "000000000001", "000000000003")]
    names += [f"{ENDED}-000000000005", f"{KILLED}-000000000000", f"{KILLED}-000000000001"]
    assert sorted(found.usable) == sorted(f"day=2023-11-14/{name}.parquet" for name in names)
    assert found.are_complete
    assert found.since == {ORDERS: 10}
    assert found.doubts == {KILLED: (OpenRange(ORDERS, 15, 273, ((16, 16),)),)}
    assert found.logs == ()


def test_the_records_of_audit_files():
    folder = AuditFolder(str(SAMPLES / "audit"), GROUP)

    def rows(name):
        table = folder.read(f"day=2023-11-14/{name}.parquet")
        return [tuple(row.values()) for row in table.to_pylist()]

    def row(offset, outcome, seconds, sequence, copy=(None, None, None), session=ENDED):
        return (*ORDERS, offset, outcome, BEGAN + timedelta(seconds=seconds), session, sequence, *copy)

    settled = [
        row(10, "begun", 0, 0),
        row(10, "done", 0, 1),
        row(11, "skipped", 0, 2),
        row(12, "retried", 1, 3, ("orders-retry", 2, 90)),
        row(13, "dead", 1, 4, ("orders-error", None, None)),
    ]
    assert rows(f"{ENDED}-000000000000-merged") == settled
    small = ("000000000000", "000000000001", "000000000003", "000000000005")
    assert [one for number in small for one in rows(f"{ENDED}-{number}")] == settled
    killed = [row(14, "begun", 62, 0, session=KILLED)]
    killed += [row(offset, "done", 62, n, session=KILLED) for n, offset in ((1, 14), (2, 16))]
    assert [one for number in small[:2] for one in rows(f"{KILLED}-{number}")] == killed


def test_manifests_and_cards_of_an_audit():
    folder = AuditFolder(str(SAMPLES / "audit"), GROUP)
    name = f"day=2023-11-14/{ENDED}-000000000000-merged.parquet"
    entries = (
        (1, "69dd6d6b39874fdaf87c9d8b8584c36e1f8018ea674266d62c73ab61b9c19126"),
        (2, "8042a2491ea2f04fe3150a661c757d2e8a962ee21412240e8f702731bce17f8b"),
        (2, "3cd2258be9d57850c81ce164066978ac8d5236c12f3e34a0d5fd36daa27cca0b"),
    )
    file = AuditFile(name, ENDED, 0, "", entries, (OpenRange(ORDERS, 14, 270),))
    assert read_manifest(name, folder.read(name).schema.metadata) == (GROUP, file)
    cards = [
        read_session_file(folder.read_bytes(f"_sessions/0000000{n}-{s}.json")) for n, s in ((1, ENDED), (2, KILLED))
    ]
    assert cards == [
        (GROUP, SessionFile(ENDED, {}, {ORDERS: 10}, 5)),
        (GROUP, SessionFile(KILLED, {ENDED: 5}, {ORDERS: 10}, None)),
    ]


def test_files_of_an_audit_can_be_merged(tmp_path):
    shutil.copytree(SAMPLES / "audit", tmp_path, dirs_exist_ok=True)
    folder = AuditFolder(str(tmp_path), GROUP)
    small = [f"day=2023-11-14/{KILLED}-00000000000{number}.parquet" for number in (0, 1)]
    folder.merge(small, small[0].replace(".parquet", "-merged.parquet"))
    folder.delete(small)
    found = read_files(folder, GROUP)
    assert found.are_complete
    assert found.doubts == {KILLED: (OpenRange(ORDERS, 15, 273, ((16, 16),)),)}


# --- a backfill ------------------------------------------------------------------------------------------------------


def test_the_state_of_a_backfill(tmp_path):
    shutil.copytree(SAMPLES / "backfill", tmp_path, dirs_exist_ok=True)
    offset_ranges = {0: (0, 100), 1: (50, 60)}
    bounds = ("earliest", "2026-05-04T10:00:00.000+00:00")
    plan = BackfillPlan("Orders", GROUP, "orders", str(TOPIC_ID), *bounds, offset_ranges)
    positions = {0: (40, ((42, 43), (50, 59))), 1: (60, ())}
    with StateFiles(tmp_path) as files:
        assert files.plan() == plan
        progress = files.load(plan)
        assert progress == BackfillProgress(plan, positions, 62, 12.5, 1, {(0, 17), (1, 55)}, {0: 4, 1: 2})
        files.list_failed(progress, [ExhaustedRecord(0, 44, 2, "OSError", "no disk")])
    lines = [json.loads(line) for line in (tmp_path / "failed.jsonl").read_text().splitlines()]
    assert [(one["partition"], one["offset"], one["attempts"], one["error"], one["text"]) for one in lines] == [
        (0, 17, 3, "ValueError", "no stock"),
        (1, 55, 1, "KeyError", "'price'"),
        (0, 44, 2, "OSError", "no disk"),
    ]


# --- the begun table -------------------------------------------------------------------------------------------------


@pytest.fixture
def tables(tmp_path):
    """The directory of begun tables, with one of a dead process."""
    (tmp_path / "4711-0123456789ab.begun").write_bytes(gzip.decompress((SAMPLES / "dead.begun.gz").read_bytes()))
    return tmp_path


def test_the_begun_table_of_a_dead_process(tables):
    main, retry = Name("cluster-1", GROUP, *ORDERS), Name("cluster-1", GROUP, *RETRY)
    calls = (OpenCall(main, 1042, 1042), OpenCall(main, 1050, 1059), OpenCall(retry, 7, 7))
    assert crashes_in(tables, lambda call: False, SystemClock().wall()) == [Crash(calls, 3)]


@pytest.mark.parametrize("topic_id", [None, TOPIC_ID])
async def test_records_in_flight_at_a_death_are_suspects(tables, topic_id):
    intake = Intake(ORDERS, Ledger(1050), 100)
    crashes = CrashWatch(SystemClock(), tables)
    crashes.open()
    try:
        await crashes.watch("cluster-1", GROUP, 2, {intake: Start(1050, topic_id=topic_id)})
        [watched] = crashes._isolation._watched.values()
        suspects = watched.suspicion.suspects
    finally:
        crashes.close()
    assert suspects == ((1050, 1059),)
    left = (OpenCall(Name("cluster-1", GROUP, *ORDERS), 1050, 1059), OpenCall(Name("cluster-1", GROUP, *RETRY), 7, 7))
    assert crashes_in(tables, lambda call: False, SystemClock().wall()) == [Crash(left, 3)]


# --- the control socket ----------------------------------------------------------------------------------------------


def test_requests_to_the_control_socket(tmp_path):
    class SteeredApp:
        def __init__(self):
            self.calls = []

        def pause(self, name):
            self.calls.append(("pause", name))

        def resume(self, name):
            self.calls.append(("resume", name))

        def set_lanes(self, name, lanes):
            self.calls.append(("lanes", name, lanes))

        def overrides_view(self):
            return {"Orders": {"paused": False, "lanes": 8, "configured": 4}}

    app, path, answers = SteeredApp(), tmp_path / "control", []
    with controlled(app, path):
        for line in (SAMPLES / "control_requests.jsonl").read_bytes().splitlines(keepends=True):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(PATIENCE)
                connection.connect(os.fspath(path))
                connection.sendall(line)
                answers.append(json.loads(connection.makefile().readline()))
    assert app.calls == [
        ("pause", "Orders"), ("resume", "Orders"), ("lanes", "Orders", 8), ("lanes", "Orders", None),
    ]  # fmt: skip
    assert answers == [{"consumers": app.overrides_view()}] * 5


# --- messages --------------------------------------------------------------------------------------------------------


def received(lines):
    """What a channel makes of these lines, until its peer is gone."""
    here, there = socket.socketpair()
    channel = MessageChannel(there)
    channel.trust()
    with here:
        here.sendall(lines)
    messages = []
    while (message := channel.receive()) is not None:
        messages.append(message)
    channel.close()
    return messages


def messages_in(name):
    return received((SAMPLES / "messages" / name).read_bytes())


def kinds_of(messages):
    return [message["kind"] for message in messages]


def facts_of(report):
    """What the log of the driver and `multilane top` say after this report of a worker."""
    progress = Progress()
    progress.add(report)
    return progress.facts()


FACTS = {
    "Orders": {
        "settled": 5,
        "failed": 1,
        "retried": 1,
        "dead": 0,
        "errors": [{"error": "ValueError", "line": "", "message": "no stock", "count": 1}],
        "paused": False,
    }
}
STEERED = ("Orders", ConsumerOverrides(is_paused=True, lanes=8))


def steered(message):
    return message["consumer"], overrides_from(message["steering"])


def test_the_lines_of_a_connection():
    said = sample("messages/handshake.json")
    lines = [(one["from"], one["line"]) for one in said["lines"]]
    (_, first), (_, second) = lines[:2]
    member_nonce, driver_nonce = json.loads(first)["number"], json.loads(second)["number"]
    transcript = Transcript(tuple(said["address"]), driver_nonce, member_nonce)
    proofs = {sender: json.loads(line)["proof"] for sender, line in lines[2:4]}
    assert proofs == {role: transcript.proof(said["token"], role) for role in (DRIVER, MEMBER)}
    seals = {role: MessageSigner(said["token"], transcript, role) for role in (DRIVER, MEMBER)}
    opened = [seals[sender].opened(line.encode()) for sender, line in lines[4:]]
    assert [None if text is None else json.loads(text) for text in opened] == [
        {"kind": WELCOME},
        {"kind": "serve"},
        {"kind": "ready", "number": 1, "host": "worker-1", "pid": 4711},
    ]


def test_messages_of_a_continuous_run():
    serve, steer, stop = to_member = messages_in("continuous_from_driver.jsonl")
    assert kinds_of(to_member) == [ToMember.SERVE, ToMember.APPLY_OVERRIDES, ToMember.STOP]
    assert steered(steer) == STEERED
    assert serve.keys() == stop.keys() == {"kind"}
    ready, report, failed = from_member = messages_in("continuous_from_member.jsonl")
    assert kinds_of(from_member) == [FromMember.READY, FromMember.REPORT, FromMember.FAILED]
    assert {one["number"] for one in from_member} == {1}
    assert (ready["host"], ready["pid"]) == ("worker-1", 4711)
    assert facts_of(report) == FACTS
    assert (failed["error"], FailureStage(failed["stage"])) == ("RuntimeError: no disk", FailureStage.SERVING)


def test_messages_of_a_backfill():
    work, *bare = to_task = messages_in("backfill_from_driver.jsonl")
    assert kinds_of(to_task) == [ToTask.WORK, ToTask.END, ToTask.CLOSED]
    starts = {0: (40, ((42, 43), (50, 59))), 1: (50, ())}
    task = BackfillTask(
        "Orders", "orders", starts, {0: 100, 1: 60}, to_error_topic=True, epochs={0: 4}, topic_id=str(TOPIC_ID)
    )
    assert task_from(work["errand"]) == task
    assert [one.keys() for one in bare] == [{"kind"}] * 2
    hello, progress, over, failed = from_task = messages_in("backfill_from_task.jsonl")
    assert kinds_of(from_task) == [FromTask.HELLO, FromTask.PROGRESS, FromTask.OVER, FromTask.FAILED]
    assert {one["number"] for one in from_task} == {0}
    assert (hello["host"], hello["pid"]) == ("worker-1", 4711)
    exhausted = ExhaustedRecord(0, 42, 3, "ValueError", "no stock")
    for report in (progress, over):
        assert report_from(report["report"]) == ProgressReport({0: (44, ((50, 59),))}, 2, (exhausted,), {0: 4})
        assert facts_of(report["news"]) == FACTS
    assert (failed["error"], failed["lasting"]) == ("DataLoss: the log begins at 50", True)


def test_messages_between_the_driver_and_the_coordinator_of_batches():
    steer, stop = from_driver = messages_in("batches_from_driver.jsonl")
    assert kinds_of(from_driver) == [FromDriver.APPLY_OVERRIDES, FromDriver.STOP]
    assert steered(steer) == STEERED
    assert stop.keys() == {"kind"}
    _, report, failed, _ = to_driver = messages_in("batches_from_coordinator.jsonl")
    assert kinds_of(to_driver) == [ToDriver.ASSEMBLED, ToDriver.REPORT, ToDriver.FAILED, ToDriver.ENDED]
    assert facts_of(report) == FACTS
    assert members_from(report["members"]) == (("Orders", Identity(GROUP, "m-1", 3, None, "consumer")),)
    assert (failed["error"], failed["is_refused"]) == ("ConfigError: no topic", True)


HELD = (HeldRecord(ORDERS, 43, b"k"), HeldRecord(RETRY, 7, None, blocks_key=False))
RETRIES = (Record("orders", 2, 44, 1_700_000_000_000, 0, None, None, (("X-RetryCount", b"0"), ("trace", None))),)
LEASE = PartitionLease(
    1,
    "Orders",
    {ORDERS: CommitPoint(42, 4, ((45, 47),), 5), RETRY: CommitPoint(0, -1, (), -1)},
    HELD,
    RETRIES,
    3,
    {"orders": TOPIC_ID},
    {ORDERS: LogReset(1, 42)},
)


def test_messages_to_a_worker_of_batches():
    steer, renew, grant, nothing, released, revoke, _, closed, _ = found = messages_in("batches_to_worker.jsonl")
    kinds = [
        ToWorker.APPLY_OVERRIDES,
        ToWorker.RENEW,
        ToWorker.GRANT,
        ToWorker.GRANT,
        ToWorker.RELEASED,
        ToWorker.REVOKE,
    ]
    assert kinds_of(found) == [*kinds, ToWorker.END, ToWorker.CLOSED, ToWorker.FINISH]
    assert steered(steer) == STEERED
    assert (renew["sent"], renew["seconds"]) == (100.5, {"Orders": 30.0})
    assert (grant["number"], task_lease_from(grant["loan"])) == (7, TaskLease(7, 20.0, 0.5, (LEASE,)))
    assert (nothing["number"], nothing["loan"]) == (8, None)
    assert (released["unit"], held_from(released["held"])) == (1, HELD)
    assert (revoke["unit"], revoke["seconds"]) == (1, 2.5)
    assert closed["number"] == 7


def test_messages_of_a_worker_of_batches():
    hello, progress, returned, released, over, counts, cannot = found = messages_in("batches_from_worker.jsonl")
    kinds = [FromWorker.HELLO, FromWorker.PROGRESS, FromWorker.RETURN, FromWorker.RELEASED, FromWorker.OVER]
    assert kinds_of(found) == [*kinds, FromWorker.COUNTS, FromWorker.CANNOT_START]
    assert (hello["number"], hello["pid"], hello["sent"]) == (7, 4711, 100.5)
    for one in (progress, returned, over):
        assert [lease_from(unit) for unit in one["units"]] == [LEASE]
    assert over["number"] == 7
    assert (released["unit"], retries_from(released["tried"])) == (1, RETRIES)
    assert (held_from(released["settled"]), held_from(released["undone"])) == (HELD[:1], HELD[1:])
    assert (facts_of(counts), counts["sent"]) == (FACTS, 101.5)
    assert cannot["error"] == "ModuleNotFoundError: No module named 'shop'"
