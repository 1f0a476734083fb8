"""`multilane top`: shows running consumers as the brokers see their groups, on any engine.

Thread: application (the main thread: signal handlers).

Exit codes: 0 stopped (Ctrl-C, SIGTERM, `--once`), 1 refused by the configuration or the brokers, 2 usage error, 3
cluster unreachable. After the first successful poll, a failed poll is shown and the next one is tried. The command
writes nothing and joins no group.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from multilane.cli.brokers import Bootstrap, CommandConfig, Timeout, connected
from multilane.cli.command_config import client_properties
from multilane.cli.option_values import Output, duration
from multilane.cli.shared_options import Profile
from multilane.errors import ConfigError, MultilaneError

if TYPE_CHECKING:
    from multilane.cli.top_control import AppWatch
    from multilane.config.app.model import AppConfig
    from multilane.group.comparison import GroupReport
    from multilane.group.failures import AppFailures
    from multilane.group.poller import GroupPoller
    from multilane.group.snapshot import Subject

Clusters = Mapping[str, Mapping[str, object]]
Show = Callable[[list["GroupReport"], str], object]  # the reports, and the error of the last poll

_MOST_NAMES: Final = 3

TopConfigFile = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="The multilane.yaml with the consumers.")
]
GroupsOption = Annotated[list[str] | None, typer.Option("--group", help="Name of a group; may be repeated.")]
Every = Annotated[str, typer.Option(help="Polling interval, such as 1s.")]
StalledAfter = Annotated[
    str, typer.Option(help="Report a partition as stalled if it has lag and settles nothing for this long.")
]
Control = Annotated[
    Path | None, typer.Option(help="Socket of `multilane run --control`: also show the app's own failure counts.")
]
Once = Annotated[bool, typer.Option("--once", help="Poll twice, --every apart, print the result and exit.")]
LiveOutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="Output format; json prints one object per line.")
]


def top(  # noqa: PLR0913 - each is an option of the command
    consumers: Annotated[
        list[str] | None, typer.Argument(metavar="CONSUMER", help="Consumers of --config (default: all).")
    ] = None,
    *,
    config: TopConfigFile = None,
    profile: Profile = None,
    group: GroupsOption = None,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    every: Every = "1s",
    stalled_after: StalledAfter = "10s",
    once: Once = False,
    control: Control = None,
    timeout: Timeout = 15.0,
    output: LiveOutputOption = Output.table,
) -> None:
    """Show members, lag, rates, failures and stalls of running consumers, live, as the brokers see them."""
    from multilane.group.poller import GroupPoller  # commands import when they run

    seconds, patience = duration(every, "every"), duration(stalled_after, "stalled-after")
    if config is not None:
        if group or bootstrap_server is not None or command_config is not None:
            raise typer.BadParameter(
                "it names groups and brokers: omit --group, --bootstrap-server and --command-config",
                param_hint="config",
            )
        subjects, clusters = _configured(config, profile, consumers or [], timeout)
    else:
        if consumers or not group:
            raise typer.BadParameter(
                "name the groups: --config multilane.yaml, or --group NAME --bootstrap-server HOST:PORT",
                param_hint="config",
            )
        subjects, clusters = _named(group, client_properties(bootstrap_server, command_config, timeout))
    with _ended_by_signal(), GroupPoller(subjects, clusters) as poller:
        histories = _Histories(poller, patience, _watched(control))
        reports = _first_poll(histories, seconds if once else None)
        with _shown(output, every, once) as show:
            show(reports, "")
            if not once:
                _watch(histories, show, seconds)


# --- groups ----------------------------------------------------------------------------------------------------------


def _configured(config: Path, profile: str | None, names: list[str], timeout: float) -> tuple[list[Subject], Clusters]:
    """The consumers of a configuration, and the connection properties of their clusters."""
    from multilane.config.app.clients import admin_properties
    from multilane.config.app.loading import load_app

    app = load_app(config, profile)
    if not app.consumers:
        raise typer.BadParameter("the configuration has no consumers", param_hint="config")
    subjects = _subjects(app, names or list(app.consumers))
    used = {subject.cluster for subject in subjects}
    clusters = {name: admin_properties(app.cluster(name)) for name in used}
    for properties in clusters.values():
        properties.setdefault("default.api.timeout.ms", round(timeout * 1_000))
    return list(dict.fromkeys(subjects)), clusters


def _subjects(app: AppConfig, names: Iterable[str]) -> list[Subject]:
    """Of consumers that share a group member, one for the group, with all of its triggers."""
    from multilane.config.app import sharing
    from multilane.group.snapshot import Subject

    units = sharing.units(sharing.with_clusters(app.consumers.values(), app.clusters))
    shared = {name: unit for unit in units for name in unit if len(unit) > 1}
    found = []
    for one in map(partial(_subject, app), names):
        if one.name not in shared:
            found.append(one)
            continue
        triggers = tuple(replace(_subject(app, name), is_trigger=True) for name in shared[one.name])
        topics = tuple(dict.fromkeys(topic for trigger in triggers for topic in trigger.topics))
        is_from_beginning = all(trigger.is_from_beginning for trigger in triggers)
        name = _name_of(shared[one.name])
        found.append(Subject(name, one.group, one.cluster, topics, None, is_from_beginning, triggers=triggers))
    return found


def _name_of(unit: tuple[str, ...]) -> str:
    return " + ".join(unit) if len(unit) <= _MOST_NAMES else f"{unit[0]} + {len(unit) - 1} more"


def _subject(app: AppConfig, name: str) -> Subject:
    from multilane.config.app.clients import consumer_properties
    from multilane.group.snapshot import Subject

    try:
        consumer = app.consumer(name)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="consumer") from None
    cluster = app.cluster(consumer.cluster)
    return Subject(
        name=consumer.name,
        group=consumer.group_id,
        cluster=consumer.cluster.casefold(),
        topics=tuple(filter(None, (consumer.topic, consumer.retry))),
        retry=consumer.retry,
        is_from_beginning=consumer_properties(consumer, cluster).get("auto.offset.reset") == "earliest",
        error=consumer.error,
    )


def _named(groups: list[str], properties: Mapping[str, object]) -> tuple[list[Subject], Clusters]:
    from multilane.group.snapshot import Subject

    return [Subject(name, name) for name in dict.fromkeys(groups)], {"": properties}


# --- the loop --------------------------------------------------------------------------------------------------------


class _Histories:
    """One snapshot history for each subject."""

    def __init__(self, poller: GroupPoller, stalled_after: float, app: AppWatch | None = None) -> None:
        from multilane.group.snapshot_history import SnapshotHistory

        self._app = app
        self._poller = poller
        self._make: Callable[[], SnapshotHistory] = lambda: SnapshotHistory(stalled_after)
        self._histories: dict[Subject, SnapshotHistory] = {}
        self.last: list[GroupReport] = []

    def poll(self) -> list[GroupReport]:
        found = self._poller.look()
        for snapshot in found:
            if snapshot.subject not in self._histories:
                self._histories[snapshot.subject] = self._make()
        reports = [self._histories[snapshot.subject].add(snapshot) for snapshot in found]
        failures = {} if self._app is None else self._app.poll()
        self.last = [_with_app(report, failures) for report in reports]
        return self.last


def _with_app(report: GroupReport, failures: Mapping[str, AppFailures]) -> GroupReport:
    triggers = tuple(_with_app(trigger, failures) for trigger in report.triggers)
    return replace(report, app=failures.get(report.snapshot.subject.name), triggers=triggers)


def _watched(control: Path | None) -> AppWatch | None:
    from multilane.cli.top_control import AppWatch

    return None if control is None else AppWatch(control)


def _first_poll(histories: _Histories, again_after: float | None) -> list[GroupReport]:
    """Polls before the screen is taken, so that errors stay visible. A second poll gives rates."""
    with connected():
        histories.poll()
        if again_after is not None:
            _pause(again_after)
            histories.poll()
    return histories.last


def _watch(histories: _Histories, show: Show, every: float) -> None:
    while True:
        _pause(every)
        try:
            failure = ""
            histories.poll()
        except MultilaneError as error:
            failure = str(error)
        show(histories.last, failure)


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)  # the event is never set; signals interrupt it


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the command cleanly: the terminal is restored."""
    try:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    except ValueError:  # not the main thread, which owns the signals
        before = None
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _shown(output: Output, every: str, once: bool) -> Iterator[Show]:
    from rich.console import Group
    from rich.live import Live

    from multilane.cli import tables, top_view
    from multilane.clock import SystemClock

    clock = SystemClock()
    if output is Output.json:
        yield lambda reports, failure: typer.echo(top_view.line(reports, clock.wall(), failure))
        return
    console = tables.output()

    def screen(reports: list[GroupReport], failure: str, height: int | None) -> Group:
        return top_view.screen(reports, top_view.ScreenFrame(clock.wall(), every, failure, height, console.width))

    if once or not console.file.isatty():
        yield lambda reports, failure: console.print(screen(reports, failure, None))
        return
    # Log lines would overwrite the screen, which shows failures itself.
    logging.getLogger("multilane").addHandler(logging.NullHandler())
    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield lambda reports, failure: live.update(screen(reports, failure, console.height), refresh=True)
