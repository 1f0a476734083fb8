"""Completes a future that its caller may have cancelled.

Thread: network (the component that has the result).
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def fulfil(future: Future[T], result: T) -> None:
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_result(result)


def refuse(future: Future[T], error: BaseException) -> None:
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)
