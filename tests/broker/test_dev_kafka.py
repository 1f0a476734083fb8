"""The embedded Kafka against the real thing: starts, faults, listeners, and what it leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from multilane.clock import SystemClock
from multilane.dev import ivy, jars
from multilane.dev.certificates import Authority
from multilane.dev.kafka import KafkaCluster
from multilane.dev.settings import KafkaListener
from multilane.errors import BrokerStartError, DamagedJars, DevKafkaError, PortInUse
from multilane.java import find_java

pytestmark = pytest.mark.broker

# Whoever goes through this proxy gets nowhere.
NOWHERE = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""}

OWNER = """
import json, signal, sys
from multilane.dev.kafka import KafkaCluster
cluster = KafkaCluster(heap="256m").start_all()
facts = {"pid": cluster.pid(1), "directory": str(cluster.directory), "bootstrap": cluster.bootstrap()}
print(json.dumps(facts), flush=True)
signal.pause()
"""


def environment(**changes):
    lower = {name.lower() for name in NOWHERE}
    return {key: value for key, value in os.environ.items() if key not in lower} | changes


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    failed = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(30) == 0
    assert not failed


def consume(properties: dict[str, str], topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"group.id": "none", "auto.offset.reset": "earliest", "log_level": 0, **properties})
    consumer.subscribe([topic])
    try:
        got = consumer.consume(count, timeout=30)
        return [message.value() for message in got if message.error() is None]
    finally:
        consumer.close()


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="module", autouse=True)
def kafka_is_fetched():
    jars.installed(find_java())


# --- starting --------------------------------------------------------------------------------------------------------


def test_a_second_start_needs_no_network(capsys):
    """Through a proxy that leads nowhere a fetch fails, a start does not. The time is told, not judged."""
    clock = SystemClock()
    begin = clock.monotonic()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env=environment(**NOWHERE)
    )
    try:
        facts = json.loads(owner.stdout.readline())
        with capsys.disabled():
            print(f"\n[second start of Kafka, offline: {clock.monotonic() - begin:.1f} s] ", end="")  # noqa: T201
        assert len(AdminClient({"bootstrap.servers": facts["bootstrap"]}).list_topics(timeout=20).brokers) == 1
    finally:
        owner.terminate()
        owner.wait()
        owner.stdout.close()


def test_a_first_start_without_network_says_so_and_leaves_nothing(tmp_path):
    told = subprocess.run(
        [sys.executable, "-c", "from multilane.cli.main import main; main()", "dev", "fetch-jars"],
        env=environment(**NOWHERE, MULTILANE_CACHE=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 1
    assert "error: Ivy cannot fetch Kafka" in told.stderr
    assert "Traceback" not in told.stderr
    assert [path.name for path in tmp_path.iterdir()] == [f"kafka-{ivy.KAFKA_VERSION}.lock"]


def test_tampered_jars_do_not_start(tmp_path, monkeypatch):
    copy = tmp_path / f"kafka-{ivy.KAFKA_VERSION}"
    shutil.copytree(jars.cache_directory(), copy, copy_function=os.link)
    monkeypatch.setenv("MULTILANE_CACHE", str(tmp_path))
    jar = copy / f"kafka-clients-{ivy.KAFKA_VERSION}.jar"
    content = bytearray(jar.read_bytes())
    content[len(content) // 2] ^= 1
    # A new file: the old one is shared with the real cache.
    jar.unlink()
    jar.write_bytes(content)
    with pytest.raises(DamagedJars, match=f"{jar.name} was changed"):
        KafkaCluster().start_all()


def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(PortInUse, match=f"port {taken}"):
            KafkaCluster(port=taken).start_all()


def test_a_broker_that_dies_while_starting_shows_its_log():
    with pytest.raises(BrokerStartError, match=r"node 1 exited with 1[^0-9](?s:.)*num\.io\.threads"):
        KafkaCluster(properties={"num.io.threads": "no number"}).start_all()


# --- ending ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_owner_is_gone(number, eventually):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        facts = json.loads(owner.stdout.readline())
        assert is_alive(facts["pid"])
        owner.send_signal(number)
        owner.wait(30)
        eventually(lambda: not is_alive(facts["pid"]))
        eventually(lambda: not Path(facts["directory"]).exists())
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()


def test_close_removes_temporary_data_and_may_be_repeated():
    cluster = KafkaCluster(heap="256m").start_all()
    pid, directory = cluster.pid(1), cluster.directory
    cluster.close()
    cluster.close()
    assert not is_alive(pid)
    assert not directory.exists()


def test_data_that_is_kept_is_there_again(tmp_path):
    with KafkaCluster(heap="256m", data_dir=tmp_path / "kept") as first:
        admin = AdminClient({"bootstrap.servers": first.bootstrap()})
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
        produce(first.bootstrap(), "kept", [b"1", b"2"])
    with KafkaCluster(heap="256m", data_dir=tmp_path / "kept") as second:
        assert consume({"bootstrap.servers": second.bootstrap()}, "kept", 2) == [b"1", b"2"]
    with pytest.raises(DevKafkaError, match="a cluster of 1 nodes, not 3"):
        KafkaCluster(nodes=3, data_dir=tmp_path / "kept").start_all()


# --- listeners -------------------------------------------------------------------------------------------------------


def _security(kafka: KafkaCluster, listener: str, credentials: tuple[str, str], mechanism: str) -> dict[str, str]:
    made = {"bootstrap.servers": kafka.bootstrap(listener), "security.protocol": listener.replace("MTLS", "SSL")}
    if listener in ("SSL", "MTLS", "SASL_SSL"):
        made["ssl.ca.location"] = str(kafka.certificates.ca)
    if listener == "MTLS":
        made["ssl.certificate.location"] = str(kafka.certificates.client.certificate)
        made["ssl.key.location"] = str(kafka.certificates.client.key)
    if listener.startswith("SASL"):
        made |= {"sasl.mechanism": mechanism}
        made |= {"sasl.username": credentials[0], "sasl.password": credentials[1]} if "OAUTH" not in mechanism else {}
    return made


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        ("PLAINTEXT", ""),
        ("SSL", ""),
        ("MTLS", ""),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_PLAINTEXT", "OAUTHBEARER"),
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-512"),
        ("SASL_SSL", "OAUTHBEARER"),
    ],
)
def test_every_listener_lets_its_clients_in(kafka, topic, credentials, listener, mechanism):
    name = topic()
    produce(kafka.bootstrap(), name, [b"through", listener.encode()])
    properties = _security(kafka, listener, credentials, mechanism)
    if mechanism == "OAUTHBEARER":
        properties["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
        properties["sasl.oauthbearer.config"] = "principal=alice"
    assert consume(properties, name, 2) == [b"through", listener.encode()]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_stays_outside(kafka, credentials, mechanism):
    properties = _security(kafka, "SASL_SSL", (credentials[0], "wrong"), mechanism)
    with pytest.raises(KafkaException):
        AdminClient({**properties, "log_level": 0}).list_topics(timeout=2)


@pytest.mark.parametrize("shown", ["none", "expired"])
def test_mtls_wants_a_good_certificate(kafka, credentials, shown):
    properties = _security(kafka, "MTLS", credentials, "")
    if shown == "none":
        del properties["ssl.certificate.location"], properties["ssl.key.location"]
    else:
        expired = kafka.certificates.authority.issue("expired-client", names=(), days=(-10, -1))
        properties["ssl.certificate.location"] = str(expired.certificate)
        properties["ssl.key.location"] = str(expired.key)
    with pytest.raises(KafkaException):
        AdminClient({**properties, "log_level": 0}).list_topics(timeout=2)


def test_java_tools_run_from_the_same_jars(kafka, topic):
    name = topic()
    produce(kafka.bootstrap(), name, [b"a", b"b", b"c"])
    where = ("--bootstrap-server", kafka.bootstrap(), "--topic", name)
    told = kafka.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, "--from-beginning", "--max-messages", "3"
    )
    assert told.stdout.split() == ["a", "b", "c"]
    with pytest.raises(DevKafkaError, match=r"GetOffsetShell failed \(exit 1\)"):
        kafka.tool("org.apache.kafka.tools.GetOffsetShell", "--nonsense")


def test_the_performance_tool_is_complete(kafka, topic):
    name = topic()
    produce(kafka.bootstrap(), name, [b"x" * 100] * 1000)
    told = kafka.tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", kafka.bootstrap(), "--topic", name, "--messages", "1000", "--show-detailed-stats"),
    )
    assert "rebalance.time.ms" in told.stdout


# --- three nodes -----------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_a_killed_leader_comes_back_on_the_same_ports(cluster, cluster_topic, eventually):
    name = cluster_topic()
    produce(cluster.bootstrap(), name, [b"before"])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap(), "log_level": 0})

    def leader() -> int:
        return int(admin.list_topics(name, timeout=10).topics[name].partitions[0].leader)

    first, before = leader(), cluster.bootstrap()
    cluster.kill(first)
    assert not cluster.running(first)
    cluster.wait_ready()
    eventually(lambda: leader() not in (first, -1), 30)
    produce(cluster.bootstrap(), name, [b"during"])
    cluster.start(first)
    assert cluster.bootstrap() == before
    eventually(lambda: first in admin.list_topics(name, timeout=10).topics[name].partitions[0].isrs, 30)
    assert consume({"bootstrap.servers": cluster.bootstrap()}, name, 2) == [b"before", b"during"]


@pytest.mark.cluster
def test_a_paused_node_keeps_its_connections_and_says_nothing(cluster):
    address = ("127.0.0.1", cluster.port_of(2))
    cluster.pause(2)
    # The kernel completes the connection; the broker behind it is silent.
    with socket.create_connection(address, timeout=10), pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": "{}:{}".format(*address), "log_level": 0}).list_topics(timeout=1)
    cluster.resume(2)
    cluster.wait_ready()


@pytest.mark.cluster
def test_a_stopped_node_hands_its_leaders_over(cluster, cluster_topic, eventually):
    name = cluster_topic(partitions=6)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap(), "log_level": 0})

    def leaders() -> set[int]:
        return {partition.leader for partition in admin.list_topics(name, timeout=10).topics[name].partitions.values()}

    assert leaders() == {1, 2, 3}
    cluster.stop(3)
    assert not cluster.running(3)
    assert "shut down completely" in cluster.logs(3)
    eventually(lambda: leaders() == {1, 2})
    with pytest.raises(DevKafkaError, match="node 3 is not running"):
        cluster.pause(3)


def test_a_listener_may_show_a_bad_certificate(tmp_path):
    """What tests of clients need: one broker with good and bad listeners side by side."""
    stranger = Authority(tmp_path).issue("stranger")
    listeners = ("SSL", KafkaListener("STRANGER", "SSL", keystore=stranger.keystore))
    with KafkaCluster(heap="256m", listeners=listeners) as cluster:
        common = {"security.protocol": "SSL", "ssl.ca.location": str(cluster.certificates.ca), "log_level": 0}
        good = AdminClient({**common, "bootstrap.servers": cluster.bootstrap("SSL")})
        assert len(good.list_topics(timeout=20).brokers) == 1
        bad = AdminClient({**common, "bootstrap.servers": cluster.bootstrap("STRANGER")})
        with pytest.raises(KafkaException):
            bad.list_topics(timeout=2)
