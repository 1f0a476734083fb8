"""The network side of one consumer's group: its membership, its commits, and where its partitions begin.

Thread: network. The application side talks to it by events only.

Owns which protocol is used. The rest is wiring: subscriptions become metadata to watch and a membership to hold; what
the membership wants done travels to the application as an event and its end comes back as one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from multilane.client.events import (
    BackgroundEvent,
    CommitOffsets,
    EventQueue,
    FetchCommitted,
    GroupEvent,
    Leave,
    Parted,
    Rejoin,
    Returned,
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
from multilane.client.group.consumer_protocol.classic_check import LiveClassicGroup
from multilane.client.group.membership import (
    Change,
    Identity,
    MemberListeners,
    MemberPolicy,
    Membership,
    MemberStanding,
    Pulse,
    RebalanceStep,
    Subscription,
)
from multilane.client.group.session import GroupSession
from multilane.client.group.wanted_topics import ClientPattern, ServerPattern, TopicNames, WantedTopics
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import NEVER
from multilane.config.consumer_table import DEFAULT_STRATEGY
from multilane.config.group import STRATEGIES
from multilane.config.tuning import SessionLimits, of_assignment, of_session
from multilane.errors import ClientClosed, MultilaneError
from multilane.logs import logger
from multilane.metrics.observer import Observer

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster
    from multilane.client.group.coordinators import CoordinatorManager
    from multilane.client.metadata import MetadataManager
    from multilane.client.net.requests import Poll
    from multilane.config.consumer import ConsumerConfig
    from multilane.types import OffsetAndMetadata, TopicPartition

log = logger(__name__)

_IDLE_FOR_GOOD: Final = 30.0
_TURN: Final = 1.0  # seconds that the time of a turn of the loop may be old

Found = Callable[[Mapping["TopicPartition", "OffsetAndMetadata | None"]], None]
Refused = Callable[["TopicPartition", MultilaneError], None]


@dataclass(frozen=True, slots=True)
class GroupContext:
    """What the network thread lends to each participant."""

    metadata: MetadataManager
    coordinators: CoordinatorManager
    hang_up: Callable[[str], None]
    touch: Callable[[GroupClient], None]  # to be asked in this turn
    observer: Observer
    unreachable: Callable[[], MultilaneError | None] = lambda: None  # why a broker cannot be reached, if one cannot


class GroupClient:
    def __init__(
        self,
        config: ConsumerConfig,
        around: GroupContext,
        background: EventQueue[BackgroundEvent],
        pulse: Pulse,
        standing: MemberStanding,
        name: str,
    ) -> None:
        self._config = config
        self._group = config.group.group_id or ""
        self.client_id = config.connection.client_id
        self._around = around
        self._background = background
        self._pulse = pulse
        self._standing = standing
        self._name = name
        self._backoff = RequestBackoff(config.connection.retry_backoff, config.connection.retry_backoff_max)
        self._membership: Membership | None = None
        self._wish: WantedTopics | None = None
        self._told: Subscription | None = None
        group = config.group
        own = {assignor.name: assignor for assignor in map(find_assignor, group.own_assignors)}
        self._assignors = [own.get(name) or find_assignor(name) for name in group.partition_assignment_strategy]
        self._no_consumer_protocol: MultilaneError | None = None
        self._limits: BrokerLimits | GroupSession | None = None
        self._session: float | None = None  # as the broker says
        self._idle_since = NEVER
        self._interest: frozenset[str] = frozenset()
        self._watches_all = False
        metadata = around.metadata
        self._commits = CommitManager(
            self._group,
            around.coordinators,
            CommitPolicy(self._backoff, config.connection.default_api_timeout),
            CommitListeners(
                cluster=lambda: metadata.cluster,
                refresh=metadata.request_update,
                identity=self._identity,
                owned=self._owned,
                fenced=self._fenced,
                trouble=self._trouble,
                observer=around.observer,
            ),
        )
        self._committed = CommittedManager(
            self._group,
            around.coordinators,
            self._backoff,
            CommittedListeners(
                cluster=lambda: metadata.cluster,
                refresh=metadata.request_update,
                identity=self._identity,
                login_refused=self.failed,
                trouble=self._trouble,
            ),
        )

    @property
    def group(self) -> str:
        return self._group

    # --- the loop ----------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Iterable[Poll]:
        if self._no_consumer_protocol is not None:
            self._fall_back(self._no_consumer_protocol, now)
        polls = [self._committed.poll(now), self._commits.poll(now)]
        if self._membership is not None:
            polls.append(self._membership.poll(now))
            self._note_standing(self._membership, now)
            self._note_idleness(self._membership, now)
            self._watch()
        if self._limits is not None:
            polls.append(self._limits.poll())
        return polls

    def apply(self, event: GroupEvent, now: float) -> None:
        match event:
            case Subscribe():
                self._subscribe(event.wish, now)
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
            case Returned() | StepDone() | Rejoin():
                pass  # to be asked in this turn is all that it takes

    def want(self, partitions: Collection[TopicPartition], found: Found, refused: Refused) -> None:
        """Where these begin."""
        self._committed.want(partitions, found, refused)
        self._around.touch(self)

    def unwant(self, partitions: Collection[TopicPartition]) -> None:
        self._committed.unwant(partitions)

    def part(self, left: Callable[[], None], now: float) -> None:
        """The consumer is closed. `left` is called once: when the group has been told, or cannot or need not be."""
        self._wish = self._told = self._no_consumer_protocol = self._limits = None
        self.close(ClientClosed("the consumer was closed while it waited for its group"))
        if self._membership is None:
            left()
        else:
            self._membership.leave(left, now)

    def close(self, reason: MultilaneError) -> None:
        self._commits.abandon(reason)
        self._committed.abandon(reason)
        self._around.metadata.drop_interest(self._interest, create=self._config.allow_auto_create_topics)
        self._interest = frozenset()
        self._watch_all(False)

    # --- what the network thread tells -------------------------------------------------------------------------------

    def failed(self, error: MultilaneError) -> None:
        announce(error, self._background)

    def refused(self, error: MultilaneError) -> None:
        """The group will not be told where it is coordinated: poll says so, and nobody need wait for an answer."""
        self.failed(error)
        self._commits.abandon(error)
        self._committed.refuse_questions(error)

    def topic_failed(self, topic: str, error: MultilaneError) -> None:
        """Of what a pattern happens to fit, and may not be read, nobody wants to hear."""
        if isinstance(self._wish, TopicNames) and topic in self._wish.topics:
            self.failed(error)

    def on_cluster(self, _cluster: Cluster, now: float) -> None:
        if isinstance(self._wish, ClientPattern) and self._around.metadata.has_all:
            self._tell_membership(now)

    # --- membership --------------------------------------------------------------------------------------------------

    def _subscribe(self, wish: WantedTopics, now: float) -> None:
        self._wish = wish
        self._watch_all(isinstance(wish, ClientPattern))
        if self._membership is None:
            self._membership = self._first_choice()
        if not isinstance(wish, ClientPattern) or self._around.metadata.has_all:
            self._tell_membership(now)  # a pattern waits for the names that it may fit

    def _tell_membership(self, now: float) -> None:
        match self._wish:
            case TopicNames(topics):
                subscription = Subscription(topics)
            case ClientPattern() as pattern:
                known = self._around.metadata.cluster.topics.values()
                readable = [t.name for t in known if not (pattern.without_internal and t.is_internal)]
                subscription = Subscription(pattern.fitting(readable))
            case ServerPattern(regex):
                subscription = Subscription(regex=regex)
            case None:
                return
        if self._membership is not None and subscription != self._told:
            self._told = subscription
            self._membership.subscribe(subscription, now)
            self._watch()

    def _leave(self, event: Leave, now: float) -> None:
        self._wish = self._told = None
        self._watch_all(False)
        if self._membership is None:
            fulfil(event.future, None)
        else:
            self._membership.leave(lambda: fulfil(event.future, None), now)
            self._note_standing(self._membership, now)
        self._background.put(Parted())
        self._watch()

    def _first_choice(self) -> Membership:
        if self._config.group.group_protocol == "classic":
            return self._classic()
        self._limits = GroupSession(self._group, self._around.coordinators, self._note_session)
        return ConsumerMembership(
            self._policy(),
            self._pulse,
            self._around.coordinators,
            self._listeners(),
            self._unsupported,
            self._around.metadata,
        )

    def _unsupported(self, error: MultilaneError) -> None:
        if self._config.group.group_protocol == "auto":
            self._no_consumer_protocol = error
        else:
            self.failed(error)

    def _fall_back(self, error: MultilaneError, now: float) -> None:
        """The broker has no KIP-848, or others are in the group by the classic protocol. Who asked for nothing in
        particular gets what the others have."""
        self._no_consumer_protocol = None
        if isinstance(error, LiveClassicGroup):
            log.info("%s. Joining by the classic protocol", error)
            self._share_strategy(error.assignor)
        else:
            told = "group %s: these brokers do not offer KIP-848. Joining by the classic protocol (%s)"
            log.info(told, self._group, error)
        self._membership = self._classic()
        self._told = None
        self._tell_membership(now)

    def _share_strategy(self, assignor: str) -> None:
        """A group has one assignor that all of its members know. Who chose none himself takes what the others chose."""
        config = self._config.group
        known = assignor in {a.name for a in self._assignors}
        if assignor in STRATEGIES and not known and config.partition_assignment_strategy == DEFAULT_STRATEGY:
            self._assignors.append(find_assignor(assignor))

    def _classic(self) -> Membership:
        self._limits, self._session = BrokerLimits(self._group, self._around.coordinators, self._advise), None
        return ClassicMembership(
            self._policy(), self._pulse, self._around.coordinators, self._listeners(), self._assignors
        )

    def _note_session(self, seconds: float) -> None:
        self._session = seconds

    def _advise(self, limits: SessionLimits) -> None:
        for advice in of_session(self._config.group, limits):
            log.warning("group %s: %s", self._group, advice)

    def _note_idleness(self, member: Membership, now: float) -> None:
        """For a while after joining it is normal to have nothing: others have yet to give up."""
        if member.identity is None or member.owned:
            self._idle_since = now
        elif now - self._idle_since >= _IDLE_FOR_GOOD:
            self._idle_since = NEVER  # once is enough
            known = self._around.metadata.cluster.topics
            topics = frozenset() if self._told is None else self._told.topics
            for advice in of_assignment(0, sum(len(known[t].partitions) for t in topics if t in known)):
                log.warning("group %s: %s", self._group, advice)

    def _policy(self) -> MemberPolicy:
        rack = self._config.connection.client_rack or None
        return MemberPolicy(self._config.group, self._backoff, rack, self._name)

    def _listeners(self) -> MemberListeners:
        metadata = self._around.metadata
        return MemberListeners(
            cluster=lambda: metadata.cluster,
            refresh=metadata.request_update,
            step=self._step,
            failed=self.failed,
            hang_up=self._around.hang_up,
            observer=self._around.observer,
        )

    def _step(self, step: RebalanceStep) -> None:
        if step.change is Change.LOST:
            self._commits.lose(step.partitions)
        self._around.observer.count("rebalance.step", change=step.change.value, group=self._group)
        self._background.put(step)

    # --- who we are --------------------------------------------------------------------------------------------------

    def _identity(self) -> Identity | None:
        return None if self._membership is None else self._membership.identity

    def _owned(self) -> frozenset[TopicPartition] | None:
        """None where partitions are assigned by hand."""
        if self._membership is None or self._wish is None:
            return None
        return self._membership.owned

    def _trouble(self) -> MultilaneError | None:
        """What may keep questions to the coordinator from being answered."""
        return self._around.coordinators.why(self._group) or self._around.unreachable()

    def _fenced(self, error: MultilaneError, now: float) -> None:
        if self._membership is not None:
            self._membership.fenced(error, now)

    def _note_standing(self, member: Membership, now: float) -> None:
        identity = member.identity
        before, self._standing.identity = self._standing.identity, identity
        expired, self._standing.fenced_after = self._standing.fenced_after, member.fenced_after(self._session)
        if expired <= now + _TURN and expired < self._standing.fenced_after:
            self._background.ring()  # a poll that waits has kept back what it may hand out again
        self._standing.refusal = None if self._no_consumer_protocol else member.refusal
        if identity is not None and (before is None or before.member_id != identity.member_id):
            how = "KIP-848" if identity.protocol == "consumer" else "the classic protocol"
            log.info("group %s: member %s by %s", self._group, identity.member_id, how)

    # --- what must be known of the cluster ---------------------------------------------------------------------------

    def _watch(self) -> None:
        wanted: frozenset[str] = frozenset() if self._told is None else self._told.topics
        if self._membership is not None and self._wish is not None:
            wanted |= self._membership.topics_to_watch
        if wanted != self._interest:
            create = self._config.allow_auto_create_topics
            self._around.metadata.add_interest(wanted - self._interest, create=create)
            self._around.metadata.drop_interest(self._interest - wanted, create=create)
            self._interest = wanted

    def _watch_all(self, wanted: bool) -> None:
        if wanted and not self._watches_all:
            self._around.metadata.watch_all()
        elif self._watches_all and not wanted:
            self._around.metadata.unwatch_all()
        self._watches_all = wanted
