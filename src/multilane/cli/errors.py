"""`multilane errors`: lists the records of error topics, shows one of them, and replays them.

Thread: application.

Exit codes: 0 success, 1 failure (a record does not exist, or has no allowed target), 2 usage error, 3 cluster
unreachable. The commands send nothing without `--execute`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from multilane.cli.brokers import Bootstrap, CommandConfig, Timeout, connected
from multilane.cli.command_config import client_properties
from multilane.cli.foreign_text import as_json
from multilane.cli.option_values import Output, moment, rate_of
from multilane.cli.shared_options import OutputOption

if TYPE_CHECKING:
    from multilane.error_consumer.replay import ReplayOptions, ReplayReport

app = typer.Typer(help="List, show and replay the records of error topics.", no_args_is_help=True)

_ADDRESS: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)/(?P<partition>[0-9]{1,9})@(?P<offset>[0-9]{1,18})")

TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Error topics.")]


@app.command("list")
def list_(
    topics: TopicsArgument,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 15.0,
    output: OutputOption = Output.table,
) -> None:
    """Group the records of error topics by their error."""
    from multilane.cli import errors_view  # commands import when they run
    from multilane.error_consumer.reading import ErrorLog
    from multilane.outcome.redrive import Groups

    properties = client_properties(bootstrap_server, command_config, timeout)
    found: dict[str, Groups] = {}
    with connected():
        for topic in topics:
            with ErrorLog(properties, topic) as log:
                marks = {p.partition: m for p, m in log.marks().items()}
                groups = found[topic] = Groups()
                for record in log.records():
                    groups.add(record, is_replayed=record.offset in marks[record.partition])
    if output is Output.json:
        _print_json([errors_view.group_facts(topic, g) for topic, groups in found.items() for g in groups.listed()])
    else:
        errors_view.show_groups(found)


@app.command("show")
def show(
    address: Annotated[
        str, typer.Argument(metavar="TOPIC/PARTITION@OFFSET", help="The record, in the form that `list` prints.")
    ],
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 15.0,
    output: OutputOption = Output.table,
) -> None:
    """Show one record: its headers, key and value, truncated and escaped."""
    from multilane.cli import errors_view
    from multilane.error_consumer.reading import ErrorLog

    named = _ADDRESS.fullmatch(address)
    if named is None:
        raise typer.BadParameter(f"{address!r} is not TOPIC/PARTITION@OFFSET", param_hint="TOPIC/PARTITION@OFFSET")
    properties = client_properties(bootstrap_server, command_config, timeout)
    partition = int(named["partition"])
    with connected(), ErrorLog(properties, named["topic"], {partition}) as log:
        record = log.record(partition, int(named["offset"]))
        is_replayed = record is not None and any(record.offset in m for m in log.marks().values())
    if record is None:
        typer.echo(f"error: there is no record at {address}; it never existed or was deleted", err=True)
        raise typer.Exit(1)
    if output is Output.json:
        _print_json(errors_view.record_facts(record, is_replayed=is_replayed))
    else:
        errors_view.show_record(record, is_replayed=is_replayed)


@app.command("replay")
def replay(  # noqa: PLR0913 - each is an option of the command line
    topics: TopicsArgument,
    *,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    to: Annotated[str | None, typer.Option(help="Send all records to this topic.")] = None,
    allow_target: Annotated[
        list[str] | None,
        typer.Option(help="Allow this topic as the target that a record names in its headers; may be repeated."),
    ] = None,
    error: Annotated[str | None, typer.Option(help="Only records whose error contains this text.")] = None,
    key: Annotated[str | None, typer.Option(help="Only records with this key.")] = None,
    since: Annotated[str | None, typer.Option(help="Only records from this time on (ISO 8601, UTC).")] = None,
    until: Annotated[str | None, typer.Option(help="Only records before this time (ISO 8601, UTC).")] = None,
    partition: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this partition; may be repeated (default: all).")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Maximum records per second, such as 100/s (default: no limit).")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute/--dry-run", help="Send the records, or only report.")] = False,
    timeout: Timeout = 15.0,
    output: OutputOption = Output.table,
) -> None:
    """Send the records of error topics back, in partition order, skipping those already replayed."""
    from multilane.error_consumer.replay import ReplayOptions
    from multilane.outcome.redrive import Filter

    if to is None and not allow_target:
        raise typer.BadParameter(
            "name a target: --to TOPIC, or --allow-target TOPIC for records that name it in their headers; a header "
            "alone is not enough",
            param_hint="to",
        )
    if to is not None and to in topics:
        raise typer.BadParameter(f"{to} is one of the topics to replay", param_hint="to")
    wanted = Filter(
        error,
        None if key is None else key.encode(),
        moment(since, "since"),
        moment(until, "until"),
        None if not partition else frozenset(partition),
    )
    options = ReplayOptions(wanted, to, frozenset(allow_target or ()), rate_of(rate))
    properties = client_properties(bootstrap_server, command_config, timeout)
    reports = dict(_replayed(topics, properties, options, execute=execute))
    _report(reports, execute=execute, output=output)


def _replayed(
    topics: list[str], properties: dict[str, object], options: ReplayOptions, *, execute: bool
) -> Iterator[tuple[str, ReplayReport]]:
    from multilane.config.app.clients import for_copies, of_producers, of_readers
    from multilane.error_consumer.reading import ErrorLog
    from multilane.error_consumer.replay import Replay

    with connected():
        for topic in topics:
            with ErrorLog(of_readers(properties), topic, options.wanted.partitions) as log:
                work = Replay(log, options)
                yield topic, work.perform(for_copies(of_producers(properties))) if execute else work.rehearse()


def _report(reports: dict[str, ReplayReport], *, execute: bool, output: Output) -> None:
    from multilane.cli import errors_view

    if output is Output.json:
        _print_json([errors_view.replay_facts(topic, r, executed=execute) for topic, r in reports.items()])
    else:
        errors_view.show_replay(reports, executed=execute)
    if any(report.not_allowed for report in reports.values()):
        raise typer.Exit(1)


def _print_json(facts: Any) -> None:
    typer.echo(as_json(facts))
