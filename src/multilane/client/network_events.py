"""The events that reach a network thread, and what becomes of those that it can no longer handle.

Thread: any thread puts them; the network thread handles them.

Owns nothing. Whoever waits for an event gets an answer, also if the thread has ended: nobody waits forever.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from multilane.client.calls import Call
from multilane.client.events import ApplicationEvent, CommitOffsets, FetchCommitted, FindOffsets, GroupEvent, Leave
from multilane.client.fetch.backend import Backend
from multilane.client.futures import fulfil, refuse
from multilane.client.group.group_client import GroupClient
from multilane.errors import MultilaneError


@dataclass(frozen=True, slots=True)
class Attach:
    backend: Backend
    group_client: GroupClient | None = None


@dataclass(frozen=True, slots=True)
class Detach:
    backend: Backend
    future: Future[None]
    group_client: GroupClient | None = None
    until: float = 0.0  # the deadline for leaving the group


@dataclass(frozen=True, slots=True)
class ForBackend:
    backend: Backend
    event: ApplicationEvent


@dataclass(frozen=True, slots=True)
class ForGroupClient:
    group_client: GroupClient
    event: GroupEvent


@dataclass(frozen=True, slots=True)
class CrashThread:
    """A decoder failed unexpectedly."""

    error: BaseException


NetworkEvent = Attach | Detach | ForBackend | ForGroupClient | Call | CrashThread


def refuse_event(event: NetworkEvent, reason: MultilaneError) -> None:
    """Answers an event that no thread will handle any more."""
    match event:
        case Attach():
            event.backend.fail(reason)
        case Detach():
            fulfil(event.future, None)
        case Call():
            refuse(event.future, reason)
        case ForBackend(event=FindOffsets() as find):
            refuse(find.future, reason)
        case ForGroupClient(event=CommitOffsets() as commit):
            refuse(commit.future, reason)
        case ForGroupClient(event=FetchCommitted() as fetch):
            refuse(fetch.future, reason)
        case ForGroupClient(event=Leave() as leave):
            fulfil(leave.future, None)
        case _:
            pass
