"""`multilane plan TOPIC`: recommends the settings of a topic from its history.

Thread: application.

Exit codes: 0 a plan was made, 1 failure (no such topic, no records, no Spark; the message says which), 2 usage error,
3 cluster unreachable. The command writes nothing and touches no group.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multilane.cli import foreign_text
from multilane.cli.brokers import Bootstrap, CommandConfig, Timeout, connected
from multilane.cli.command_config import client_properties
from multilane.cli.option_values import Output, duration, time_span
from multilane.cli.progress import progress_steps
from multilane.cli.shared_options import Last, Master, OutputOption, Profile, Since, Until
from multilane.cli.spark_options import Conf, conf_pairs, quiet_libraries

if TYPE_CHECKING:
    from multilane.config.app.consumer import ConsumerGroupConfig

Latency = Annotated[str, typer.Option(help="Duration of one call of your function, such as 20ms or 1.5s.")]
PlanConfigFile = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="A multilane.yaml with the brokers and the login.")
]
ClusterOption = Annotated[
    str | None, typer.Option(help="The cluster of --config (default: the cluster of the topic's consumer).")
]
SlotOption = Annotated[
    str, typer.Option(help="Length of the slots that rates are measured over; the busiest is the peak.")
]
PeakFactor = Annotated[float, typer.Option(min=0.01, help="Plan for this multiple of the peak.")]
Utilisation = Annotated[float, typer.Option(min=0.05, max=0.95, help="Maximum utilisation of lanes and processes.")]
MaxWait = Annotated[str, typer.Option(help="Maximum 99th-percentile wait for a lane.")]
MaxLanes = Annotated[int, typer.Option(min=1, help="Maximum lanes per partition.")]
MaxBatch = Annotated[int, typer.Option(min=1, help="Maximum records per call; 1 if the function takes one.")]
ProcessCalls = Annotated[float, typer.Option(min=1, help="Maximum calls per second of one process.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Short for --output json.")]


def plan(  # noqa: PLR0913 - each is an option of the command
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    *,
    latency: Latency,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    config: PlanConfigFile = None,
    cluster: ClusterOption = None,
    profile: Profile = None,
    last: Last = None,
    since: Since = None,
    until: Until = None,
    slot: SlotOption = "10s",
    peak_factor: PeakFactor = 1.0,
    utilisation: Utilisation = 0.7,
    max_wait: MaxWait = "1s",
    max_lanes: MaxLanes = 200,
    max_batch: MaxBatch = 500,
    process_calls: ProcessCalls = 8_000.0,
    master: Master = "local[*]",
    conf: Conf = None,
    timeout: Timeout = 15.0,
    output: OutputOption = Output.table,
    as_json: JsonOption = False,
) -> None:
    """Recommend lanes, batch size, consumers and partitions for a topic, from its history (read with Spark)."""
    from multilane.cli import plan_view  # commands import when they run
    from multilane.cli.topic_plan import PlanRequest, plan_topic
    from multilane.sizing.goals import Goals

    goals = Goals(
        duration(latency, "latency"),
        peak_factor,
        utilisation,
        duration(max_wait, "max-wait"),
        max_lanes,
        max_batch,
        process_calls,
    )
    begin, end = time_span(last, since, until)
    seconds, pairs = duration(slot, "slot"), conf_pairs(conf or [])
    consumer = None
    if config is None:
        properties = client_properties(bootstrap_server, command_config, timeout)
    elif bootstrap_server is None and command_config is None:
        properties, consumer = _configured(topic, config, profile, cluster)
        properties.setdefault("default.api.timeout.ms", round(timeout * 1_000))
    else:
        raise typer.BadParameter(
            "it names the brokers: omit --bootstrap-server and --command-config", param_hint="config"
        )
    quiet_libraries()
    with connected(), progress_steps() as on_step:
        made = plan_topic(PlanRequest(topic, properties, goals, seconds, begin, end, master, pairs), on_step)
    if as_json or output is Output.json:
        typer.echo(foreign_text.as_json(plan_view.facts(made, consumer)))
    else:
        plan_view.show(made, consumer)


def _configured(
    topic: str, config: Path, profile: str | None, cluster: str | None
) -> tuple[dict[str, object], ConsumerGroupConfig | None]:
    """The connection to a cluster, and the topic's consumer on it, if any."""
    from multilane.config.app.clients import admin_properties
    from multilane.config.app.loading import load_app

    app = load_app(config, profile)
    readers = [one for one in app.consumers.values() if one.topic == topic]
    names = {cluster} if cluster else {one.cluster for one in readers} or set(app.clusters)
    if len(names) != 1:
        raise typer.BadParameter(f"choose one of: {', '.join(sorted(names)) or '(none)'}", param_hint="cluster")
    chosen = app.cluster(names.pop())
    here = [one for one in readers if app.cluster(one.cluster) is chosen]
    return admin_properties(chosen), here[0] if here else None
