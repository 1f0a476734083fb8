"""Offsets committed with what was written: a consumer of ours and a transactional producer of confluent-kafka."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as Place

from broker.group_members import PROTOCOLS, LiveGroup, fill, partitions_of
from multilane import Consumer

pytestmark = [pytest.mark.broker, pytest.mark.cluster]


@pytest.mark.parametrize("instance", [None, "first"])
@pytest.mark.parametrize("variant", PROTOCOLS)
def test_group_metadata_is_what_a_transaction_wants(kafka, topic, variant, instance):
    source, target = topic(1), topic(1)
    [partition] = partitions_of(source, 1)
    fill(kafka, [partition], 0, 10)
    more = {} if instance is None else {"group_instance_id": instance}
    producer = Producer({"bootstrap.servers": kafka.bootstrap(), "transactional.id": uuid.uuid4().hex, "log_level": 0})
    producer.init_transactions(30)
    with LiveGroup(kafka, variant, [source], enable_auto_commit=False, **more) as live_group:
        [member] = live_group.join()
        live_group.until(lambda: member.count() == 10)
        producer.begin_transaction()
        producer.produce(target, b"result")
        producer.send_offsets_to_transaction([Place(source, 0, 7)], member.consumer.group_metadata(), 30)
        producer.commit_transaction(30)
        assert member.consumer.committed([partition])[partition].offset == 7
        producer.begin_transaction()
        with pytest.raises(KafkaException):
            producer.send_offsets_to_transaction([Place(source, 0, 9)], _of_another(member.consumer), 30)
        producer.abort_transaction(30)
        assert member.consumer.committed([partition])[partition].offset == 7


def _of_another(consumer: Consumer) -> bytes:
    """What a member would say that the group does not have."""
    metadata = consumer.group_metadata()
    return metadata.replace(metadata.member_id.encode(), uuid.uuid4().hex.encode())
