"""Offset requests of every version, read back as a broker would, and answers of every version."""

from __future__ import annotations

from uuid import UUID

import pytest

from multilane.types import LeaderEpoch, Offset, OffsetAndMetadata, TopicPartition
from multilane.wire.compose_groups import (
    COORDINATORS_TOGETHER,
    FIND_COORDINATOR_AT_LEAST,
    find_coordinators_request,
)
from multilane.wire.compose_offsets import (
    COMMIT_OF_EPOCH_AT_LEAST,
    COMMIT_OF_INSTANCE_AT_LEAST,
    COMMITTED_AT_LEAST,
    OFFSET_COMMIT_AT_LEAST,
    OFFSETS_BY_NAME_AT_MOST,
    CommittedAnswer,
    Committer,
    commit_codes,
    committed_answers,
    committed_request,
    offset_commit_request,
)
from multilane.wire.messages import ApiKey, decode_response, encode_request
from multilane.wire.versions import SPOKEN
from offset_builder import commit_response, committed_response
from response_builder import frame_of, read_request

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
IDS = {"a": UUID(int=10), "b": UUID(int=11)}
NAMES = {id_: name for name, id_ in IDS.items()}


def at(offset: int, epoch: int = -1, metadata: str = "") -> OffsetAndMetadata:
    return OffsetAndMetadata(Offset(offset), LeaderEpoch(epoch), metadata)


def _versions(api: ApiKey, least: int) -> range:
    return range(least, SPOKEN[api][1] + 1)


def _sent(entity, api, version):
    read_api, read_version, _, read = read_request(encode_request(entity, 5, "me")[4:])
    assert (read_api, read_version) == (api, version)
    assert read == entity
    return read


def _received(entity):
    return decode_response(type(entity), frame_of(entity, 5), 5)


def _name(topic, version):
    return NAMES[topic.topic_id] if version > OFFSETS_BY_NAME_AT_MOST else topic.name


@pytest.mark.parametrize("version", _versions(ApiKey.FIND_COORDINATOR, FIND_COORDINATOR_AT_LEAST))
def test_many_groups_are_asked_for_where_the_version_can(version):
    read = _sent(find_coordinators_request(version, ["g", "h"]), ApiKey.FIND_COORDINATOR, version)
    asked = read.coordinator_keys if version >= COORDINATORS_TOGETHER else (read.key,)
    assert asked == (("g", "h") if version >= COORDINATORS_TOGETHER else ("g",))
    assert read.key_type == 0


@pytest.mark.parametrize("version", _versions(ApiKey.OFFSET_COMMIT, OFFSET_COMMIT_AT_LEAST))
def test_commit(version):
    offsets = {A0: at(5, 3, "note"), B0: at(7), A1: at(0, 0)}
    committer = Committer("g", "member-1", 42, "instance")
    read = _sent(offset_commit_request(version, committer, offsets, IDS), ApiKey.OFFSET_COMMIT, version)
    told = {
        TopicPartition(_name(t, version), p.partition_index): at(
            p.committed_offset, getattr(p, "committed_leader_epoch", offsets[A0].leader_epoch), p.committed_metadata
        )
        for t in read.topics
        for p in t.partitions
    }
    if version >= 6:
        assert told == offsets
    assert told[A0] == offsets[A0]
    assert {tp: o.offset for tp, o in told.items()} == {A0: 5, B0: 7, A1: 0}
    assert (read.group_id, read.member_id, read.generation_id_or_member_epoch) == ("g", "member-1", 42)
    assert getattr(read, "group_instance_id", None) == ("instance" if version >= COMMIT_OF_INSTANCE_AT_LEAST else None)


@pytest.mark.parametrize("version", _versions(ApiKey.OFFSET_COMMIT, OFFSET_COMMIT_AT_LEAST))
def test_a_commit_in_nobodys_name(version):
    read = _sent(offset_commit_request(version, Committer("g"), {A0: at(5)}, IDS), ApiKey.OFFSET_COMMIT, version)
    assert (read.member_id, read.generation_id_or_member_epoch) == ("", -1)


@pytest.mark.parametrize("version", _versions(ApiKey.OFFSET_FETCH, COMMITTED_AT_LEAST))
@pytest.mark.parametrize("reader", [Committer("g"), Committer("g", "member-1", 7)])
def test_question_for_committed_offsets(version, reader):
    read = _sent(committed_request(version, reader, [A0, B0, A1], IDS), ApiKey.OFFSET_FETCH, version)
    asked = read.groups[0] if version >= 8 else read
    assert asked.group_id == "g"
    assert [(_name(t, version), t.partition_indexes) for t in asked.topics] == [("a", (0, 1)), ("b", (0,))]
    if version >= 7:
        assert read.require_stable
    if version >= COMMIT_OF_EPOCH_AT_LEAST:
        assert (asked.member_id, asked.member_epoch) == (reader.member_id or None, reader.epoch)


@pytest.mark.parametrize("version", _versions(ApiKey.OFFSET_COMMIT, OFFSET_COMMIT_AT_LEAST))
def test_answer_to_a_commit(version):
    response = _received(commit_response(version, {A0: 0, B0: 25, A1: 3}, IDS))
    assert commit_codes(response, {A0, B0}, NAMES) == {A0: 0, B0: 25}


@pytest.mark.parametrize("order", [(0, 22), (22, 0)])
def test_of_two_answers_for_a_partition_the_error_is_believed(order):
    first, second = (commit_response(9, {A0: code}) for code in order)
    joined = type(first)(throttle_time=first.throttle_time, topics=first.topics + second.topics)
    assert commit_codes(joined, {A0}, {}) == {A0: 22}


@pytest.mark.parametrize("version", _versions(ApiKey.OFFSET_FETCH, COMMITTED_AT_LEAST))
def test_answer_with_committed_offsets(version):
    response = _received(committed_response(version, {A0: at(5, 3, "note"), A1: None, B0: 88}, ids=IDS))
    code, answers = committed_answers(response, "g", {A0, A1, B0}, NAMES)
    assert code == 0
    assert answers == {A0: CommittedAnswer(0, at(5, 3, "note")), A1: CommittedAnswer(0), B0: CommittedAnswer(88)}


@pytest.mark.parametrize("version", _versions(ApiKey.OFFSET_FETCH, COMMITTED_AT_LEAST))
def test_errors_of_the_whole_group(version):
    response = _received(committed_response(version, {}, code=16))
    assert committed_answers(response, "g", {A0}, NAMES) == (16, {})


@pytest.mark.parametrize("version", range(8, 11))
def test_an_answer_about_another_group_is_none(version):
    assert committed_answers(committed_response(version, {A0: None}, group="h"), "g", {A0}, NAMES) is None


def test_what_was_not_asked_for_and_what_makes_no_sense_is_not_believed():
    told = {A0: at(-7), A1: at(3), B0: at(4)}
    code, answers = committed_answers(committed_response(9, told), "g", {A0, B0}, {})
    assert (code, answers) == (0, {B0: CommittedAnswer(0, at(4))})
    stranger = committed_response(10, {A0: at(1)}, ids={"a": UUID(int=99)})
    assert committed_answers(stranger, "g", {A0}, NAMES) == (0, {})


def test_an_error_is_not_talked_over_by_a_second_answer():
    for first, second in ((88, None), (None, 88)):
        parts = [committed_response(7, {A0: value}) for value in (first, second)]
        joined = type(parts[0])(throttle_time=parts[0].throttle_time, topics=parts[0].topics + parts[1].topics)
        assert committed_answers(joined, "g", {A0}, {}) == (0, {A0: CommittedAnswer(88)})
