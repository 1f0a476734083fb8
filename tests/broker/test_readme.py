"""README's quick start, command by command, as it is printed: its files are written and its commands run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from multilane.clock import SystemClock
from multilane.dev.ports import ReservedPorts

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
ORDER = re.compile(r"^(\d) (\d+) pear$", re.MULTILINE)
STAYS, ENDED = "leave it running", "Ctrl-C stops it"
INSTALLS = ("python3 -m venv quickstart && . quickstart/bin/activate", "pip install '.[dev,spark]'")
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


class Reader:
    """Somebody at a terminal, with the environment and a Kafka on another port than the printed one."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory, self._port = directory, port
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        others = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_"))}
        self._environ = others | {"PATH": path, "PYTHONUNBUFFERED": "1"}
        self._stack = ExitStack()

    def write_files(self) -> None:
        for text in blocks("yaml", "python"):
            name = re.match(r"# (\S+)\n", text)[1]
            (self.directory / name).write_text(text.replace(":9092", f":{self._port}"))

    def close(self) -> None:
        self._stack.close()

    def run(self, command: Command, orders: int) -> None:
        """`orders`: how many a run has to print before it is ended."""
        if command.text in INSTALLS:
            return  # the tests' own environment has it
        if STAYS in command.comment:
            output, _ = self._stack.enter_context(self._started(f"{command.text} --port {self._port}"))
            self._until(lambda: "Ctrl-C stops it" in output.read_text(), output)
        elif ENDED in command.comment:
            with self._started(command.text) as (output, program):
                self._until(lambda: len(set(ORDER.findall(output.read_text()))) >= orders, output)
                program.send_signal(signal.SIGINT)
                assert program.wait(PATIENCE) == 0, output.read_text()
        else:
            done = subprocess.run(
                ["sh", "-c", command.text], cwd=self.directory, env=self._environ, timeout=PATIENCE, check=False
            )
            assert done.returncode == 0, command

    @contextmanager
    def _started(self, text: str):
        output = self.directory / f"output-{len(list(self.directory.iterdir()))}"
        with output.open("wb") as out:
            program = subprocess.Popen(
                ["sh", "-c", f"exec {text}"], cwd=self.directory, env=self._environ, stdout=out, stderr=out
            )
        try:
            yield output, program
        finally:
            if program.poll() is None:
                program.terminate()
                program.wait(PATIENCE)

    @staticmethod
    def _until(condition, output: Path) -> None:
        deadline = CLOCK.monotonic() + PATIENCE
        while not condition():
            assert CLOCK.monotonic() < deadline, output.read_text()[-4_000:]
            threading.Event().wait(0.1)


@pytest.mark.parametrize("parts", [2, pytest.param(3, marks=pytest.mark.long)], ids=["process", "and Spark"])
def test_the_quick_start_runs_as_it_is_printed(tmp_path, parts):
    with ReservedPorts(1) as reserved:
        reader = Reader(tmp_path, reserved.ports[0])
        try:
            reader.write_files()
            for block in blocks("sh")[:parts]:
                for command in commands(block):
                    reader.run(command, 100)
        finally:
            reader.close()


def test_it_says_how_to_install_what_it_uses():
    [install, fill, spark] = map(commands, blocks("sh"))
    assert [command.text for command in install[:2]] == list(INSTALLS)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"dev", "spark"} <= extras.keys()
    assert STAYS in install[2].comment
    assert ENDED in fill[-1].comment
    assert ENDED in spark[-1].comment


def test_the_two_commands_come_first():
    first = re.search(r"^```\w*\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]
