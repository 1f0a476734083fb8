"""Publishes what a listener returned to the results topic of its consumer, before the record is settled.

Thread: loop.

A record is settled when the brokers have stored all of its results, however long that takes: a crash in between makes
them appear twice, never not at all. A result that cannot be stored (it has no JSON form, or the topic refuses its size)
is a failure of its record. Owns nothing: the publisher is that of the consumer's copies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from multilane.errors import PublishStopped, ResultNotStored, UnsendableRequest
from multilane.outcome.next_step import Publish
from multilane.runtime.produced_messages import Header, Key, body_bytes, key_bytes

if TYPE_CHECKING:
    from multilane.wire.records.record import Record


class _Keys(Enum):
    OF_RECORD = "the key of the record"


@dataclass(frozen=True, slots=True)
class Result:
    """What a listener returns to choose the key or the headers of a result. The value is sent unchanged if it is bytes
    or text, else as JSON."""

    value: Any
    key: Key | _Keys = _Keys.OF_RECORD
    headers: Mapping[str, bytes | str | None] | Iterable[Header] = field(default_factory=tuple)


class PublishesResults(Protocol):
    async def offer(self, message: Publish) -> tuple[int, int]: ...


class ResultsRoute:
    def __init__(self, topic: str, publisher: PublishesResults) -> None:
        self._topic = topic
        self._publisher = publisher

    async def store(self, records: Sequence[Record], returned: Sequence[Any]) -> dict[Record, BaseException]:
        """Returns the records whose results are not stored, with the reason. Results are sent in the order of their
        records."""
        failures: dict[Record, BaseException] = {}
        waiting: list[tuple[Record, asyncio.Future[Any]]] = []
        for record, value in zip(records, returned, strict=True):
            try:
                messages = messages_of(self._topic, record, value)
            except ResultNotStored as error:
                failures[record] = error
                continue
            waiting += [(record, asyncio.ensure_future(self._publisher.offer(message))) for message in messages]
        try:
            answers = await asyncio.gather(*(future for _, future in waiting), return_exceptions=True)
        except asyncio.CancelledError:
            for _, future in waiting:
                future.cancel()
            raise
        for (record, _), answer in zip(waiting, answers, strict=True):
            if isinstance(answer, PublishStopped) or (
                isinstance(answer, BaseException) and not isinstance(answer, Exception)
            ):
                raise answer
            if isinstance(answer, Exception):
                failures.setdefault(record, _refused(self._topic, record, answer))
        return failures


def messages_of(topic: str, record: Record, returned: Any) -> list[Publish]:
    """One message for each value: a list or a tuple has several, None has none."""
    values = returned if isinstance(returned, list | tuple) else [returned]
    return [_message(topic, record, value) for value in values if value is not None]


def _message(topic: str, record: Record, value: Any) -> Publish:
    result = value if isinstance(value, Result) else Result(value)
    try:
        body = body_bytes(result.value)
    except (UnsendableRequest, TypeError, ValueError, RecursionError) as error:
        raise ResultNotStored(
            f"the result of {_place(record)} is a {type(result.value).__name__}, which has no JSON form: {error}"
        ) from error
    key = record.key if result.key is _Keys.OF_RECORD else key_bytes(result.key)
    pairs = result.headers.items() if isinstance(result.headers, Mapping) else result.headers
    headers = tuple((name, held.encode() if isinstance(held, str) else held) for name, held in pairs)
    return Publish(topic, None, key, body, headers, f"the result of {_place(record)}")


def _refused(topic: str, record: Record, error: Exception) -> ResultNotStored:
    found = ResultNotStored(
        f"topic {topic} does not take the result of {_place(record)}: {error}. Raise max.message.bytes of the topic, "
        "or return less"
    )
    found.__cause__ = error
    return found


def _place(record: Record) -> str:
    return f"{record.topic}-{record.partition}@{record.offset}"
