"""Whatever the network thread polls keeps the contract `RequestManager`: one signature, and one kind of answer."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import get_type_hints

import pytest

import multilane.client
from multilane.client.net import requests
from multilane.client.net.requests import Poll, RequestManager


def _classes() -> Iterator[type]:
    for module in pkgutil.walk_packages(multilane.client.__path__, "multilane.client."):
        for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if found.__module__ == module.name:
                yield found


def _is_polled(found: type) -> bool:
    """By its parameter or by its answer, so that a manager that breaks one of them is still found by the other."""
    poll = vars(found).get("poll")
    if not inspect.isfunction(poll) or inspect.iscoroutinefunction(poll):
        return False
    signature = inspect.signature(poll)
    return list(signature.parameters)[1:2] == ["now"] or signature.return_annotation == Poll.__name__


MANAGERS = [f for f in _classes() if _is_polled(f) and f is not RequestManager]


def _broken(manager: type) -> list[str]:
    """What of the contract this class does not keep."""
    signature, wanted = (inspect.signature(found.poll) for found in (manager, RequestManager))
    differing = [] if signature == wanted else [f"{signature}, not {wanted}"]
    known = {**vars(requests), **vars(inspect.getmodule(manager) or requests)}
    hints = get_type_hints(manager.poll, known)
    return differing + [
        f"{name}: {hint}" for name, hint in get_type_hints(RequestManager.poll).items() if hints.get(name) is not hint
    ]


def test_the_managers_are_found():
    names = {manager.__name__ for manager in MANAGERS}
    assert {
        "MetadataManager",
        "Backend",
        "GroupClient",
        "SharedFetching",
        "ConsumerMembership",
        "GroupSession",
    } <= names
    assert len(names) >= 15


@pytest.mark.parametrize("manager", MANAGERS, ids=lambda found: found.__name__)
def test_every_manager_keeps_the_contract(manager):
    assert _broken(manager) == []


class _WithoutTime:
    def poll(self) -> Poll: ...


class _WithMore:
    def poll(self, now: float, *, can_decode: bool = True) -> Poll: ...


class _OfMany:
    def poll(self, now: float) -> tuple[Poll, ...]: ...


@pytest.mark.parametrize("found", [_WithoutTime, _WithMore, _OfMany])
def test_another_contract_is_noticed(found):
    assert _is_polled(found)
    assert _broken(found)
