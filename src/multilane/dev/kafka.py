"""A Kafka cluster of one or three nodes on this machine.

Thread: any, one at a time.

Owns the brokers' processes, their directories and ports. Everything binds to 127.0.0.1. Nothing outlives the process
that created the cluster: a reaper process kills brokers whose owner is gone, and deletes temporary data.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from multilane.clock import Clock, SystemClock
from multilane.dev import formatting, jars, settings
from multilane.dev.node import BrokerNode
from multilane.dev.ports import HOST, ReservedPorts, require_free
from multilane.dev.readiness import add_scram_users, answers, scram_login
from multilane.dev.reaper import Reaper
from multilane.dev.settings import CONTROLLER, PLAINTEXT, BrokerSpec, KafkaListener, TlsFiles
from multilane.errors import BrokerStartError, DevKafkaError
from multilane.java import Java, find_java
from multilane.secret import Secret

if TYPE_CHECKING:
    from multilane.dev.certificates import Certificates

READY_SECONDS: Final = 60.0
# One compiler tier and the serial collector: a broker starts in 3 s instead of 4, and three fit on two cores.
QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_REQUEST_SECONDS: Final = 0.5
_LOG_LINES: Final = 30
_LOG4J: Final = """\
rootLogger.level={level}
rootLogger.appenderRefs=out
rootLogger.appenderRef.out.ref=OUT
appender.out.type=Console
appender.out.name=OUT
appender.out.target={target}
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c)%n
"""


@dataclass(kw_only=True, eq=False)
class KafkaCluster:
    """A cluster to be used in a `with`, or with `start_all()` and `close()`.

    `listeners` are protocol names, `MTLS`, or `KafkaListener` values; PLAINTEXT is always included. `users` (name ->
    password) may log in with PLAIN and SCRAM on every SASL listener. Without `data_dir` the data is temporary. `port`
    is the first of consecutive ports (default: free ones). `profile` is `test` (short timers) or `stock`.
    """

    nodes: int = 1
    listeners: Sequence[str | KafkaListener] = (PLAINTEXT,)
    users: Mapping[str, str | Secret] = field(default_factory=dict, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict)
    profile: str = "test"
    heap: str = "512m"
    java_options: Sequence[str] = QUICK_START
    data_dir: Path | None = None
    port: int | None = None
    progress: jars.DownloadProgress = field(default=jars.silent, repr=False)
    clock: Clock = field(default_factory=SystemClock, repr=False)

    def __post_init__(self) -> None:
        if self.nodes not in (1, 3):
            raise DevKafkaError(f"a cluster has 1 or 3 nodes, not {self.nodes}")
        self._listeners = settings.listeners_of(self.listeners)
        self._secrets = {name: _as_secret(password) for name, password in self.users.items()}
        self._owner = os.getpid()
        self._brokers: dict[int, BrokerNode] = {}
        self._ports: dict[int, dict[str, int]] = {}
        self._reserved: ReservedPorts | None = None
        self._reaper: Reaper | None = None
        self._certificates: Certificates | None = None
        self._java: Java | None = None
        self._installation: jars.Installation | None = None
        self._directory: Path | None = None

    # --- life --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self.start_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start_all(self, timeout: float = READY_SECONDS) -> Self:
        """Sets up and starts every node; returns when all answer."""
        self._java = find_java()
        self._installation = jars.installed(self._java, progress=self.progress)
        self._ports = self._choose_ports()
        atexit.register(self.close)
        try:
            self._set_up(self._installation)
            for broker in self._brokers.values():
                broker.start()
            self._wait_nodes(set(self._brokers), timeout)
            self._add_users(timeout)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Stops every node. Nodes with temporary data are killed: their data needs no clean shutdown."""
        if os.getpid() != self._owner or self._reaper is None:
            return
        atexit.unregister(self.close)
        running = [broker for broker in self._brokers.values() if broker.running]
        for broker in running:
            if self.data_dir is None:
                broker.kill()
            else:
                broker.terminate()
        for broker in running:
            broker.wait_ended()
        self._reaper.close()
        self._reaper = None
        if self._reserved is not None:
            self._reserved.close()
        if self.data_dir is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    # --- faults ------------------------------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """SIGKILL."""
        self._broker(node).kill()

    def stop(self, node: int) -> None:
        """SIGTERM; waits until the broker has ended."""
        broker = self._broker(node)
        broker.terminate()
        broker.wait_ended()

    def start(self, node: int, timeout: float = READY_SECONDS) -> None:
        """Restarts a node on the same data and ports, and waits until it answers."""
        self._broker(node).start()
        self._wait_node(node, {node}, self.clock.monotonic() + timeout)

    def pause(self, node: int) -> None:
        """SIGSTOP: the broker hangs, its connections stay open."""
        self._broker(node).pause()

    def resume(self, node: int) -> None:
        self._broker(node).resume()

    def wait_ready(self, timeout: float = READY_SECONDS) -> None:
        """Waits until every running node answers and knows every running node."""
        self._wait_nodes({node for node, broker in self._brokers.items() if broker.running}, timeout)

    # --- facts -------------------------------------------------------------------------------------------------------

    def bootstrap(self, listener: str = PLAINTEXT) -> str:
        """`host:port,...` of a listener, every node."""
        names = [item.name for item in self._listeners]
        if listener not in names:
            raise DevKafkaError(f"no listener {listener!r}: this cluster has {', '.join(names)}")
        return ",".join(f"{HOST}:{ports[listener]}" for ports in self._ports.values())

    def port_of(self, node: int, listener: str = PLAINTEXT) -> int:
        return self._ports[node][listener]

    def pid(self, node: int) -> int:
        return self._broker(node).pid

    def running(self, node: int) -> bool:
        return self._broker(node).running

    def logs(self, node: int, lines: int = _LOG_LINES) -> str:
        """The end of a broker's log."""
        return self._broker(node).tail(lines)

    def log_path(self, node: int) -> Path:
        return self._broker(node).log

    @property
    def directory(self) -> Path:
        if self._directory is None:
            raise DevKafkaError("the cluster was not started")
        return self._directory

    @property
    def certificates(self) -> Certificates:
        if self._certificates is None:
            raise DevKafkaError("the cluster has no TLS listener")
        return self._certificates

    def tool(
        self, main_class: str, *arguments: str, text_in: str = "", timeout: float = 120.0, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of Kafka's Java tools, such as `org.apache.kafka.tools.consumer.ConsoleConsumer`."""
        command = [*self._jvm("256m", QUICK_START, _logging_file(self.directory, "tool")), main_class, *arguments]
        done = subprocess.run(  # noqa: S603
            command, input=text_in, capture_output=True, text=True, timeout=timeout, check=False
        )
        if check and done.returncode != 0:
            raise DevKafkaError(f"{main_class} failed (exit {done.returncode}):\n{done.stdout}\n{done.stderr}")
        return done

    # --- set-up ------------------------------------------------------------------------------------------------------

    def _choose_ports(self) -> dict[int, dict[str, int]]:
        names = [*(listener.name for listener in self._listeners), CONTROLLER]
        count = self.nodes * len(names)
        if self.port is None:
            self._reserved = ReservedPorts(count)
            ports = self._reserved.ports
        else:
            ports = list(range(self.port, self.port + count))
            require_free(ports)
        taken = iter(ports)
        # With a given port the first listener's ports come first: 9092, 9093, 9094 are the three nodes.
        columns = {name: [next(taken) for _ in range(self.nodes)] for name in names}
        return {node: {name: columns[name][node - 1] for name in names} for node in range(1, self.nodes + 1)}

    def _set_up(self, installation: jars.Installation) -> None:
        self._reaper = Reaper()
        if self.data_dir is None:
            self._directory = Path(tempfile.mkdtemp(prefix="multilane-kafka-"))
            self._reaper.remove_at_end(self._directory)
        else:
            self._directory = self.data_dir.absolute()
            self._directory.mkdir(parents=True, exist_ok=True)
        tls = self._make_tls(self._directory)
        self._format(self._directory, installation)
        logging = _logging_file(self._directory, "broker")
        for node in self._ports:
            home = self._directory / f"node-{node}"
            spec = BrokerSpec(node, home / "data", self._listeners, self._ports, self._secrets, tls)
            config = home / "server.properties"
            _write_private(config, settings.render(settings.broker_properties(spec, self.profile, self.properties)))
            command = [*self._jvm(self.heap, self.java_options, logging), "kafka.Kafka", str(config)]
            self._brokers[node] = BrokerNode(node, home, command, self._reaper)

    def _format(self, directory: Path, installation: jars.Installation) -> None:
        present = sorted(path.name for path in directory.glob("node-*"))
        wanted = [f"node-{node}" for node in self._ports]
        if present and present != wanted:
            raise DevKafkaError(f"{directory} has the data of a cluster of {len(present)} nodes, not {self.nodes}")
        cluster_id = formatting.cluster_id_of(directory / "node-1" / "data") or formatting.random_uuid()
        for node in self._ports:
            data = directory / f"node-{node}" / "data"
            if formatting.cluster_id_of(data) is None:
                formatting.format_directory(data, installation.checkpoint, cluster_id=cluster_id, node_id=node)

    def _make_tls(self, directory: Path) -> TlsFiles | None:
        if not any(listener.tls for listener in self._listeners):
            return None
        from multilane.dev.certificates import make_certificates  # an extra, needed only here

        self._certificates = make_certificates(directory / "tls")
        return TlsFiles(keystore=self._certificates.server.keystore, truststore=self._certificates.ca)

    def _jvm(self, heap: str, options: Sequence[str], logging: Path) -> list[str]:
        if self._java is None or self._installation is None:
            raise DevKafkaError("the cluster was not started")
        command = [str(self._java.program), f"-Xmx{heap}", *options, f"-Dlog4j2.configurationFile={logging}"]
        return [*command, "-cp", self._installation.classpath]

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _add_users(self, timeout: float) -> None:
        candidates = (item for item in self._listeners if item.sasl and not item.client_auth and item.keystore is None)
        secured = next(candidates, None)
        if not self._secrets:
            return
        add_scram_users(self.bootstrap(), self._secrets)
        if secured is None:
            return
        user, secret = list(self._secrets.items())[-1]
        login = scram_login(user, secret, self.certificates.ca if secured.tls else None)
        deadline = self.clock.monotonic() + timeout
        for node in self._ports:
            self._wait_node(node, {node}, deadline, (secured.name, login))

    def _wait_nodes(self, nodes: set[int], timeout: float) -> None:
        deadline = self.clock.monotonic() + timeout
        for node in nodes:
            self._wait_node(node, nodes, deadline)

    def _wait_node(
        self, node: int, expected: set[int], deadline: float, via: tuple[str, Mapping[str, str]] = (PLAINTEXT, {})
    ) -> None:
        broker = self._broker(node)
        name, security = via
        address = f"{HOST}:{self._ports[node][name]}"
        while True:
            if not broker.running:
                raise BrokerStartError(f"node {node} exited with {broker.exit_code}:\n{broker.tail(_LOG_LINES)}")
            if expected <= answers(address, _REQUEST_SECONDS, security):
                return
            if self.clock.monotonic() >= deadline:
                raise BrokerStartError(f"node {node} did not answer in time:\n{broker.tail(_LOG_LINES)}")

    def _broker(self, node: int) -> BrokerNode:
        if node not in self._brokers:
            raise DevKafkaError(f"no node {node}: the cluster has {', '.join(map(str, self._brokers)) or 'none yet'}")
        return self._brokers[node]


def _as_secret(password: str | Secret) -> Secret:
    return password if isinstance(password, Secret) else Secret(password)


def _write_private(path: Path, text: str) -> None:
    """Readable by the owner only: the file has PLAIN passwords."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _logging_file(directory: Path, kind: str) -> Path:
    """The Log4j configuration: brokers log INFO to their log file, tools only warnings, to stderr."""
    path = directory / f"log4j2-{kind}.properties"
    if not path.exists():
        level, target = ("INFO", "SYSTEM_OUT") if kind == "broker" else ("WARN", "SYSTEM_ERR")
        path.write_text(_LOG4J.format(level=level, target=target))
    return path
