"""Starts Spark for an application, and refuses settings that would fail later.

Thread: application.

With plain `local` one killed Python worker ends the run: local masters get retries. Spark would start workers with the
first `python3` on the PATH: they get the Python of this process. Servers of a local master listen on this machine only.
Speculation is refused: a second copy of a task would handle the same records.
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
from multilane.spark.executor_news import watch_executors, with_cause
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
_NO_UI: Final = {"spark.ui.enabled": "false"}
# For a JVM that plans and leaves the work to Python: startup and the first jobs take two thirds of the time.
QUICK_START: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
_ON_THIS_MACHINE: Final = {
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.python.daemon.module": "multilane.spark.python_daemon",
}


def start_session(master: str, name: str, settings: Mapping[str, str]) -> SparkSession:
    """A session for `master`; `settings` override the defaults chosen here."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkStartError('pyspark is not installed: pip install "multilane[spark]"') from None
    if _MASTER.fullmatch(master) is None:
        known = "use local[*], spark://HOST:PORT, k8s://..., yarn or sc://HOST:PORT"
        raise SparkStartError(f"{masked_master(master)!r} is not a Spark master: {known}")
    if SparkSession.getActiveSession() is not None:
        raise SparkStartError(
            "this process already has a Spark session, perhaps with another master: stop that session first"
        )
    check_reachable(master)
    options: dict[str, Any] = dict(settings)
    if is_connect(master):
        builder = SparkSession.builder.remote(master)
    else:
        java = prepare_environment(master, os.environ)
        builder = SparkSession.builder.master(with_retries(master))
        options = _QUIET | mapped(java, os.environ) | (_ON_THIS_MACHINE if is_local(master) else {}) | options
    with _interrupts_stay(), jvm_in_its_own_session():
        if not (is_local(master) or is_connect(master)):
            watch_executors({"spark.master": master, "spark.app.name": name, **options})
        try:
            session = builder.appName(name).config(map=options).getOrCreate()
        except Exception as error:
            first = _without_parameters(first_cause(error), master)
            raise SparkStartError(
                with_cause(f"Spark does not start with master {masked_master(master)}: {first}")
            ) from error
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
    """Spark runs its Python through a shell, without quotes, to discover data sources: with a space in the path,
    `format("multilane")` would be unknown."""
    python = environ.get("PYSPARK_DRIVER_PYTHON") or environ.get("PYSPARK_PYTHON") or "python3"
    return shlex.quote(python) != python


def is_speculating(spark: SparkSession) -> bool:
    """Whether Spark may start a second copy of a task. Spark accepts upper case too."""
    return (spark.conf.get("spark.speculation", "false") or "").strip().lower() == "true"


@contextmanager
def ended_with(spark: SparkSession) -> Iterator[None]:
    """Stops Spark at the end. After an error, a Spark that is gone and cannot be stopped does not hide the error."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            spark.stop()
        raise
    spark.stop()


def masked_master(master: str) -> str:
    """The master without the parameters of Spark Connect, which may contain tokens."""
    scheme, is_address, rest = master.partition("://")
    return f"{scheme}://{rest.split('/', 1)[0].split(';', 1)[0]}" if is_address and scheme == "sc" else master


def _without_parameters(text: str, master: str) -> str:
    """Masks the parameters: pyspark's errors about an address may repeat them one by one."""
    for parameter in master.split(";")[1:] if is_connect(master) else ():
        text = text.replace(parameter, f"{parameter.partition('=')[0]}=...") if parameter else text
    return text


def local_slots(master: str) -> int | None:
    """How many tasks run at once; None if the master is not local."""
    match = _THREADS.fullmatch(master)
    if match is None:
        return None
    threads = match["threads"] or "1"
    return len(os.sched_getaffinity(0)) if threads == "*" else int(threads)


@contextmanager
def one_job(master: str, name: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session for a command that counts something and waits for the result. The JVM's own output is shown only if the
    session does not start."""
    seconds = start_seconds(conf)
    with _jvm_output_on_failure():
        spark = start_session(master, name, of_one_job(master, conf))
    with ended_with(spark):
        if not is_local(master):
            await_slot(spark, seconds)
        yield spark


@contextmanager
def _jvm_output_on_failure() -> Iterator[None]:
    """Captures the JVM's output. A JVM keeps the error stream that it is started with for as long as it lives."""
    errors = sys.__stderr__
    if errors is None:
        yield
        return
    errors.flush()
    original = os.dup(errors.fileno())
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), errors.fileno())
        try:
            yield
        except BaseException:
            captured.seek(0)
            os.write(original, captured.read())
            raise
        finally:
            os.dup2(original, errors.fileno())
            os.close(original)


def of_one_job(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Settings for a session that counts something and ends. Spark's default of 200 shuffle partitions is for
    clusters."""
    if is_connect(master):
        return dict(conf)
    slots = local_slots(master)
    few = {} if slots is None else {"spark.sql.shuffle.partitions": str(_TASKS_FOR_A_SLOT * slots)}
    return {**_NO_UI, **few, **conf}


def is_local(master: str) -> bool:
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """Spark Connect: the server runs elsewhere, and this process has no JVM."""
    return master.startswith("sc://")


def with_retries(master: str) -> str:
    """`local[2]` becomes `local[2,4]`; a master with a retry count of its own, and other masters, stay."""
    match = _LOCAL.fullmatch(master)
    return master if match is None else f"local[{match['threads'] or 1},{_RETRIES}]"


def prepare_environment(master: str, environ: MutableMapping[str, str]) -> Java:
    """Sets the variables that Spark's launcher reads. Those already set stay, except for a Java that is too old.
    Returns the Java that Spark will start."""
    java = find_java(environ)
    _choose_java(java.program, environ)
    if is_local(master):
        environ.setdefault("PYSPARK_PYTHON", sys.executable)
        environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return java


def _choose_java(program: Path, environ: MutableMapping[str, str]) -> None:
    """Spark takes the Java of JAVA_HOME, else the one on the PATH; neither may be new enough."""
    home = environ.get("JAVA_HOME")
    taken = os.path.join(home, "bin", "java") if home else shutil.which("java", path=environ.get("PATH", ""))
    if taken is None or Path(taken) != program:
        environ["JAVA_HOME"] = os.fspath(program.resolve().parents[1])


def check_reachable(master: str) -> None:
    """Spark itself retries for a minute and then exits."""
    match = _SERVER.fullmatch(master)
    if match is None:
        return
    refusals = []
    for node in match["nodes"].split(","):
        host, _, port = node.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _REACHABLE_SECONDS):
                return
        except ValueError:
            raise SparkStartError(f"{masked_master(master)!r} is not a Spark master: HOST:PORT is missing") from None
        except OSError as error:
            refusals.append(f"{node}: {error.strerror or error}")
    raise SparkStartError(
        f"no Spark master answers at {masked_master(master)} ({'; '.join(refusals)}). Is Spark running there?"
    )


@contextmanager
def _interrupts_stay() -> Iterator[None]:
    """Keeps the application's Ctrl-C handler: Spark would install its own and cancel its jobs, and the application
    could not stop cleanly."""
    try:
        before = signal.getsignal(signal.SIGINT)
        yield
    finally:
        if before is not None:
            with suppress(ValueError):  # not the main thread: Spark has not taken it either
                signal.signal(signal.SIGINT, before)
