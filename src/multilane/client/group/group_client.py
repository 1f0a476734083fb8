"""The network side of one consumer's group: its membership, its commits, and the start offsets of its partitions.

Thread: network. The application thread reaches it by events only.

Owns the choice of the protocol. The rest is wiring: a subscription becomes a `TopicInterest` and a membership; a
rebalance step of the membership goes to the application as an event, and its completion comes back as one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multilane.client.events import (
    BackgroundEvent,
    CommitOffsets,
    EventQueue,
    FetchCommitted,
    GroupEvent,
    GroupLeft,
    Leave,
    PollResumed,
    Rejoin,
    StepDone,
    Subscribe,
    announce,
)
from multilane.client.futures import fulfil
from multilane.client.group.assignors import find_assignor
from multilane.client.group.broker_limits import BrokerLimits
from multilane.client.group.classic import ClassicMembership
from multilane.client.group.commits import CommitListeners, CommitManager, CommitPolicy
from multilane.client.group.committed import CommittedListeners, CommittedManager
from multilane.client.group.consumer_protocol import ConsumerMembership
from multilane.client.group.consumer_protocol.classic_check import HiddenGroup, LiveClassicGroup
from multilane.client.group.member_watch import MemberWatch
from multilane.client.group.membership import (
    Change,
    Identity,
    MemberListeners,
    MemberPolicy,
    Membership,
    MemberStatus,
    PollActivity,
    RebalanceStep,
    Subscription,
)
from multilane.client.group.session import GroupSession
from multilane.client.group.topic_interest import TopicInterest
from multilane.client.group.wanted_topics import WantedTopics
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import Poll, RequestManager, poll_all
from multilane.config.consumer_table import DEFAULT_STRATEGY
from multilane.config.group import STRATEGIES
from multilane.config.tuning import SessionLimits, of_session
from multilane.errors import ClientClosed, MultilaneError
from multilane.logs import logger
from multilane.metrics.observer import Observer

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster
    from multilane.client.group.coordinators import CoordinatorManager
    from multilane.client.metadata import MetadataManager
    from multilane.config.consumer import ConsumerConfig
    from multilane.types import OffsetAndMetadata, TopicPartition

log = logger(__name__)

OnFound = Callable[[Mapping["TopicPartition", "OffsetAndMetadata | None"]], None]
OnRefused = Callable[["TopicPartition", MultilaneError], None]


@dataclass(frozen=True, slots=True)
class GroupContext:
    """What a group client needs from its network thread."""

    metadata: MetadataManager
    coordinators: CoordinatorManager
    close_connections: Callable[[str], None]
    touch: Callable[[GroupClient], None]  # polls this group client in the current turn
    observer: Observer
    unreachable: Callable[[], MultilaneError | None] = lambda: None  # why a broker cannot be reached, if one cannot


class GroupClient:
    def __init__(
        self,
        config: ConsumerConfig,
        context: GroupContext,
        background: EventQueue[BackgroundEvent],
        poll_activity: PollActivity,
        member_status: MemberStatus,
        name: str,
    ) -> None:
        self._config = config
        self._group = config.group.group_id or ""
        self.client_id = config.connection.client_id
        self._context = context
        self._background = background
        self._poll_activity = poll_activity
        self._watcher = MemberWatch(self._group, member_status, background, context.observer, self._readable_partitions)
        self._name = name
        self._backoff = RequestBackoff(config.connection.retry_backoff, config.connection.retry_backoff_max)
        self._membership: Membership | None = None
        self._interest = TopicInterest(context.metadata, create=config.allow_auto_create_topics)
        self._subscription: Subscription | None = None
        group = config.group
        own = {assignor.name: assignor for assignor in map(find_assignor, group.own_assignors)}
        self._assignors = [own.get(name) or find_assignor(name) for name in group.partition_assignment_strategy]
        self._no_consumer_protocol: MultilaneError | None = None
        self._limits: BrokerLimits | GroupSession | None = None
        self._session: float | None = None  # seconds, as reported by the broker
        metadata = context.metadata
        self._commits = CommitManager(
            self._group,
            context.coordinators,
            CommitPolicy(self._backoff, config.connection.default_api_timeout),
            CommitListeners(
                cluster=lambda: metadata.cluster,
                refresh=metadata.request_update,
                identity=self._identity,
                owned=self._owned,
                fenced=self._fenced,
                coordinator_error=self._coordinator_error,
                observer=context.observer,
            ),
        )
        self._committed = CommittedManager(
            self._group,
            context.coordinators,
            self._backoff,
            CommittedListeners(
                cluster=lambda: metadata.cluster,
                refresh=metadata.request_update,
                identity=self._identity,
                login_refused=self.failed,
                coordinator_error=self._coordinator_error,
            ),
        )

    @property
    def group(self) -> str:
        return self._group

    # --- the loop ----------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        if self._no_consumer_protocol is not None:
            self._fall_back(self._no_consumer_protocol, now)
        managers: list[RequestManager] = [self._committed, self._commits]
        managers += [manager for manager in (self._membership, self._limits) if manager is not None]
        poll = poll_all(managers, now)
        if self._membership is not None:
            self._note_member(self._membership, now)
            self._watch()
        return poll

    def apply(self, event: GroupEvent, now: float) -> None:
        match event:
            case Subscribe():
                self._subscribe(event.topics, now)
            case Leave():
                self._leave(event, now)
            case StepDone() if self._membership is not None:
                self._membership.step_done(event.ticket, now)
            case Rejoin() if self._membership is not None:
                self._membership.rejoin(event.reason, now)
            case CommitOffsets():
                self._commits.commit(event.offsets, event.future, event.deadline, now)
            case FetchCommitted():
                self._committed.committed(event.partitions, event.deadline, event.future)
            case PollResumed() | StepDone() | Rejoin():
                pass  # the event only causes a poll in this turn

    def want(self, partitions: Collection[TopicPartition], found: OnFound, refused: OnRefused) -> None:
        """Asks for the start offsets of these partitions."""
        self._committed.want(partitions, found, refused)
        self._context.touch(self)

    def unwant(self, partitions: Collection[TopicPartition]) -> None:
        self._committed.unwant(partitions)

    def part(self, left: Callable[[], None], now: float) -> None:
        """The consumer closes. `left` is called once: when the group has been notified, or cannot or need not be."""
        self._interest.wanted = self._subscription = self._no_consumer_protocol = self._limits = None
        self.close(ClientClosed("the consumer was closed while it waited for its group"))
        if self._membership is None:
            left()
        else:
            self._membership.leave(left, now)

    def close(self, reason: MultilaneError) -> None:
        self._commits.abandon(reason)
        self._committed.abandon(reason)
        self._interest.drop()

    # --- calls of the network thread ---------------------------------------------------------------------------------

    def failed(self, error: MultilaneError) -> None:
        announce(error, self._background)

    def refused(self, error: MultilaneError) -> None:
        """The lookup of the coordinator was refused: the next poll raises the error, and pending calls fail."""
        self.failed(error)
        self._commits.abandon(error)
        self._committed.refuse_calls(error)

    def topic_failed(self, topic: str, error: MultilaneError) -> None:
        """Only errors of topics subscribed to by name are raised; a pattern may match topics that are not readable."""
        if self._interest.names(topic):
            self.failed(error)

    def on_cluster(self, _cluster: Cluster, now: float) -> None:
        if self._interest.follows_metadata and self._interest.is_resolved:
            self._update_membership(now)

    # --- membership --------------------------------------------------------------------------------------------------

    def _subscribe(self, wanted: WantedTopics, now: float) -> None:
        self._interest.want(wanted)
        if self._membership is None:
            self._membership = self._first_choice()
        if self._interest.is_resolved:
            self._update_membership(now)

    def _update_membership(self, now: float) -> None:
        subscription = self._interest.subscription()
        if subscription is None:
            return
        if self._membership is not None and subscription != self._subscription:
            self._subscription = subscription
            self._membership.subscribe(subscription, now)
            self._watch()

    def _leave(self, event: Leave, now: float) -> None:
        self._interest.want(None)
        self._subscription = None
        if self._membership is None:
            fulfil(event.future, None)
        else:
            self._membership.leave(lambda: fulfil(event.future, None), now)
            self._note_member(self._membership, now)
        self._background.put(GroupLeft())
        self._watch()

    def _first_choice(self) -> Membership:
        if self._config.group.group_protocol == "classic":
            return self._classic()
        self._limits = GroupSession(self._group, self._context.coordinators, self._backoff, self._note_session)
        return ConsumerMembership(
            self._policy(),
            self._poll_activity,
            self._context.coordinators,
            self._listeners(),
            self._unsupported,
            self._context.metadata,
        )

    def _unsupported(self, error: MultilaneError) -> None:
        if self._config.group.group_protocol == "auto":
            self._no_consumer_protocol = error
        else:
            self.failed(error)

    def _fall_back(self, error: MultilaneError, now: float) -> None:
        """The broker does not offer KIP-848, or the group has classic members. A consumer with default settings joins
        with the others' strategy."""
        self._no_consumer_protocol = None
        if isinstance(error, LiveClassicGroup):
            log.info("%s. Joining with the classic protocol", error)
            self._share_strategy(error.assignor)
        elif isinstance(error, HiddenGroup):
            log.warning("%s. Joining with the classic protocol, which converts nothing", error)
        else:
            text = "group %s: these brokers do not offer KIP-848. Joining with the classic protocol (%s)"
            log.info(text, self._group, error)
        self._membership = self._classic()
        self._subscription = None
        self._update_membership(now)

    def _share_strategy(self, assignor: str) -> None:
        """All members of a group must know its assignor. A consumer with the default strategy adopts the group's."""
        config = self._config.group
        known = assignor in {a.name for a in self._assignors}
        if assignor in STRATEGIES and not known and config.partition_assignment_strategy == DEFAULT_STRATEGY:
            self._assignors.append(find_assignor(assignor))

    def _classic(self) -> Membership:
        self._limits, self._session = BrokerLimits(self._group, self._context.coordinators, self._advise), None
        return ClassicMembership(
            self._policy(), self._poll_activity, self._context.coordinators, self._listeners(), self._assignors
        )

    def _note_session(self, seconds: float) -> None:
        self._session = seconds

    def _advise(self, limits: SessionLimits) -> None:
        for advice in of_session(self._config.group, limits):
            log.warning("group %s: %s", self._group, advice)

    def _policy(self) -> MemberPolicy:
        rack = self._config.connection.client_rack or None
        return MemberPolicy(self._config.group, self._backoff, rack, self._name)

    def _listeners(self) -> MemberListeners:
        metadata = self._context.metadata
        return MemberListeners(
            cluster=lambda: metadata.cluster,
            refresh=metadata.request_update,
            step=self._step,
            failed=self.failed,
            close_connections=self._context.close_connections,
            observer=self._context.observer,
        )

    def _step(self, step: RebalanceStep) -> None:
        if step.change is Change.LOST:
            self._commits.lose(step.partitions)
        self._context.observer.count("rebalance.step", change=step.change.value, group=self._group)
        self._background.put(step)

    # --- identity ----------------------------------------------------------------------------------------------------

    def _identity(self) -> Identity | None:
        return None if self._membership is None else self._membership.identity

    def _owned(self) -> frozenset[TopicPartition] | None:
        """None if partitions are assigned manually."""
        if self._membership is None or self._interest.wanted is None:
            return None
        return self._membership.owned

    def _coordinator_error(self) -> MultilaneError | None:
        """An error that may keep the coordinator from answering."""
        return self._context.coordinators.last_error(self._group) or self._context.unreachable()

    def _fenced(self, error: MultilaneError, now: float) -> None:
        if self._membership is not None:
            self._membership.fenced(error, now)

    def _note_member(self, member: Membership, now: float) -> None:
        refusal = None if self._no_consumer_protocol else member.refusal
        self._watcher.note(member, self._session, refusal, now)

    def _readable_partitions(self) -> int:
        known = self._context.metadata.cluster.topics
        topics = frozenset() if self._subscription is None else self._subscription.topics
        return sum(len(known[topic].partitions) for topic in topics if topic in known)

    def _watch(self) -> None:
        topics: frozenset[str] = frozenset() if self._subscription is None else self._subscription.topics
        if self._membership is not None and self._interest.wanted is not None:
            topics |= self._membership.topics_to_watch
        self._interest.watch(topics)
