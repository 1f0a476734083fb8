"""Finds passwords and keys that a configuration holds in clear, where `${NAME}` would keep them in the environment.

Thread: none (pure).

Knows a configuration by its content, whatever the file's name: a secret Kafka property under `properties`, or the
login of an entry with `brokers` or of its schema registry. Never returns a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from multilane.config.app.files import tree
from multilane.config.app.files.environment import interpolate
from multilane.config.app.files.source_location import Problems, SourceLocation, TooManyProblems, joined
from multilane.config.app.files.tree import Branch, Listing, Scalar, TreeNode
from multilane.config.app.kafka_names import is_secret

_WORTH_READING: Final = (re.compile(rb"(?i)properties|auth|registry"), re.compile(rb"(?i)password|jaas|key|token"))
_LOGINS: Final = {"auth": ("password",), "schemaRegistry": ("password", "token")}  # of an entry with `brokers`
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"

Found = tuple[SourceLocation, str]  # where, and the key with its parent keys


def literal_secrets(data: bytes, file: str) -> list[Found]:
    """Each secret once, in the order of the file. Nothing for a file that cannot be read as a configuration."""
    if not all(words.search(data) for words in _WORTH_READING):
        return []  # parsing takes a hundred times as long
    try:
        root = tree.parse(data.decode("utf-8-sig"), file, Problems())
    except (UnicodeDecodeError, tree.Unreadable, TooManyProblems):
        return []
    return sorted(dict(_in(root, ())).items())


def _in(node: TreeNode, path: tuple[str, ...]) -> Iterator[Found]:
    if isinstance(node, Listing):
        for item in node.items:
            yield from _in(item, path)
    if not isinstance(node, Branch):
        return
    if "brokers" in node.entries:
        yield from _in_logins(node, path)
    for fold, entry in node.entries.items():
        here = (*path, entry.key)
        if fold == "properties" and isinstance(entry.node, Branch):
            for held in entry.node.entries.values():
                if is_secret(held.key) and _is_literal(held.node):
                    yield held.node.location, joined(*here, held.key)
        yield from _in(entry.node, here)


def _in_logins(node: Branch, path: tuple[str, ...]) -> Iterator[Found]:
    for holder, keys in _LOGINS.items():
        login = node.get(holder.casefold())
        held_keys = login.entries if isinstance(login, Branch) else {}
        for key in keys:
            held = held_keys.get(key)
            if held is not None and _is_literal(held.node):
                yield held.node.location, joined(*path, holder, held.key)


def _is_literal(node: TreeNode) -> bool:
    """With a variable that has no default, the text around it is no secret: `...LoginModule password="${NAME}";`."""
    if not isinstance(node, Scalar) or node.empty:
        return False
    problems = Problems()
    filled = interpolate(node, {}, problems)
    text = filled.text if isinstance(filled, Scalar) else ""
    return not problems.found and bool(text) and _CERTIFICATE not in text
