"""Where the schema id of a payload is."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.errors import UndecodablePayload
from multilane.registry.framing import SchemaId, framed, message_indexes


def test_the_two_wire_formats():
    assert framed(b"\0\0\0\0\x07x", (), "confluent") == (SchemaId("id", 7), 5)
    assert framed(b"\0\0\0\0\0\0\0\0\x07x", (), "apicurio") == (SchemaId("global id", 7), 9)


def test_apicurios_headers():
    eight = (9).to_bytes(8, "big")
    for name, kind in (("apicurio.value.globalId", "global id"), ("apicurio.value.contentId", "content id")):
        assert framed(b"x", ((name, eight),), "apicurio") == (SchemaId(kind, 9), 0)
    with pytest.raises(UndecodablePayload, match="too short"):
        framed(b"x", (("apicurio.value.globalId", b"short"),), "apicurio")


@pytest.mark.parametrize(
    ("value", "said"), [(b'{"id": 1}', "does not begin with a zero byte"), (b"", "too short"), (b"\0\0\0\1", "short")]
)
def test_what_has_no_id(value, said):
    with pytest.raises(UndecodablePayload, match=said):
        framed(value, (), "confluent")


def zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=5))
def test_message_indexes(indexes):
    content = b"\0" if indexes == [0] else zigzag(len(indexes)) + b"".join(map(zigzag, indexes))
    assert message_indexes(b"....." + content + b"rest", 5) == (tuple(indexes), 5 + len(content))


@given(st.binary(max_size=20))
def test_whatever_the_bytes_are(value):
    for read in (lambda: framed(value, (), "confluent"), lambda: message_indexes(value, 0)):
        with suppress(UndecodablePayload):
            read()
