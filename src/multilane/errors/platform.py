"""Errors of what a group runs on: its processes, Spark, and the Kafka for development.

Thread: any (values).
"""

from __future__ import annotations

from multilane.errors.root import MultilaneError


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
