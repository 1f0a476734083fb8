"""Starts Spark for an application, so that what can go wrong later is refused now.

Thread: application.

With plain `local` one killed Python worker ends everything: local masters get retries. Spark would start workers with
whatever `python3` is on the PATH: they get the Python that runs here. Servers of a local master listen on this machine
only. Speculation is refused: a second copy of a task would handle the same records.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from multilane.errors import SparkStartError
from multilane.java import Java, find_java
from multilane.spark.class_archive import mapped
from multilane.spark.executor_news import hear_of_executors, with_cause
from multilane.spark.first_slot import await_slot, start_seconds
from multilane.spark.own_session import jvm_in_its_own_session
from multilane.spark.reasons import first_cause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RETRIES: Final = 4
_MASTER: Final = re.compile(r"local(\[.*\])?|local-cluster\[.*\]|(spark|k8s|sc)://.+|yarn")
_LOCAL: Final = re.compile(r"local(?:\[(?P<threads>\*|\d+)\])?")
_THREADS: Final = re.compile(r"local(?:\[(?P<threads>\*|\d+)(?:,\d+)?\])?")
_SERVER: Final = re.compile(r"(?:spark|sc)://(?P<nodes>[^/]+)(?:/.*)?")
_REACHABLE_SECONDS: Final = 5.0
_LOOPBACK: Final = "127.0.0.1"
_QUIET: Final = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
_TASKS_FOR_A_SLOT: Final = 4
_NO_SURFACE: Final = {"spark.ui.enabled": "false"}
# For a JVM that plans and leaves the work to Python: its start and its first jobs take two thirds of the time.
QUICK_START: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
_ON_THIS_MACHINE: Final = {
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.python.daemon.module": "multilane.spark.python_daemon",
}


def start_session(master: str, name: str, settings: Mapping[str, str]) -> SparkSession:
    """A session for `master`; `settings` count more than what is chosen here."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkStartError('pyspark is not installed: pip install "multilane[spark]"') from None
    if _MASTER.fullmatch(master) is None:
        known = "local[*], spark://HOST:PORT, k8s://..., yarn and sc://HOST:PORT are"
        raise SparkStartError(f"{shown(master)!r} is no master of Spark's: {known}")
    if SparkSession.getActiveSession() is not None:
        raise SparkStartError(
            "this process has a session of Spark already, perhaps with another master: stop that first"
        )
    check_reachable(master)
    told: dict[str, Any] = dict(settings)
    if is_connect(master):
        builder = SparkSession.builder.remote(master)
    else:
        java = prepare_environment(master, os.environ)
        builder = SparkSession.builder.master(with_retries(master))
        told = _QUIET | mapped(java, os.environ) | (_ON_THIS_MACHINE if is_local(master) else {}) | told
    with _interrupts_stay(), jvm_in_its_own_session():
        if not (is_local(master) or is_connect(master)):
            hear_of_executors({"spark.master": master, "spark.app.name": name, **told})
        try:
            session = builder.appName(name).config(map=told).getOrCreate()
        except Exception as error:
            first = _without_parameters(first_cause(error), master)
            raise SparkStartError(with_cause(f"Spark does not start with master {shown(master)}: {first}")) from error
    if is_speculating(session):
        session.stop()
        raise SparkStartError(
            "spark.speculation is on: a second copy of a task would handle the same records. Set it to false"
        )
    if not is_connect(master) and _is_hidden_from_discovery(os.environ):
        from multilane.spark.source import KafkaSource

        session.dataSource.register(KafkaSource)
    return session


def _is_hidden_from_discovery(environ: Mapping[str, str]) -> bool:
    """Spark looks for sources only if a shell finds its Python by that name, which it does not quote: with a space in
    the path, `format("multilane")` would be unknown."""
    python = environ.get("PYSPARK_DRIVER_PYTHON") or environ.get("PYSPARK_PYTHON") or "python3"
    return shlex.quote(python) != python


def is_speculating(spark: SparkSession) -> bool:
    """Whether Spark may start a second copy of a task. It reads its settings in upper case too."""
    return (spark.conf.get("spark.speculation", "false") or "").strip().lower() == "true"


@contextmanager
def ended_with(spark: SparkSession) -> Iterator[None]:
    """A Spark that is gone cannot be stopped: that is not what went wrong."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            spark.stop()
        raise
    spark.stop()


def shown(master: str) -> str:
    """Without what may stand behind the address: parameters of Spark Connect have tokens among them."""
    scheme, is_address, rest = master.partition("://")
    return f"{scheme}://{rest.split('/', 1)[0].split(';', 1)[0]}" if is_address and scheme == "sc" else master


def _without_parameters(text: str, master: str) -> str:
    """What pyspark says of an address may repeat its parameters, one by one."""
    for parameter in master.split(";")[1:] if is_connect(master) else ():
        text = text.replace(parameter, f"{parameter.partition('=')[0]}=...") if parameter else text
    return text


def local_slots(master: str) -> int | None:
    """How many tasks run at once; None where others decide it."""
    match = _THREADS.fullmatch(master)
    if match is None:
        return None
    threads = match["threads"] or "1"
    return len(os.sched_getaffinity(0)) if threads == "*" else int(threads)


@contextmanager
def one_job(master: str, name: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session for somebody who counts something and waits for it: what its JVM says by itself is not for them, unless
    it does not start."""
    seconds = start_seconds(conf)
    with _jvm_is_heard_of_failures():
        spark = start_session(master, name, of_one_job(master, conf))
    with ended_with(spark):
        if not is_local(master):
            await_slot(spark, seconds)
        yield spark


@contextmanager
def _jvm_is_heard_of_failures() -> Iterator[None]:
    """The JVM has whatever is the error stream when it is started, for as long as it lives."""
    errors = sys.__stderr__
    if errors is None:
        yield
        return
    errors.flush()
    kept = os.dup(errors.fileno())
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), errors.fileno())
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(kept, said.read())
            raise
        finally:
            os.dup2(kept, errors.fileno())
            os.close(kept)


def of_one_job(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Settings for a session that counts something and ends. Spark's own number of tasks for what is shuffled, 200, is
    for clusters."""
    if is_connect(master):
        return dict(conf)
    slots = local_slots(master)
    few = {} if slots is None else {"spark.sql.shuffle.partitions": str(_TASKS_FOR_A_SLOT * slots)}
    return {**_NO_SURFACE, **few, **conf}


def is_local(master: str) -> bool:
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """A server of Spark's elsewhere, by Spark Connect: this process has no JVM."""
    return master.startswith("sc://")


def with_retries(master: str) -> str:
    """`local[2]` as `local[2,4]`; one that says how often by itself, and other masters, stay."""
    match = _LOCAL.fullmatch(master)
    return master if match is None else f"local[{match['threads'] or 1},{_RETRIES}]"


def prepare_environment(master: str, environ: MutableMapping[str, str]) -> Java:
    """What Spark's launcher reads. What is set already stays, but for a Java that is too old. Gives the one that Spark
    will start."""
    java = find_java(environ)
    _choose_java(java.program, environ)
    if is_local(master):
        environ.setdefault("PYSPARK_PYTHON", sys.executable)
        environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return java


def _choose_java(program: Path, environ: MutableMapping[str, str]) -> None:
    """Spark takes JAVA_HOME's, or else the one on the PATH; neither need be the one that is new enough."""
    home = environ.get("JAVA_HOME")
    taken = os.path.join(home, "bin", "java") if home else shutil.which("java", path=environ.get("PATH", ""))
    if taken is None or Path(taken) != program:
        environ["JAVA_HOME"] = os.fspath(program.resolve().parents[1])


def check_reachable(master: str) -> None:
    """Spark itself tries for a minute, and then tells it by ending."""
    match = _SERVER.fullmatch(master)
    if match is None:
        return
    told = []
    for node in match["nodes"].split(","):
        host, _, port = node.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _REACHABLE_SECONDS):
                return
        except ValueError:
            raise SparkStartError(f"{shown(master)!r} is no master of Spark's: HOST:PORT is missing") from None
        except OSError as error:
            told.append(f"{node}: {error.strerror or error}")
    raise SparkStartError(f"nobody answers at {shown(master)} ({'; '.join(told)}). Is Spark running there?")


@contextmanager
def _interrupts_stay() -> Iterator[None]:
    """Spark takes Ctrl-C for itself and cancels its jobs; here it is the application's, which ends in order."""
    try:
        before = signal.getsignal(signal.SIGINT)
        yield
    finally:
        if before is not None:
            with suppress(ValueError):  # not the main thread: Spark has not taken it either
                signal.signal(signal.SIGINT, before)
