"""Sorts a file into sections: a legacy file of one kind, or a file with several sections; and applies the profile.

Thread: none (pure).

The keys of a file decide what it holds, not its name. Owns the names of sections and profiles; knows the keys of an
entry only as sets passed in.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from multilane.config.app.files.source_location import Problems, SourceLocation, did_you_mean, joined, listed
from multilane.config.app.files.tree import Branch, Listing, Scalar, TreeEntry, TreeNode
from multilane.errors import printable

PROFILES: Final = "profiles"
# From the smallest vocabulary to the largest: an entry that fits two of them belongs to the smaller one.
SECTIONS: Final = ("producers", "clusters", "errorConsumers", "consumers")
_SPELLINGS: Final = {**{name.casefold(): name for name in SECTIONS}, "shovels": "errorConsumers"}
_NAMES: Final = ("clusters", "consumers", "producers", "errorConsumers")

_MOST_CLASSIFIED: Final = 50  # entries suffice to classify a file
_IGNORED_PREFIX: Final = "x-"  # for anchors

Sections = dict[str, dict[str, TreeEntry]]
Vocabulary = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Layout:
    """`profiles` has the names in the file. `is_scaler` is true for files in the Go library's own layout."""

    sections: Sections
    profiles: tuple[str, ...] = ()
    is_scaler: bool = False


@dataclass(frozen=True, slots=True)
class Arranger:
    """Sorts files into sections. `vocabulary` has the keys of each section's entries, in lower case."""

    vocabulary: Vocabulary
    profile: str | None
    problems: Problems

    def arrange(self, root: Branch) -> Layout:
        if any(fold in _SPELLINGS or fold == PROFILES for fold in root.entries if self._is_section(root, fold)):
            return self._sectioned(root)
        if self._is_profiled(root):
            names = tuple(entry.key for entry in root.entries.values())
            chosen = self._chosen(root, names)
            sections = {} if chosen is None else self._classified(stamped_branch(chosen, self.profile))
            return Layout(sections, names, is_scaler=True)
        return Layout(self._classified(root), is_scaler=True)

    def _is_section(self, root: Branch, fold: str) -> bool:
        node = root.entries[fold].node
        return not (isinstance(node, Branch) and self._is_entry(node))

    def _is_entry(self, branch: Branch) -> bool:
        known = frozenset().union(*self.vocabulary.values())
        return any(fold in known and not isinstance(entry.node, Branch) for fold, entry in branch.entries.items())

    def _is_profiled(self, root: Branch) -> bool:
        groups = [entry.node for entry in root.entries.values() if not _is_empty(entry.node)]
        inner = [e.node for group in groups if isinstance(group, Branch) for e in group.entries.values()]
        if not all(isinstance(node, Branch) for node in groups):
            return False
        branches = [node for node in inner if isinstance(node, Branch)]
        every = all(isinstance(node, Branch) or _is_empty(node) for node in inner)
        return every and any(self._is_entry(branch) for branch in branches)

    def _chosen(self, root: Branch, names: tuple[str, ...]) -> Branch | None:
        offered = listed(names)
        if self.profile is None:
            near = [word for name in names[:10] if (word := did_you_mean(name, _NAMES))]
            fix = f"choose one with `profile`: {offered}" + "".join(f"; {word}" for word in near)
            self.problems.add(root.location, "", "this file has only profiles, and none is selected", fix)
            return None
        node = root.get(self.profile)
        if isinstance(node, Branch):
            return node
        if node is None:
            fix = did_you_mean(self.profile, names) or f"the file has {offered}"
            self.problems.add(root.location, "", f"there is no profile {printable(self.profile, 60)}", fix)
        return None

    def _sectioned(self, root: Branch) -> Layout:
        common = self._sections_of(root, ())
        profiles = root.get(PROFILES)
        if not isinstance(profiles, Branch):
            if profiles is not None and not _is_empty(profiles):
                self.problems.add(
                    profiles.location, PROFILES, "this is not a mapping", "write profile names with sections under them"
                )
            return Layout(common)
        names = tuple(entry.key for entry in profiles.entries.values())
        if self.profile is None:
            return Layout(common, names)
        node = profiles.get(self.profile)
        if node is None:
            fix = did_you_mean(self.profile, names) or f"the file has {listed(names)}"
            self.problems.add(profiles.location, PROFILES, f"there is no profile {printable(self.profile, 60)}", fix)
        if isinstance(node, Branch):
            own = self._sections_of(stamped_branch(node, self.profile), (PROFILES, self.profile))
            common = _merged_sections(common, own)
        return Layout(common, names)

    def _sections_of(self, branch: Branch, path: tuple[str, ...]) -> Sections:
        sections: Sections = {}
        for fold, entry in branch.entries.items():
            name = _SPELLINGS.get(fold)
            if name is None:
                if (fold != PROFILES or path) and not fold.startswith(_IGNORED_PREFIX):
                    fix = did_you_mean(entry.key, (*_NAMES, PROFILES)) or f"the sections are {', '.join(_NAMES)}"
                    self.problems.add(entry.location, joined(*path, printable(entry.key, 80)), "unknown section", fix)
                continue
            if isinstance(entry.node, Branch):
                self._combine(sections.setdefault(name, {}), entry.node, (*path, name))
            elif not _is_empty(entry.node):
                what = "this section is not a mapping"
                self.problems.add(entry.node.location, joined(*path, name), what, "write names with keys under them")
        return sections

    def _combine(self, known: dict[str, TreeEntry], branch: Branch, path: tuple[str, ...]) -> None:
        """`errorConsumers` and `shovels` are two names of one section."""
        for fold, entry in branch.entries.items():
            if fold in known:
                add_duplicate(self.problems, joined(*path, entry.key), known[fold].location, entry.location)
            known.setdefault(fold, entry)

    def _classified(self, branch: Branch) -> Sections:
        """A file of one kind: the section whose vocabulary fits its entries best."""
        if not branch.entries:
            return {}
        entries = [entry.node for entry in branch.entries.values() if isinstance(entry.node, Branch)][:_MOST_CLASSIFIED]
        scores = {name: sum(_fit(entry, self.vocabulary[name]) for entry in entries) for name in SECTIONS}
        best = max(SECTIONS, key=scores.__getitem__)
        if scores[best] <= 0:
            fix = f"write one of the sections {', '.join(_NAMES)}, or a file of entries with their keys"
            self.problems.add(branch.location, "", "the keys do not show what this file configures", fix)
            return {}
        return {best: dict(branch.entries)}


def add_duplicate(problems: Problems, path: str, first: SourceLocation, second: SourceLocation) -> None:
    problems.add(second, path, f"the name is used twice; the first is at {first}", "rename or remove one")


def _fit(entry: Branch, known: frozenset[str]) -> float:
    """Known keys count for a section, near misses count a little, all others count against it."""
    unknown = [fold for fold in entry.entries if fold not in known][:100]
    near = sum(bool(difflib.get_close_matches(fold[:100], known, n=1, cutoff=0.75)) for fold in unknown)
    return len(entry.entries) - len(unknown) + 0.5 * near - (len(unknown) - near)


def _is_empty(node: TreeNode) -> bool:
    return isinstance(node, Scalar) and node.empty


def stamped_branch(branch: Branch, profile: str | None) -> Branch:
    """The same branch, with the profile recorded on everything in it."""
    entries = {fold: TreeEntry(e.key, e.location, _stamped(e.node, profile)) for fold, e in branch.entries.items()}
    return replace(branch, entries=entries, profile=profile)


def _stamped(node: TreeNode, profile: str | None) -> TreeNode:
    if isinstance(node, Branch):
        return stamped_branch(node, profile)
    if isinstance(node, Listing):
        return replace(node, items=tuple(_stamped(item, profile) for item in node.items), profile=profile)
    return replace(node, profile=profile)


def _merged_sections(under: Sections, over: Sections) -> Sections:
    names: Iterable[str] = dict.fromkeys((*under, *over))
    return {name: _merged(under.get(name, {}), over.get(name, {})) for name in names}


def _merged(under: Mapping[str, TreeEntry], over: Mapping[str, TreeEntry]) -> dict[str, TreeEntry]:
    """Merges mappings key by key and replaces everything else; a key without a value removes the underlying one."""
    merged = dict(under)
    for fold, entry in over.items():
        below = under.get(fold)
        if _is_empty(entry.node):
            merged.pop(fold, None)
        elif below is not None and isinstance(below.node, Branch) and isinstance(entry.node, Branch):
            entries = _merged(below.node.entries, entry.node.entries)
            merged[fold] = TreeEntry(below.key, below.location, replace(below.node, entries=entries))
        else:
            merged[fold] = entry
    return merged
