"""Which plans leave rows where the source has put them."""

from __future__ import annotations

import pytest

from multilane.engines.dataframe.lineage import Step, keeps_order, moved_by, plan_of


def read(source: str = "multilane", *options: str) -> Step:
    return Step("StreamingRelationV2", (), source, frozenset(options))


@pytest.mark.parametrize(
    "plan",
    [
        read(),
        read("kafka", "subscribe"),
        Step("Project", (Step("Filter", (read(),)),)),
        Step("MapInArrow", (Step("SubqueryAlias", (read(),)),)),
    ],
)
def test_rows_stay(plan):
    assert keeps_order(plan)


@pytest.mark.parametrize(
    "plan",
    [
        read("parquet"),
        Step("LogicalRDD"),
        read("multilane", "minpartitions"),
        read("kafka", "maxrecordsperpartition"),
        Step("RepartitionByExpression", (read(),)),
        Step("Generate", (read(),)),
        Step("Union", (read(), read())),
        Step("Project", (Step("Join", (read(), read())),)),
        Step("Project", (read(), read())),
    ],
)
def test_rows_may_have_moved(plan):
    assert not keeps_order(plan)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (read("parquet"), "its rows do not come straight from a topic, but from parquet"),
        (Step("Project", (Step("LogicalRDD"),)), "its rows do not come straight from a topic, but from LogicalRDD"),
        (Step("Filter", (read("multilane", "minpartitions"),)), "the source splits Kafka's partitions (minpartitions)"),
        (Step("Project", (Step("Join", (read(), read())),)), "Join may have moved rows"),
    ],
)
def test_why_rows_may_have_moved(plan, why):
    assert moved_by(plan) == why


def test_where_there_is_no_plan():
    assert plan_of(object()) is None
