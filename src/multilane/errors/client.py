"""Errors of using a client: closed, misused, out of time; of its connections; and of its positions in the log.

Thread: any (values).
"""

from __future__ import annotations

from multilane.errors.root import MultilaneError


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
