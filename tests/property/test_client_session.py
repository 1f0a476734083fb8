"""Fetch sessions against a broker that keeps them: after each request it fetches exactly what was wanted."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from multilane.client.fetch.fetch_session import FetchSession, SessionKey, SessionRequest, key_of
from multilane.wire.compose import FetchItem


class SessionBroker:
    """The broker's side of KIP-227: a table per session, an epoch that must be the next, and a memory that fails."""

    def __init__(self) -> None:
        self._sessions: dict[int, tuple[int, dict[SessionKey, FetchItem]]] = {}
        self._next_id = 100

    def take(self, request: SessionRequest, *, keep: bool) -> tuple[int, int, dict[SessionKey, FetchItem]]:
        """(error code, session id, what this request fetches)."""
        named = {key_of(i): i for i in request.named}
        if request.step.epoch == 0:
            assert request.step.id == 0
            assert not request.forgotten
            if not keep:
                return 0, 0, named
            self._next_id += 1
            self._sessions[self._next_id] = (1, named)
            return 0, self._next_id, named
        if request.step.id not in self._sessions:
            return 70, 0, {}
        epoch, items = self._sessions[request.step.id]
        if epoch != request.step.epoch:
            return 71, 0, {}
        items = {k: v for k, v in {**items, **named}.items() if k not in {key_of(i) for i in request.forgotten}}
        self._sessions[request.step.id] = (epoch + 1, items)
        return 0, request.step.id, items

    def forget(self) -> None:
        self._sessions.clear()


ITEMS = st.builds(
    FetchItem,
    topic=st.just("t"),
    topic_id=st.sampled_from([None, UUID(int=1), UUID(int=2)]),
    partition=st.integers(0, 4),
    offset=st.integers(0, 3),
    leader_epoch=st.integers(-1, 2),
    max_bytes=st.just(1_000),
)
WANTED = st.lists(ITEMS, max_size=6).map(lambda items: {key_of(i): i for i in items})


def _next(session: FetchSession, wanted: dict[SessionKey, FetchItem]) -> SessionRequest:
    """Tell the session piece by piece what is wanted from now on."""
    for key in tuple(session._wanted):
        if key not in wanted:
            session.drop(key)
    for item in wanted.values():
        if session._wanted.get(key_of(item)) != item:
            session.put(item)
    return session.next_request()


FATES = st.sampled_from(["kept", "kept", "kept", "kept", "not kept", "forgotten", "lost before", "lost after"])


@given(steps=st.lists(st.tuples(WANTED, FATES), max_size=15))
def test_the_broker_always_fetches_exactly_what_was_wanted(steps):
    session, broker = FetchSession(), SessionBroker()
    for wanted, fate in steps:
        if fate == "forgotten":
            broker.forget()
        request = _next(session, wanted)
        if fate == "lost before":  # the connection broke and nobody knows whether the request arrived
            session.reset()
            continue
        code, session_id, fetched = broker.take(request, keep=fate != "not kept")
        if fate == "lost after":
            session.reset()
            continue
        if code:
            assert fate == "forgotten"
            session.reset()
            code, session_id, fetched = broker.take(_next(session, wanted), keep=True)
            assert code == 0
        assert fetched == wanted
        session.on_answer(session_id)


@given(wanted=WANTED, later=WANTED)
def test_an_open_session_names_only_what_changed(wanted, later):
    session = FetchSession()
    _next(session, wanted)
    session.on_answer(9)
    assert session.is_open
    request = _next(session, later)
    assert (request.step.id, request.step.epoch) == (9, 1)
    assert set(request.named) == {i for k, i in later.items() if wanted.get(k) != i}
    assert {key_of(i) for i in request.forgotten} == wanted.keys() - later.keys()


def test_epochs_wrap_around_to_one():
    session = FetchSession()
    session.next_request()
    session.on_answer(9)
    session._epoch = (1 << 31) - 1
    session.on_answer(9)
    assert session.next_request().step.epoch == 1


def test_a_broker_that_keeps_no_session_gets_every_partition_each_time():
    session = FetchSession()
    item = FetchItem("t", None, 0, 5, 1, 10)
    for _ in range(3):
        request = _next(session, {key_of(item): item})
        assert (request.step.id, request.step.epoch, request.named) == (0, 0, (item,))
        session.on_answer(0)
        assert not session.is_open


def test_what_was_taken_back_before_it_was_asked_for_is_not_reported():
    session = FetchSession()
    kept, other = FetchItem("t", None, 0, 5, 1, 10), FetchItem("t", None, 1, 5, 1, 10)
    session.put(kept)
    session.next_request()
    session.on_answer(9)
    session.put(other)
    session.drop(key_of(other))
    session.drop(key_of(kept))
    session.put(kept)
    request = session.next_request()
    assert (request.named, request.forgotten) == ((), ())


def test_a_session_ends_with_the_last_epoch_once():
    session = FetchSession()
    assert session.close() is None, "there was none"
    session.next_request()
    session.on_answer(9)
    step = session.close()
    assert step is not None
    assert (step.id, step.epoch) == (9, -1)
    assert session.close() is None
    assert session.next_request().step.id == 0
