"""A program that forks with a live consumer: `forking.py <bootstrap> <topic with 61 records>`."""

from __future__ import annotations

import os
import sys
import threading

from multilane import Consumer, TopicPartition
from multilane.errors import ForkedClient


def read_all(consumer: Consumer, partition: TopicPartition) -> int:
    consumer.assign([partition])
    consumer.seek(partition, 0)
    rows = 0
    while rows < 61:
        blocks = consumer.poll(20.0)
        assert blocks
        rows += blocks.rows
    return rows


def tell(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def main(bootstrap: str, partition: TopicPartition) -> None:
    inherited = Consumer({"bootstrap.servers": bootstrap})
    read_all(inherited, partition)
    child = os.fork()
    if child == 0:
        try:
            inherited.poll(0)
        except ForkedClient as error:
            tell(f"child:{type(error).__name__}")
        inherited.close()
        with Consumer({"bootstrap.servers": bootstrap}) as own:
            tell(f"child:{read_all(own, partition)}")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    tell(f"parent:{read_all(inherited, partition)}")
    inherited.close()
    tell(f"parent:threads:{sum(t.name.startswith('multilane-') for t in threading.enumerate())}")


if __name__ == "__main__":
    main(sys.argv[1], TopicPartition(sys.argv[2], 0))
