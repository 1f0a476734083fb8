"""The fuzz run: mutated bytes fed to the readers in processes of their own.

    python tests/fuzz/run.py --batches 100000 --frames 20000

Each kind has a worker beside this file that takes `--count`, `--seed` and `--first`, caps its own memory, ends itself
when it hangs, and exits 0 only if every case ended as it must. The work is cut into shards; kinds that reach compiled
kernels run every case once as users run them and a share once more with numba's bounds checks on.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
SHARD: Final = 12_500


@dataclass(frozen=True)
class Kind:
    """What can be fuzzed: an option of this program and its worker."""

    name: str
    worker: str
    compiled: bool


KINDS: Final = (Kind("batches", "batches_worker.py", compiled=True), Kind("frames", "frames_worker.py", compiled=False))


@dataclass(frozen=True)
class Shard:
    kind: Kind
    seed: int
    first: int
    count: int
    checked: bool

    def __str__(self) -> str:
        bounds = ", bounds checked" if self.checked else ""
        return f"{self.kind.name} {self.first}..{self.first + self.count - 1} of seed {self.seed}{bounds}"


def shards(kind: Kind, count: int, seed: int, *, checked: bool) -> Iterator[Shard]:
    for first in range(0, count, SHARD):
        yield Shard(kind, seed, first, min(SHARD, count - first), checked)


def run_shard(shard: Shard, cache: str) -> tuple[Shard, subprocess.CompletedProcess[str]]:
    environment = dict(os.environ)
    if shard.checked:
        # numba's cache does not know of the switch: a cache of its own keeps unchecked code from being loaded.
        environment |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": cache}
    options = ["--count", str(shard.count), "--seed", str(shard.seed), "--first", str(shard.first)]
    command = [sys.executable, str(HERE / shard.kind.worker), *options]
    return shard, subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def run(work: Sequence[Shard], processes: int) -> int:
    """Run the shards; the number that failed."""
    failed = 0
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(processes) as pool:
        for shard, ended in pool.map(lambda one: run_shard(one, cache), work):
            told = "; ".join(" ".join(line.split()) for line in ended.stdout.splitlines())
            sys.stdout.write(f"{'ok' if ended.returncode == 0 else 'FAILED'}: {shard}: {told}\n")
            sys.stdout.flush()
            if ended.returncode != 0:
                failed += 1
                sys.stdout.write(f"exit code {ended.returncode}\n{ended.stderr[-8000:]}\n")
    return failed


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="feed mutated bytes to the readers")
    for kind in KINDS:
        parser.add_argument(f"--{kind.name}", type=int, default=0, help="how many cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--bounds-share", type=float, default=0.25, help="part to repeat with bounds checks")
    chosen = parser.parse_args(argv)
    work: list[Shard] = []
    for kind in KINDS:
        count = getattr(chosen, kind.name)
        work += shards(kind, count, chosen.seed, checked=False)
        if kind.compiled:
            work += shards(kind, int(count * chosen.bounds_share), chosen.seed + 1, checked=True)
    if not work:
        parser.error("nothing to do: say how many " + " or ".join(f"--{kind.name}" for kind in KINDS))
    failed = run(work, chosen.processes)
    sys.stdout.write(f"{len(work)} shards, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
