"""What a run is called where Spark shows it."""

from __future__ import annotations

from multilane.engines.job_names import job_name


def test_the_application_and_its_consumers():
    assert job_name("shop:app") == "multilane shop:app"
    assert job_name("shop:app", ("orders",)) == "multilane shop:app: orders"
    assert job_name("shop:app", tuple("abcdefg")) == "multilane shop:app: a, b, c, d, e and 2 more"


def test_a_name_is_cut_and_made_printable():
    assert job_name("shop:app", ("a\nb", "x" * 100)) == f"multilane shop:app: a b, {'x' * 60}..."
