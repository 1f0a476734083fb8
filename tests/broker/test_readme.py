"""README's quick start, command by command, as it is printed: it is installed from a clone, its files are written and
its commands run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

import sbom
from multilane.clock import SystemClock
from multilane.dev.ports import ReservedPorts

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
INSTALLING = 360.0  # a first `pip install` of PySpark fetches and builds 490 MB
ORDER = re.compile(r"^(\d) (\d+) pear$", re.MULTILINE)
STAYS, ENDED = "leave it running", "Ctrl-C stops it"
ENVIRONMENT = "quickstart"  # the name that README gives the new environment
CLOCK = SystemClock()


@dataclass(frozen=True)
class Command:
    text: str
    comment: str


def section() -> str:
    return (ROOT / "README.md").read_text().partition("## Quick start\n")[2].partition("\n## ")[0]


def blocks(*languages: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", section(), re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


def commands(block: str) -> list[Command]:
    return [Command(*(part.strip() for part in line.partition("  # ")[::2])) for line in block.splitlines()]


def clone(target: Path) -> None:
    """The files that a clone has, with the changes that are not committed yet."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def locked_versions(target: Path) -> None:
    """Constraints for pip. No hashes: pip would demand them of the clone, too."""
    lines = []
    for package in sbom.packages((ROOT / "requirements.lock").read_text()):
        markers = [one["value"] for one in package.get("properties", ())]
        lines.append("; ".join([f"{package['name']}=={package['version']}", *markers]))
    target.write_text("\n".join(lines) + "\n")


class Reader:
    """Somebody at a terminal in a clone, with a Kafka on another port than the printed one."""

    def __init__(self, directory: Path, port: int, constraints: Path | None) -> None:
        self.directory, self._port = directory, port
        self._env = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "PYTHON", "SPARK_"))}
        self._env.pop("VIRTUAL_ENV", None)
        # The Python that our environment was made from, and nothing of ours.
        ours = Path(sys.executable).parent
        others = [path for path in os.environ["PATH"].split(":") if Path(path) != ours]
        self._env |= {"PATH": ":".join([str(Path(sys._base_executable).parent), *others]), "PYTHONUNBUFFERED": "1"}
        if constraints is not None:
            self._env["PIP_CONSTRAINT"] = str(constraints)
        self._stack = ExitStack()

    def write_files(self) -> None:
        for text in blocks("yaml", "python"):
            name = re.match(r"# (\S+)\n", text)[1]
            (self.directory / name).write_text(text.replace(":9092", f":{self._port}"))

    def close(self) -> None:
        self._stack.close()

    def which(self, program: str) -> str | None:
        return shutil.which(program, path=self._env["PATH"])

    def run(self, command: Command, orders: int) -> None:
        """`orders`: how many a run has to print before it is ended."""
        if STAYS in command.comment:
            output, program = self._stack.enter_context(self._started(f"{command.text} --port {self._port}"))
            self._until(lambda: "Ctrl-C stops it" in output.read_text(), output, program)
        elif ENDED in command.comment:
            with self._started(command.text) as (output, program):
                self._until(lambda: len(set(ORDER.findall(output.read_text()))) >= orders, output, program)
                program.send_signal(signal.SIGINT)
                assert program.wait(PATIENCE) == 0, output.read_text()
        else:
            self._run_to_its_end(command.text)

    def _run_to_its_end(self, text: str) -> None:
        """What the command changes in the terminal's environment holds for the next ones."""
        environment = self.directory / "environment"
        script = f"{text}\nstatus=$?; env -0 > '{environment}'; exit $status"
        output = self._new_output()
        with output.open("wb") as out, self._shell(script, out, start_new_session=True) as shell:
            try:
                status = shell.wait(INSTALLING)
            finally:
                with suppress(ProcessLookupError):  # nothing of it is left
                    os.killpg(shell.pid, signal.SIGKILL)
        assert status == 0, f"{text}\n{output.read_text()[-8_000:]}"
        self._env = dict(entry.split("=", 1) for entry in environment.read_text().split("\0") if entry)

    @contextmanager
    def _started(self, text: str) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
        output = self._new_output()
        with output.open("wb") as out:
            program = self._shell(f"exec {text}", out)
        try:
            yield output, program
        finally:
            if program.poll() is None:
                program.terminate()
                program.wait(PATIENCE)

    def _new_output(self) -> Path:
        return self.directory / f"output-{len(list(self.directory.iterdir()))}"

    def _shell(self, script: str, out: IO[bytes], **options: bool) -> subprocess.Popen[bytes]:
        command = ["sh", "-c", script]
        return subprocess.Popen(command, cwd=self.directory, env=self._env, stdout=out, stderr=out, **options)

    @staticmethod
    def _until(condition: Callable[[], bool], output: Path, program: subprocess.Popen[bytes]) -> None:
        deadline = CLOCK.monotonic() + PATIENCE
        while not condition():
            assert program.poll() is None, f"it has ended: {output.read_text()[-4_000:]}"
            assert CLOCK.monotonic() < deadline, output.read_text()[-4_000:]
            threading.Event().wait(0.1)


@pytest.fixture
def directory(tmp_path):
    """For a clone with its environment of 1.2 GB, which pytest would keep."""
    path = tmp_path / "clone"
    path.mkdir()
    yield path
    shutil.rmtree(path)


# With the versions of the lock, which pip has in its cache, the test says what our change does. With the newest ones it
# says what a reader gets today.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("versions", ["locked", pytest.param("newest", marks=pytest.mark.long)])
def test_the_quick_start_runs_as_it_is_printed(directory, tmp_path, versions):
    constraints = tmp_path / "constraints.txt" if versions == "locked" else None
    if constraints is not None:
        locked_versions(constraints)
    clone(directory)
    with ReservedPorts(1) as reserved:
        reader = Reader(directory, reserved.ports[0], constraints)
        try:
            reader.write_files()
            for block in blocks("sh"):
                for command in commands(block):
                    reader.run(command, 100)
        finally:
            reader.close()
        assert Path(reader.which("multilane")).is_relative_to(directory / ENVIRONMENT)


def test_a_command_that_fails_is_no_success(tmp_path):
    reader = Reader(tmp_path, 9092, None)
    with pytest.raises(AssertionError, match=r"(?s)pip install.*no-such-directory"):
        reader.run(Command("python3 -m pip install ./no-such-directory", ""), 0)


def test_the_programs_that_are_started_end_as_readme_says():
    [install, fill, spark] = map(commands, blocks("sh"))
    assert STAYS in install[-1].comment
    assert ENDED in fill[-1].comment
    assert ENDED in spark[-1].comment


def test_the_two_commands_come_first():
    first = re.search(r"^```\w*\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]
