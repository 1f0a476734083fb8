"""Where a failed record goes next: to the retry topic, to the error topic, or to the last step.

Thread: none (pure).

A record is handled once from its main topic and `retry_count` times from the retry topic; then it goes to the error
topic. The error consumer gives it back `max_error_count` times, each time for `retry_count` more attempts: 1 + N(1 + M)
in all. Without a retry topic each round is a single attempt, as if N were 1. Key and value are never changed; an error
record always names the topic that it goes back to. Owns no state: all of it is in the headers.
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
_EXHAUSTED: Final = "given up after its attempts in place"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The topics of one group and how often a record is retried. A retry topic means at least one attempt from it."""

    main: str
    retry: str | None = None
    error: str | None = None
    retry_count: int = 0
    max_error_count: int = 1
    keeps_partition: bool = False  # retryOrder: key
    with_stack: bool = True  # whether copies carry the error's stack
    group: str = ""  # tells the policies of several groups apart: two may have the same topics

    @property
    def attempts_per_round(self) -> int:
        return max(1, self.retry_count)

    @property
    def target(self) -> str:
        """The topic that an error record goes back to."""
        return self.retry or self.main


@dataclass(frozen=True, slots=True)
class Publish:
    """A copy to publish. Without a partition the producer chooses one by the key."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    origin: str = ""  # the record that it copies, for log lines


@dataclass(frozen=True, slots=True)
class LastStep:
    """No topic takes the record: the application's last step gets it."""

    reason: str


def after_failure(retry_policy: RetryPolicy, record: Record, error: BaseException) -> Publish | LastStep:
    """Where a record goes whose function failed."""
    if retry_policy.retry is None:
        return _to_error(retry_policy, record, error, "")
    if record.topic != retry_policy.retry:
        return _retry(retry_policy, retry_policy.retry, record, {RETRY_COUNT: number(0)} | _about(retry_policy, error))
    failed = retry_count(record.headers) + 1
    if failed < retry_policy.attempts_per_round:
        return _retry(
            retry_policy, retry_policy.retry, record, {RETRY_COUNT: number(failed)} | _about(retry_policy, error)
        )
    return _to_error(
        retry_policy, record, error, f"reached the maximum retry count of {retry_policy.attempts_per_round}"
    )


def undecodable(retry_policy: RetryPolicy, record: Record, error: BaseException) -> Publish | LastStep:
    """A record whose payload no attempt can decode goes to the error topic at once; its raw bytes are kept."""
    return _to_error(retry_policy, record, error, _UNDECODABLE)


def exhausted(retry_policy: RetryPolicy, record: Record, error: BaseException) -> Publish | LastStep:
    """A record that was retried in place as often as it may be."""
    return _to_error(retry_policy, record, error, _EXHAUSTED)


def follow(retry_policy: RetryPolicy, record: Record) -> Publish:
    """The copy of a record that follows its failed key into the retry topic. It still has all of its attempts."""
    if retry_policy.retry is None:
        raise ValueError(f"{retry_policy.main} has no retry topic for a record to follow its key into")
    changes = {} if record.topic == retry_policy.retry else {RETRY_COUNT: number(NOT_ATTEMPTED)}
    return _retry(retry_policy, retry_policy.retry, record, changes)


def poisoned(retry_policy: RetryPolicy, record: Record, error: SuspectedPoison) -> Publish | LastStep:
    """A record that kills its process goes to the error topic at once. The header keeps error consumers from giving it
    back automatically."""
    marked = record._replace(headers=replaced(record.headers, {SUSPECTED_POISON: number(error.crashes)}))
    return _to_error(retry_policy, marked, error, _POISONED)


def attempt(record: Record, retry_policy: RetryPolicy) -> int:
    """Which attempt at the record this is, counted from 1."""
    rounds = error_count(record.headers)
    if retry_policy.retry is None:
        return 1 if last_value(record.headers, ERROR_COUNT) is None else rounds + 2
    here = retry_count(record.headers) + 1 if record.topic == retry_policy.retry else 0
    return 1 + rounds * retry_policy.attempts_per_round + here


def moved(record: Record, topic: str, headers: Headers) -> Publish:
    """A copy for another topic, its partition chosen by the key."""
    return _copy(record, topic, headers)


def _about(retry_policy: RetryPolicy, error: BaseException, note: str = "") -> dict[str, bytes | None]:
    return error_changes(error, note, with_stack=retry_policy.with_stack)


def _retry(retry_policy: RetryPolicy, topic: str, record: Record, changes: Mapping[str, bytes | None]) -> Publish:
    return _copy(record, topic, replaced(record.headers, changes), keeps_partition=retry_policy.keeps_partition)


def _to_error(retry_policy: RetryPolicy, record: Record, error: BaseException, note: str) -> Publish | LastStep:
    if retry_policy.error is None:
        return LastStep(f"{note or 'the handler failed'}, and there is no error topic")
    changes: dict[str, bytes | None] = {
        ERROR_COUNT: number(_rounds_after(retry_policy, record)),
        TARGET_TOPIC: retry_policy.target.encode(),
        RETRY_COUNT: None,
        **_about(retry_policy, error, note),
    }
    return _copy(record, retry_policy.error, replaced(record.headers, changes))


def _rounds_after(retry_policy: RetryPolicy, record: Record) -> int:
    """The first round of a group without a retry topic is written as 0: the main attempt is counted separately."""
    is_first = last_value(record.headers, ERROR_COUNT) is None
    return 0 if retry_policy.retry is None and is_first else error_count(record.headers) + 1


def _copy(record: Record, topic: str, headers: Headers, *, keeps_partition: bool = False) -> Publish:
    partition = record.partition if keeps_partition else None
    origin = f"{record.topic}-{record.partition}@{record.offset}"
    return Publish(topic, partition, record.key, record.value, headers, origin)
