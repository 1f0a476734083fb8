"""`multilane top` without a broker: its usage errors and its output."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from multilane.app.control import controlled
from multilane.cli import main, top_view
from multilane.cli.top import _configured, _Histories, _watch
from multilane.cli.top_cells import brief, state
from multilane.cli.top_control import AppWatch
from multilane.cli.top_view import ScreenFrame, ScreenShare, fitted, line, ranges, screen
from multilane.clock import ManualClock
from multilane.errors import NetworkError
from multilane.group.comparison import GroupReport, Movement, PartitionRow
from multilane.group.failures import AppFailures
from multilane.group.snapshot import GroupSnapshot, MemberSnapshot, PartitionSnapshot, Subject
from multilane.group.snapshot_history import SnapshotHistory
from multilane.types import TopicPartition

NOWHERE = ["--brokers", "127.0.0.1:1", "--timeout", "1"]
WIDE = {"COLUMNS": "200", "TERM": "dumb"}


@pytest.fixture
def config(tmp_path):
    cluster = {"clientId": "x", "brokers": "127.0.0.1:1"}
    consumer = {"groupId": "shop.orders", "name": "orders", "retry": "orders.retry", "cluster": "Main"}
    settings = {
        "clusters": {"main": cluster, "other": cluster | {"brokers": "127.0.0.1:2"}},
        "consumers": {
            "orders": consumer | {"offsetInitial": "oldest"},
            "payments": {"groupId": "shop.payments", "name": "payments", "cluster": "other"},
        },
    }
    path = tmp_path / "multilane.yaml"
    path.write_text(json.dumps(settings))
    return path


# --- how it is used --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "name the groups"),
        (NOWHERE, "name the groups"),
        (["orders", *NOWHERE], "name the groups"),
        (["--group", "g"], "name the brokers"),
        (["--group", "g", *NOWHERE, "--every", "1"], "a duration needs a unit"),
        (["--group", "g", *NOWHERE, "--every", "0s"], "longer than zero"),
        (["--group", "g", *NOWHERE, "--stalled-after", "soon"], "not a duration"),
        (["--config", "not-there.yaml"], "not-there.yaml"),
    ],
)
def test_the_command_is_used_wrongly(arguments, expected):
    result = CliRunner().invoke(main.app, ["top", *arguments], env=WIDE)
    assert result.exit_code == 2
    assert expected in result.output


def test_a_consumer_that_is_not_configured(config):
    result = CliRunner().invoke(main.app, ["top", "ordres", "--config", str(config)], env=WIDE)
    assert result.exit_code == 2
    assert "no consumer 'ordres'; did you mean orders?" in result.output
    result = CliRunner().invoke(main.app, ["top", "--config", str(config), *NOWHERE], env=WIDE)
    assert result.exit_code == 2
    assert "it names groups and brokers" in result.output


def test_no_connection_is_code_3(config):
    for arguments in (["--group", "g", *NOWHERE, "--once", "-o", "json"], ["--config", str(config), "--timeout", "1"]):
        result = CliRunner().invoke(main.app, ["top", *arguments])
        assert result.exit_code == 3
        assert "error: " in result.stderr
        assert result.stdout == ""


def test_whom_a_configuration_names(config):
    subjects, clusters = _configured(config, None, [], 5.0)
    orders, payments = subjects
    assert orders == Subject("orders", "shop.orders", "main", ("orders", "orders.retry"), "orders.retry", True)
    assert payments == Subject("payments", "shop.payments", "other", ("payments",))
    assert {name: properties["bootstrap.servers"] for name, properties in clusters.items()} == {
        "main": "127.0.0.1:1",
        "other": "127.0.0.1:2",
    }
    subjects, clusters = _configured(config, None, ["PAYMENTS", "payments"], 5.0)
    assert subjects == [payments]
    assert list(clusters) == ["other"]
    assert clusters["other"]["default.api.timeout.ms"] == 5_000


def test_consumers_that_share_a_member_are_one_group_with_triggers(config):
    settings = json.loads(config.read_text())
    each = {"groupId": "shop.users", "name": "users", "cluster": "main", "sharing": "same-topic"}
    settings["consumers"] |= {"index": each, "mail": each | {"retry": "mail.retry", "error": "mail.error"}}
    config.write_text(json.dumps(settings))
    (*_, users), _ = _configured(config, None, [], 5.0)
    assert (users.name, users.group, users.topics) == ("index + mail", "shop.users", ("users", "mail.retry"))
    index, mail = users.triggers
    assert index == Subject("index", "shop.users", "main", ("users",), is_trigger=True)
    assert (mail.name, mail.retry, mail.error, mail.is_trigger) == ("mail", "mail.retry", "mail.error", True)
    assert _configured(config, None, ["mail"], 5.0)[0] == [users]


class Lookouts:
    """The results of polls; an exception is raised."""

    def __init__(self, *found):
        self._found = iter(found)

    def look(self):
        found = next(self._found)
        if isinstance(found, BaseException):
            raise found
        return [found]


def test_a_failed_poll_is_reported_and_the_next_one_is_tried():
    result = []
    histories = _Histories(
        Lookouts(snapshot(0.0), NetworkError("nobody answers"), snapshot(2.0), KeyboardInterrupt()), 10.0
    )
    with pytest.raises(KeyboardInterrupt):
        _watch(histories, lambda reports, failure: result.append((reports[0].snapshot.at, failure)), 0.001)
    assert result == [(0.0, ""), (0.0, "nobody answers"), (2.0, "")]


# --- how it looks ----------------------------------------------------------------------------------------------------

SUBJECT = Subject("orders", "shop.orders", topics=("orders",), retry="orders.retry")
MEMBERS = (
    MemberSnapshot("1", "shop", "10.0.0.1", tuple(TopicPartition("orders", n) for n in (0, 1, 2, 5))),
    MemberSnapshot("2", "\x1b[31m[bold]evil", "10.0.0.2", (TopicPartition("orders.retry", 0),)),
)


def snapshot(at: float, *places: PartitionSnapshot, members=MEMBERS, subject=SUBJECT, **more) -> GroupSnapshot:
    partitions = {TopicPartition("orders", number): place for number, place in enumerate(places)}
    return GroupSnapshot(subject, at, True, "consumer", "Stable", members, partitions, **more)


def report(*snapshots: GroupSnapshot) -> GroupReport:
    history = SnapshotHistory(10.0)
    for one in snapshots[:-1]:
        history.add(one)
    return history.add(snapshots[-1])


BUSY = report(
    snapshot(0.0, PartitionSnapshot(0, 9_000, 1_000), PartitionSnapshot(0, 500, 100), PartitionSnapshot(0, 7, 7)),
    snapshot(
        45.0, PartitionSnapshot(0, 9_000, 1_000, 4_500), PartitionSnapshot(0, 500, 100), PartitionSnapshot(0, 7, 7)
    ),
)


def shown(*reports: GroupReport, height: int | None = None, failure: str = "", width: int = 160) -> list[str]:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(screen(reports, ScreenFrame(0.0, "1s", failure, height, width)))
    return captured.get().splitlines()


def test_a_group_for_people():
    head, _, summary, *lines = shown(BUSY)
    assert head == "multilane top, every 1s: 1970-01-01T00:00:00.000+00:00"
    assert summary == (
        "orders: group shop.orders (consumer) Stable, 1 stalled, 1 held, 2 members, lag 8,400 (4,500 of it settled), "
        "settled 100/s, arriving 0/s, never drained"
    )
    assert lines[0] == "  \\x1b[31m[bold]evil @ 10.0.0.2: orders.retry 0"
    assert lines[1] == "  shop @ 10.0.0.1: orders 0-2, 5"
    assert lines[2].split() == list(filter(None, top_view._COLUMNS))
    first, second, third = (line.split() for line in lines[3:])
    assert first[:9] == ["orders/0", "shop", "1,000", "9,000", "8,000", "4,500", "100", "0", "35"]
    assert " ".join(first[9:]) == "s held 45 s by 1000"
    assert " ".join(second[7:]) == "0 - stalled 45 s at 100"
    assert " ".join(third[-3:]) == "up to date"


FAILING = Subject("orders", "shop.orders", error="orders.error")
ERRORS = TopicPartition("orders.error", 0)


def failing(**more) -> GroupReport:
    first = snapshot(0.0, PartitionSnapshot(0, 7, 7), subject=FAILING, dead={ERRORS: PartitionSnapshot(0, 100)})
    newest = ("HTTPError: 500", "HTTPError: 500", "evil\x1b[2J")
    then = snapshot(
        10.0, PartitionSnapshot(0, 7, 7), subject=FAILING, dead={ERRORS: PartitionSnapshot(0, 617)}, newest=newest
    )
    return replace(report(first, then), **more)


def test_failures_are_shown_even_without_lag():
    _, _, summary, *lines = shown(failing())
    assert "Stable, FAILING 52/s, 52/s to the error topic, 2 members" in summary
    assert lines[0] == "  error: HTTPError: 500 (2 of the newest copies)"
    assert lines[1] == "  error: evil\\x1b[2J (1 of the newest copies)"
    assert lines[-1].endswith("up to date")


def test_the_counts_of_the_app_take_precedence():
    app = AppFailures(900, 700, 400, 300, 70.0, (("ValueError at shop.py:3: no stock", 700),))
    _, _, summary, first, *_ = shown(failing(app=app))
    assert "FAILING 70/s, 52/s to the error topic" in summary
    assert first == "  error: ValueError at shop.py:3: no stock (700 in the app)"
    facts = json.loads(line([failing(app=app)], 0.0))["groups"][0]["failures"]
    assert (facts["per_second"], facts["dead_per_second"], facts["app"]["dead"]) == (70.0, 51.7, 300)


def test_an_outage_that_the_app_waits_for_is_shown():
    """Nothing fails during the pause, and brokers only see a stall."""
    app = AppFailures(900, 700, 400, 300, 0.0, (("ValueError at shop.py:3: no stock", 700),), is_paused=True)
    _, _, summary, first, *_ = shown(replace(BUSY, app=app))
    assert "Stable, PAUSED by an outage, FAILING 0/s, 1 stalled" in summary
    assert first == "  error: ValueError at shop.py:3: no stock (700 in the app)"


def test_the_app_is_asked_over_its_socket(tmp_path):
    class Told:
        def facts(self):
            return {"orders": {"settled": 9, "failed": next(totals), "retried": 0, "dead": 0, "errors": [error]}}

    totals = iter([10, 40])
    error = {"error": "ValueError", "line": "shop.py:3", "message": "no stock", "count": 10}
    app = SimpleNamespace(progress=Told())
    clock = ManualClock()
    with controlled(app, tmp_path / "socket"):
        watch = AppWatch(tmp_path / "socket", clock)
        assert watch.poll()["orders"].rate is None
        clock.advance(3.0)
        error["count"] = 35
        result = watch.poll()["orders"]
    assert (result.rate, result.failed, result.errors) == (10.0, 40, (("ValueError at shop.py:3: no stock", 25),))


def test_missing_groups_topics_and_members_are_reported():
    there_is_none = GroupSnapshot(SUBJECT, 0.0, missing=("orders", "orders.retry"))
    lines = shown(report(there_is_none))
    assert lines[2:] == [
        "orders: group shop.orders does not exist yet",
        "  topic orders does not exist",
        "  topic orders.retry does not exist",
    ]
    lines = shown(report(snapshot(0.0, PartitionSnapshot(0, 5, 0), members=())))
    assert "0 members" in lines[2]
    assert lines[3] == "  the group has no members: no records are handled"
    assert lines[5].split()[:2] == ["orders/0", "none"]
    lines = shown(report(snapshot(0.0, members=(), subject=Subject("g", "g"))))
    assert lines[2].startswith("group g (consumer) Stable, 0 members, lag 0, settled -/s")
    assert lines[3] == "  the group has no committed offsets, and no member has a partition"


def test_a_failed_poll_is_shown():
    lines = shown(BUSY, failure="broker 1: \x1b[2J connection refused")
    assert lines[1] == "the last poll failed, showing older data: broker 1: \\x1b[2J connection refused"


def test_it_is_cut_to_the_screen():
    many = report(snapshot(0.0, *(PartitionSnapshot(0, 100 - n, 0) for n in range(60))))
    lines = shown(many, height=20, width=60)
    assert len(lines) == 20
    assert lines[-1] == "  and 47 more partitions, with a lag of at most 87"
    assert len(shown(many)) == 1 + 2 + 2 + 1 + 60
    lines = shown(many, BUSY, many, height=30)
    assert len(lines) <= 30
    assert sum("group shop.orders" in line for line in lines) == 3
    assert sum("more partitions" in line for line in lines) == 2, "who wants little has all of it"


@pytest.mark.parametrize("width", [70, 80, 100, 120, 160])
def test_where_it_is_narrow_names_are_cut_and_numbers_are_not(width):
    subject = Subject("orders", "g", topics=("o" * 90,))
    places = {TopicPartition("o" * 90, n): PartitionSnapshot(0, 9_123_456, 1_234_567 + n, 2_000) for n in range(3)}
    found = report(*(GroupSnapshot(subject, at, True, "classic", "Stable", (), places) for at in (0.0, 60.0)))
    lines = shown(found, width=width)
    assert all(len(line) <= width for line in lines)
    assert lines[-3].startswith("  \u2026ooo")
    assert "oo/0 " in lines[-3]
    assert " 7,888,889 " in lines[-3]
    assert lines[-3].rstrip().endswith("stalled 1 m at 1234567")


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), min_size=1, max_size=6),
    st.integers(1, 80),
)
def test_every_screen_fits(sizes, height):
    reports = [
        report(
            snapshot(
                0.0,
                *(PartitionSnapshot(0, 9, 0) for _ in range(rows)),
                members=tuple(MemberSnapshot(str(n), f"c{n}", "h", ()) for n in range(members)),
                missing=("t",),
            )
        )
        for members, rows in sizes
    ]
    lines = len(shown(*reports, height=height))
    summaries = 1 + sum(2 + len(top_view._remarks(one)) for one in reports)
    assert lines <= max(height, summaries)
    assert fitted(reports, None) == [ScreenShare(members, rows) for members, rows in sizes]


def test_where_partitions_are():
    places = [TopicPartition("b", 3), *(TopicPartition("a", n) for n in (7, 0, 2, 1, 9, 10))]
    assert ranges(places) == "a 0-2, 7, 9-10; b 3"
    assert ranges([]) == ""


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (0.2, "0.2 s"),
        (45.4, "45 s"),
        (125, "2 m 5 s"),
        (120, "2 m"),
        (11_460, "3 h 11 m"),
        (9e4, "1 d 1 h"),
    ],
)
def test_times_are_brief(seconds, expected):
    assert brief(seconds) == expected


@pytest.mark.parametrize("verdict", list(Movement))
def test_every_verdict_has_words(verdict):
    row = PartitionRow(TopicPartition("t", 0), False, None, None, 5, 5, 0, None, None, math.inf, verdict, 12.0)
    assert state(row).startswith(verdict.value)


# --- for programs ----------------------------------------------------------------------------------------------------


def test_facts_are_one_line_of_json():
    text = line([BUSY], 0.0)
    assert "\n" not in text
    result = json.loads(text)
    (group,) = result["groups"]
    assert (group["consumer"], group["group"], group["protocol"], group["state"]) == (
        "orders",
        "shop.orders",
        "consumer",
        "Stable",
    )
    assert (group["lag"], group["stalled"], group["settled_per_second"], group["drain_seconds"]) == (
        8_400,
        1,
        100.0,
        None,
    )
    assert group["members"][1]["partitions"][0] == {"topic": "orders", "partition": 0}
    assert group["partitions"][0] == {
        "topic": "orders",
        "partition": 0,
        "retry": False,
        "member": "shop",
        "committed": 1_000,
        "end": 9_000,
        "lag": 8_000,
        "settled_beyond": 4_500,
        "settled_per_second": 100.0,
        "arriving_per_second": 0.0,
        "drain_seconds": 35.0,
        "verdict": "held",
        "still_seconds": 45.0,
    }
    assert json.loads(line([BUSY], 0.0, "nobody answers")) == {
        "at": "1970-01-01T00:00:00.000+00:00",
        "error": "nobody answers",
    }
    absent = json.loads(line([report(GroupSnapshot(SUBJECT, 0.0, missing=("orders",)))], 0.0))["groups"][0]
    assert (absent["exists"], absent["protocol"], absent["missing_topics"]) == (False, None, ["orders"])


# --- triggers --------------------------------------------------------------------------------------------------------


def shared_report(many: int = 2, **app: AppFailures) -> GroupReport:
    """Trigger number n is n records behind."""
    names = [f"trigger-{n:02}" for n in range(many)]
    subjects = {name: Subject(name, "shop.users", topics=("users",), is_trigger=True) for name in names}
    place = TopicPartition("users", 0)
    member = MemberSnapshot("m", "shop", "10.0.0.5", (place,))
    history = SnapshotHistory(10.0)
    for at in (0.0, 5.0):
        triggers = tuple(
            GroupSnapshot(subjects[name], at, True, partitions={place: PartitionSnapshot(0, 900, 900 - n)})
            for n, name in enumerate(names)
        )
        whole = Subject("shop.users", "shop.users", triggers=tuple(subjects.values()))
        partitions = {place: PartitionSnapshot(0, 900, 900 - many + 1)}
        found = history.add(
            GroupSnapshot(whole, at, True, "consumer", "Stable", (member,), partitions, triggers=triggers)
        )
    with_app = tuple(replace(one, app=app.get(one.snapshot.subject.name.replace("-", "_"))) for one in found.triggers)
    return replace(found, triggers=with_app)


def drawn(report: GroupReport, height: int | None = None, width: int = 200) -> list[str]:
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        console.print(screen([report], ScreenFrame(0.0, "1s", height=height, width=width)))
    return capture.get().splitlines()


def test_triggers_stand_under_their_group_the_slowest_first():
    failing = AppFailures(10, 7, 0, 0, 2.5, (("ValueError at a.py:3: \x1b[2Jno", 7),))
    lines = drawn(shared_report(3, trigger_01=failing))
    assert lines[2].startswith("group shop.users, 3 triggers (consumer) Stable, FAILING 2.5/s")
    assert lines[3].split() == ["trigger", "lag", "settled", "beyond", "settled/s", "drained", "failing/s"]
    assert [line.split()[:2] for line in lines[4:7]] == [["trigger-02", "2"], ["trigger-01", "1"], ["trigger-00", "0"]]
    assert lines[4].rstrip().endswith("waiting 5 s in users/0")
    assert lines[6].rstrip().endswith("up to date")
    assert lines[7] == "    trigger-01: error: ValueError at a.py:3: \\x1b[2Jno (7 in the app)"


def test_a_trigger_that_does_not_run_says_since_when():
    report = shared_report(1)
    (trigger,) = report.triggers
    gone = replace(trigger, snapshot=replace(trigger.snapshot, absent_since=0))
    assert any("not running since 1970-01-01" in line for line in drawn(replace(report, triggers=(gone,))))


@given(st.integers(0, 60), st.integers(8, 80))
def test_a_screen_of_triggers_fits(many, height):
    report = shared_report(many)
    lines = drawn(report, height)
    assert len(lines) <= height
    shown = sum(text.startswith("  trigger-") for text in lines)
    assert shown >= min(many, 1 + (height >= 16))
    if many > shown:
        left = many - shown
        assert any(f"and {left} more triggers, with a lag of at most {left - 1}" in text for text in lines)


def test_programs_get_every_trigger():
    (group,) = json.loads(line([shared_report(40)], 0.0))["groups"]
    assert [(one["trigger"], one["lag"]) for one in group["triggers"][:2]] == [("trigger-39", 39), ("trigger-38", 38)]
    assert len(group["triggers"]) == 40
    assert group["triggers"][0]["failures"]["per_second"] is None
