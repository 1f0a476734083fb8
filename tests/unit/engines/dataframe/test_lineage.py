"""Which plans leave rows where the source has put them."""

from __future__ import annotations

import pytest

from multilane.engines.dataframe.lineage import Step, keeps_order, plan_of


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


def test_where_there_is_no_plan():
    assert plan_of(object()) is None
