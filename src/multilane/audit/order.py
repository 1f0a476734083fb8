"""By what the order of records is judged, for a consumer as it is configured.

Thread: none (pure).
"""

from __future__ import annotations

from dataclasses import dataclass

from multilane.config.app.consumer import ConsumerGroupConfig


@dataclass(frozen=True, slots=True)
class OrderRule:
    """`by`: records of one key, or of one partition; None: not at all, and `why` not. `across_retry`: a record that
    went to the retry topic keeps its place in the order."""

    by: str | None
    why: str = ""
    across_retry: bool = False


def order_rule(config: ConsumerGroupConfig) -> OrderRule:
    if config.order_by == "none":
        return OrderRule(None, "orderBy is none")
    if config.ack == "manual":
        return OrderRule(None, "records are settled when they are acknowledged, in whatever order that happens")
    if config.lane_classes:
        return OrderRule(None, "order holds within each class of lanes, and accounts do not name classes")
    across = config.retry_order == "key" and config.retry is not None and config.order_by == "key"
    return OrderRule(config.order_by, across_retry=across)
