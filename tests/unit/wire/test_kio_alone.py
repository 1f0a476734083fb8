"""An application that has hypothesis installed does not wait for it."""

from __future__ import annotations

import subprocess
import sys

_APPLICATION = """
import sys
import multilane.wire.messages
assert "hypothesis" not in sys.modules
import hypothesis.strategies
"""
_TEST = """
import hypothesis.strategies
import multilane.wire.messages
from kio.static.primitive import i8
assert hypothesis.strategies.from_type(i8).example() in range(-128, 128)
"""


def test_an_application_does_not_import_hypothesis_and_still_can():
    subprocess.run([sys.executable, "-W", "ignore", "-c", _APPLICATION], check=True)


def test_a_test_that_has_it_already_can_make_values_of_kio():
    subprocess.run([sys.executable, "-W", "ignore", "-c", _TEST], check=True)
