"""Which line carries which wish.

Thread: none (pure); owned by a fetch manager on the network thread.

A free line of the base takes what is wanted; several share it. When none is free, a wish waits for one whose answer is
about to come (its partitions are known to lag), but never for one that waits for data itself: it travels at once on an
extra line, of which there are a few per broker. What an extra line was asked for is placed anew after each answer. When
its partitions are at the end of their logs and a line of the base comes free, that line takes them over and the extra
one is hung up in the middle of its waiting: nothing is lost, for nothing of it was answered, and nothing is late, for
the base line's request leaves at the same moment. As every fetch of the base ends within the longest wait, the lines to
a broker come down to the base once all partitions are at the end; and under load the base comes free all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from multilane.client.fetch.fetch_connections import PATIENCE, BrokerConnections, FetchConnection, FetchConnections
from multilane.client.net.requests import NEVER

if TYPE_CHECKING:
    from multilane.client.fetch.reader import Reader
    from multilane.client.fetch.wanted_partitions import WantedPartition


class Placing:
    def __init__(
        self,
        lines: FetchConnections,
        lag: Callable[[WantedPartition], int | None],
        tight: dict[Reader, None],
        release: Callable[[WantedPartition], None],
    ) -> None:
        self._lines = lines
        self._lag = lag
        self._tight = tight
        self._release = release

    def place(self, bundle: BrokerConnections, homeless: list[WantedPartition], now: float) -> list[WantedPartition]:
        """Puts each on a line, those first that were asked for longest ago; returns those that have to wait."""
        free = bundle.free(now)
        held = []
        for wish in sorted(homeless, key=lambda w: w.served):
            line = self._home(free, wish) or self._extra(bundle, wish, now)
            if line is None:
                held.append(wish)
            else:
                line.carry(wish, self._lag(wish))
        return held

    def fold(self, bundle: BrokerConnections, now: float) -> tuple[list[FetchConnection], list[WantedPartition]]:
        """Extra lines that are no longer needed, and what they carried, for which the free lines have a place."""
        free = bundle.free(now)
        spare: list[FetchConnection] = []
        moved: list[WantedPartition] = []
        if not free:
            return spare, moved
        for extra in bundle.extras:
            if not (extra.state.in_flight and extra.is_settled and _fits(extra.wishes.values(), free, moved)):
                continue
            spare.append(extra)
            for wish in tuple(extra.wishes.values()):
                if wish in extra.review:
                    self._release(wish)
                else:
                    extra.take_off(wish)
                    moved.append(wish)
        return spare, moved

    def wait(self, bundle: BrokerConnections, now: float) -> float:
        """Seconds until what is held may find a line by time alone."""
        waits = [line.state.wait(now) for line in bundle]
        waits += [max(0.0, line.sent_at + PATIENCE - now) for line in bundle.base if line.is_prompt(now)]
        return min(waits, default=NEVER)

    def _home(self, free: list[FetchConnection], wish: WantedPartition) -> FetchConnection | None:
        """The line that carries least; but all of a reader that is short of room on one, not to leave out a part."""
        lines = [line for line in free if line.has_place(wish)]
        if not lines:
            return None
        tight = [reader for reader in wish.cursors.values() if reader in self._tight]
        if tight:
            together = [line for line in lines if any(reader in line.readers for reader in tight)]
            return together[0] if together else lines[0]
        return min(lines, key=lambda line: len(line.wishes))

    def _extra(self, bundle: BrokerConnections, wish: WantedPartition, now: float) -> FetchConnection | None:
        if any(not line.state.in_flight and not line.state.may_send(now) for line in bundle):
            return None  # the broker is in trouble: more lines would not help
        if any(line.is_prompt(now) and line.will_have_place(wish) for line in bundle.base):
            return None
        for line in bundle.extras:
            if line.state.may_send(now) and line.has_place(wish):
                return line
        return self._lines.open_extra(wish.node)


def _fits(wishes: Iterable[WantedPartition], free: list[FetchConnection], moved: list[WantedPartition]) -> bool:
    """Whether the free lines have a place for all of these, beside what has been moved already."""
    taken = {(wish.place[0], wish.place[2]) for wish in moved}
    return all(
        any(line.has_place(wish) for line in free) and (wish.place[0], wish.place[2]) not in taken for wish in wishes
    )
