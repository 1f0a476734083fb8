"""How the admin client reads responses, without a broker: real kio entities in, values out."""

from __future__ import annotations

import uuid
from datetime import timedelta
from io import BytesIO

import pytest
from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_assignment.v0.data import TopicPartition as Assigned
from kio.schema.consumer_protocol_assignment.v3.data import ConsumerProtocolAssignment as NewestAssignment
from kio.schema.consumer_protocol_assignment.v3.data import TopicPartition as NewestAssigned
from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v6 import response as offsets6
from kio.schema.offset_fetch.v9 import response as offsets9
from kio.schema.offset_fetch.v10 import response as offsets10
from kio.serial import entity_writer
from kio.static.primitive import i32, i32Timedelta, i64

from multilane.client.admin import admin as admin_module
from multilane.client.admin import answers
from multilane.client.admin.admin import Admin
from multilane.errors import BrokerError, ClientClosed, ConfigError, FrameError, OperationTimeout
from multilane.types import TopicPartition
from multilane.wire.compose_groups import find_coordinator_request, offset_fetch_request, read_assignment

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
NO_TIME = i32Timedelta.parse(timedelta())


def written(version: int, entity: object) -> bytes:
    out = BytesIO()
    out.write(version.to_bytes(2, "big"))
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def test_assignment_is_read_as_kio_writes_it():
    topics = (Assigned(topic="b", partitions=(i32(1), i32(0))), Assigned(topic="a", partitions=(i32(7),)))
    data = written(0, ConsumerProtocolAssignment(assigned_partitions=topics, user_data=b"mine"))
    assert read_assignment(data) == (("a", 7), ("b", 0), ("b", 1))


def test_assignment_of_a_newer_version_is_read():
    topics = (NewestAssigned(topic="t", partitions=(i32(3),)),)
    assert read_assignment(written(3, NewestAssignment(assigned_partitions=topics))) == (TopicPartition("t", 3),)


def test_a_member_that_waits_has_no_partitions():
    assert read_assignment(b"") == ()


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x7f\xffab\x00\x00",
        b"\x00\x00\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff\x00\x00\x00\x00",
    ],
)
def test_hostile_assignments_are_refused(data):
    with pytest.raises(FrameError, match="assignment"):
        read_assignment(data)


@pytest.mark.parametrize("cut", range(1, 20))
def test_cut_assignments_are_refused(cut):
    data = written(0, ConsumerProtocolAssignment(assigned_partitions=(Assigned(topic="topic", partitions=(i32(1),)),)))
    with pytest.raises(FrameError):
        read_assignment(data[:cut])


@pytest.mark.parametrize("version", range(1, 7))
def test_find_coordinator_names_the_group_in_every_version(version):
    request = find_coordinator_request(version, "g")
    assert (request.coordinator_keys if version >= 4 else (request.key,)) == ("g",)


@pytest.mark.parametrize("version", range(6, 11))
def test_offset_fetch_asks_for_all_topics_in_every_version(version):
    request = offset_fetch_request(version, "g")
    asked = request.groups[0] if version >= 8 else request
    assert (asked.group_id, asked.topics) == ("g", None)


def offset_response(version, code=ErrorCode.none, partition_code=ErrorCode.none, committed=42):
    """The same answer in the forms of versions 6 (flat), 9 (by name) and 10 (by id)."""
    module = {6: offsets6, 9: offsets9, 10: offsets10}[version]
    plural = "" if version == 6 else "s"
    part = getattr(module, f"OffsetFetchResponsePartition{plural}")(
        partition_index=i32(1), committed_offset=i64(committed), metadata="m", error_code=partition_code
    )
    name = {"topic_id": uuid.UUID(int=5)} if version == 10 else {"name": "t"}
    topic = getattr(module, f"OffsetFetchResponseTopic{plural}")(partitions=(part,), **name)
    if version == 6:
        return module.OffsetFetchResponse(throttle_time=NO_TIME, topics=(topic,), error_code=code)
    group = module.OffsetFetchResponseGroup(group_id="g", topics=(topic,), error_code=code)
    return module.OffsetFetchResponse(throttle_time=NO_TIME, groups=(group,))


@pytest.mark.parametrize("version", [6, 9, 10])
def test_committed_offsets_are_read_from_every_form(version):
    offsets = answers.offsets_group(offset_response(version), "g")
    found = answers.committed_in(offsets, {uuid.UUID(int=5): "t"})
    assert found == {TopicPartition("t", 1): answers.CommittedOffset(42, -1, "m")}


def test_a_partition_without_offset_is_not_in_the_answer():
    assert answers.committed_in(answers.offsets_group(offset_response(9, committed=-1), "g"), {}) == {}


def test_a_topic_that_is_gone_is_left_out():
    assert answers.committed_in(answers.offsets_group(offset_response(10), "g"), {}) == {}


@pytest.mark.parametrize("version", [6, 9, 10])
@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_in_trouble_is_asked_again(version, code):
    error = admin_module._offsets_error(offset_response(version, ErrorCode(code)), "g")
    assert isinstance(error, BrokerError)
    assert error.retriable


def test_an_error_of_one_partition_is_an_error():
    error = admin_module._offsets_error(offset_response(9, partition_code=ErrorCode(29)), "g")
    assert isinstance(error, BrokerError)
    assert (error.code, error.retriable) == (29, False)


def test_a_group_that_is_not_there_has_no_error():
    assert admin_module._offsets_error(offset_response(9, ErrorCode(69)), "g") is None


def test_an_answer_about_another_group_is_no_answer():
    error = admin_module._offsets_error(offset_response(9), "other")
    assert error is not None
    assert not error.retriable


@pytest.mark.parametrize("at", ["soonest", -5])
def test_offsets_at_nonsense(at):
    with Admin(NOWHERE) as admin, pytest.raises(ValueError, match="milliseconds since 1970"):
        admin.offsets([TopicPartition("t", 0)], at)


@pytest.mark.parametrize("call", ["topics", "delete_topics", "describe_groups"])
def test_a_text_is_no_list_of_names(call):
    with Admin({"bootstrap.servers": "127.0.0.1:1"}) as admin, pytest.raises(TypeError, match=r"write \['orders'\]"):
        getattr(admin, call)("orders")


def test_a_closed_admin_says_so():
    admin = Admin(NOWHERE)
    admin.close()
    admin.close()
    with pytest.raises(ClientClosed):
        admin.cluster()
    with pytest.raises(ClientClosed):
        admin.create_topics({"t": 1})


def test_a_cluster_that_is_not_there_times_out():
    with Admin(NOWHERE) as admin, pytest.raises(OperationTimeout):
        admin.cluster(timeout=0.3)


def test_a_wrong_property_is_refused():
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        Admin({"bootstrap.serverz": "x:1"})
