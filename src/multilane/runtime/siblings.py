"""Several processes of one application on this machine, each a member of its groups: Python uses one core in each.

Thread: application (the main thread: signals).

Owns the processes. A signal ends them in order. When one ends by itself the others are ended in order too, and its
failure is raised: fewer members than were asked for, and nobody who knows, is worse than a run that is started again.
When this process is gone, whatever took it, they end in order by themselves.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from multilane.config.app.loading import MEMBER_VARIABLE
from multilane.errors import MemberFailed, MultilaneError
from multilane.logs import logger
from multilane.runtime.app import App
from multilane.runtime.members import check_members_differ
from multilane.runtime.signals import signals_stop
from multilane.runtime.targets import find_app

log = logger(__name__)


def run_siblings(target: str, members: int, log_level: str) -> None:
    """Until SIGTERM, SIGINT, or the end of one of them."""
    check_members_differ(find_app(target))  # what is wrong with it is said once, and nothing has begun
    context = multiprocessing.get_context("spawn")
    ear, mouth = context.Pipe(duplex=False)
    # Not named daemons: those may not have processes of their own, and `processes: n` needs some.
    siblings = [
        context.Process(target=_member, args=(target, number, log_level), name=f"member {number + 1} of {members}")
        for number in range(members)
    ]
    with signals_stop(lambda: mouth.send(None)):
        try:
            for sibling in siblings:
                sibling.start()
            early = _first_to_end(siblings, ear)
            _end(siblings)
        except BaseException:  # a second Ctrl-C
            for sibling in siblings:
                if sibling.pid is not None:
                    sibling.kill()
            raise
    failed = next((sibling for sibling in siblings if _has_failed(sibling, sibling is early)), None)
    if failed is not None:
        raise MemberFailed(f"{failed.name} {_told(failed.exitcode or 0)}; the others were ended in order")


def _first_to_end(siblings: list[SpawnProcess], ear: Connection) -> SpawnProcess | None:
    """None when we were told to end before one of them did."""
    ready = wait([ear, *(sibling.sentinel for sibling in siblings)])
    return next((sibling for sibling in siblings if sibling.sentinel in ready), None) if ear not in ready else None


def _end(siblings: list[SpawnProcess]) -> None:
    """In order: each settles what it has in work, commits and leaves. It has its own time limit for that."""
    for sibling in siblings:
        if sibling.is_alive():
            sibling.terminate()
    for sibling in siblings:
        sibling.join()


def _has_failed(sibling: SpawnProcess, ended_early: bool) -> bool:
    """One that we ended before it could listen to signals had not begun."""
    return bool(sibling.exitcode) and (ended_early or sibling.exitcode != -signal.SIGTERM)


def _told(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}, and said why"


# --- in a process of its own -----------------------------------------------------------------------------------------


def _member(target: str, number: int, log_level: str) -> None:
    os.environ[MEMBER_VARIABLE] = str(number)
    os.setsid()  # Ctrl-C is for the parent, who passes it on: two signals would end us at once
    form = f"%(asctime)s %(levelname)s %(name)s [{multiprocessing.current_process().name}]: %(message)s"
    logging.basicConfig(level=log_level, format=form)
    try:
        app = find_app(target)
        threading.Thread(target=_end_with_parent, args=(app,), name="multilane-parent", daemon=True).start()
        app.run()
    except MultilaneError as error:
        for line in str(error).splitlines():  # the sentences are enough; problems of a configuration have a line each
            log.error("%s", line)  # noqa: TRY400
        sys.exit(1)


def _end_with_parent(app: App) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        log.warning("the process that started this one is gone: ending")
        app.stop()
