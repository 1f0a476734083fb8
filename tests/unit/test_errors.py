"""The tree of errors: one module to import from, whatever module defines a class."""

from __future__ import annotations

import inspect
import pickle
import pkgutil
from importlib import import_module

import pytest

from multilane import errors
from multilane.stacks import class_of

DEFINED = [
    found
    for module in pkgutil.iter_modules(errors.__path__, "multilane.errors.")
    for name, found in vars(import_module(module.name)).items()
    if inspect.isclass(found) and issubclass(found, errors.MultilaneError)
]


@pytest.mark.parametrize("kind", sorted(set(DEFINED), key=str), ids=lambda kind: kind.__name__)
def test_every_error_is_found_and_named_in_one_module(kind):
    assert getattr(errors, kind.__name__) is kind
    assert kind.__name__ in errors.__all__
    assert kind.__module__ == "multilane.errors", "headers of failed records have it"


def test_what_is_written_of_an_error_and_pickled():
    error = errors.CorruptBatch("its checksum does not match", offset=7)
    assert class_of(error) == "multilane.errors.CorruptBatch"
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(again), str(again)) == (errors.CorruptBatch, str(error))
