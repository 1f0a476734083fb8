"""The way of a failed record: the retry topic, again, the error topic, and the end of it.

Thread: none (pure).

A record is handled once from its main topic and `retry_count` times from the retry topic; then it is an error. The
error consumer gives it back `max_error_count` times, each time for `retry_count` attempts more: 1 + N(1 + M) in all.
Without a retry topic each time is a single attempt, as if N were 1. Key and value are never touched; an error record
always names the topic it belongs back in. Owns no state: the headers hold it all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from multilane.outcome.headers import (
    ERROR_COUNT,
    NOT_ATTEMPTED,
    RETRY_COUNT,
    SUSPECTED_POISON,
    TARGET_TOPIC,
    error_changes,
    error_count,
    last_value,
    number,
    replaced,
    retry_count,
)
from multilane.outcome.poison import SuspectedPoison
from multilane.wire.records.record import Headers, Record

_UNDECODABLE: Final = "the payload cannot be decoded"
_POISONED: Final = "it was not handled again"
_GIVEN_UP: Final = "given up after its attempts in place"


@dataclass(frozen=True, slots=True)
class RetryFlow:
    """The topics of one group and how often a record goes round. A retry topic means at least one attempt from it."""

    main: str
    retry: str | None = None
    error: str | None = None
    retry_count: int = 0
    max_error_count: int = 1
    keeps_partition: bool = False  # retryOrder: key
    with_stack: bool = True  # whether copies carry the stack of the error
    group: str = ""  # whose it is, where several are looked at: two may have the same topics

    @property
    def attempts_per_round(self) -> int:
        return max(1, self.retry_count)

    @property
    def target(self) -> str:
        """Where an error record belongs back."""
        return self.retry or self.main


@dataclass(frozen=True, slots=True)
class Publish:
    """A copy to be made. Without a partition the producer chooses one by the key."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    origin: str = ""  # the record it is a copy of, for people


@dataclass(frozen=True, slots=True)
class LastStep:
    """There is no topic left for the record: the application's last step gets it."""

    reason: str


def after_failure(flow: RetryFlow, record: Record, error: BaseException) -> Publish | LastStep:
    """What becomes of a record whose handler failed."""
    if flow.retry is None:
        return _to_error(flow, record, error, "")
    if record.topic != flow.retry:
        return _retry(flow, flow.retry, record, {RETRY_COUNT: number(0)} | _about(flow, error))
    failed = retry_count(record.headers) + 1
    if failed < flow.attempts_per_round:
        return _retry(flow, flow.retry, record, {RETRY_COUNT: number(failed)} | _about(flow, error))
    return _to_error(flow, record, error, f"reached the maximum retry count of {flow.attempts_per_round}")


def undecodable(flow: RetryFlow, record: Record, error: BaseException) -> Publish | LastStep:
    """A payload that no attempt can read is an error at once; its raw bytes are kept."""
    return _to_error(flow, record, error, _UNDECODABLE)


def given_up(flow: RetryFlow, record: Record, error: BaseException) -> Publish | LastStep:
    """A record that was tried in its place as often as it may be, without a retry topic."""
    return _to_error(flow, record, error, _GIVEN_UP)


def follow(flow: RetryFlow, record: Record) -> Publish:
    """A record that waits behind its failed key in the retry topic. It has all of its attempts before it."""
    if flow.retry is None:
        raise ValueError(f"{flow.main} has no retry topic for a record to follow its key into")
    changes = {} if record.topic == flow.retry else {RETRY_COUNT: number(NOT_ATTEMPTED)}
    return _retry(flow, flow.retry, record, changes)


def poisoned(flow: RetryFlow, record: Record, error: SuspectedPoison) -> Publish | LastStep:
    """A record that kills the process that handles it is an error at once. The header keeps error consumers from giving
    it back by themselves."""
    marked = record._replace(headers=replaced(record.headers, {SUSPECTED_POISON: number(error.crashes)}))
    return _to_error(flow, marked, error, _POISONED)


def attempt(record: Record, flow: RetryFlow) -> int:
    """Which attempt at the record this is, counted from 1."""
    rounds = error_count(record.headers)
    if flow.retry is None:
        return 1 if last_value(record.headers, ERROR_COUNT) is None else rounds + 2
    here = retry_count(record.headers) + 1 if record.topic == flow.retry else 0
    return 1 + rounds * flow.attempts_per_round + here


def moved(record: Record, topic: str, headers: Headers) -> Publish:
    """A copy for another topic, its partition chosen by the key."""
    return _copy(record, topic, headers)


def _about(flow: RetryFlow, error: BaseException, note: str = "") -> dict[str, bytes | None]:
    return error_changes(error, note, with_stack=flow.with_stack)


def _retry(flow: RetryFlow, topic: str, record: Record, changes: Mapping[str, bytes | None]) -> Publish:
    return _copy(record, topic, replaced(record.headers, changes), keeps_partition=flow.keeps_partition)


def _to_error(flow: RetryFlow, record: Record, error: BaseException, note: str) -> Publish | LastStep:
    if flow.error is None:
        return LastStep(f"{note or 'the handler failed'}, and there is no error topic")
    changes: dict[str, bytes | None] = {
        ERROR_COUNT: number(_rounds_after(flow, record)),
        TARGET_TOPIC: flow.target.encode(),
        RETRY_COUNT: None,
        **_about(flow, error, note),
    }
    return _copy(record, flow.error, replaced(record.headers, changes))


def _rounds_after(flow: RetryFlow, record: Record) -> int:
    """The first round of a flow without a retry topic is written as 0: the main attempt is counted apart."""
    is_first = last_value(record.headers, ERROR_COUNT) is None
    return 0 if flow.retry is None and is_first else error_count(record.headers) + 1


def _copy(record: Record, topic: str, headers: Headers, *, keeps_partition: bool = False) -> Publish:
    partition = record.partition if keeps_partition else None
    origin = f"{record.topic}-{record.partition}@{record.offset}"
    return Publish(topic, partition, record.key, record.value, headers, origin)
