"""The application side of a group, driven step by step: the network thread never runs and keeps the events."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from multilane.client.blocking_calls import Wait
from multilane.client.consumer_state import ConsumerState
from multilane.client.events import CommitOffsets, GroupLeft, Leave, PollResumed, StepDone, Subscribe, announce
from multilane.client.fetch.buffer import Failed
from multilane.client.fetch.cursor import Cursor
from multilane.client.group.membership import Change, Identity, RebalanceStep
from multilane.client.network import NetworkThread
from multilane.client.network_events import ForGroupClient
from multilane.client.rebalance import RebalanceListener
from multilane.client.sharing import NetworkThreadLease, ThreadTable
from multilane.client.subscriber import Subscriber
from multilane.clock import SystemClock
from multilane.config.consumer import parse_consumer
from multilane.errors import CommitRefused, GroupRefused, InstanceFenced, MultilaneError, SaslError
from multilane.metrics.observer import NO_OBSERVER
from multilane.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
OWNED = frozenset({ORDERS})


class Ring:
    def set(self) -> None:
        return None


class Harness:
    """One consumer without a broker. `now` is the time."""

    def __init__(self, *, auto_commits: bool = False) -> None:
        given = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "enable.auto.commit": auto_commits}
        config = parse_consumer(given)
        self.now = 0.0
        self.thread = NetworkThread(config.connection, SystemClock(), NO_OBSERVER)
        lease = NetworkThreadLease(ThreadTable(), "key", self.thread)
        self.state = ConsumerState(config, lease, Ring(), SystemClock(), lambda: None)
        self.subscriber = Subscriber(self.state, lambda: self.now)
        self.sent: list[Any] = []

    def events(self) -> list[Any]:
        """The events sent to the group since the last call."""
        events = [e.event for e in self.thread._events.drain() if isinstance(e, ForGroupClient)]
        self.sent += events
        return events


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.thread._delegate.close()
    harness.thread._wakeup.close()


def step(change: Change, ticket: int = 1, deadline: float = 300.0) -> RebalanceStep:
    return RebalanceStep(ticket, change, OWNED, deadline)


def run(plan: Any) -> None:
    """To its end; it must not wait for anything."""
    assert list(plan) == []


def own(harness: Harness, listener: RebalanceListener | None = None) -> None:
    harness.subscriber.subscribe(["orders"], listener)
    run(harness.subscriber.handle(step(Change.ASSIGNED)))
    harness.state.member_status.identity = Identity("g", "member", 1, None, "classic")
    harness.state.seek(ORDERS, _at(7))
    harness.events()


def _at(offset: int) -> Any:
    from multilane.client.arguments import at_offset

    return at_offset(offset, None)


class CommitsInPassing(RebalanceListener):
    """Does not wait for its commit either."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.harness.subscriber.commits.commit_async({ORDERS: 8}, None)


class CommitsAndWaits(RebalanceListener):
    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.waits = next(self.harness.subscriber.commits.commit({ORDERS: 8}, None))


@pytest.mark.parametrize("answer", [None, MultilaneError("refused")])
def test_a_partition_is_given_up_after_the_commits_of_it_are_answered(harness, answer):
    own(harness)
    harness.subscriber.commits.commit_async({ORDERS: 7}, None)
    plan = harness.subscriber.handle(step(Change.REVOKED, ticket=2))
    waits = next(plan)
    [commit] = harness.events()
    assert isinstance(commit, CommitOffsets)
    assert waits == Wait(commit.future, 60.0, with_grace=False)  # default.api.timeout.ms; the group would wait longer
    assert harness.state.assignment == OWNED
    if answer is None:
        commit.future.set_result(None)
        with pytest.raises(StopIteration):
            plan.send(None)
    else:
        commit.future.set_exception(answer)
        with pytest.raises(StopIteration):
            plan.throw(answer)
    assert harness.events() == [StepDone(2)]
    assert not harness.state.assignment


def test_a_group_does_not_wait_longer_for_commits_than_it_has_time(harness):
    own(harness)
    harness.subscriber.commits.commit_async({ORDERS: 7}, None)
    harness.now = 100.0
    plan = harness.subscriber.handle(step(Change.REVOKED, deadline=110.0))
    assert next(plan).deadline == 105.0
    with pytest.raises(StopIteration):
        plan.throw(TimeoutError())


def test_a_commit_made_in_the_listener_is_waited_for(harness):
    own(harness, CommitsInPassing(harness))
    plan = harness.subscriber.handle(step(Change.REVOKED))
    waits = next(plan)
    [commit] = harness.events()
    assert waits.future is commit.future
    assert commit.offsets[ORDERS].offset == 8
    plan.close()


def test_so_is_one_that_is_made_while_closing(harness):
    own(harness, CommitsInPassing(harness))
    plan = harness.subscriber.close(30.0, keep_last=False)
    waits = next(plan)
    [commit] = harness.events()
    assert waits == Wait(commit.future, 30.0, with_grace=False)
    commit.future.set_result(None)
    last = plan.send(None)
    [leave] = harness.events()
    assert isinstance(leave, Leave)
    assert last == Wait(leave.future, 30.0, with_grace=False)


def test_a_commit_in_the_last_call_of_a_listener_waits_no_longer_than_close(harness):
    listener = CommitsAndWaits(harness)
    own(harness, listener)
    next(harness.subscriber.close(3.0, keep_last=False))
    assert listener.waits.deadline == 3.0


def test_what_is_lost_is_given_up_at_once(harness):
    own(harness)
    harness.subscriber.commits.commit_async({ORDERS: 7}, None)
    run(harness.subscriber.handle(step(Change.LOST, ticket=3)))
    assert harness.events()[-1] == StepDone(3)
    assert not harness.state.assignment


def test_a_member_that_the_group_will_not_have_says_so_until_it_leaves(harness):
    own(harness)
    harness.state.member_status.refusal = InstanceFenced("another took our place")
    for _ in range(2):
        with pytest.raises(InstanceFenced):
            harness.subscriber.raise_refusal()
    run(harness.subscriber.unsubscribe())
    harness.subscriber.raise_refusal()
    harness.subscriber.subscribe(["orders"], None)
    harness.subscriber.raise_refusal()  # of the membership that was left, as long as the network thread has not events
    run(harness.subscriber.handle(GroupLeft()))
    with pytest.raises(InstanceFenced):
        harness.subscriber.raise_refusal()


def test_what_may_pass_is_reported_once(harness):
    own(harness)
    announce(GroupRefused("grant READ"), harness.state.background)
    with pytest.raises(GroupRefused):
        harness.state.next_event()
    assert harness.state.next_event() is None
    harness.subscriber.raise_refusal()
    harness.state.raise_current_failure()


def test_what_a_group_said_that_was_left_is_not_raised_any_more(harness):
    own(harness)
    announce(GroupRefused("grant READ"), harness.state.background)
    announce(SaslError("no such user"), harness.state.background)
    run(harness.subscriber.unsubscribe())
    with pytest.raises(SaslError):  # this is not the group's
        harness.state.next_event()
    assert harness.state.next_event() is None


def test_a_step_that_crosses_the_word_of_leaving_is_not_performed(harness):
    """Nor when we have come back in the meantime: it is of the membership that is over."""
    own(harness)
    run(harness.subscriber.unsubscribe())
    harness.subscriber.subscribe(["orders"], None)
    assert [type(event) for event in harness.events()] == [Leave, Subscribe]
    run(harness.subscriber.handle(step(Change.ASSIGNED, ticket=7)))
    assert not harness.state.assignment
    run(harness.subscriber.handle(GroupLeft()))
    run(harness.subscriber.handle(step(Change.ASSIGNED, ticket=1)))
    assert harness.state.assignment == OWNED
    assert harness.events() == [StepDone(1)]


class Stumbles(RebalanceListener):
    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        raise RuntimeError("the application stumbled")


def test_whatever_the_listener_does_the_group_is_left(harness):
    own(harness, Stumbles())
    with pytest.raises(RuntimeError, match="stumbled"):
        run(harness.subscriber.unsubscribe())
    assert [type(event) for event in harness.events()] == [Leave]
    assert not harness.state.assignment
    assert harness.subscriber.subscription is None


class Notes(RebalanceListener):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.notes.append("revoked")

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.notes.append("lost")


@pytest.mark.parametrize(("is_member", "expected"), [(True, "revoked"), (False, "lost")])
def test_who_leaves_after_its_membership_has_ended_has_lost_its_partitions(harness, is_member, expected):
    listener = Notes()
    own(harness, listener)
    if not is_member:
        harness.state.member_status.identity = None
    run(harness.subscriber.unsubscribe())
    assert listener.notes == [expected]


@pytest.mark.parametrize(("is_member", "expected"), [(True, "revoked"), (False, "lost")])
def test_a_revocation_that_comes_too_late_is_a_loss(harness, is_member, expected):
    listener = Notes()
    own(harness, listener)
    if not is_member:
        harness.state.member_status.identity = None
    run(harness.subscriber.handle(step(Change.REVOKED, 2)))
    assert listener.notes == [expected]
    assert harness.events() == [StepDone(2)]


class CommitsWhateverHappens(RebalanceListener):
    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        raise CommitRefused("this consumer is not a member at present")


def test_a_commit_of_what_is_lost_is_refused_without_ending_the_application(harness, caplog):
    own(harness, CommitsWhateverHappens())
    run(harness.subscriber.handle(step(Change.LOST, 2)))
    assert "on_lost() could not commit: this consumer is not a member" in caplog.text
    assert harness.events() == [StepDone(2)]


def test_of_what_is_revoked_it_does(harness):
    own(harness, CommitsWhateverHappens())
    with pytest.raises(CommitRefused):
        run(harness.subscriber.handle(step(Change.REVOKED, 2)))
    assert harness.events() == [StepDone(2)]


class Looks(RebalanceListener):
    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.idle: list[float] = []

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        began = self.harness.now
        self.harness.now += 400.0
        self.idle.append(self.harness.state.poll_activity.idle(self.harness.now))
        assert began < self.harness.now


def test_the_time_of_a_listener_is_the_applications(harness):
    """One that never returns must not hold its partitions for ever."""
    listener = Looks(harness)
    harness.subscriber.subscribe(["orders"], listener)
    harness.subscriber.enter_poll()
    run(harness.subscriber.handle(step(Change.ASSIGNED)))
    assert listener.idle == [400.0]
    assert harness.state.poll_activity.idle(harness.now + 1000.0) == 0.0, "back in poll"
    harness.subscriber.leave_poll()


def test_who_subscribes_long_after_it_was_made_is_not_late(harness, caplog):
    harness.now = 1000.0
    harness.subscriber.subscribe(["orders"], None)
    assert harness.state.poll_activity.idle(harness.now) == 0.0
    harness.subscriber.enter_poll()
    assert [type(event) for event in harness.events()] == [Subscribe]
    assert not caplog.text


def test_an_application_is_back_before_it_says_so(harness):
    own(harness)
    harness.now = 1000.0
    polls: list[bool] = []
    tell = harness.subscriber._send
    harness.subscriber._send = lambda event: (polls.append(harness.state.poll_activity.is_polling), tell(event))
    harness.subscriber.enter_poll()
    assert [type(event) for event in harness.events()] == [PollResumed]
    assert polls == [True]


# --- answers to commits that nobody waited for -----------------------------------------------------------------------


def test_an_application_that_was_away_for_too_long_is_fenced_when_it_is_back(harness):
    own(harness)
    assert harness.subscriber.may_deliver
    harness.now = 300.0
    assert harness.state.poll_activity.expire(
        harness.now, 300.0
    )  # what the network thread does, long before it says so
    harness.subscriber.enter_poll()
    assert not harness.subscriber.may_deliver


def test_no_membership_expires_while_the_application_polls(harness):
    own(harness)
    harness.now = 300.0
    harness.subscriber.enter_poll()
    assert not harness.state.poll_activity.expire(harness.now, 300.0)
    assert harness.subscriber.may_deliver


def test_what_is_kept_is_not_handed_out_either_when_membership_ends_within_a_step(harness):
    own(harness)
    harness.state._buffer.put(Cursor(ORDERS, 2, _at(7)), Failed(ORDERS, MultilaneError("would be raised")))
    harness.state.member_status.identity = None  # fenced; the loss is reported when the open step is done
    assert not harness.subscriber.collect()
    harness.state.member_status.identity = Identity("g", "member", 2, None, "classic")
    with pytest.raises(MultilaneError, match="would be raised"):
        harness.subscriber.collect()


def test_a_consumer_that_was_stopped_beyond_its_session_gets_nothing_until_its_group_answers(harness):
    own(harness)
    harness.state._buffer.put(Cursor(ORDERS, 2, _at(7)), Failed(ORDERS, MultilaneError("would be raised")))
    harness.state.member_status.fenced_after = 45.0
    harness.now = 46.0  # it goes on: nobody has said yet that it was expelled
    harness.subscriber.enter_poll()
    assert not harness.subscriber.collect()
    harness.state.member_status.fenced_after = 90.0
    with pytest.raises(MultilaneError, match="would be raised"):
        harness.subscriber.collect()


def test_a_poll_that_waits_looks_again_when_the_group_answers_again(harness):
    own(harness)
    rung: list[float] = []
    member = SimpleNamespace(
        identity=harness.subscriber.identity,
        refusal=None,
        owned=frozenset(),
        is_rebalancing=False,
        fenced_after=lambda session: 145.0,
    )
    harness.state.background._signal = SimpleNamespace(set=lambda: rung.append(harness.now))
    harness.state.member_status.fenced_after = 45.0
    for harness.now in (100.0, 101.0):
        harness.state._group_client._note_member(member, harness.now)
    assert rung == [100.0], "once, not with every heartbeat"


def test_a_loop_that_was_away_for_too_long_over_one_record_says_that_it_is_back(harness):
    own(harness)
    harness.subscriber.enter_poll()
    harness.subscriber.leave_poll()
    harness.events()
    harness.now = 301.0
    harness.subscriber.enter_record()
    assert [type(event) for event in harness.events()] == [PollResumed]


def test_partitions_assigned_by_hand_need_no_membership(harness):
    harness.state.assign([ORDERS])
    assert harness.subscriber.may_deliver


def test_callbacks_run_when_the_consumer_closes(harness):
    own(harness)
    answers: list[BaseException | None] = []
    error = MultilaneError("refused")
    harness.subscriber.commits.commit_async({ORDERS: 7}, lambda _, e: answers.append(e))
    harness.subscriber.commits.commit_async({ORDERS: 8}, lambda _, e: answers.append(e))
    first, second = harness.events()
    plan = harness.subscriber.close(30.0, keep_last=False)
    assert next(plan).future is first.future
    first.future.set_result(None)
    assert plan.send(None).future is second.future
    second.future.set_exception(error)
    plan.throw(error)
    assert answers == [None, error]
    while (event := harness.state.next_event()) is not None:  # the same answers once more
        run(harness.subscriber.handle(event))
    assert answers == [None, error]


def test_a_callback_runs_once(harness):
    own(harness)
    answers: list[BaseException | None] = []
    harness.subscriber.commits.commit_async({ORDERS: 7}, lambda _, e: answers.append(e))
    (commit,) = harness.events()
    commit.future.set_result(None)
    event = harness.state.next_event()
    run(harness.subscriber.handle(event))
    run(harness.subscriber.handle(event))
    assert answers == [None]


# --- committed by itself, before it is given up ----------------------------------------------------------------------


@pytest.fixture
def thrifty() -> Iterator[Harness]:
    harness = Harness(auto_commits=True)
    yield harness
    harness.thread._delegate.close()
    harness.thread._wakeup.close()


class Diary(RebalanceListener):
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append("revoked")


@pytest.mark.parametrize("error", [None, MultilaneError("too late")])
def test_what_is_kept_goes_on_while_what_is_given_up_is_committed(thrifty, error):
    diary = Diary()
    own(thrifty, diary)
    run(thrifty.subscriber.handle(step(Change.REVOKED, 2)))  # without waiting for anything
    (commit,) = thrifty.events()
    assert isinstance(commit, CommitOffsets)
    assert commit.offsets[ORDERS].offset == 7
    assert diary.events == []
    assert thrifty.state.assignment == OWNED
    assert thrifty.state._withheld == OWNED  # nothing of it is handed out any more
    if error is None:
        commit.future.set_result(None)
    else:
        commit.future.set_exception(error)
    run(thrifty.subscriber.handle(thrifty.state.next_event()))
    assert diary.events == ["revoked"]
    assert thrifty.state.assignment == frozenset()
    assert thrifty.state._withheld == frozenset()
    assert thrifty.events() == [StepDone(2)]


def test_partitions_assigned_by_hand_are_committed_when_they_are_given_up(thrifty):
    thrifty.state.assign([ORDERS])
    thrifty.state.seek(ORDERS, _at(7))
    run(thrifty.subscriber.unsubscribe())
    (commit,) = thrifty.events()
    assert commit.offsets[ORDERS].offset == 7
    assert thrifty.state.assignment == frozenset()


def test_what_failed_to_commit_is_committed_again_the_next_time(thrifty, caplog):
    own(thrifty)
    for _ in range(2):
        thrifty.now += 5.0
        thrifty.subscriber.enter_poll()
        (commit,) = thrifty.events()
        assert commit.offsets[ORDERS].offset == 7
        commit.future.set_exception(MultilaneError("the coordinator is away"))
        run(thrifty.subscriber.handle(thrifty.state.next_event()))
        thrifty.subscriber.leave_poll()
    assert "commit failed: the coordinator is away" in caplog.text


def _commits_of(harness: Harness) -> list[int]:
    harness.now += 10.0
    harness.subscriber.enter_poll()
    harness.subscriber.leave_poll()
    return [e.offsets[ORDERS].offset for e in harness.events() if isinstance(e, CommitOffsets)]


def test_what_was_committed_before_a_loss_is_committed_again_when_the_partition_is_back_there(thrifty):
    own(thrifty)
    assert _commits_of(thrifty) == [7]
    assert _commits_of(thrifty) == []
    run(thrifty.subscriber.handle(step(Change.LOST, ticket=2)))
    run(thrifty.subscriber.handle(step(Change.ASSIGNED, ticket=3)))
    thrifty.state.seek(ORDERS, _at(7))
    thrifty.events()
    assert _commits_of(thrifty) == [7], "whoever had it meanwhile may have committed something else"


def test_so_is_what_the_application_has_overwritten(thrifty):
    own(thrifty)
    assert _commits_of(thrifty) == [7]
    thrifty.subscriber.commits.commit_async({ORDERS: 3}, None)
    thrifty.events()
    assert _commits_of(thrifty) == [7]


def test_who_leaves_meanwhile_hears_of_it_once(thrifty):
    diary = Diary()
    own(thrifty, diary)
    run(thrifty.subscriber.handle(step(Change.REVOKED, 2)))
    (first,) = thrifty.events()
    parting = thrifty.subscriber.unsubscribe()
    waited = next(parting)
    assert isinstance(waited, Wait)
    first.future.set_result(None)
    with pytest.raises(StopIteration):
        parting.send(None)
    while (event := thrifty.state.next_event()) is not None:
        run(thrifty.subscriber.handle(event))
    assert diary.events == ["revoked"]
    assert not any(isinstance(event, StepDone) for event in thrifty.events())
    assert thrifty.state.assignment == frozenset()
