"""Tracebacks as bounded text, and the line that raised."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ProcessPoolExecutor

import pytest

from multilane.stacks import class_of, message_of, raised_at, stack_of


def caught(function):
    try:
        function()
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def raising(text="no stock"):
    def fail():
        raise ValueError(text)

    return caught(fail)


def test_the_raising_line_is_the_innermost_of_user_code():
    error = caught(lambda: json.loads("{"))
    assert error.__traceback__ is not None
    assert raised_at(error).startswith("unit/test_stacks.py:")


def test_an_error_that_was_never_raised_has_no_line():
    assert not raised_at(ValueError("x"))
    assert stack_of(ValueError("x")) == "ValueError: x"


def test_the_stack_has_frames_sources_and_the_error():
    told = stack_of(raising())
    assert told.startswith("Traceback (most recent call last):")
    assert "in fail\n    raise ValueError(text)" in told
    assert told.endswith("\nValueError: no stock")


def test_causes_come_first():
    def fail():
        try:
            {}["sku"]
        except KeyError as error:
            raise LookupError("no such item") from error

    told = stack_of(caught(fail))
    assert told.index("KeyError: 'sku'") < told.index("which led to:") < told.index("LookupError: no such item")


def test_a_circle_of_causes_ends():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert stack_of(first).count("ValueError") == 2


@pytest.mark.parametrize("limit", [500, 2_000, 4_000])
def test_a_deep_stack_is_bounded_and_keeps_its_end(limit):
    def deep(left):
        if not left:
            raise ValueError("x" * 100)
        deep(left - 1)

    told = stack_of(caught(lambda: deep(300)), limit)
    assert len(told) <= limit
    assert "\n  ...\n" in told
    assert told.endswith("x" * 100)
    assert told.startswith("Traceback")


def test_text_of_several_lines_cannot_pass_for_a_log_line():
    told = stack_of(raising("one\n2026-01-01 ERROR forged\x1b[2J"))
    assert "\n    | 2026-01-01 ERROR forged\\x1b[2J" in told
    assert all(line.isprintable() for line in told.split("\n"))


def _in_another_process():
    raise OSError("far away")


def test_an_error_of_a_worker_process_has_its_line():
    with ProcessPoolExecutor(1) as pool:
        error = caught(pool.submit(_in_another_process).result)
    assert raised_at(error).startswith("unit/test_stacks.py:")
    assert "in _in_another_process" in stack_of(error)


def test_class_names_have_their_module():
    assert class_of(ValueError()) == "ValueError"
    assert class_of(json.JSONDecodeError("", "", 0)) == "json.decoder.JSONDecodeError"


async def _fail(text):
    raise ConnectionError(text)


async def _fail_in_a_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(_fail("503 of the stock service"))


def test_a_group_shows_the_errors_in_it():
    error = caught(lambda: asyncio.run(_fail_in_a_group()))
    assert class_of(error) == "ExceptionGroup[ConnectionError]"
    assert message_of(error).endswith("(1 sub-exception): ConnectionError: 503 of the stock service")
    assert raised_at(error) == raised_at(error.exceptions[0])
    told = stack_of(error)
    assert told.index("in _fail\n") < told.index("ConnectionError: 503") < told.index("which led to:")
    assert "ExceptionGroup[ConnectionError]: unhandled errors in a TaskGroup" in told


def test_a_large_group_of_groups_is_bounded():
    inner = ExceptionGroup("inner", [ValueError(str(n)) for n in range(100)])
    assert stack_of(ExceptionGroup("outer", [inner, inner])).count("which led to:") == 3


def test_notes_belong_to_the_error():
    error = raising()
    error.add_note("while the order\n2026 ERROR forged\x1b[31m was read")
    assert stack_of(error).endswith(
        "ValueError: no stock\n    | while the order\n    | 2026 ERROR forged\\x1b[31m was read"
    )


def test_names_of_classes_and_functions_are_escaped_too():
    def fail():
        raise type("Bad\nERROR forged", (Exception,), {})("x")

    fail.__code__ = fail.__code__.replace(co_name="fail\nERROR forged")
    error = caught(fail)
    assert "\nERROR forged" not in stack_of(error)
    assert "\n" not in class_of(error)
