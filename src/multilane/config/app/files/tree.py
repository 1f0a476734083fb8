"""YAML into a tree in which every value knows its file, line and column.

Thread: none (pure): text in, tree out.

PyYAML's events are put together here rather than by its composer: nesting is bounded before it is built, an alias is
counted with all that it stands for, a key given twice is seen, and no tag makes an object. Scalars stay texts; what a
text means is decided where its key is known. Owns the node classes; never looks at a key's meaning.
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
    """A text. `written` is what stands in the file, `text` what it became when variables were put in."""

    text: str = field(repr=False)  # possibly a password
    place: SourceLocation
    plain: bool = True
    written: str = field(repr=False, default="")
    variables: tuple[str, ...] = ()
    profile: str | None = None
    broken: bool = False  # a variable is missing: that was told, and the text means nothing

    @property
    def empty(self) -> bool:
        """A key without a value; a quoted text is never that."""
        return self.plain and self.text in _NULLS and not self.broken


@dataclass(frozen=True, slots=True)
class Listing:
    items: tuple[Node, ...]
    place: SourceLocation
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A key as it was written, where, and what it holds."""

    key: str
    place: SourceLocation
    node: Node


@dataclass(frozen=True, slots=True)
class Branch:
    """Entries by their key in lower case: keys are compared without case."""

    entries: Mapping[str, TreeEntry]
    place: SourceLocation
    profile: str | None = None

    def get(self, key: str) -> Node | None:
        entry = self.entries.get(key.casefold())
        return None if entry is None else entry.node


Node = Scalar | Listing | Branch


class Unreadable(Exception):
    """The file cannot be read any further."""

    def __init__(self, place: SourceLocation, what: str, fix: str) -> None:
        self.place, self.what, self.fix = place, what, fix
        super().__init__(what)


@dataclass(slots=True)
class _OpenNode:
    """A list or mapping whose end has not come. `keys` None is a list."""

    place: SourceLocation
    anchor: str | None
    items: list[Node] = field(default_factory=list)
    keys: list[Scalar] | None = None
    size: int = 1

    @property
    def wants_key(self) -> bool:
        return self.keys is not None and len(self.keys) == len(self.items)


def parse(text: str, file: str, problems: Problems) -> Branch:
    """The tree of one document. What can be passed over is told to `problems`; else Unreadable."""
    composer = _Composer(file, problems)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            composer.take(event)
    except yaml.MarkedYAMLError as error:
        place = SourceLocation(file) if error.problem_mark is None else composer.place(error.problem_mark)
        line = text.split("\n")[place.line - 1] if place.line else ""
        raise Unreadable(place, f"not valid YAML: {_said(error.problem)}", _advice(error.problem, line)) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = SourceLocation(file, before.count("\n") + 1, error.position - before.rfind("\n"))
        raise Unreadable(place, "a control character stands here", "remove it; YAML is plain text") from None
    except (ValueError, OverflowError):  # %YAML versions and \U escapes of impossible size
        raise Unreadable(SourceLocation(file), "not valid YAML: a number in it is impossible", "correct it") from None
    return composer.document()


class _Composer:
    def __init__(self, file: str, problems: Problems) -> None:
        self._file = file
        self._problems = problems
        self._open: list[_OpenNode] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._roots: list[Node] = []
        self._made = 0

    def place(self, mark: Any) -> SourceLocation:
        return SourceLocation(self._file, mark.line + 1, mark.column + 1)

    def document(self) -> Branch:
        root = self._roots[0] if self._roots else Branch({}, SourceLocation(self._file, 1, 1))
        if isinstance(root, Scalar) and root.empty:
            return Branch({}, root.place)
        if not isinstance(root, Branch):
            raise Unreadable(root.place, "the file is not a mapping", "write `name:` lines with keys below them")
        return root

    def take(self, event: Any) -> None:
        place = self.place(event.start_mark)
        match event:
            case yaml.AliasEvent():
                self._alias(str(event.anchor), place)
            case yaml.ScalarEvent():
                self._scalar(event, place)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._start(event, place)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._end()
            case yaml.DocumentStartEvent() if self._roots:
                raise Unreadable(place, "a second document begins here", "keep one document in a file")

    def _scalar(self, event: Any, place: SourceLocation) -> None:
        self._refuse_tag(event.tag, place)
        node = Scalar(event.value, place, plain=event.style is None and event.tag is None, written=event.value)
        self._place(node, event.anchor, 1)

    def _start(self, event: Any, place: SourceLocation) -> None:
        self._refuse_tag(event.tag, place)
        if len(self._open) >= DEEPEST:
            raise Unreadable(place, f"more than {DEEPEST} levels are nested here", "nothing of ours is that deep")
        if self._open and self._open[-1].wants_key:
            raise Unreadable(place, "a key is a list or a mapping", "write keys as texts")
        keys: list[Scalar] | None = [] if isinstance(event, yaml.MappingStartEvent) else None
        self._open.append(_OpenNode(place, event.anchor, keys=keys))

    def _end(self) -> None:
        done = self._open.pop()
        node = Listing(tuple(done.items), done.place) if done.keys is None else self._branch(done, done.keys)
        self._place(node, done.anchor, done.size)

    def _alias(self, name: str, place: SourceLocation) -> None:
        known = self._anchors.get(name)
        if known is None:
            # Its name is not said: it may be a password that begins with a star.
            fix = "set &name before *name, or put a text that begins with * into quotes"
            raise Unreadable(place, "this names an anchor that is not complete here", fix)
        self._place(known[0], None, known[1], place)

    def _place(self, node: Node, anchor: str | None, size: int, at: SourceLocation | None = None) -> None:
        """Puts a node where the next one belongs. `size` counts it with everything below, aliases written out."""
        self._made += 1 if at is None else size
        if self._made > MOST_NODES:
            raise Unreadable(at or node.place, f"more than {MOST_NODES} values", "split the file, or use fewer aliases")
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
            raise Unreadable(at or node.place, "a key is a list or a mapping", "write keys as texts")

    def _branch(self, done: _OpenNode, keys: list[Scalar]) -> Branch:
        entries: dict[str, TreeEntry] = {}
        merged: list[Node] = []
        for key, node in zip(keys, done.items, strict=True):
            if key.text == _MERGE and key.plain:
                merged.append(node)
                continue
            first = entries.setdefault(key.text.casefold(), TreeEntry(key.text, key.place, node))
            if first.place != key.place:
                what = f"the key stands here a second time; the first is in line {first.place.line}"
                self._problems.add(key.place, joined(printable(key.text, 80)), what, "remove one of them")
        for source in merged:
            for branch in self._sources(source):
                entries = {**branch.entries, **entries}
        return Branch(entries, done.place)

    def _sources(self, node: Node) -> Iterator[Branch]:
        """What `<<` names: mappings, the first of them the strongest."""
        items = node.items if isinstance(node, Listing) else (node,)
        for item in items:
            if not isinstance(item, Branch):
                raise Unreadable(item.place, "<< merges mappings, and this is none", "name one: << : *anchor")
            yield item

    def _refuse_tag(self, tag: str | None, place: SourceLocation) -> None:
        if tag is not None and tag not in _TAGS and tag != "!":
            fix = "remove it, or put a text that begins with ! into quotes"
            raise Unreadable(place, "this is a tag, and those are not read", fix)


def _said(problem: str | None) -> str:
    return printable(problem or "it ends too early", 120)


def _advice(problem: str | None, line: str) -> str:
    if problem and "\\t" in problem:
        return "indent with blanks, not with tabs"
    if "${" in line and ("{" in line.replace("${", "") or "[" in line):
        return 'between brackets a variable stands in quotes: "${NAME}"'
    return "check indentation, colons and quotes in this line and the one before"
