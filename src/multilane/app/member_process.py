"""A member of an application in its own process, and its connection to the parent process.

Thread: the process's main thread runs the member; one thread receives from the parent, one sends reports, one waits for
the parent's end.

Both sides send the values of `engines/process/messages` over one `Connection`.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Final

from multilane.app.member import AppMember
from multilane.config.app.advising import advised_elsewhere
from multilane.config.app.loading import MEMBER_VARIABLE
from multilane.engines.process.messages import FromMemberProcess, MemberExit, MemberReport, ToMemberProcess
from multilane.errors import MultilaneError
from multilane.escaping import lines_of, text_of
from multilane.logs import indented, logger
from multilane.secret import without_credentials

log = logger(__name__)

_REPORT_SECONDS: Final = 1.0


def run_member(target: str, number: int, log_level: str, parent: Connection) -> None:
    """The main function of the process."""
    os.environ[MEMBER_VARIABLE] = str(number)
    os.setsid()  # the parent forwards Ctrl-C: a second signal would end this process at once
    log_format = f"%(asctime)s %(levelname)s %(name)s [{multiprocessing.current_process().name}]: %(message)s"
    logging.basicConfig(level=log_level, format=log_format)
    try:
        with advised_elsewhere():  # by the parent
            member = AppMember(target)
        for function in (_end_with_parent, _receive):
            threading.Thread(target=function, args=(member, parent), name="multilane-parent", daemon=True).start()
        _run_reporting(member, parent)
    except MultilaneError as error:
        _log_end(error)
        sys.exit(1)
    finally:
        with suppress(OSError):  # the parent is gone
            _send(parent, MemberExit())


def _log_end(error: MultilaneError) -> None:
    """Without a traceback. Each problem of a configuration has its own line, below the first."""
    first, *others = lines_of(without_credentials(text_of(error)))
    log.error("%s%s", first, indented("\n".join(others), "") if others else "")


def _run_reporting(member: AppMember, parent: Connection) -> None:
    over = threading.Event()
    reporting = threading.Thread(target=_report, args=(member, parent, over), name="multilane-report", daemon=True)
    reporting.start()
    try:
        member.run()
    finally:
        over.set()
        reporting.join()


def _report(member: AppMember, parent: Connection, over: threading.Event) -> None:
    """Until the member has ended, and once more then."""
    is_over = False
    while not is_over:
        is_over = over.wait(_REPORT_SECONDS)
        report = MemberReport(member.counts(), member.failures(), member.gauges())
        with suppress(OSError):  # the parent is gone
            _send(parent, report)


def _receive(member: AppMember, parent: Connection) -> None:
    with suppress(EOFError, OSError):
        while True:
            message: ToMemberProcess = parent.recv()
            member.apply_overrides(message.consumer, message.overrides)


def _send(parent: Connection, message: FromMemberProcess) -> None:
    parent.send(message)


def _end_with_parent(member: AppMember, _: Connection) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        log.warning("parent process is gone: shutting down")
        member.stop()
