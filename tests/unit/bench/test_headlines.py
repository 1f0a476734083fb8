"""The headlines of README.md and bench/README.md come from the results files."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from bench import headlines
from bench.headlines import BEGIN, END, HEADLINES, Headline, Measured, all_measured, chart, measured, table
from bench.report import Report

RATE = Headline("demo", "small", "small", "rate", "ours", ("a", "b"), "the better one")
TIME = Headline("demo", "first", "first", "p50", "ours", ("a", "b"), "the better one", "ms")


def test_the_page_and_the_chart_show_what_was_measured():
    page = headlines.PAGE.read_text()
    assert headlines.with_headlines(page, all_measured()) == page, "run: python -m bench.headlines"
    assert headlines.CHART.read_text() == chart(all_measured()), "run: python -m bench.headlines"


def test_so_does_the_front_page():
    page = headlines.FRONT_PAGE.read_text()
    expected = headlines.with_front_headlines(page, all_measured(), headlines.shares())
    assert expected == page, "run: python -m bench.headlines"


def test_a_link_of_the_front_page_names_the_page_of_the_section():
    page = headlines.with_front_headlines(f"{BEGIN}{END}", [Measured(RATE, 3.0, 2.0)], "97 %.\n")
    assert "| [demo](bench/README.md#demo): small |" in page
    assert page.endswith(f"\n\n97 %.\n{END}")


def test_a_share_is_that_of_the_best_rate(tmp_path):
    for name in {share.report for share in headlines.SHARES}:
        report = Report(name, {})
        for share in (share for share in headlines.SHARES if share.report == name):
            report.add(share.best, share.scenario, "rate", 200.0, "records/s")
            for number, system in enumerate(share.systems):
                report.add(system, share.scenario, "rate", 190.0 + 2 * number, "records/s")
        report.write(tmp_path)
    text = headlines.shares(tmp_path)
    assert "15 partitions x 20 lanes: 95 % of the theoretical limit;" in text
    assert "on Spark: 95 to 96 % of a bare" in text


def test_the_best_rival_counts():
    rates = {("ours", "small", "rate"): 6.0, ("a", "small", "rate"): 2.0, ("b", "small", "rate"): 3.0}
    assert measured(RATE, rates).times_better == 2.0
    times = {("ours", "first", "p50"): 6.0, ("a", "first", "p50"): 2.0, ("b", "first", "p50"): 3.0}
    assert measured(TIME, times).times_better == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [(30.0, 2.0, "15 x faster"), (3.0, 2.0, "1.5 x faster"), (1.04, 1.0, "even (1.04 x)"), (1.0, 4.0, "4.0 x slower")],
)
def test_a_ratio_is_said_in_words(ours, theirs, said):
    assert table([Measured(RATE, ours, theirs)]).splitlines()[-1].endswith(f"| {said} |")
    assert table([Measured(TIME, theirs, ours)]).splitlines()[-1].endswith(f"| {said} |")


def test_what_is_slower_is_drawn_to_the_left_of_one():
    drawing = ElementTree.fromstring(chart([Measured(RATE, 4.0, 1.0), Measured(RATE, 1.0, 4.0)]))  # noqa: S314 - our own drawing
    _, faster, slower = drawing.iter("{http://www.w3.org/2000/svg}rect")
    one = float(faster.attrib["x"])
    assert float(slower.attrib["x"]) + float(slower.attrib["width"]) == pytest.approx(one, abs=1)
    assert faster.attrib["fill"] != slower.attrib["fill"]


def test_a_page_without_a_place_for_them_is_an_error():
    with pytest.raises(ValueError, match="no place for the headlines"):
        headlines.with_headlines("# Benchmarks\n", [])
    assert headlines.with_headlines(f"a\n{BEGIN}old\n{END}b\n", []).startswith(f"a\n{BEGIN}| benchmark")


def test_only_whole_runs_in_their_own_directory_redraw(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(headlines, "write", lambda: drawn.append(True))
    Report(HEADLINES[0].report, {}).write(tmp_path)
    headlines.redraw_after(headlines.RESULTS / "consume-partial.json")
    assert not drawn
    headlines.redraw_after(headlines.RESULTS / "consume.json")
    assert drawn == [True]
