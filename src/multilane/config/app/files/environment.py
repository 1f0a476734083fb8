"""Substitutes environment variables for `${NAME}` in values, after YAML was parsed.

Thread: none (pure): the environment is a parameter.

The text of a variable can therefore never become YAML. `${NAME:-default}` is the default if the variable is missing or
empty, and `$${` is `${` itself. A missing variable is a problem that names it. Owns nothing; never shows a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from multilane.config.app.files.source_location import Problems, joined
from multilane.config.app.files.tree import Branch, Listing, Scalar, TreeEntry, TreeNode

_OPENING: Final = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?:(:-)([^}]*))?\})?", re.ASCII)


def interpolate(node: TreeNode, env: Mapping[str, str], problems: Problems, path: tuple[str, ...] = ()) -> TreeNode:
    """The same tree with variables substituted."""
    match node:
        case Scalar():
            return _filled(node, env, problems, path)
        case Listing():
            items = (interpolate(item, env, problems, path) for item in node.items)
            return replace(node, items=tuple(items))
        case Branch():
            entries = {
                fold: TreeEntry(entry.key, entry.location, interpolate(entry.node, env, problems, (*path, entry.key)))
                for fold, entry in node.entries.items()
            }
            return replace(node, entries=entries)


def _filled(scalar: Scalar, env: Mapping[str, str], problems: Problems, path: tuple[str, ...]) -> Scalar:
    if "${" not in scalar.text:
        return scalar
    names: list[str] = []
    before = len(problems.found)

    def put(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name, default = match[1], match[3] if match[2] else None
        if name is None:
            fix = "write ${NAME} or ${NAME:-default}, and $${ for the characters themselves"
            problems.add(scalar.location, joined(*path), "${ is not followed by the name of a variable", fix)
            return ""
        names.append(name)
        value = env.get(name)
        if value is None and default is None:
            fix = f"set it, or write ${{{name}:-default}}"
            problems.add(scalar.location, joined(*path), f"the environment has no variable {name}", fix)
        return value or default or ""

    text = _OPENING.sub(put, scalar.text)
    return replace(scalar, text=text, variables=tuple(dict.fromkeys(names)), broken=len(problems.found) > before)
