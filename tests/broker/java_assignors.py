"""Kafka's own Java assignors, called in a JVM beside the tests through py4j (a part of pyspark)."""

from __future__ import annotations

import struct
import subprocess
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import py4j
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from multilane.client.group.assignors import Assignor, AssignorMember, GroupAssignment, TopicShape
from multilane.client.group.assignors.claims import Ownership
from multilane.dev import jars
from multilane.java import find_java
from multilane.types import TopicPartition

_SUBSCRIPTION_VERSION = 3


class JavaFailed(Exception):
    """The Java assignor threw."""


class JavaAssignors:
    """Each look-up of a class is a round trip: those that every case needs are kept."""

    def __init__(self, gateway: JavaGateway) -> None:
        self.jvm: Any = gateway.jvm
        self.consumer: Any = getattr(gateway.jvm, "org.apache.kafka.clients.consumer")
        common: Any = getattr(gateway.jvm, "org.apache.kafka.common")
        util: Any = gateway.jvm.java.util
        protocol: Any = self.consumer.internals.ConsumerProtocol
        self._gateway = gateway
        self._cluster, self._partition_info, self._node = common.Cluster, common.PartitionInfo, common.Node
        self._array_list, self._hash_map, self._hash_set = util.ArrayList, util.HashMap, util.HashSet
        self._optional = util.Optional.ofNullable
        self._wrap = gateway.jvm.java.nio.ByteBuffer.wrap
        self._group_subscription = getattr(self.consumer, "ConsumerPartitionAssignor$GroupSubscription")
        self._read_subscription = protocol.deserializeSubscription
        self._write_assignment = protocol.serializeAssignment
        self._replica_sets: dict[frozenset[str], Any] = {}

    def assign(self, assignor: Assignor, members: Sequence[AssignorMember], cluster: Any) -> GroupAssignment:
        """What a Java leader makes of the group: subscriptions arrive as bytes in a HashMap filled in that order."""
        subscriptions = self._hash_map()
        for member in members:
            subscriptions.put(member.member_id, self.subscription(member))
        java = getattr(self.consumer, type(assignor).__name__)()
        try:
            found = java.assign(cluster, self._group_subscription(subscriptions)).groupAssignment()
        except Py4JJavaError as error:
            raise JavaFailed(str(error.java_exception)) from None
        each = {member.member_id: found.get(member.member_id) for member in members}
        return {member: _assignment(bytes(self._write_assignment(given).array())) for member, given in each.items()}

    def subscription(self, member: AssignorMember) -> Any:
        subscription = self._read_subscription(self._wrap(_subscription(member)))
        if member.instance_id is not None:
            subscription.setGroupInstanceId(self._optional(member.instance_id))
        return subscription

    def cluster(self, topics: Mapping[str, TopicShape]) -> Any:
        infos = self._array_list()
        for topic, shape in topics.items():
            for number in range(shape.partitions):
                nodes = self._replicas(shape.racks_of(number))
                infos.add(self._partition_info(topic, number, None, nodes, nodes))
        return self._cluster("c", self._array_list(), infos, self._hash_set(), self._hash_set())

    def _replicas(self, racks: frozenset[str]) -> Any:
        """Brokers in these racks and one that does not say where it is."""
        if racks not in self._replica_sets:
            places = [None, *sorted(racks)]
            array = self._gateway.new_array(self._node, len(places))
            for place, rack in enumerate(places):
                array[place] = self._node(place, "host", 9092, rack)
            self._replica_sets[racks] = array
        return self._replica_sets[racks]

    def sticky_user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        """What a Java member with the sticky assignor sends after an assignment."""
        partitions = self._array_list()
        for topic, number in owned:
            partitions.add(getattr(self.jvm, "org.apache.kafka.common").TopicPartition(topic, number))
        sticky = self.consumer.StickyAssignor()
        group = self.consumer.ConsumerGroupMetadata("g", generation, "m", self._optional(None))
        sticky.onAssignment(getattr(self.consumer, "ConsumerPartitionAssignor$Assignment")(partitions), group)
        return bytes(sticky.subscriptionUserData(self._hash_set()).array())

    def read_sticky(self, data: bytes) -> Ownership:
        """How the Java sticky assignor reads the user data of another member."""
        member_data = self._declared("StickyAssignor", "deserializeTopicPartitionAssignment").invoke(
            None, self._objects(self._wrap(data))
        )
        partitions = tuple(TopicPartition(p.topic(), p.partition()) for p in member_data.partitions)
        return Ownership(partitions, member_data.generation.orElse(-1))

    def _declared(self, owner: str, name: str) -> Any:
        """A private method of an assignor."""
        methods = self.jvm.java.lang.Class.forName(f"org.apache.kafka.clients.consumer.{owner}").getDeclaredMethods()
        (found,) = [method for method in methods if method.getName() == name]
        found.setAccessible(True)
        return found

    def _objects(self, *values: Any) -> Any:
        array = self._gateway.new_array(self.jvm.java.lang.Object, len(values))
        for place, value in enumerate(values):
            array[place] = value
        return array


@contextmanager
def java_assignors() -> Iterator[JavaAssignors]:
    java = find_java()
    classpath = jars.installed(java).classpath
    port, token, process = launch_gateway(
        jarpath=_py4j_jar(),
        classpath=classpath,
        javaopts=["-XX:+UseSerialGC", "-Xmx256m"],
        die_on_exit=True,
        java_path=str(java.program),
        enable_auth=True,
        return_proc=True,
        redirect_stdout=deque(maxlen=1),
        redirect_stderr=subprocess.DEVNULL,
    )
    gateway = JavaGateway(
        gateway_parameters=GatewayParameters(
            port=port, auth_token=token, auto_field=True, enable_memory_management=False
        )
    )
    try:
        yield JavaAssignors(gateway)
    finally:
        gateway.shutdown()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait(30)


def _py4j_jar() -> str:
    import pyspark

    (found,) = Path(pyspark.__file__).parent.glob(f"jars/py4j-{py4j.version.__version__}.jar")
    return str(found)


def _subscription(member: AssignorMember) -> bytes:
    """ConsumerProtocolSubscription as a member sends it."""
    parts = [struct.pack(">hi", _SUBSCRIPTION_VERSION, len(member.topics)), *map(_string, member.topics)]
    parts += [struct.pack(">i", len(member.user_data)), member.user_data]
    topics = dict.fromkeys(partition.topic for partition in member.owned)
    parts.append(struct.pack(">i", len(topics)))
    for topic in topics:
        numbers = [partition.partition for partition in member.owned if partition.topic == topic]
        parts += [_string(topic), struct.pack(f">{len(numbers) + 1}i", len(numbers), *numbers)]
    parts.append(struct.pack(">i", member.generation))
    parts.append(struct.pack(">h", -1) if member.rack is None else _string(member.rack))
    return b"".join(parts)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of a ConsumerProtocolAssignment, by topic."""
    found = []
    (topics,), at = struct.unpack_from(">i", data, 2), 6
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", data, at)
        topic = data[at + 2 : at + 2 + size].decode()
        (count,) = struct.unpack_from(">i", data, at + 2 + size)
        at += 6 + size
        found += [TopicPartition(topic, number) for number in struct.unpack_from(f">{count}i", data, at)]
        at += 4 * count
    return tuple(found)
