"""The journal: what is written comes back, from several threads and from a process that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from multilane.testing.events import (
    Committed,
    Copied,
    Ended,
    Killed,
    Left,
    Produced,
    Rebalanced,
    RecordPlace,
    Skipped,
    Started,
)
from multilane.testing.journal import Journal, JournalReader

PLACE = RecordPlace("t", 3, 7)
EVERY_KIND = [
    Produced(1.5, "1", "k\u00e9", PLACE),
    Copied(2.0, "1", None, PLACE, True),
    Started(3.0, "A", 4, "1", "k", PLACE, 2),
    Ended(4.0, "A", 4, "1", "k", PLACE, False),
    Skipped(5.0, "A", "1", "k", PLACE, "2"),
    Committed(6.0, "t", 3, 8, ((10, 11), (13, 13))),
    Rebalanced(7.0, "A", True),
    Left(8.0, "A"),
    Killed(9.0, "A"),
]


def test_every_kind_of_event_comes_back_as_it_was(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.write("s", *EVERY_KIND)
    journal.close()
    assert JournalReader(tmp_path / "j").news() == {"s": EVERY_KIND}


def test_a_reader_goes_on_where_it_was_and_leaves_what_is_not_whole(tmp_path):
    path = tmp_path / "j"
    reader = JournalReader(path)
    assert reader.news() == {}
    journal = Journal(path)
    journal.write("s", Left(1.0, "A"))
    assert reader.news() == {"s": [Left(1.0, "A")]}
    assert reader.news() == {}
    journal.write("r", Left(2.0, "B"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert reader.news() == {}
    path.write_bytes(whole)
    assert reader.news() == {"r": [Left(2.0, "B")]}
    journal.close()


def test_lines_of_several_threads_never_mix(tmp_path):
    journal = Journal(tmp_path / "j")

    def write(name):
        for at in range(300):
            journal.write(name, Left(at, name * 50))

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    told = JournalReader(tmp_path / "j").news()
    assert told == {name: [Left(at, name * 50) for at in range(300)] for name in "abcd"}


def test_what_a_killed_process_wrote_is_there(tmp_path):
    code = (
        "import os, signal, sys, pathlib\n"
        "from multilane.testing.events import Left\n"
        "from multilane.testing.journal import Journal\n"
        "journal = Journal(pathlib.Path(sys.argv[1]))\n"
        "for at in range(100): journal.write('s', Left(at, 'A'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, os.fspath(tmp_path / "j")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert JournalReader(tmp_path / "j").news() == {"s": [Left(at, "A") for at in range(100)]}
