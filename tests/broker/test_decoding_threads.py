"""Large frames are decoded beside the network thread, small ones on it, unless they may be large inside."""

from __future__ import annotations

import threading

import pytest

from multilane import Consumer, TopicPartition
from multilane.client.fetch import decoder
from multilane.client.produce.producer import Producer

pytestmark = pytest.mark.broker


@pytest.mark.parametrize(
    ("size", "codec", "thread"),
    [
        (100, "none", "multilane-network"),
        (200_000, "none", "multilane-decoder"),
        (500_000, "zstd", "multilane-decoder"),
    ],
)
def test_where_a_frame_is_decoded(kafka, topic, monkeypatch, size, codec, thread):
    name, threads, decode = topic(), [], decoder.decode

    def watched(*arguments, **named):
        threads.append(threading.current_thread().name)
        return decode(*arguments, **named)

    monkeypatch.setattr(decoder, "decode", watched)
    with Producer({"bootstrap.servers": kafka.bootstrap(), "compression.type": codec}) as producer:
        producer.send_many([(name, bytes(size))]).result(30)
    with Consumer({"bootstrap.servers": kafka.bootstrap(), "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        assert consumer.poll(30).rows == 1
    assert [one.rpartition("-")[0].rstrip("-0123456789") for one in threads] == [thread]
