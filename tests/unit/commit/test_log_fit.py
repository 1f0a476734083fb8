from __future__ import annotations

from uuid import UUID

import pytest

from multilane.commit.completion_map import LogIdentity
from multilane.commit.log_fit import LogNow, SettledClaim, misfit
from multilane.types import LeaderEpoch, Offset, OffsetAndEpoch

THIS, OTHER = UUID(int=1), UUID(int=2)


def at(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(offset), LeaderEpoch(epoch))


@pytest.mark.parametrize(
    ("now", "why"),
    [
        pytest.param(LogNow(at(200, 5), THIS, at(200, 5)), None, id="as it was"),
        pytest.param(LogNow(at(900, 8), THIS, at(200, 5)), None, id="other leaders since, nothing lost"),
        pytest.param(LogNow(at(900, 8), THIS, at(199, 5)), "its leader epoch 5 ends at 199", id="cut and grown again"),
        pytest.param(LogNow(at(900, 8), THIS, at(300, 4)), "no records of its leader epoch 5", id="epoch cut away"),
        pytest.param(LogNow(at(900, 8), THIS, None), "no records of its leader epoch 5", id="epoch unknown"),
        pytest.param(LogNow(at(199, 5), THIS, at(199, 5)), "the log ends at 199", id="cut"),
        pytest.param(LogNow(at(900, 5), OTHER, at(900, 5)), "topic id", id="made again"),
        pytest.param(LogNow(at(900, 5), None, at(900, 5)), "topic id", id="deleted"),
        pytest.param(LogNow(None, THIS, at(900, 5)), "not known", id="no end"),
    ],
)
def test_a_claim_fits_a_log_that_has_its_epoch_up_to_its_end(now, why):
    found = misfit(SettledClaim(200, LogIdentity(5, THIS)), now)
    assert (found is None) == (why is None)
    assert why is None or why in found


@pytest.mark.parametrize(
    ("first_epoch", "leads", "end", "fits"),
    [(5, 5, 200, True), (5, 6, 200, False), (5, 5, 199, False), (-1, 0, 200, True), (-1, 1, 200, False)],
)
def test_a_claim_without_an_epoch_fits_while_the_same_leader_leads(first_epoch, leads, end, fits):
    assert (misfit(SettledClaim(200, None, first_epoch), LogNow(at(end, leads), THIS)) is None) == fits


def test_brokers_without_topic_ids_have_the_same_one():
    assert misfit(SettledClaim(200, LogIdentity(5)), LogNow(at(200, 5), None, at(200, 5))) is None
