"""A member of an application in a process that another one started."""

from __future__ import annotations

import sys

import pytest

from multilane.app.member import AppMember
from multilane.metrics.observer import Counts, ReportBuffer

MODULE = """
from multilane import App
from multilane.metrics.observer import Counts
app = App("multilane.yaml", observer=Counts())
@app.listener("orders")
async def index(record: bytes) -> None: ...
"""
CONFIG = """
clusters: {main: {clientId: x, brokers: "127.0.0.1:1"}}
consumers: {orders: {groupId: g, name: orders, cluster: main}}
"""


@pytest.fixture
def member(tmp_path, monkeypatch):
    (tmp_path / "shop_of_a_member.py").write_text(MODULE)
    (tmp_path / "multilane.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    yield AppMember("shop_of_a_member:app")
    sys.modules.pop("shop_of_a_member", None)


def test_a_member_that_was_asked_to_stop_ends_at_once_and_may_run_again(member):
    for _ in range(2):
        member.stop()
        member.run()
    assert {name for name, _, _ in member.counts()} <= {"connection.failed"}, "it may have begun to connect"
    assert member.counts() == []


def test_the_applications_own_observer_goes_on_counting(member):
    app = member._app
    own = app.observer
    assert isinstance(own, Counts)
    with app.observed_by(ReportBuffer()):
        app.observer.count("seen", 2, topic="t")
    assert own.total("seen") == 2
    assert app.observer is own


def test_news_are_reported_once():
    news = ReportBuffer()
    news.count("a", 2, topic="x")
    news.count("a", 3, topic="x")
    news.count("a", topic="y")
    assert sorted(news.take(), key=str) == [("a", {"topic": "x"}, 5), ("a", {"topic": "y"}, 1)]
    assert news.take() == []
