"""Composes requests that write and read a group's committed offsets, and reads their responses.

Thread: none (pure).

The same rules as in `wire.compose`. The newest versions name topics by id: then `ids` must have the id of every topic
in the request, and a response is read with the names of those ids. Partitions of a response that were not requested are
ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from multilane.types import LeaderEpoch, Offset, OffsetAndMetadata, TopicPartition
from multilane.wire.compose import _by_topic, _make, _parts
from multilane.wire.messages import ApiKey
from multilane.wire.subscription import NO_GENERATION

OFFSET_COMMIT_AT_LEAST: Final = 2
COMMIT_OF_INSTANCE_AT_LEAST: Final = 7  # group.instance.id, without which a fenced process would not be noticed
COMMIT_OF_EPOCH_AT_LEAST: Final = 9  # member epochs of KIP-848
COMMITTED_AT_LEAST: Final = 6
OFFSETS_BY_NAME_AT_MOST: Final = 9  # of both requests: the next version names topics by id

_NO_MEMBER: Final = ""
_NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class Committer:
    """The member that writes or reads offsets (default: no member, for manually assigned partitions)."""

    group: str
    member_id: str = _NO_MEMBER
    epoch: int = NO_GENERATION
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class CommittedAnswer:
    """The coordinator's answer for one partition. `found` is None after an error, and if nothing was ever committed."""

    code: int
    found: OffsetAndMetadata | None = None


def offset_commit_request(
    version: int, committer: Committer, offsets: Mapping[TopicPartition, OffsetAndMetadata], ids: Mapping[str, UUID]
) -> Any:
    parts = _parts(ApiKey.OFFSET_COMMIT, version)
    topics = tuple(
        _make(
            parts.OffsetCommitRequestTopic,
            name=topic,
            topic_id=ids.get(topic),
            partitions=tuple(
                _make(
                    parts.OffsetCommitRequestPartition,
                    partition_index=tp.partition,
                    committed_offset=offsets[tp].offset,
                    committed_leader_epoch=offsets[tp].leader_epoch,
                    committed_metadata=offsets[tp].metadata,
                )
                for tp in partitions
            ),
        )
        for topic, partitions in _by_topic(offsets).items()
    )
    return _make(
        parts.OffsetCommitRequest,
        group_id=committer.group,
        generation_id_or_member_epoch=committer.epoch,
        member_id=committer.member_id,
        group_instance_id=committer.instance_id,
        topics=topics,
    )


def committed_request(
    version: int, reader: Committer, partitions: Iterable[TopicPartition], ids: Mapping[str, UUID]
) -> Any:
    """OffsetFetch for some partitions. Offsets with pending transactions are answered with an error."""
    parts = _parts(ApiKey.OFFSET_FETCH, version)
    in_groups = hasattr(parts, "OffsetFetchRequestGroup")
    kind = parts.OffsetFetchRequestTopics if in_groups else parts.OffsetFetchRequestTopic
    topics = tuple(
        _make(kind, name=topic, topic_id=ids.get(topic), partition_indexes=tuple(tp.partition for tp in of_topic))
        for topic, of_topic in _by_topic(partitions).items()
    )
    groups: tuple[Any, ...] = ()
    if in_groups:
        group = _make(
            parts.OffsetFetchRequestGroup,
            group_id=reader.group,
            member_id=reader.member_id or None,
            member_epoch=reader.epoch,
            topics=topics,
        )
        groups = (group,)
    return _make(parts.OffsetFetchRequest, group_id=reader.group, topics=topics, groups=groups, require_stable=True)


def commit_codes(
    response: Any, requested: Collection[TopicPartition], names: Mapping[UUID, str]
) -> dict[TopicPartition, int]:
    """The error code of each answered partition; of two answers for one partition, the error."""
    codes: dict[TopicPartition, int] = {}
    for partition, answer in _answered(response.topics, requested, names):
        codes[partition] = codes.get(partition) or int(answer.error_code)
    return codes


def committed_answers(
    response: Any, group: str, requested: Collection[TopicPartition], names: Mapping[UUID, str]
) -> tuple[int, dict[TopicPartition, CommittedAnswer]] | None:
    """The error code of the group and the answers for its partitions; None if the response lacks the group."""
    found = next((g for g in response.groups if g.group_id == group), None) if hasattr(response, "groups") else response
    if found is None:
        return None
    answers: dict[TopicPartition, CommittedAnswer] = {}
    for partition, committed in _answered(found.topics, requested, names):
        answer = _committed(committed)
        if answer is not None and (answer.code or partition not in answers):  # an error is never overwritten
            answers[partition] = answer
    return int(found.error_code), answers


def _committed(answer: Any) -> CommittedAnswer | None:
    code, offset = int(answer.error_code), int(answer.committed_offset)
    if code or offset == _NO_OFFSET:
        return CommittedAnswer(code)
    if offset < 0:  # undefined in the protocol: ignored
        return None
    found = OffsetAndMetadata(Offset(offset), LeaderEpoch(int(answer.committed_leader_epoch)), answer.metadata or "")
    return CommittedAnswer(code, found)


def _answered(
    topics: Iterable[Any], requested: Collection[TopicPartition], names: Mapping[UUID, str]
) -> Iterator[tuple[TopicPartition, Any]]:
    for topic in topics:
        name = topic.name if hasattr(topic, "name") else names.get(topic.topic_id)
        if name is None:
            continue
        for answer in topic.partitions:
            partition = TopicPartition(str(name), int(answer.partition_index))
            if partition in requested:
                yield partition, answer
