"""An error consumer in a process of its own, for tests that kill it."""

from __future__ import annotations

import asyncio
import sys

from multilane import Producer
from multilane.error_consumer.consumer import ErrorConsumer
from multilane.error_consumer.share import ErrorSteps
from multilane.outcome.error_policy import ErrorRules, error_topics
from multilane.outcome.flow import RetryFlow
from multilane.outcome.publishing import Publisher


async def run(bootstrap: str, group: str, error: str, retry: str) -> None:
    connection = {"bootstrap.servers": bootstrap}
    publisher = Publisher(lambda: Producer({**connection, "linger.ms": 5}))
    rules = ErrorRules(error_topics([RetryFlow("orders", retry, error, retry_count=1)]), close_when_no_message=60.0)
    properties = {**connection, "group.id": group, "group.protocol": "consumer"}
    await ErrorConsumer(properties, rules, ErrorSteps(publisher)).run_now()


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
