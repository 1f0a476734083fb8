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


class Desk:
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
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.thread._delegate.close()
    desk.thread._wakeup.close()


def step(change: Change, ticket: int = 1, deadline: float = 300.0) -> RebalanceStep:
    return RebalanceStep(ticket, change, OWNED, deadline)


def run(plan: Any) -> None:
    """To its end; it must not wait for anything."""
    assert list(plan) == []


def own(desk: Desk, listener: RebalanceListener | None = None) -> None:
    desk.subscriber.subscribe(["orders"], listener)
    run(desk.subscriber.handle(step(Change.ASSIGNED)))
    desk.state.member_status.identity = Identity("g", "member", 1, None, "classic")
    desk.state.seek(ORDERS, _at(7))
    desk.events()


def _at(offset: int) -> Any:
    from multilane.client.arguments import at_offset

    return at_offset(offset, None)


class CommitsInPassing(RebalanceListener):
    """Does not wait for its commit either."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.desk.subscriber.commits.commit_async({ORDERS: 8}, None)


class CommitsAndWaits(RebalanceListener):
    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.waits = next(self.desk.subscriber.commits.commit({ORDERS: 8}, None))


@pytest.mark.parametrize("answer", [None, MultilaneError("refused")])
def test_a_partition_is_given_up_after_the_commits_of_it_are_answered(desk, answer):
    own(desk)
    desk.subscriber.commits.commit_async({ORDERS: 7}, None)
    plan = desk.subscriber.handle(step(Change.REVOKED, ticket=2))
    waits = next(plan)
    [commit] = desk.events()
    assert isinstance(commit, CommitOffsets)
    assert waits == Wait(commit.future, 60.0, with_grace=False)  # default.api.timeout.ms; the group would wait longer
    assert desk.state.assignment == OWNED
    if answer is None:
        commit.future.set_result(None)
        with pytest.raises(StopIteration):
            plan.send(None)
    else:
        commit.future.set_exception(answer)
        with pytest.raises(StopIteration):
            plan.throw(answer)
    assert desk.events() == [StepDone(2)]
    assert not desk.state.assignment


def test_a_group_does_not_wait_longer_for_commits_than_it_has_time(desk):
    own(desk)
    desk.subscriber.commits.commit_async({ORDERS: 7}, None)
    desk.now = 100.0
    plan = desk.subscriber.handle(step(Change.REVOKED, deadline=110.0))
    assert next(plan).deadline == 105.0
    with pytest.raises(StopIteration):
        plan.throw(TimeoutError())


def test_a_commit_made_in_the_listener_is_waited_for(desk):
    own(desk, CommitsInPassing(desk))
    plan = desk.subscriber.handle(step(Change.REVOKED))
    waits = next(plan)
    [commit] = desk.events()
    assert waits.future is commit.future
    assert commit.offsets[ORDERS].offset == 8
    plan.close()


def test_so_is_one_that_is_made_while_closing(desk):
    own(desk, CommitsInPassing(desk))
    plan = desk.subscriber.close(30.0, keep_last=False)
    waits = next(plan)
    [commit] = desk.events()
    assert waits == Wait(commit.future, 30.0, with_grace=False)
    commit.future.set_result(None)
    last = plan.send(None)
    [leave] = desk.events()
    assert isinstance(leave, Leave)
    assert last == Wait(leave.future, 30.0, with_grace=False)


def test_a_commit_in_the_last_call_of_a_listener_waits_no_longer_than_close(desk):
    listener = CommitsAndWaits(desk)
    own(desk, listener)
    next(desk.subscriber.close(3.0, keep_last=False))
    assert listener.waits.deadline == 3.0


def test_what_is_lost_is_given_up_at_once(desk):
    own(desk)
    desk.subscriber.commits.commit_async({ORDERS: 7}, None)
    run(desk.subscriber.handle(step(Change.LOST, ticket=3)))
    assert desk.events()[-1] == StepDone(3)
    assert not desk.state.assignment


def test_a_member_that_the_group_will_not_have_says_so_until_it_leaves(desk):
    own(desk)
    desk.state.member_status.refusal = InstanceFenced("another took our place")
    for _ in range(2):
        with pytest.raises(InstanceFenced):
            desk.subscriber.raise_refusal()
    run(desk.subscriber.unsubscribe())
    desk.subscriber.raise_refusal()
    desk.subscriber.subscribe(["orders"], None)
    desk.subscriber.raise_refusal()  # of the membership that was left, as long as the network thread has not events
    run(desk.subscriber.handle(GroupLeft()))
    with pytest.raises(InstanceFenced):
        desk.subscriber.raise_refusal()


def test_what_may_pass_is_told_once(desk):
    own(desk)
    announce(GroupRefused("grant READ"), desk.state.background)
    with pytest.raises(GroupRefused):
        desk.state.next_event()
    assert desk.state.next_event() is None
    desk.subscriber.raise_refusal()
    desk.state.raise_current_failure()


def test_what_a_group_said_that_was_left_is_not_raised_any_more(desk):
    own(desk)
    announce(GroupRefused("grant READ"), desk.state.background)
    announce(SaslError("no such user"), desk.state.background)
    run(desk.subscriber.unsubscribe())
    with pytest.raises(SaslError):  # this is not the group's
        desk.state.next_event()
    assert desk.state.next_event() is None


def test_a_step_that_crosses_the_word_of_leaving_is_not_performed(desk):
    """Nor when we have come back in the meantime: it is of the membership that is over."""
    own(desk)
    run(desk.subscriber.unsubscribe())
    desk.subscriber.subscribe(["orders"], None)
    assert [type(event) for event in desk.events()] == [Leave, Subscribe]
    run(desk.subscriber.handle(step(Change.ASSIGNED, ticket=7)))
    assert not desk.state.assignment
    run(desk.subscriber.handle(GroupLeft()))
    run(desk.subscriber.handle(step(Change.ASSIGNED, ticket=1)))
    assert desk.state.assignment == OWNED
    assert desk.events() == [StepDone(1)]


class Stumbles(RebalanceListener):
    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        raise RuntimeError("the application stumbled")


def test_whatever_the_listener_does_the_group_is_left(desk):
    own(desk, Stumbles())
    with pytest.raises(RuntimeError, match="stumbled"):
        run(desk.subscriber.unsubscribe())
    assert [type(event) for event in desk.events()] == [Leave]
    assert not desk.state.assignment
    assert desk.subscriber.subscription is None


class Notes(RebalanceListener):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.notes.append("revoked")

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.notes.append("lost")


@pytest.mark.parametrize(("is_member", "expected"), [(True, "revoked"), (False, "lost")])
def test_who_leaves_after_its_membership_has_ended_has_lost_its_partitions(desk, is_member, expected):
    listener = Notes()
    own(desk, listener)
    if not is_member:
        desk.state.member_status.identity = None
    run(desk.subscriber.unsubscribe())
    assert listener.notes == [expected]


@pytest.mark.parametrize(("is_member", "expected"), [(True, "revoked"), (False, "lost")])
def test_a_revocation_that_comes_too_late_is_a_loss(desk, is_member, expected):
    listener = Notes()
    own(desk, listener)
    if not is_member:
        desk.state.member_status.identity = None
    run(desk.subscriber.handle(step(Change.REVOKED, 2)))
    assert listener.notes == [expected]
    assert desk.events() == [StepDone(2)]


class CommitsWhateverHappens(RebalanceListener):
    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        raise CommitRefused("this consumer is not a member at present")


def test_a_commit_of_what_is_lost_is_refused_without_ending_the_application(desk, caplog):
    own(desk, CommitsWhateverHappens())
    run(desk.subscriber.handle(step(Change.LOST, 2)))
    assert "on_lost() could not commit: this consumer is not a member" in caplog.text
    assert desk.events() == [StepDone(2)]


def test_of_what_is_revoked_it_does(desk):
    own(desk, CommitsWhateverHappens())
    with pytest.raises(CommitRefused):
        run(desk.subscriber.handle(step(Change.REVOKED, 2)))
    assert desk.events() == [StepDone(2)]


class Looks(RebalanceListener):
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.idle: list[float] = []

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        began = self.desk.now
        self.desk.now += 400.0
        self.idle.append(self.desk.state.poll_activity.idle(self.desk.now))
        assert began < self.desk.now


def test_the_time_of_a_listener_is_the_applications(desk):
    """One that never returns must not hold its partitions for ever."""
    listener = Looks(desk)
    desk.subscriber.subscribe(["orders"], listener)
    desk.subscriber.enter_poll()
    run(desk.subscriber.handle(step(Change.ASSIGNED)))
    assert listener.idle == [400.0]
    assert desk.state.poll_activity.idle(desk.now + 1000.0) == 0.0, "back in poll"
    desk.subscriber.leave_poll()


def test_who_subscribes_long_after_it_was_made_is_not_late(desk, caplog):
    desk.now = 1000.0
    desk.subscriber.subscribe(["orders"], None)
    assert desk.state.poll_activity.idle(desk.now) == 0.0
    desk.subscriber.enter_poll()
    assert [type(event) for event in desk.events()] == [Subscribe]
    assert not caplog.text


def test_an_application_is_back_before_it_says_so(desk):
    own(desk)
    desk.now = 1000.0
    polls: list[bool] = []
    tell = desk.subscriber._send
    desk.subscriber._send = lambda event: (polls.append(desk.state.poll_activity.is_polling), tell(event))
    desk.subscriber.enter_poll()
    assert [type(event) for event in desk.events()] == [PollResumed]
    assert polls == [True]


# --- answers to commits that nobody waited for -----------------------------------------------------------------------


def test_an_application_that_was_away_for_too_long_has_no_standing_when_it_is_back(desk):
    own(desk)
    assert desk.subscriber.may_deliver
    desk.now = 300.0
    assert desk.state.poll_activity.expire(desk.now, 300.0)  # what the network thread does, long before it says so
    desk.subscriber.enter_poll()
    assert not desk.subscriber.may_deliver


def test_no_standing_expires_while_the_application_polls(desk):
    own(desk)
    desk.now = 300.0
    desk.subscriber.enter_poll()
    assert not desk.state.poll_activity.expire(desk.now, 300.0)
    assert desk.subscriber.may_deliver


def test_what_is_kept_is_not_handed_out_either_when_standing_ends_within_a_step(desk):
    own(desk)
    desk.state._buffer.put(Cursor(ORDERS, 2, _at(7)), Failed(ORDERS, MultilaneError("would be raised")))
    desk.state.member_status.identity = None  # fenced; the loss is reported when the open step is done
    assert not desk.subscriber.collect()
    desk.state.member_status.identity = Identity("g", "member", 2, None, "classic")
    with pytest.raises(MultilaneError, match="would be raised"):
        desk.subscriber.collect()


def test_a_consumer_that_was_stopped_beyond_its_session_gets_nothing_until_its_group_answers(desk):
    own(desk)
    desk.state._buffer.put(Cursor(ORDERS, 2, _at(7)), Failed(ORDERS, MultilaneError("would be raised")))
    desk.state.member_status.fenced_after = 45.0
    desk.now = 46.0  # it goes on: nobody has said yet that it was expelled
    desk.subscriber.enter_poll()
    assert not desk.subscriber.collect()
    desk.state.member_status.fenced_after = 90.0
    with pytest.raises(MultilaneError, match="would be raised"):
        desk.subscriber.collect()


def test_a_poll_that_waits_looks_again_when_the_group_answers_again(desk):
    own(desk)
    rung: list[float] = []
    member = SimpleNamespace(
        identity=desk.subscriber.identity,
        refusal=None,
        owned=frozenset(),
        is_rebalancing=False,
        fenced_after=lambda session: 145.0,
    )
    desk.state.background._signal = SimpleNamespace(set=lambda: rung.append(desk.now))
    desk.state.member_status.fenced_after = 45.0
    for desk.now in (100.0, 101.0):
        desk.state._group_client._note_member(member, desk.now)
    assert rung == [100.0], "once, not with every heartbeat"


def test_a_loop_that_was_away_for_too_long_over_one_record_says_that_it_is_back(desk):
    own(desk)
    desk.subscriber.enter_poll()
    desk.subscriber.leave_poll()
    desk.events()
    desk.now = 301.0
    desk.subscriber.enter_record()
    assert [type(event) for event in desk.events()] == [PollResumed]


def test_partitions_assigned_by_hand_need_no_standing(desk):
    desk.state.assign([ORDERS])
    assert desk.subscriber.may_deliver


def test_callbacks_run_when_the_consumer_closes(desk):
    own(desk)
    answers: list[BaseException | None] = []
    error = MultilaneError("refused")
    desk.subscriber.commits.commit_async({ORDERS: 7}, lambda _, e: answers.append(e))
    desk.subscriber.commits.commit_async({ORDERS: 8}, lambda _, e: answers.append(e))
    first, second = desk.events()
    plan = desk.subscriber.close(30.0, keep_last=False)
    assert next(plan).future is first.future
    first.future.set_result(None)
    assert plan.send(None).future is second.future
    second.future.set_exception(error)
    plan.throw(error)
    assert answers == [None, error]
    while (event := desk.state.next_event()) is not None:  # the same answers once more
        run(desk.subscriber.handle(event))
    assert answers == [None, error]


def test_a_callback_runs_once(desk):
    own(desk)
    answers: list[BaseException | None] = []
    desk.subscriber.commits.commit_async({ORDERS: 7}, lambda _, e: answers.append(e))
    (commit,) = desk.events()
    commit.future.set_result(None)
    event = desk.state.next_event()
    run(desk.subscriber.handle(event))
    run(desk.subscriber.handle(event))
    assert answers == [None]


# --- committed by itself, before it is given up ----------------------------------------------------------------------


@pytest.fixture
def thrifty() -> Iterator[Desk]:
    desk = Desk(auto_commits=True)
    yield desk
    desk.thread._delegate.close()
    desk.thread._wakeup.close()


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


def _commits_of(desk: Desk) -> list[int]:
    desk.now += 10.0
    desk.subscriber.enter_poll()
    desk.subscriber.leave_poll()
    return [e.offsets[ORDERS].offset for e in desk.events() if isinstance(e, CommitOffsets)]


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
