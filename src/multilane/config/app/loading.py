"""Loads an app's files into its configuration, or raises one error with every problem in them.

Thread: any. Reads the files it is given; opens nothing else.

The order: YAML, the section of each entry, the profile, variables, each entry by itself, and finally the rules across
entries. `load` keeps the source of each value (for `explain`); `load_app` returns the configuration alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from multilane.config.app import rules, sharing, topic_conflicts
from multilane.config.app.clients import consumer_properties, error_consumer_properties, producer_properties
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.cluster_identity import cluster_identities
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.app.entries import Reading, read_entry, variables_of
from multilane.config.app.files import tree
from multilane.config.app.files.environment import interpolate
from multilane.config.app.files.layout import SECTIONS, Arranger, Layout, add_duplicate
from multilane.config.app.files.source_location import (
    MOST_PROBLEMS,
    Problems,
    SourceLocation,
    TooManyProblems,
    joined,
    listed,
)
from multilane.config.app.files.tree import Scalar, TreeEntry
from multilane.config.app.kafka_names import meaning
from multilane.config.app.model import AppConfig, ProducerTopicConfig, ShovelConfig
from multilane.config.app.scaler_defaults import ScalerCluster, ScalerConsumer, ScalerShovel
from multilane.config.app.shape import Frozen, folded_keys_of
from multilane.config.consumer import parse_consumer
from multilane.config.producer import parse_producer
from multilane.errors import ConfigError, ConfigProblems, printable

FilePath = str | os.PathLike[str]
MEMBER_VARIABLE: Final = "MULTILANE_MEMBER"  # the number of the member that reads the files, from 0
MODELS: Final[Mapping[str, type[Frozen]]] = {
    "clusters": ClusterConfig,
    "consumers": ConsumerGroupConfig,
    "producers": ProducerTopicConfig,
    "errorConsumers": ShovelConfig,
}
_SCALER_MODELS: Final[Mapping[str, type[Frozen]]] = {
    **MODELS,
    "clusters": ScalerCluster,
    "consumers": ScalerConsumer,
    "errorConsumers": ScalerShovel,
}
LARGEST_FILE: Final = 512 * 1024
_VOCABULARY: Final = {section: frozenset(folded_keys_of(model)) for section, model in MODELS.items()}


@dataclass(frozen=True, slots=True)
class Loaded:
    """`readings` has every entry with the location of each of its values, by section and name."""

    config: AppConfig
    readings: Mapping[str, Mapping[str, Reading[Any]]]


def load_app(
    files: FilePath | Iterable[FilePath], profile: str | None = None, env: Mapping[str, str] = os.environ
) -> AppConfig:
    """The configuration in these files; raises ConfigProblems (a ConfigError) with every problem."""
    return load(files, profile, env).config


def load(
    files: FilePath | Iterable[FilePath], profile: str | None = None, env: Mapping[str, str] = os.environ
) -> Loaded:
    """Like `load_app`, and also the source of every value."""
    paths = [files] if isinstance(files, str | os.PathLike) else list(files)
    names = [os.fspath(path) for path in paths]
    problems = Problems()
    loader = _Loader(problems, profile, {MEMBER_VARIABLE: "0", **env})
    try:
        loader.read(names)
        loader.check_rules()
    except TooManyProblems:
        rest = f"there are more than {MOST_PROBLEMS - 1} problems; correct these first"
        raise ConfigProblems((*problems.sorted(names), rest)) from None
    if problems.found:
        raise ConfigProblems(problems.sorted(names))
    return Loaded(loader.config(), loader.readings)


@dataclass(slots=True)
class _Loader:
    problems: Problems
    profile: str | None
    env: Mapping[str, str]
    readings: dict[str, dict[str, Reading[Any]]] = field(default_factory=lambda: {name: {} for name in MODELS})

    def read(self, files: Sequence[str]) -> None:
        if not files:
            raise ConfigError("no configuration file given; name at least one")
        layouts = [layout for file in files if (layout := self._layout(file)) is not None]
        self._check_profile(files[0], layouts)
        self._check_empty(files[0], layouts)
        seen: dict[tuple[str, str], SourceLocation] = {}
        for layout in layouts:
            for section in SECTIONS:
                for fold, entry in layout.sections.get(section, {}).items():
                    first = seen.setdefault((section, fold), entry.location)
                    if first is not entry.location:
                        add_duplicate(self.problems, joined(section, entry.key), first, entry.location)
                    else:
                        models = _SCALER_MODELS if layout.is_scaler else MODELS
                        self._entry(section, fold, entry, models[section])

    def _layout(self, file: str) -> Layout | None:
        try:
            root = tree.parse(_text(file), file, self.problems)
        except tree.Unreadable as error:
            self.problems.add(error.location, "", error.what, error.fix)
            return None
        if not root.entries:
            what = "the file is empty, so an app would read nothing from it"
            self.problems.add(SourceLocation(file), "", what, "write its sections, or omit the file")
        return Arranger(_VOCABULARY, self.profile, self.problems).arrange(root)

    def _check_profile(self, file: str, layouts: list[Layout]) -> None:
        if self.profile is not None and layouts and not any(layout.profiles for layout in layouts):
            what = f"the profile {printable(self.profile, 60)} was requested, but no file has profiles"
            self.problems.add(SourceLocation(file), "", what, "omit the profile, or add `profiles`")

    def _check_empty(self, file: str, layouts: list[Layout]) -> None:
        if layouts and not self.problems.found and not any(any(layout.sections.values()) for layout in layouts):
            names = tuple(name for layout in layouts for name in layout.profiles)
            fix = f"choose one with `profile`: {listed(names)}" if names else "write `clusters` and `consumers`"
            self.problems.add(SourceLocation(file), "", "this configures nothing, so an app would read nothing", fix)

    def _entry(self, section: str, fold: str, entry: TreeEntry, model: type[Frozen]) -> None:
        node = interpolate(entry.node, self.env, self.problems, (section, entry.key))
        reading = read_entry(section, TreeEntry(entry.key, entry.location, node), model, self.problems)
        if reading is not None:
            self.readings[section][fold] = reading

    def config(self) -> AppConfig:
        made = {s: {r.entry.key: r.config for r in found.values()} for s, found in self.readings.items()}
        return AppConfig.model_construct(
            clusters=made["clusters"],
            consumers=made["consumers"],
            producers=made["producers"],
            shovels=made["errorConsumers"],
        )

    # --- rules across entries ------------------------------------------------------------------------------------

    def check_rules(self) -> None:
        clusters = self.readings["clusters"]
        unread = any(problem.path == "" for problem in self.problems.found)  # an unreadable file may hold clusters
        names = [reading.entry.key for reading in clusters.values()]
        for reading in clusters.values():
            self._report(reading, self._of_cluster(reading))
        for section, found in self.readings.items():
            for reading in found.values():
                if section != "clusters":
                    self._report(reading, self._of_entry(reading, names, unread))
        self._check_across()
        by_fold: dict[str, ClusterConfig] = {fold: reading.config for fold, reading in clusters.items()}
        consumers = [reading.config for reading in self.readings["consumers"].values()]
        for finding in rules.of_dead_topics(by_fold, consumers):
            self._report(
                clusters[finding.steps[0].casefold()], [rules.RuleFinding(finding.steps[1:], finding.what, finding.fix)]
            )

    def _check_across(self) -> None:
        consumers = [reading.config for reading in self.readings["consumers"].values() if reading.sound]
        shovels = [reading.config for reading in self.readings["errorConsumers"].values() if reading.sound]
        clusters = {fold: reading.config.brokers for fold, reading in self.readings["clusters"].items()}
        cluster_of = cluster_identities(clusters)
        pairs = sharing.with_clusters(consumers, {r.config.name: r.config for r in self.readings["clusters"].values()})
        same_readers = topic_conflicts.of_same_readers(consumers, shovels, cluster_of, sharing.side_by_side(pairs))
        conflicts = () if self.problems.found else sharing.of_conflicts(pairs, cluster_of)
        shadows = () if self.problems.found else sharing.of_shadow_groups(pairs, cluster_of)
        cycles = topic_conflicts.of_cycles(consumers, cluster_of)
        for section, name, finding in (*same_readers, *conflicts, *shadows, *cycles):
            self._report(self.readings[section][name.casefold()], [finding])

    def _of_cluster(self, reading: Reading[ClusterConfig]) -> Iterator[rules.RuleFinding]:
        config = reading.config
        yield from rules.of_cluster(config)
        yield from rules.of_properties(config, config.properties)
        if config.error is not None:
            yield from rules.of_properties(config.error, config.error.properties, ("error",))
        if not self._has_problems(reading):
            made = _without_files(config)
            for durable in (True, False):
                yield from rules.of_whole(parse_producer, producer_properties(made, durable=durable), ("properties",))
            if config.error is not None and not self._has_problems(reading):
                steps = ("error", "properties")
                yield from rules.of_whole(parse_consumer, error_consumer_properties(config.error, made), steps)

    def _of_entry(self, reading: Reading[Any], names: list[str], unread: bool) -> Iterator[rules.RuleFinding]:
        config = reading.config
        if not unread:
            yield from rules.of_reference(config, names)
        if isinstance(config, ProducerTopicConfig):
            return
        own: Callable[[Any], Iterator[rules.RuleFinding]] = (
            rules.of_consumer if isinstance(config, ConsumerGroupConfig) else rules.of_shovel
        )
        yield from own(config)
        yield from rules.of_properties(config, config.properties)
        cluster = self.readings["clusters"].get(config.cluster.casefold())
        if cluster is None or self._has_problems(reading) or self._has_problems(cluster):
            return
        made = _without_files(cluster.config)
        if isinstance(config, ConsumerGroupConfig):
            properties = consumer_properties(config, made)
        else:
            properties = error_consumer_properties(config, made)
        yield from rules.of_whole(parse_consumer, properties, ("properties",))

    def _has_problems(self, reading: Reading[Any]) -> bool:
        prefix = reading.path(())
        return any(p.path == prefix or p.path.startswith(f"{prefix}.") for p in self.problems.found)

    def _report(self, reading: Reading[Any], findings: Iterable[rules.RuleFinding]) -> None:
        filled = dict.fromkeys(_filled(reading.entry.node))
        for finding in findings:
            if not any(steps in reading.faulty for steps in (finding.steps, *finding.rests_on)):
                what, fix = _without_variables(reading, finding, filled)
                self.problems.add(reading.location(finding.steps), reading.path(finding.steps), what, fix)


def _without_variables(
    reading: Reading[Any], finding: rules.RuleFinding, filled: Iterable[tuple[str, str]]
) -> tuple[str, str]:
    """The text of a property's fault repeats its value, but a value from a variable may be a secret."""
    node = reading.node(finding.steps)
    one_property = node is not None and not isinstance(node, tree.Branch) and "properties" in finding.steps
    if node is None or not one_property or not variables_of(node) or _is_unknown(finding.steps[-1]):
        return _redacted(finding.what, filled), _redacted(finding.fix, filled)
    names = " and ".join(f"${{{name}}}" for name in variables_of(node))
    return f"the value of {names} is not accepted", f"it must be {meaning(finding.steps[-1]).row.kind.value}"


def _is_unknown(name: str) -> bool:
    try:
        return bool(meaning(name).row.refused)
    except ConfigError:
        return True


def _redacted(text: str, filled: Iterable[tuple[str, str]]) -> str:
    """Removes values that came from the environment, in case a text of the client's tables repeats them."""
    for value, written in filled:
        text = text.replace(repr(value), repr(written))
        if len(value) > 3:  # shorter values occur in any sentence
            text = text.replace(value, written)
    return text


def _filled(node: tree.TreeNode) -> Iterator[tuple[str, str]]:
    """Values that came from variables, each with its form in the file."""
    if isinstance(node, Scalar):
        if node.variables:
            yield node.text, node.written
        return
    below = node.items if isinstance(node, tree.Listing) else [entry.node for entry in node.entries.values()]
    for item in below:
        yield from _filled(item)


def _without_files(cluster: ClusterConfig) -> ClusterConfig:
    """The same cluster with at most one certificate: several would be read, and the check reads no certificates."""
    if cluster.auth is None:
        return cluster
    auth = cluster.auth.model_copy(update={"certificates": cluster.auth.certificates[:1]})
    return cluster.model_copy(update={"auth": auth})


def _text(file: str) -> str:
    try:
        with open(file, "rb") as opened:
            data = opened.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "its name is not valid"
        raise tree.Unreadable(
            SourceLocation(file), f"the file cannot be read: {why}", "check its name and permissions"
        ) from None
    if len(data) > LARGEST_FILE:
        raise tree.Unreadable(SourceLocation(file), f"the file has more than {LARGEST_FILE} bytes", "split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        location = SourceLocation(file, before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        raise tree.Unreadable(location, "the file is not UTF-8 here", "save it as UTF-8") from None
