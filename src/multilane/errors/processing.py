"""Errors of handling records and of writing them.

Thread: any (values).
"""

from __future__ import annotations

from multilane.errors.root import MultilaneError


class LibrdkafkaError(MultilaneError):
    """librdkafka, which sends all records, failed for a reason without a class of its own here."""


class PublishStopped(MultilaneError):
    """Publishing ended before the broker acknowledged a copy: the original record is not settled."""


class MarksDoNotFit(MultilaneError):
    """The replayed records of an error topic are too scattered to be marked; nothing more was sent."""


class ProduceFailed(MultilaneError):
    """Some messages of a bulk were not stored; `failures` has the index of each in the bulk, and its error."""

    def __init__(self, failures: tuple[tuple[int, Exception], ...], total: int) -> None:
        self.failures = failures
        self.total = total
        index, first = failures[0]
        super().__init__(f"{len(failures)} of {total} messages were not stored; the first, message {index}: {first}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.failures, self.total))


class UndecodablePayload(MultilaneError):
    """A value cannot be decoded to the type that the function requires. Its record goes to the error topic at once."""


class RegistryUnavailable(MultilaneError):
    """The schema registry does not answer, or refuses: no record is to blame, and each is retried in place."""

    retriable = True


class UnknownSchema(UndecodablePayload):
    """The schema registry has no schema with the id that a value names."""


class ProcessingTimeout(MultilaneError, TimeoutError):
    """A function took longer than maxProcessingTime: make it faster, do less in it, or allow more time."""


class WrongFailures(MultilaneError):
    """A batch function returned failures that are not records of its batch."""


class WrongResult(MultilaneError):
    """A function returned something that is not one result for each of its records or rows."""


class ResultNotStored(MultilaneError):
    """What a function returned cannot be stored in the results topic: its record has failed."""


class GivenUp(MultilaneError):
    """A record failed more often than maxErrorCount allows; its last step handles it now."""


class AuditNotWritten(MultilaneError):
    """Audit records cannot be written to their files. `retriable` if the cause may be temporary."""


class BreakerOpen(MultilaneError):
    """The share of failed records was too large: the group was stopped before it flooded the error topic."""
