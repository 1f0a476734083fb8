"""The fetching of all consumers of a network thread: one manager for each class of fetches in use.

Thread: network.

A request holds isolation, wait, sizes and rack once, so only readers that agree on them can share one. A class begins
with its first reader and ends with its last.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING, Final

from multilane.client.fetch.fetch_requests import FetchContext
from multilane.client.fetch.fetching import FetchManager
from multilane.client.net.requests import Poll, RequestManager, UnsentRequest, poll_all

if TYPE_CHECKING:
    from multilane.client.fetch.cursor import Cursor
    from multilane.client.fetch.reader import FetchSettings, Reader
    from multilane.client.metadata import MetadataManager

_numbers: Final = count(1)


class SharedFetching:
    def __init__(self, metadata: MetadataManager, context: FetchContext) -> None:
        self._metadata = metadata
        self._context = context
        self._managers: dict[FetchSettings, FetchManager] = {}
        self._close_requests: tuple[UnsentRequest, ...] = ()

    def look_at(self, reader: Reader, cursor: Cursor) -> None:
        """This cursor of this reader changed."""
        if not reader.is_open:
            return
        manager = self._managers.get(reader.settings)
        if manager is None:
            owner = f"fetch-{next(_numbers)}"
            manager = self._managers[reader.settings] = FetchManager(
                self._metadata, reader.settings, self._context, owner
            )
        manager.look_at(reader, cursor)

    def leave(self, reader: Reader) -> None:
        manager = self._managers.get(reader.settings)
        reader.is_open = False
        if manager is None:
            return
        manager.leave(reader)
        if not manager.has_readers:
            del self._managers[reader.settings]
            self._close_requests += manager.close()

    def poll(self, now: float) -> Poll:
        """Fetches nothing while it cannot be decoded."""
        managers: Iterable[RequestManager] = self._managers.values() if self._context.can_decode() else ()
        close_requests, self._close_requests = self._close_requests, ()
        fetches = poll_all(managers, now)
        return Poll((*close_requests, *fetches.requests), fetches.wait)
