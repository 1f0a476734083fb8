"""Parses YAML into a tree in which every value knows its file, line and column.

Thread: none (pure): text in, tree out.

This module composes PyYAML's events itself: it bounds nesting before building it, counts an alias with everything it
refers to, detects duplicate keys, and creates no object from a tag. Scalars stay texts; the code that knows the key
interprets them. Owns the node classes; never looks at the meaning of a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from multilane.config.app.files.source_location import Problems, SourceLocation, joined
from multilane.errors import printable

DEEPEST: Final = 40
MOST_NODES: Final = 50_000
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_MERGE: Final = "<<"
_TAGS: Final = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq"))


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text. `written` is the form in the file, `text` the value after variables were substituted."""

    text: str = field(repr=False)  # possibly a password
    location: SourceLocation
    plain: bool = True
    written: str = field(repr=False, default="")
    variables: tuple[str, ...] = ()
    profile: str | None = None
    broken: bool = False  # a variable is missing: already reported, and the text has no meaning

    @property
    def empty(self) -> bool:
        """Whether this is a key without a value; a quoted text is never empty."""
        return self.plain and self.text in _NULLS and not self.broken


@dataclass(frozen=True, slots=True)
class Listing:
    items: tuple[TreeNode, ...]
    location: SourceLocation
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A key as written, its location, and its node."""

    key: str
    location: SourceLocation
    node: TreeNode


@dataclass(frozen=True, slots=True)
class Branch:
    """Entries by key in lower case: keys are compared without case."""

    entries: Mapping[str, TreeEntry]
    location: SourceLocation
    profile: str | None = None

    def get(self, key: str) -> TreeNode | None:
        entry = self.entries.get(key.casefold())
        return None if entry is None else entry.node


TreeNode = Scalar | Listing | Branch


class Unreadable(Exception):
    """The rest of the file cannot be read."""

    def __init__(self, location: SourceLocation, what: str, fix: str) -> None:
        self.location, self.what, self.fix = location, what, fix
        super().__init__(what)


@dataclass(slots=True)
class _OpenNode:
    """A list or mapping that is not closed yet. `keys` is None for a list."""

    location: SourceLocation
    anchor: str | None
    items: list[TreeNode] = field(default_factory=list)
    keys: list[Scalar] | None = None
    size: int = 1

    @property
    def wants_key(self) -> bool:
        return self.keys is not None and len(self.keys) == len(self.items)


def parse(text: str, file: str, problems: Problems) -> Branch:
    """The tree of one document. Adds recoverable faults to `problems`; raises Unreadable for the others."""
    composer = _Composer(file, problems)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            composer.take(event)
    except yaml.MarkedYAMLError as error:
        location = SourceLocation(file) if error.problem_mark is None else composer.location(error.problem_mark)
        line = text.split("\n")[location.line - 1] if location.line else ""
        raise Unreadable(location, f"not valid YAML: {_written(error.problem)}", _advice(error.problem, line)) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        location = SourceLocation(file, before.count("\n") + 1, error.position - before.rfind("\n"))
        raise Unreadable(location, "there is a control character here", "remove it; YAML is plain text") from None
    except (ValueError, OverflowError):  # %YAML versions and \U escapes of impossible size
        raise Unreadable(SourceLocation(file), "not valid YAML: a number in it is impossible", "correct it") from None
    return composer.document()


class _Composer:
    def __init__(self, file: str, problems: Problems) -> None:
        self._file = file
        self._problems = problems
        self._open: list[_OpenNode] = []
        self._anchors: dict[str, tuple[TreeNode, int]] = {}
        self._roots: list[TreeNode] = []
        self._made = 0

    def location(self, mark: Any) -> SourceLocation:
        return SourceLocation(self._file, mark.line + 1, mark.column + 1)

    def document(self) -> Branch:
        root = self._roots[0] if self._roots else Branch({}, SourceLocation(self._file, 1, 1))
        if isinstance(root, Scalar) and root.empty:
            return Branch({}, root.location)
        if not isinstance(root, Branch):
            raise Unreadable(root.location, "the file is not a mapping", "write `name:` lines with keys under them")
        return root

    def take(self, event: Any) -> None:
        location = self.location(event.start_mark)
        match event:
            case yaml.AliasEvent():
                self._alias(str(event.anchor), location)
            case yaml.ScalarEvent():
                self._scalar(event, location)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._start(event, location)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._end()
            case yaml.DocumentStartEvent() if self._roots:
                raise Unreadable(location, "a second document begins here", "keep one document per file")

    def _scalar(self, event: Any, location: SourceLocation) -> None:
        self._refuse_tag(event.tag, location)
        node = Scalar(event.value, location, plain=event.style is None and event.tag is None, written=event.value)
        self._attach(node, event.anchor, 1)

    def _start(self, event: Any, location: SourceLocation) -> None:
        self._refuse_tag(event.tag, location)
        if len(self._open) >= DEEPEST:
            raise Unreadable(location, f"more than {DEEPEST} levels are nested here", "no key needs so many")
        if self._open and self._open[-1].wants_key:
            raise Unreadable(location, "a key is a list or a mapping", "write keys as strings")
        keys: list[Scalar] | None = [] if isinstance(event, yaml.MappingStartEvent) else None
        self._open.append(_OpenNode(location, event.anchor, keys=keys))

    def _end(self) -> None:
        done = self._open.pop()
        node = Listing(tuple(done.items), done.location) if done.keys is None else self._branch(done, done.keys)
        self._attach(node, done.anchor, done.size)

    def _alias(self, name: str, location: SourceLocation) -> None:
        known = self._anchors.get(name)
        if known is None:
            # The message omits the name: it may be a password that begins with an asterisk.
            fix = "define &name before *name, or quote a string that begins with *"
            raise Unreadable(location, "this refers to an anchor that is not complete", fix)
        self._attach(known[0], None, known[1], location)

    def _attach(self, node: TreeNode, anchor: str | None, size: int, at: SourceLocation | None = None) -> None:
        """Attaches a node to its parent. `size` counts it with everything below, aliases expanded."""
        self._made += 1 if at is None else size
        if self._made > MOST_NODES:
            raise Unreadable(
                at or node.location, f"more than {MOST_NODES} values", "split the file or use fewer aliases"
            )
        if anchor is not None:
            self._anchors[anchor] = (node, size)
        if not self._open:
            self._roots.append(node)
            return
        parent = self._open[-1]
        parent.size += size
        if not parent.wants_key:
            parent.items.append(node)
        elif isinstance(node, Scalar) and parent.keys is not None:
            parent.keys.append(node)
        else:
            raise Unreadable(at or node.location, "a key is a list or a mapping", "write keys as strings")

    def _branch(self, done: _OpenNode, keys: list[Scalar]) -> Branch:
        entries: dict[str, TreeEntry] = {}
        merged: list[TreeNode] = []
        for key, node in zip(keys, done.items, strict=True):
            if key.text == _MERGE and key.plain:
                merged.append(node)
                continue
            first = entries.setdefault(key.text.casefold(), TreeEntry(key.text, key.location, node))
            if first.location != key.location:
                what = f"duplicate key; the first is in line {first.location.line}"
                self._problems.add(key.location, joined(printable(key.text, 80)), what, "remove one of them")
        for source in merged:
            for branch in self._sources(source):
                entries = {**branch.entries, **entries}
        return Branch(entries, done.location)

    def _sources(self, node: TreeNode) -> Iterator[Branch]:
        """The mappings that `<<` names; the first one wins."""
        items = node.items if isinstance(node, Listing) else (node,)
        for item in items:
            if not isinstance(item, Branch):
                raise Unreadable(item.location, "<< merges mappings, and this is not one", "name one: << : *anchor")
            yield item

    def _refuse_tag(self, tag: str | None, location: SourceLocation) -> None:
        if tag is not None and tag not in _TAGS and tag != "!":
            fix = "remove it, or quote a string that begins with !"
            raise Unreadable(location, "this is a YAML tag, and tags are not supported", fix)


def _written(problem: str | None) -> str:
    return printable(problem or "it ends too early", 120)


def _advice(problem: str | None, line: str) -> str:
    if problem and "\\t" in problem:
        return "indent with spaces, not tabs"
    if "${" in line and ("{" in line.replace("${", "") or "[" in line):
        return 'inside brackets, quote a variable: "${NAME}"'
    return "check indentation, colons and quotes in this line and the line before"
