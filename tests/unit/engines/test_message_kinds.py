"""Message kinds keep their form on the wire, whatever their names in the code are."""

from __future__ import annotations

import json

import pytest

from multilane.engines.backfill.messages import FromTask, ToTask
from multilane.engines.batches.messages import FromDriver, FromWorker, ToDriver, ToWorker
from multilane.engines.continuous.messages import FailureStage, FromMember, ToMember

KINDS = {
    FromDriver: {"steer", "stop"},
    ToDriver: {"beat", "failed", "assembled", "ended"},
    FromWorker: {"hello", "told", "given", "over", "released", "counts", "cannot"},
    ToWorker: {"loan", "leases", "back", "freed", "steer", "end", "closed", "finish"},
    ToMember: {"serve", "stop", "steer"},
    FromMember: {"ready", "beat", "failed"},
    FailureStage: {"starting", "refused", "serving"},
    ToTask: {"work", "end", "closed"},
    FromTask: {"hello", "told", "over", "failed"},
}


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: f"{kinds.__module__.split('.')[-2]}.{kinds.__name__}")
def test_kinds_on_the_wire(kinds):
    assert {json.loads(json.dumps({"kind": kind}))["kind"] for kind in kinds} == KINDS[kinds]
    assert all(json.dumps(kind) == f'"{kind.value}"' for kind in kinds)
