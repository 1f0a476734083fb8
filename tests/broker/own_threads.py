"""The threads of this library in the process of the tests, other than that of a Spark session which is there too."""

from __future__ import annotations

import threading

OF_SPARK = "multilane-stage-reports"  # it lives as long as the session, which tests of Spark share


def own_threads(prefix: str = "multilane-") -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(prefix) and name != OF_SPARK]
