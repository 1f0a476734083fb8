"""The record object."""

from __future__ import annotations

import pytest

from multilane.wire.records.record import Record


def record(**changes) -> Record:
    fields = {
        "topic": "t",
        "partition": 1,
        "offset": 5,
        "timestamp": 9,
        "timestamp_type": 0,
        "key": b"k",
        "value": b"v",
    }
    return Record(**(fields | changes))


def test_the_same_place_in_the_log_is_the_same_record():
    assert record() == record(value=b"other", timestamp=1)
    assert hash(record()) == hash(record(key=None))
    for change in ({"topic": "u"}, {"partition": 2}, {"offset": 6}):
        assert record() != record(**change)
    assert record() != ("t", 1, 5)


def test_repr_tells_sizes_only():
    text = repr(record(key=None, value=b"secret", headers=(("token", b"hidden"),)))
    assert text == "Record(t-1@5, timestamp=9, key=null, value=6 bytes, headers=1)"


def test_no_other_attributes():
    with pytest.raises(AttributeError):
        record().extra = 1
    assert record().headers == ()
