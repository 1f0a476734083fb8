"""The admin client against a real broker, and against what other clients say of the same cluster."""

from __future__ import annotations

import uuid
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import TopicPartition as Place

from multilane import Admin, Consumer, Producer, TopicPartition
from multilane.errors import BrokerError, ConfigError, ForkedClient, SaslError
from multilane.types import OffsetAndTimestamp

pytestmark = pytest.mark.broker


@pytest.fixture
def admin(kafka):
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as made:
        yield made


@contextmanager
def member(kafka, group, topic, partitions, protocol="classic", **more):
    """Another client that is a member of a group and has all its partitions."""
    settings = {
        "bootstrap.servers": kafka.bootstrap(),
        "group.id": group,
        "group.protocol": protocol,
        "client.id": "a-member",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **more,
    }
    consumer = Librdkafka(settings)
    consumer.subscribe([topic])
    try:
        for _ in range(300):
            if len(consumer.assignment()) == partitions:
                break
            consumer.poll(0.1)
        assert len(consumer.assignment()) == partitions
        yield consumer
    finally:
        consumer.close()


def fresh(prefix):
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


# --- cluster and topics ----------------------------------------------------------------------------------------------


def test_cluster(kafka, admin):
    told = admin.cluster()
    assert told.id
    assert [f"{b.host}:{b.port}" for b in told.brokers] == [kafka.bootstrap()]
    assert told.controller == told.brokers[0].id


def test_a_topic_is_described_and_listed(admin, topic):
    name = topic(3)
    told = admin.topics([name])[name]
    assert (told.name, told.internal, len(told.partitions)) == (name, False, 3)
    assert isinstance(told.id, uuid.UUID)
    for number, partition in enumerate(told.partitions):
        assert (partition.number, partition.leader, partition.leader_epoch) == (number, 1, 0)
        assert (partition.replicas, partition.isr, partition.offline) == ((1,), (1,), ())
    assert admin.topics()[name] == told
    assert admin.topics([]) == {}


def test_an_unknown_topic_is_an_error_at_once(admin):
    with pytest.raises(BrokerError, match="no-such-topic") as caught:
        admin.topics(["no-such-topic"])
    assert caught.value.code == 3


def test_create_alter_grow_delete(kafka, admin):
    name = fresh("made")
    admin.create_topics({name: 2}, configs={"retention.ms": "3600000"})
    assert len(admin.topics([name])[name].partitions) == 2
    admin.create_partitions({name: 5})
    assert len(admin.topics([name])[name].partitions) == 5
    admin.alter_topic_config(name, {"cleanup.policy": "compact", "retention.ms": None})
    assert config_of(kafka, name) == {"cleanup.policy": "compact"}
    admin.delete_topics([name])
    with pytest.raises(BrokerError):
        admin.delete_topics([name])


def config_of(kafka, topic):
    """What was set for a topic, as Kafka's own tool tells it."""
    told = kafka.tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", kafka.bootstrap(), "--describe", "--entity-type", "topics", "--entity-name", topic),
    )
    pairs = (line.split()[0].partition("=") for line in told.stdout.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


def test_writes_that_are_refused_say_why(admin, topic):
    name = topic(2)
    with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics({name: 2})
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
        admin.create_topics({fresh("big"): 1}, replication_factor=3)
    with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
        admin.create_partitions({name: 1})
    with pytest.raises(BrokerError, match="INVALID_CONFIG"):
        admin.alter_topic_config(name, {"retention.ms": "soon"})


def test_a_wrong_password_is_reported_at_once(kafka, credentials):
    properties = {
        "bootstrap.servers": kafka.bootstrap("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": credentials[0],
        "sasl.password": "not the password",
    }
    with Admin(properties) as admin, pytest.raises(SaslError, match=r"[Aa]uthentication failed") as caught:
        admin.create_topics({fresh("refused"): 1})
    assert "not the password" not in str(caught.value)


def test_nothing_to_write_is_nothing_done(admin):
    admin.create_topics({})
    admin.delete_topics([])
    admin.create_partitions({})
    assert admin.delete_records({}) == {}


# --- offsets ---------------------------------------------------------------------------------------------------------


def test_offsets(kafka, admin, topic):
    name = topic(2)
    with Producer({"bootstrap.servers": kafka.bootstrap()}) as producer:
        for n, time in enumerate((1_000, 3_000, 2_000)):
            producer.send(name, b"%d" % n, partition=0, timestamp=1_700_000_000_000 + time).result(20)
    full, empty = TopicPartition(name, 0), TopicPartition(name, 1)

    def place(at, partition=full):
        found = admin.offsets([full, empty], at)[partition]
        return None if found is None else (found.offset, found.timestamp)

    assert place("earliest") == (0, -1)
    assert place("latest") == (3, -1)
    assert place("max_timestamp") == (1, 1_700_000_003_000)
    assert place(1_700_000_001_500) == (1, 1_700_000_003_000)
    assert place(1_700_000_009_000) is None
    assert place("latest", empty) == (0, -1)
    assert place("max_timestamp", empty) is None
    assert admin.offsets([(name, 0)])[full] == OffsetAndTimestamp(3, -1, 0)


def test_offsets_of_what_is_not_there(admin, topic):
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        admin.offsets([(topic(1), 7)])
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        admin.offsets([("no-such-topic", 0)])
    assert admin.offsets([]) == {}


def test_records_are_deleted_up_to_an_offset(kafka, admin, topic):
    name = topic(1)
    with Producer({"bootstrap.servers": kafka.bootstrap()}) as producer:
        producer.send_many((name, b"%d" % n) for n in range(10)).result(20)
    only = TopicPartition(name, 0)
    assert admin.delete_records({only: 4}) == {only: 4}
    assert admin.offsets([only], "earliest")[only].offset == 4
    assert admin.delete_records({only: -1}) == {only: 10}
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        admin.delete_records({only: 99})


# --- groups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_listed_and_described(kafka, admin, topic, protocol):
    name, group = topic(3), fresh("group")
    more = {"group.instance.id": "one"} if protocol == "classic" else {}
    with member(kafka, group, name, 3, protocol, **more):
        (listed,) = [g for g in admin.groups() if g.id == group]
        assert (listed.type, listed.state, listed.protocol_type) == (protocol, "Stable", "consumer")
        told = admin.describe_groups([group])[group]
    assert (told.id, told.type, told.state, told.coordinator) == (group, protocol, "Stable", 1)
    assert told.assignor in ("range", "uniform")
    (one,) = told.members
    assert one.assignment == tuple(TopicPartition(name, p) for p in range(3))
    assert one.client_id == "a-member"
    assert one.host == "/127.0.0.1"
    if protocol == "classic":
        assert (one.instance_id, one.epoch, told.epoch) == ("one", -1, -1)
    else:
        assert one.subscription == (name,)
        assert one.target == one.assignment
        assert one.epoch == told.epoch == told.assignment_epoch > 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_committed_offsets(kafka, admin, topic, protocol):
    name, group = topic(2), fresh("group")
    with member(kafka, group, name, 2, protocol) as consumer:
        consumer.commit(offsets=[Place(name, 1, 5, metadata="note")], asynchronous=False)
    committed = admin.group_offsets(group)
    assert committed.keys() == {TopicPartition(name, 1)}
    told = committed[TopicPartition(name, 1)]
    assert (told.offset, told.metadata.rstrip("\0")) == (5, "note")  # confluent-kafka sends its terminator along


def test_offsets_of_a_topic_that_was_deleted(kafka, admin, topic):
    kept, gone, group = topic(1), topic(1), fresh("group")
    consumer = Librdkafka({"bootstrap.servers": kafka.bootstrap(), "group.id": group})
    consumer.commit(offsets=[Place(kept, 0, 1), Place(gone, 0, 2)], asynchronous=False)
    consumer.close()
    assert {p.topic for p in admin.group_offsets(group)} == {kept, gone}
    admin.delete_topics([gone])
    assert {p.topic for p in admin.group_offsets(group)} == {kept}


def test_groups_that_do_not_exist(admin):
    assert admin.group_offsets("no-such-group") == {}
    with pytest.raises(BrokerError, match="no-such-group") as caught:
        admin.describe_groups(["no-such-group"])
    assert caught.value.code == 69


# --- life ------------------------------------------------------------------------------------------------------------


def test_threads_share_an_admin_client(admin, topic):
    from concurrent.futures import ThreadPoolExecutor

    names = [topic(n) for n in (1, 2, 3, 4)]
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda name: len(admin.topics([name])[name].partitions), names * 5))
    assert told == [1, 2, 3, 4] * 5


def test_not_after_a_fork(admin, monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(ForkedClient):
        admin.cluster()
    with pytest.raises(ForkedClient):
        admin.create_topics({"t": 1})


def test_librdkafka_cannot_be_kept_to_one_tls_version(kafka):
    properties = {
        "bootstrap.servers": kafka.bootstrap("SSL"),
        "security.protocol": "SSL",
        "ssl.ca.location": str(kafka.certificates.ca),
        "ssl.enabled.protocols": "TLSv1.3",
    }
    with Admin(properties) as admin:
        assert admin.cluster().brokers
        with pytest.raises(ConfigError, match="librdkafka"):
            admin.create_topics({fresh("t"): 1})


@pytest.mark.cluster
def test_the_coordinator_and_a_leader_go_down(cluster, cluster_topic):
    """While a broker is down the others take over: answers are about the group and the log, never `nothing there`."""
    name, group = cluster_topic(3), fresh("group")
    with Producer({"bootstrap.servers": cluster.bootstrap()}) as producer:
        for partition in range(3):
            producer.send(name, b"x", partition=partition).result(30)
    # A second commit after the first: then the followers know that the first is committed. A new coordinator that does
    # not would say for a moment that nothing is.
    for one in (group, fresh("group")):
        consumer = Librdkafka({"bootstrap.servers": cluster.bootstrap(), "group.id": one})
        consumer.commit(offsets=[Place(name, 0, 1)], asynchronous=False)
        consumer.close()
    everything = [TopicPartition(name, p) for p in range(3)]
    with Admin({"bootstrap.servers": cluster.bootstrap()}) as admin:
        assert admin.group_offsets(group)[everything[0]].offset == 1
        (listed,) = [g for g in admin.groups() if g.id == group]
        cluster.kill(int(listed.coordinator))
        assert admin.group_offsets(group)[everything[0]].offset == 1
        assert {p.offset for p in admin.offsets(everything).values() if p is not None} == {1}
        assert admin.describe_groups([group])[group].coordinator != listed.coordinator
        assert group in {g.id for g in admin.groups()}


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("instance", [None, "one"])
def test_a_member_that_died_is_removed(kafka, topic, protocol, instance):
    name, properties = topic(1), {"bootstrap.servers": kafka.bootstrap(), "auto.offset.reset": "latest"}
    properties |= {"group.id": f"removed-{uuid.uuid4().hex[:8]}", "group.protocol": protocol}
    properties |= {"group.instance.id": instance} if instance else {}
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin, Consumer(properties) as consumer:
        consumer.subscribe([name])
        while not consumer.assignment:
            consumer.poll(0.1)
        member = consumer.group_metadata()
        admin.remove_member(member)
        with Consumer(properties) as successor:
            successor.subscribe([name])
            while not successor.assignment:  # long before the session of the other is over
                successor.poll(0.1)
