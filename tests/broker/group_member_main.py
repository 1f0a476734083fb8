"""A member of a group in a process of its own, to be killed or stopped by a test: reads orders, writes JSON lines.

`python group_member_main.py PROPERTIES TOPICS` (both JSON). It polls until told otherwise by a line on stdin: `hold`
stops polling, `go` goes on, `take` polls until something is handed out and then holds, `insist OFFSET` commits that
offset for whatever is assigned, over and over until something is lost, `close` ends.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading

from multilane import Consumer
from multilane.client.rebalance import RebalanceListener
from multilane.errors import MultilaneError

TURN = 0.02


def tell(event: str, **facts: object) -> None:
    """One write: a line is whole or not there, whenever the process is killed."""
    os.write(1, (json.dumps({"event": event, **facts}) + "\n").encode())


class Teller(RebalanceListener):
    has_lost = False

    def on_assigned(self, partitions):
        tell("assigned", partitions=sorted(partitions))

    def on_revoked(self, partitions):
        tell("revoked", partitions=sorted(partitions))

    def on_lost(self, partitions):
        self.has_lost = True
        tell("lost", partitions=sorted(partitions))


class LogLines(logging.Handler):
    def emit(self, record):
        tell("log", level=record.levelname, text=record.getMessage())


def answered(offsets, error):
    tell("committed" if error is None else "refused", count=len(offsets), why=type(error).__name__)


def read(consumer: Consumer) -> bool:
    blocks = consumer.poll(TURN)
    for block in blocks:
        offsets = block.offsets.tolist()
        tell("records", partition=[block.topic, block.partition], first=offsets[0], last=offsets[-1])
    return bool(blocks)


def work(consumer: Consumer, teller: Teller, orders: queue.SimpleQueue) -> None:
    holds, insists = False, None
    while True:
        try:
            order, *values = orders.get(timeout=TURN if holds else 0).split()
        except queue.Empty:
            order, values = "", []
        if order == "close":
            return
        if order in ("hold", "go"):
            holds = order == "hold"
            tell(order)
        if order == "take":
            holds = True
            while not read(consumer):
                continue
        if order == "insist":
            insists = int(values[0])
        if not holds:
            read(consumer)
        if insists is not None and consumer.assignment and not teller.has_lost:
            consumer.commit_async(dict.fromkeys(consumer.assignment, insists), answered)
            tell("insisted")


def listen(orders: queue.SimpleQueue) -> None:
    for line in sys.stdin:
        orders.put(line)
    orders.put("close")


def main() -> None:
    logging.getLogger("multilane").addHandler(LogLines(logging.WARNING))
    orders: queue.SimpleQueue = queue.SimpleQueue()
    threading.Thread(target=listen, args=(orders,), daemon=True).start()
    with Consumer(json.loads(sys.argv[1])) as consumer:
        teller = Teller()
        consumer.subscribe(json.loads(sys.argv[2]), teller)
        try:
            work(consumer, teller, orders)
        except MultilaneError as error:
            tell("failed", error=type(error).__name__, text=str(error))
            raise
    tell("closed")


if __name__ == "__main__":
    main()
