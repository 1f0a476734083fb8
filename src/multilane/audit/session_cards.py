"""The card of a session: that it was there, who was there before it, and where accounts begin.

Thread: any, one at a time.

Every session names those that it finds. So the accounts of a group hang together: when files of the oldest are gone,
the younger ones still say that they were there, and from which offset on every partition must have accounts. Owns the
card of its own session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from typing import Final

from multilane.audit.books import Card, earliest
from multilane.audit.folder import AuditFolder
from multilane.audit.manifest import card_content, card_name, card_number, read_card, sessions_in
from multilane.logs import logger
from multilane.types import TopicPartition

log = logger(__name__)

_NEWEST: Final = 256  # sessions that are named
_AT_ONCE: Final = 16


class SessionCards:
    def __init__(self, folder: AuditFolder, group: str, session: str) -> None:
        self._folder = folder
        self._group = group
        self._card = Card(session)
        self._name = card_name(1, session)
        self._seen_at: dict[str, float] = {}  # cards that were read, and when they were written
        self.newest = 0.0  # when somebody last wrote there, in seconds since 1970

    def open(self) -> None:
        listed = self._folder.listing()
        number = 1 + max((card_number(name) for name, _ in listed if name.endswith(".json")), default=0)
        self._name = card_name(number, self._card.session)
        self._name_others(listed)
        self.newest = max((at for _, at in listed), default=0.0)
        self._write()

    def _name_others(self, listed: Sequence[tuple[str, float]]) -> None:
        """Those that are there by now: some may have begun at the same time as we have."""
        names = sorted(name for name, _ in listed if name.endswith(".json") and name != self._name)[-_NEWEST:]
        at = dict(listed)
        changed = [name for name in names if not at[name] or self._seen_at.get(name) != at[name]]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            known = list(threads.map(self._read, changed))
        self._seen_at |= {name: at[name] for name in changed}
        written = sessions_in(name for name, _ in listed)
        sessions = [name.rpartition("-")[2].removesuffix(".json") for name in names]
        seen = {session: written.get(session, -1) for session in sessions}
        self._card = replace(
            self._card,
            earlier={**self._card.earlier, **seen},
            since=earliest([self._card.since, *(card.since for card in known if card is not None)]),
        )

    def _read(self, name: str) -> Card | None:
        try:
            group, card = read_card(self._folder.read_bytes(name))
        except (ValueError, OSError) as error:
            log.warning("audit: %s in %s cannot be read: %s", name, self._folder, error)
            return None
        return card if group == self._group else None

    def is_new(self, starts: Mapping[TopicPartition, int]) -> bool:
        """Whether accounts begin earlier with these."""
        return any(offset < self._card.since.get(partition, inf) for partition, offset in starts.items())

    def add(self, starts: Mapping[TopicPartition, int]) -> None:
        """Whoever had them before wrote its card first: it is named with these."""
        self._name_others(self._folder.listing())
        self._card = replace(self._card, since=earliest([self._card.since, starts]))
        self._write()

    def close(self, accounts: int) -> None:
        """All of them are written, and nobody works on anything."""
        self._name_others(self._folder.listing())
        self._card = replace(self._card, accounts=accounts)
        self._write()

    def _write(self) -> None:
        self._folder.write_bytes(self._name, card_content(self._group, self._card))
