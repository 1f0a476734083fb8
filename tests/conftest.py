"""What every test may use: Hypothesis profiles and a wait without sleeping."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

from multilane.clock import SystemClock

# Examples have no deadline: a busy machine is not a defect. `HYPOTHESIS_PROFILE=thorough` looks longer.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A shell that starts this in its background has interrupts ignored, for us and for all that is started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_LOOK_SECONDS = 0.02


def pytest_configure(config: pytest.Config) -> None:
    """What members that are killed leave behind goes away with the run: nobody finds it in a home, or in a next run."""
    state = tempfile.mkdtemp(prefix="multilane-tests-")
    os.environ["MULTILANE_STATE"] = state
    config.add_cleanup(lambda: shutil.rmtree(state, ignore_errors=True))


def pytest_collection_finish() -> None:
    """Modules and collected tests stay to the end: looking through them in each collection costs seconds of a run."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def eventually() -> Callable[..., None]:
    """`eventually(condition, timeout)`: for what other processes do and nobody can announce. Fails at the deadline."""
    clock = SystemClock()

    def wait(condition: Callable[[], object], timeout: float = 20.0) -> None:
        deadline = clock.monotonic() + timeout
        look = threading.Event()
        while not condition():
            assert clock.monotonic() < deadline, f"not within {timeout} s: {condition}"
            look.wait(_LOOK_SECONDS)

    return wait
