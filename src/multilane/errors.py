"""Every error multilane raises: one tree, and three facts a caller may act on.

Thread: any (values).

`retriable` says that the same request may succeed later, `refresh_metadata` that our picture of the cluster is old,
`fatal` that the client cannot go on. The facts are class attributes (or set per broker code), so that code asks the
error and never keeps a list of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from multilane.broker_codes import BROKER_CODES

_BROKER_TEXT_LIMIT: Final = 512
_UNKNOWN: Final = ("UNKNOWN_CODE", False, False)


class MultilaneError(Exception):
    """Root of the tree."""

    retriable: bool = False
    refresh_metadata: bool = False
    fatal: bool = False


class ConfigError(MultilaneError):
    """The configuration is wrong; the text names the key, the value's fault and what to write instead."""


class ConfigProblems(ConfigError):
    """All that is wrong with an app's files, each thing in a line of its own; `problems` has them one by one."""

    def __init__(self, problems: Sequence[object]) -> None:
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__("\n".join((f"the configuration has {count}:", *(f"  {problem}" for problem in self.problems))))

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.problems,))


class TargetNotFound(ConfigError):
    """MODULE:NAME leads to no application."""


class ClientClosed(MultilaneError):
    """The call came after close()."""


class ClientFailed(MultilaneError):
    """The network thread met an unexpected exception; every client on it is lost. The cause is chained."""

    fatal = True


class ForkedClient(ClientClosed):
    """The client was made before a fork: its threads and sockets belong to the parent."""


class NotAssigned(MultilaneError, ValueError):
    """The partition is not assigned to this consumer."""


class WrongSubscription(MultilaneError, ValueError):
    """subscribe() and assign() exclude each other, and subscribe() needs a group."""


class ConcurrentUse(MultilaneError):
    """A consumer belongs to one thread (or task) at a time; only wakeup() may come from another."""


class WakeupError(MultilaneError):
    """wakeup() was called from another thread while this one waited."""


class OperationTimeout(MultilaneError, TimeoutError):
    """The deadline passed before the brokers answered."""

    retriable = True


# --- the network -----------------------------------------------------------------------------------------------------


class NetworkError(MultilaneError):
    """A connection could not be made or was lost."""

    retriable = True
    refresh_metadata = True


class AuthenticationError(MultilaneError):
    """The broker or we refused the other's identity. It stays refused until someone changes something."""

    fatal = True


class TlsError(AuthenticationError):
    """The TLS handshake failed: certificate, host name or protocol."""


class WrongListener(AuthenticationError):
    """What answers there does not speak Kafka in the way we do: another security.protocol, or no Kafka at all."""


class SaslError(AuthenticationError):
    """SASL authentication failed."""


class UnsendableRequest(MultilaneError):
    """A value of the caller does not fit into the protocol's request."""


class UnsupportedVersion(MultilaneError):
    """Broker and client have no version of a request in common."""

    fatal = True


# --- bytes that break the protocol -----------------------------------------------------------------------------------


class WireError(MultilaneError):
    """What a broker sent does not follow the protocol."""

    retriable = True


class FrameError(WireError):
    """A response frame is malformed: length, correlation id, truncated or trailing bytes, hostile lengths."""


class RecordBatchError(WireError):
    """A record batch cannot be read. The position stays in front of it."""

    what: ClassVar[str] = "record batch cannot be read"

    def __init__(
        self,
        reason: str,
        *,
        offset: int,
        topic: str | None = None,
        partition: int | None = None,
        broker: str | None = None,
    ) -> None:
        self.reason = reason
        self.offset = offset
        self.topic = topic
        self.partition = partition
        self.broker = broker
        where = "" if topic is None else f" {topic}-{partition}"
        source = "" if broker is None else f" from broker {broker}"
        super().__init__(f"{self.what}:{where} at offset {offset}{source}: {reason}")

    def at(self, *, topic: str, partition: int, broker: str) -> RecordBatchError:
        """The same error with its place named; the decoder knows only the offset."""
        return type(self)(self.reason, offset=self.offset, topic=topic, partition=partition, broker=broker)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_batch_error, (type(self), self.reason, self.offset, self.topic, self.partition, self.broker))


def _rebuild_batch_error(
    kind: type[RecordBatchError], reason: str, offset: int, topic: str, partition: int, broker: str
) -> RecordBatchError:
    return kind(reason, offset=offset, topic=topic, partition=partition, broker=broker)


class CorruptBatch(RecordBatchError):
    """Lengths, counts, varints or the checksum of a batch are wrong."""

    what = "corrupt record batch"


class UnsupportedBatch(RecordBatchError):
    """A record format older than v2, or a codec we do not know."""

    what = "unsupported record batch"
    retriable = False


class OversizedBatch(RecordBatchError):
    """A batch decompresses to more than the cap."""

    what = "oversized record batch"
    retriable = False


class BlockFull(RecordBatchError):
    """One fetch's batches hold more than a block may; what follows is sound and must be fetched again."""

    what = "block is full"


# --- positions -------------------------------------------------------------------------------------------------------


class OffsetOutOfRange(MultilaneError):
    """The wanted offset is not in the log and no reset policy was asked for."""

    def __init__(self, message: str, *, topic: str, partition: int, offset: int) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset
        super().__init__(message)


class NoOffsetForPartition(MultilaneError):
    """A partition has no position and `auto.offset.reset` is `none`."""


class LogTruncated(MultilaneError):
    """Records that we had read are gone from the log: it diverges below our position (an unclean election)."""

    def __init__(self, message: str, *, topic: str, partition: int, offset: int, diverges_at: int | None) -> None:
        self.topic, self.partition, self.offset, self.diverges_at = topic, partition, offset, diverges_at
        super().__init__(message)


class DataLoss(MultilaneError):
    """Records that were to be read are not in the log any more."""


# --- errors that brokers answer --------------------------------------------------------------------------------------


def printable(text: str | None, limit: int = _BROKER_TEXT_LIMIT) -> str:
    """A broker's own words, made safe to log: control characters out, length bounded."""
    if not text:
        return ""
    clean = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[:limit] + "..."


class BrokerError(MultilaneError):
    """A broker answered with an error code."""

    def __init__(self, code: int, context: str = "", text: str | None = None) -> None:
        self.code = code
        self.name, self.retriable, self.refresh_metadata = BROKER_CODES.get(code, _UNKNOWN)
        detail = printable(text)
        parts = [f"broker answered {self.name} ({code})"]
        if context:
            parts.append(f"to {context}")
        super().__init__(" ".join(parts) + (f": {detail}" if detail else ""))


class UnknownBrokerCode(BrokerError):
    """An error code that this client's tables do not have: the broker is newer than we are."""


def broker_error(code: int, context: str = "", text: str | None = None) -> BrokerError:
    """The error for a code; an unknown code is a typed error too, and not retried."""
    kind = BrokerError if code in BROKER_CODES else UnknownBrokerCode
    return kind(code, context, text)


# --- groups ----------------------------------------------------------------------------------------------------------


class GroupError(MultilaneError):
    """Something about this member's place in its group."""


class GroupRefused(GroupError):
    """The group will not have us as we are: no permission, another protocol, a timeout out of range, a full group."""

    fatal = True


class InstanceFenced(GroupError):
    """Another process joined with our group.instance.id and took our place (classic groups fence the old member)."""

    fatal = True


class InstanceInUse(GroupError):
    """A live member has our group.instance.id already (KIP-848 groups fence the one that joins)."""

    fatal = True


class CommitRefused(GroupError):
    """Offsets were not committed because this member no longer owns what they are about. Do not retry: read again."""


class CommitDuringRebalance(CommitRefused):
    """The group is rebalancing. Poll to finish that, then commit what is still owned."""

    retriable = True


class TooManyCommits(GroupError):
    """Commits are made faster than the coordinator takes them. Commit less often, or wait for the futures."""

    retriable = True


# --- writes ----------------------------------------------------------------------------------------------------------


class LibrdkafkaError(MultilaneError):
    """librdkafka, through which everything is written, failed for a reason that has no other name here."""


class PublishStopped(MultilaneError):
    """Publishing ended before the broker acknowledged a copy: the record it is a copy of is not settled."""


class MarksDoNotFit(MultilaneError):
    """What was replayed of an error topic is too scattered to be marked; nothing more was sent."""


class ProduceFailed(MultilaneError):
    """Some messages of a bulk were not stored; `failures` has the place of each in the bulk, and why."""

    def __init__(self, failures: tuple[tuple[int, Exception], ...], total: int) -> None:
        self.failures = failures
        self.total = total
        place, first = failures[0]
        super().__init__(f"{len(failures)} of {total} messages were not stored; the first, message {place}: {first}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.failures, self.total))


# --- lanes -----------------------------------------------------------------------------------------------------------


class UndecodablePayload(MultilaneError):
    """A value is not what the function asked for, and never will be. Its record goes to the error topic at once."""


class ProcessingTimeout(MultilaneError, TimeoutError):
    """A function took longer than maxProcessingTime: make it faster, allow it more, or call less in it."""


class WrongFailures(MultilaneError):
    """A batch function returned failures that are not of its batch, so nobody knows which records are meant."""


class GivenUp(MultilaneError):
    """A record has been an error more often than maxErrorCount allows; its last step has it now."""


class AuditNotWritten(MultilaneError):
    """What became of records cannot be written to the audit's files. `retriable` while that may pass."""


class BreakerOpen(MultilaneError):
    """Too large a share of the records failed: the group was stopped before it flooded the error topic."""


# --- the Kafka for development ---------------------------------------------------------------------------------------


class DevKafkaError(MultilaneError):
    """The embedded Kafka could not be set up or started; the text says what to do about it."""


class JavaNotFound(DevKafkaError):
    """No Java, or only one that is too old for Kafka and Spark."""


class DamagedJars(DevKafkaError):
    """A file of the Kafka installation is not the one that was pinned."""


class PortInUse(DevKafkaError):
    """Someone else listens on a port that was asked for."""


class BrokerStartError(DevKafkaError):
    """A broker ended, or did not answer in time; the end of its log is in the text."""


# --- Spark -----------------------------------------------------------------------------------------------------------


class SparkStartError(MultilaneError):
    """Spark could not be started, or has no room for what is to run; nothing was read or committed."""


class WrongRows(MultilaneError):
    """Rows of a DataFrame that are to be handled are no records of Kafka's any more, or not in their order."""


class MemberFailed(MultilaneError):
    """A member of the application cannot run, and would not if it were started again; or one of several processes has
    ended by itself."""


class NoHistory(MultilaneError):
    """A topic has no records, or Spark could not read them; the text says which."""


class LineLost(MultilaneError):
    """The connection between a driver and one of its members is gone."""
