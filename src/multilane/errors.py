"""Every error that multilane raises: one tree, and three facts that a caller may act on.

Thread: any (values).

`retriable` means that the same request may succeed later, `refresh_metadata` that the cluster metadata is outdated,
`fatal` that the client cannot continue. The facts are class attributes (or set per broker code), so that code reads
them from the error and never keeps its own list.
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
    """The configuration is wrong; the message names the key, the fault and what to write instead."""


class ConfigProblems(ConfigError):
    """Every problem in an app's files, one per line; `problems` has them as objects."""

    def __init__(self, problems: Sequence[object]) -> None:
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__("\n".join((f"the configuration has {count}:", *(f"  {problem}" for problem in self.problems))))

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.problems,))


class TargetNotFound(ConfigError):
    """MODULE:NAME does not name an application."""


class ClientClosed(MultilaneError):
    """The call came after close()."""


class ClientFailed(MultilaneError):
    """The network thread failed with an unexpected exception; every client on it is lost. The cause is chained."""

    fatal = True


class ForkedClient(ClientClosed):
    """The client was created before a fork: its threads and sockets belong to the parent process."""


class NotAssigned(MultilaneError, ValueError):
    """The partition is not assigned to this consumer."""


class WrongSubscription(MultilaneError, ValueError):
    """subscribe() and assign() were combined, or subscribe() was called without a group."""


class ConcurrentUse(MultilaneError):
    """Two threads (or tasks) used a consumer at the same time; only wakeup() is allowed from another thread."""


class WakeupError(MultilaneError):
    """Another thread called wakeup() while this one waited."""


class OperationTimeout(MultilaneError, TimeoutError):
    """The deadline passed before the brokers answered."""

    retriable = True


# --- the network -----------------------------------------------------------------------------------------------------


class NetworkError(MultilaneError):
    """A connection could not be established or was lost."""

    retriable = True
    refresh_metadata = True


class AuthenticationError(MultilaneError):
    """The broker or the client rejected the other's identity. A retry fails until the configuration changes."""

    fatal = True


class TlsError(AuthenticationError):
    """The TLS handshake failed: certificate, host name or protocol."""


class WrongListener(AuthenticationError):
    """The listener uses another security.protocol, or is not Kafka at all."""


class SaslError(AuthenticationError):
    """SASL authentication failed."""


class UnsendableRequest(MultilaneError):
    """A caller's value does not fit into the protocol's request."""


class UnsupportedVersion(MultilaneError):
    """Broker and client share no version of a request."""

    fatal = True


# --- bytes that break the protocol -----------------------------------------------------------------------------------


class WireError(MultilaneError):
    """Data from a broker violates the protocol."""

    retriable = True


class FrameError(WireError):
    """A response frame is malformed: length, correlation id, truncated or trailing bytes, hostile lengths."""


class RecordBatchError(WireError):
    """A record batch cannot be read. The position stays before it."""

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
        """The same error with its topic, partition and broker; the decoder knows only the offset."""
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
    """A record format older than v2, or an unknown codec."""

    what = "unsupported record batch"
    retriable = False


class OversizedBatch(RecordBatchError):
    """A batch decompresses to more than max.decompressed.batch.bytes."""

    what = "oversized record batch"
    retriable = False


class BlockFull(RecordBatchError):
    """The batches of one fetch exceed the limits of a block; the rest is sound and must be fetched again."""

    what = "block is full"


# --- positions -------------------------------------------------------------------------------------------------------


class OffsetOutOfRange(MultilaneError):
    """The requested offset is not in the log, and no reset policy is set."""

    def __init__(self, message: str, *, topic: str, partition: int, offset: int) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset
        super().__init__(message)


class NoOffsetForPartition(MultilaneError):
    """A partition has no position and `auto.offset.reset` is `none`."""


class LogTruncated(MultilaneError):
    """The log lost records that were already read: it diverges below our position (an unclean election)."""

    def __init__(self, message: str, *, topic: str, partition: int, offset: int, diverges_at: int | None) -> None:
        self.topic, self.partition, self.offset, self.diverges_at = topic, partition, offset, diverges_at
        super().__init__(message)


class DataLoss(MultilaneError):
    """Records that should be read are no longer in the log."""


# --- errors that brokers return --------------------------------------------------------------------------------------


def printable(text: str | None, limit: int = _BROKER_TEXT_LIMIT) -> str:
    """A text made safe to log: without control characters, of limited length."""
    if not text:
        return ""
    clean = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[:limit] + "..."


class BrokerError(MultilaneError):
    """A broker returned an error code."""

    def __init__(self, code: int, context: str = "", text: str | None = None) -> None:
        self.code = code
        self.name, self.retriable, self.refresh_metadata = BROKER_CODES.get(code, _UNKNOWN)
        detail = printable(text)
        parts = [f"broker answered {self.name} ({code})"]
        if context:
            parts.append(f"to {context}")
        super().__init__(" ".join(parts) + (f": {detail}" if detail else ""))


class UnknownBrokerCode(BrokerError):
    """An error code that is not in this client's tables: the broker is newer than the client."""


def broker_error(code: int, context: str = "", text: str | None = None) -> BrokerError:
    """The error for a code; an unknown code also has a type and is not retried."""
    kind = BrokerError if code in BROKER_CODES else UnknownBrokerCode
    return kind(code, context, text)


# --- groups ----------------------------------------------------------------------------------------------------------


class GroupError(MultilaneError):
    """An error of group membership."""


class GroupRefused(GroupError):
    """The group rejects this member: no permission, another protocol, a timeout out of range, or a full group."""

    fatal = True


class InstanceFenced(GroupError):
    """Another process joined with our group.instance.id and replaced us (classic groups fence the old member)."""

    fatal = True


class InstanceInUse(GroupError):
    """A live member already has our group.instance.id (KIP-848 groups fence the new member)."""

    fatal = True


class CommitRefused(GroupError):
    """Offsets were not committed: this member no longer owns their partitions. Do not retry; read again."""


class CommitDuringRebalance(CommitRefused):
    """The group is rebalancing. Poll to finish the rebalance, then commit the partitions that are still assigned."""

    retriable = True


class TooManyCommits(GroupError):
    """Commits are sent faster than the coordinator accepts them. Commit less often, or wait for the futures."""

    retriable = True


# --- writes ----------------------------------------------------------------------------------------------------------


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


# --- lanes -----------------------------------------------------------------------------------------------------------


class UndecodablePayload(MultilaneError):
    """A value cannot be decoded to the type that the function requires. Its record goes to the error topic at once."""


class ProcessingTimeout(MultilaneError, TimeoutError):
    """A function took longer than maxProcessingTime: make it faster, do less in it, or allow more time."""


class WrongFailures(MultilaneError):
    """A batch function returned failures that are not records of its batch."""


class GivenUp(MultilaneError):
    """A record failed more often than maxErrorCount allows; its last step handles it now."""


class AuditNotWritten(MultilaneError):
    """Audit records cannot be written to their files. `retriable` if the cause may be temporary."""


class BreakerOpen(MultilaneError):
    """The share of failed records was too large: the group was stopped before it flooded the error topic."""


# --- the Kafka for development ---------------------------------------------------------------------------------------


class DevKafkaError(MultilaneError):
    """The embedded Kafka could not be set up or started; the message states the remedy."""


class JavaNotFound(DevKafkaError):
    """There is no Java, or only one that is too old for Kafka and Spark."""


class DamagedJars(DevKafkaError):
    """A file of the Kafka installation differs from the pinned one."""


class PortInUse(DevKafkaError):
    """Another process listens on a requested port."""


class BrokerStartError(DevKafkaError):
    """A broker exited or did not respond in time; the message has the end of its log."""


# --- Spark -----------------------------------------------------------------------------------------------------------


class SparkStartError(MultilaneError):
    """Spark could not be started, or has too few slots for the run; nothing was read or committed."""


class WrongRows(MultilaneError):
    """The rows of a DataFrame are no longer Kafka records, or not in their order."""


class MemberFailed(MultilaneError):
    """A member of the application cannot run, and a restart would not help; or one of several processes exited by
    itself."""


class NoHistory(MultilaneError):
    """A topic has no records, or Spark could not read them; the message states which."""


class ChannelLost(MultilaneError):
    """The connection between a driver and one of its workers is lost."""
