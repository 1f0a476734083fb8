"""Worker processes and the process that they belong to."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from multilane.clock import SystemClock

OWNER = """
import asyncio, os
from multilane.lanes.processes import Processes

async def main():
    pool = Processes(2)
    await pool.start(os.getpid)
    print(*pool._pool._processes, flush=True)
    await asyncio.get_running_loop().create_future()

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.slow
def test_workers_end_with_the_process_that_was_killed(tmp_path):
    """They would wait for work for ever."""
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as owner:
        workers = owner.stdout.readline().split()
        owner.kill()
    assert len(workers) == 2
    clock = SystemClock()
    deadline = clock.monotonic() + 20.0
    while any(_is_alive(worker) for worker in workers):
        assert clock.monotonic() < deadline, "they live on"
        threading.Event().wait(0.05)


def _is_alive(pid):
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
