"""The resources of a process, from /proc: threads, sockets to the brokers, resident memory.

Thread: any.

Reads only; the parsing is separate from the files, so that it can be tested. Linux only.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

_ESTABLISHED: Final = "01"
_INODE: Final = re.compile(r"socket:\[(\d+)\]")
_TABLES: Final = ("net/tcp", "net/tcp6")


def resident_bytes(pid: int | str = "self") -> int:
    return resident_of(Path("/proc", str(pid), "status").read_text())


def resident_of(status: str) -> int:
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ValueError("a process status without VmRSS")


def thread_count(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def connections(ports: Collection[int], pid: int | str = "self") -> dict[int, int]:
    """Established connections of the process to each of these ports, zero included."""
    own = _sockets(pid)
    counts = dict.fromkeys(ports, 0)
    for table in _TABLES:
        path = Path("/proc", str(pid), table)
        if path.exists():
            for port, number in established(path.read_text().splitlines()[1:], own).items():
                if port in counts:
                    counts[port] += number
    return counts


def established(lines: Iterable[str], own: Collection[str]) -> Counter[int]:
    """Remote port -> connections, of a table's lines. It shows every process of the machine; `own` are our inodes."""
    found: Counter[int] = Counter()
    for line in lines:
        cells = line.split()
        if cells[3] == _ESTABLISHED and cells[9] in own:
            found[int(cells[2].rpartition(":")[2], 16)] += 1
    return found


def _sockets(pid: int | str) -> frozenset[str]:
    inodes = set()
    for entry in Path("/proc", str(pid), "fd").iterdir():
        try:
            match = _INODE.fullmatch(str(entry.readlink()))
        except FileNotFoundError:  # closed in the meantime
            continue
        if match:
            inodes.add(match[1])
    return frozenset(inodes)
