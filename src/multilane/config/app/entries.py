"""Reads one entry of a file into its model and reports every fault at its location.

Thread: none (pure).

Keys match fields regardless of case. After the faults are reported, the entry is read again without them, so that rules
that need two keys can still check the others. A message repeats a value only if its key holds no secret; a value from
the environment appears as the file has it: `${NAME}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError

from multilane.config.app.files.source_location import Problems, SourceLocation, did_you_mean, joined
from multilane.config.app.files.tree import Branch, Listing, Scalar, TreeEntry, TreeNode
from multilane.config.app.kinds import Unfit
from multilane.config.app.shape import Frozen, folded_keys_of, is_entry_name, key_of, keys_of, kind_of, nested_model
from multilane.errors import printable
from multilane.secret import without_credentials

Model = TypeVar("Model", bound=Frozen)
KeyPath = tuple[str, ...]

# Values for required keys that are missing, so that the rest can be checked.
_PLACEHOLDERS: Final[Mapping[str, object]] = {
    "brokers": "missing:9092",
    "topics": ("missing",),
    "url": "http://missing",
    "cron": "@daily",
    "max_error_count": 1,
    "share": 1.0,
}
_LONGEST_NAME: Final = 100
_ROUNDS: Final = 8  # each round removes a fault or fills in a placeholder


@dataclass(frozen=True, slots=True)
class Reading(Generic[Model]):
    """An entry as it was read. `faulty` has the fields (and nested fields) that the model did not take from it."""

    section: str
    entry: TreeEntry
    config: Model
    faulty: frozenset[KeyPath]

    @property
    def sound(self) -> bool:
        return not self.faulty

    def node(self, steps: KeyPath) -> TreeNode | None:
        """The node of a field in the file."""
        return _node_at(self.entry.node, type(self.config), steps)

    def location(self, steps: KeyPath) -> SourceLocation:
        """The location of a field, or of its parent if the field is not set."""
        for end in range(len(steps), 0, -1):
            found = self.node(steps[:end])
            if found is not None:
                return found.location
        return self.entry.location

    def path(self, steps: KeyPath) -> str:
        return joined(self.section, self.entry.key, *_keys_along(type(self.config), steps))


@dataclass(slots=True)
class _EntryReader:
    section: str
    entry: TreeEntry
    model: type[Frozen]
    problems: Problems
    faulty: set[KeyPath] = field(default_factory=set)

    def report(self, location: SourceLocation, steps: KeyPath, what: str, fix: str) -> None:
        path = joined(self.section, self.entry.key, *_keys_along(self.model, steps))
        self.problems.add(location, path, what, fix)
        self.faulty.add(steps)

    def fields(self, branch: Branch, model: type[Frozen], above: KeyPath) -> dict[str, Any]:
        """Values by field name. A key without a value counts as absent."""
        known = folded_keys_of(model)
        values: dict[str, Any] = {}
        for fold, entry in branch.entries.items():
            name = known.get(fold)
            if name is None:
                self._unknown(entry, model, above)
            elif name in values:
                other = next(k for k, n in keys_of(model).items() if n == name)
                self.report(entry.location, (*above, name), f"another spelling of {other} is also set", "remove one")
            elif not (isinstance(entry.node, Scalar) and entry.node.empty):
                self._take(values, name, entry.node, model, above)
        return values

    def _unknown(self, entry: TreeEntry, model: type[Frozen], above: KeyPath) -> None:
        keys = keys_of(model)
        fix = did_you_mean(entry.key, keys) or f"the keys here are {', '.join(keys)}"
        path = joined(self.section, self.entry.key, *_keys_along(self.model, above), printable(entry.key, 80))
        self.problems.add(entry.location, path, "unknown key", fix)
        self.faulty.add((*above, "?"))

    def _take(self, values: dict[str, Any], name: str, node: TreeNode, model: type[Frozen], above: KeyPath) -> None:
        nested = nested_model(model.model_fields[name])
        if _has_broken(node):
            self.faulty.add((*above, name))
        elif nested is None:
            values[name] = node
        elif isinstance(node, Branch):
            values[name] = self.fields(node, nested, (*above, name))
        else:
            fix = f"write its keys under it: {', '.join(keys_of(nested))}"
            self.report(node.location, (*above, name), "this is not a mapping", fix)

    def refusals(self, error: ValidationError, values: dict[str, Any]) -> None:
        """Reports what pydantic refused and removes it from the values."""
        for fault in error.errors(include_url=False, include_input=False):
            steps = tuple(str(step) for step in fault["loc"])
            holder = values
            for step in steps[:-1]:
                holder = holder[step]
            if fault["type"] == "default_factory_not_called":  # a default that depends on a field already reported
                continue
            if fault["type"] == "missing":
                if steps not in self.faulty:
                    self._missing(steps)
                holder[steps[-1]] = _PLACEHOLDERS.get(steps[-1], "missing")
            else:
                self._unfit(steps, fault.get("ctx", {}).get("error"))
                holder.pop(steps[-1], None)

    def _missing(self, steps: KeyPath) -> None:
        info = _model_at(self.model, steps[:-1]).model_fields[steps[-1]]
        holder = _node_at(self.entry.node, self.model, steps[:-1]) if steps[:-1] else None
        location = self.entry.location if holder is None else holder.location
        self.report(location, steps, "the key is missing", f"add it: {_first_sentence(info.description or '')}")

    def _unfit(self, steps: KeyPath, error: object) -> None:
        node = _node_at(self.entry.node, self.model, steps)
        location = self.entry.location if node is None else node.location
        if not isinstance(error, Unfit):
            self.report(location, steps, "the value is not accepted", "correct it")
            return
        kind = kind_of(_model_at(self.model, steps[:-1]).model_fields[steps[-1]])
        value = "" if kind is None or kind.secret or not error.shown else _shown(node)
        if error.plainer and node is not None and variables_of(node):
            self.report(location, steps, f"{_shown(node)} has no valid value", error.plainer)
        elif error.what:
            self.report(location, steps, f"{value}: {error.what}" if value else error.what, error.fix)
        else:
            self.report(location, steps, f"{value or 'the value'} is not valid", error.fix)


def read_entry(section: str, entry: TreeEntry, model: type[Model], problems: Problems) -> Reading[Model] | None:
    """The model of an entry; None if there is nothing to read."""
    reader = _EntryReader(section, entry, model, problems)
    if not isinstance(entry.node, Branch):
        fix = f"write its keys under it: {', '.join(keys_of(model))}"
        reader.report(entry.node.location, (), "this is not a mapping", fix)
        return None
    if not entry.key.isprintable() or not 0 < len(entry.key) <= _LONGEST_NAME:
        fix = f"write 1 to {_LONGEST_NAME} printable characters"
        reader.report(entry.location, (), "this name is empty, too long or not printable", fix)
    values = reader.fields(entry.node, model, ())
    if "name" in model.model_fields and is_entry_name(model, "name"):
        values["name"] = entry.key
    for _ in range(_ROUNDS):
        try:
            return Reading(section, entry, model.model_validate(values), frozenset(reader.faulty))
        except ValidationError as error:
            reader.refusals(error, values)
    raise AssertionError(f"{model.__name__} has no placeholder for one of its fields")


def variables_of(node: TreeNode) -> tuple[str, ...]:
    """The environment variables that a value was made from."""
    if isinstance(node, Scalar):
        return node.variables
    below = node.items if isinstance(node, Listing) else [entry.node for entry in node.entries.values()]
    return tuple(dict.fromkeys(name for item in below for name in variables_of(item)))


def _shown(node: TreeNode | None) -> str:
    """A value as the file has it, because the text of a variable may be a secret."""
    if isinstance(node, Scalar):
        return repr(printable(without_credentials(node.written if node.variables else node.text), 60))
    return " and ".join(f"${{{name}}}" for name in variables_of(node)) if node is not None else ""


def _has_broken(node: TreeNode) -> bool:
    if isinstance(node, Scalar):
        return node.broken
    return isinstance(node, Listing) and any(_has_broken(item) for item in node.items)


def _model_at(model: type[Frozen], steps: KeyPath) -> type[Frozen]:
    for step in steps:
        model = nested_model(model.model_fields[step]) or model
    return model


def _keys_along(model: type[Frozen], steps: KeyPath) -> list[str]:
    """The keys of a path through fields; names below a field without a model stay as they are."""
    keys = []
    at: type[Frozen] | None = model
    for step in steps:
        info = None if at is None else at.model_fields.get(step)
        keys.append(step if info is None else key_of(step, info))
        at = None if info is None else nested_model(info)
    return keys


def _node_at(node: TreeNode | None, model: type[Frozen], steps: KeyPath) -> TreeNode | None:
    at: type[Frozen] | None = model
    for step in steps:
        if not isinstance(node, Branch):
            return None
        info = None if at is None else at.model_fields.get(step)
        wanted = {step.casefold()}
        if at is not None and info is not None:
            wanted = {fold for fold, name in folded_keys_of(at).items() if name == step}
        node = next((entry.node for fold, entry in node.entries.items() if fold in wanted), None)
        at = None if info is None else nested_model(info)
    return node


def _first_sentence(text: str) -> str:
    return text.partition(". ")[0].removesuffix(".")
