"""The order that a consumer's configuration promises, for an audit to check.

Thread: none (pure).
"""

from __future__ import annotations

from dataclasses import dataclass

from multilane.config.app.consumer import ConsumerGroupConfig


@dataclass(frozen=True, slots=True)
class OrderRule:
    """`by`: order within a "key" or a "partition"; None if there is none, and `why`. `across_retry`: a record that went
    to the retry topic keeps its position in the order."""

    by: str | None
    why: str = ""
    across_retry: bool = False


def order_rule(config: ConsumerGroupConfig) -> OrderRule:
    if config.order_by == "none":
        return OrderRule(None, "orderBy is none")
    if config.ack == "manual":
        return OrderRule(None, "with ack: manual records are settled in the order of their acknowledgements")
    if config.lane_classes:
        return OrderRule(None, "order holds within each lane class, and audit records do not contain the class")
    across = config.retry_order == "key" and config.retry is not None and config.order_by == "key"
    return OrderRule(config.order_by, across_retry=across)
