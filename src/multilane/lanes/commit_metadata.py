"""The metadata of a group's commits, as long as the group's coordinator allows.

Thread: loop; the owner of the consumer.

The limit is the coordinator's `offset.metadata.max.bytes`. Where it is unknown, the default of brokers is assumed. If a
text is refused all the same, the texts after it name positions and no runs, which is as short as they can be. Owns how
long texts may be. Never commits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from multilane.client.async_consumer import AsyncConsumer
from multilane.commit import completion_map
from multilane.commit.completion_map import LogIdentity
from multilane.commit.ledger import CommitPoint
from multilane.commit.sections import MOST_BYTES
from multilane.commit.trigger_positions import TooManyTriggers
from multilane.errors import BrokerError, ConfigError, MultilaneError, OperationTimeout
from multilane.lanes.uninterrupted import uninterrupted
from multilane.logs import logger
from multilane.types import TopicPartition

log = logger(__name__)

_PATIENCE: Final = 10.0  # seconds for the coordinator's answer
_TOO_LARGE: Final = 12  # OFFSET_METADATA_TOO_LARGE


class CommitMetadata:
    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self._most = MOST_BYTES
        self._is_short = False
        self._last: dict[TopicPartition, tuple[CommitPoint, LogIdentity, str]] = {}

    async def learn(self) -> None:
        """Sends no request if the answer is known."""
        most = await try_limit(self._consumer)
        self._most = self._most if most is None else most
        self._last.clear()

    def text(self, partition: TopicPartition, point: CommitPoint, log_identity: LogIdentity) -> str:
        """Written once for each point of a partition: an idle one has the same point at every commit interval."""
        last = self._last.get(partition)
        if last is None or last[0] is not point or last[1] != log_identity:
            self._last[partition] = last = (point, log_identity, self._written(point, log_identity))
        return last[2]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They are not assigned any more."""
        for partition in partitions:
            self._last.pop(partition, None)

    def _written(self, point: CommitPoint, log_identity: LogIdentity) -> str:
        runs, positions = point.runs, point.positions
        if self._is_short:
            runs, positions = (), {name: position.without_runs() for name, position in positions.items()}
        try:
            return completion_map.encode(point.offset, runs, log_identity, positions, self._most)
        except TooManyTriggers as error:
            raise ConfigError(
                f"the positions of {len(positions)} triggers do not fit into a commit: its metadata may have "
                f"{self._most} bytes (offset.metadata.max.bytes), which is enough for {error.fitting}. Raise that "
                "limit of the brokers, forget triggers (multilane triggers forget), or give some of them another group"
            ) from None

    def note_refused(self, error: BaseException) -> None:
        if isinstance(error, BrokerError) and error.code == _TOO_LARGE and not self._is_short:
            self._is_short = True
            self._last.clear()
            log.warning(
                "the coordinator takes less metadata with a commit than %d bytes. Commits go on without the records "
                "that are settled beyond them: a restart repeats these. Allow this user to describe the brokers' "
                "configuration (DescribeConfigs on the cluster), or raise offset.metadata.max.bytes",
                self._most,
            )


async def try_limit(consumer: AsyncConsumer) -> int | None:
    """The most bytes that the coordinator takes as metadata of a commit, or the default if it does not say; None if it
    has not answered."""
    try:
        most = await uninterrupted(lambda: consumer.metadata_limit(_PATIENCE))
    except MultilaneError as error:
        if error.retriable or isinstance(error, OperationTimeout):
            return None
        log.debug("the limit of a commit's metadata is not known, %d bytes are assumed: %s", MOST_BYTES, error)
        return MOST_BYTES
    if most is None:
        log.debug("the coordinator does not say how long a commit's metadata may be: %d bytes are assumed", MOST_BYTES)
    return MOST_BYTES if most is None else most
