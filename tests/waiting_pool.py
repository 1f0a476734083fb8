"""A pool of threads that has none: it works when the test says so."""

from __future__ import annotations

from concurrent.futures import Executor, Future


class WaitingPool(Executor):
    def __init__(self):
        self.waiting = []

    def submit(self, function, /, *arguments):
        future = Future()
        self.waiting.append((future, function, arguments))
        return future

    def work(self):
        for future, function, arguments in self.waiting:
            try:
                future.set_result(function(*arguments))
            except Exception as error:  # noqa: BLE001 - as a real pool does
                future.set_exception(error)
        self.waiting.clear()
