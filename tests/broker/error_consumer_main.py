"""An error consumer in a process of its own, for tests that kill it."""

from __future__ import annotations

import asyncio
import os
import sys

from multilane import Producer, Record
from multilane.error_consumer.consumer import ErrorConsumer
from multilane.error_consumer.error_partition import ErrorSteps
from multilane.outcome.error_policy import ErrorRules, error_topics
from multilane.outcome.next_step import RetryPolicy
from multilane.outcome.publishing import Publisher


async def run(bootstrap: str, group: str, error: str, retry: str, journal: str = "") -> None:
    """With a journal it handles the records itself, and writes there which ones it begins."""
    connection = {"bootstrap.servers": bootstrap}
    publisher = Publisher(lambda: Producer({**connection, "linger.ms": 5}))
    retry_policy = RetryPolicy("orders", retry, error, retry_count=1)
    begun = os.open(journal or os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def handle(record: Record) -> None:
        os.write(begun, b"%d\n" % record.offset)
        os.fsync(begun)

    handlers = {retry_policy: handle} if journal else {}
    rules = ErrorRules(error_topics([retry_policy], handlers), close_when_no_message=60.0)
    properties = {**connection, "group.id": group, "group.protocol": "consumer"}
    await ErrorConsumer(properties, rules, ErrorSteps(publisher, handlers)).run_now()


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
