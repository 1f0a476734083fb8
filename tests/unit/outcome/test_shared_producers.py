"""Shares of one producer: counted, closed once, replaced for all after a fatal error."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from multilane.errors import ClientClosed, ClientFailed, ConfigError
from multilane.outcome.producer_slot import ProducerSlot
from multilane.outcome.shared_producers import SharedProducers, producer_key

PROPERTIES = {"bootstrap.servers": "one:9092,two:9092", "client.id": "shop"}
SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "user",
    "sasl.password": "kanarienvogel-7f3a",
}


class Made:
    """A producer that remembers what it got."""

    def __init__(self, properties) -> None:
        self.sent, self.closed = [], 0
        self.answer: BaseException | None = None

    def send(self, *record):
        self.sent.append(record)
        future: Future = Future()
        if self.answer is None:
            future.set_result(len(self.sent))
        else:
            future.set_exception(self.answer)
        return future

    def close(self, timeout=None):
        self.closed += 1


@pytest.fixture
def made():
    return []


@pytest.fixture
def table(made):
    def make(properties):
        made.append(Made(properties))
        return made[-1]

    return SharedProducers(make)


def test_equal_settings_share_one_producer_until_the_last_is_closed(table, made):
    first = table.share(PROPERTIES)
    second = table.share({**PROPERTIES, "bootstrap.servers": "two:9092, one:9092"})
    other = table.share({**PROPERTIES, "linger.ms": 7})
    assert len(made) == 2
    first.send("t", b"1")
    second.send("t", b"2")
    assert len(made[0].sent) == 2
    first.close()
    first.close()
    assert made[0].closed == 0, "a share counts once"
    with pytest.raises(ClientClosed):
        first.send("t", b"3")
    second.send("t", b"3")
    second.close()
    assert made[0].closed == 1
    assert made[1].closed == 0
    other.close()
    table.share(PROPERTIES).send("t", b"4")
    assert len(made) == 3


def test_a_producer_that_failed_for_good_is_replaced_for_all_of_them(table, made):
    slots = [ProducerSlot(lambda: table.share(PROPERTIES)) for _ in range(2)]
    shares = [slot.get() for slot in slots]
    made[0].answer = ClientFailed("fatal")
    for slot, share in zip(slots, shares, strict=True):
        share.send("t", b"1").exception()
        slot.replace(share)
        slot.get().send("t", b"2").result()
    assert len(made) == 2
    assert len(made[1].sent) == 2
    for slot in slots:
        slot.close()
    assert made[1].closed == 1


@pytest.mark.parametrize(
    "more",
    [
        {"sasl.password": "another"},
        {"sasl.username": "other"},
        {"bootstrap.servers": "one:9092"},
        {"acks": "1", "enable.idempotence": False},
        {"client.id": "another"},
    ],
)
def test_any_difference_is_another_key(more):
    assert producer_key(PROPERTIES | SCRAM) == producer_key(PROPERTIES | SCRAM)
    assert producer_key(PROPERTIES | SCRAM | more) != producer_key(PROPERTIES | SCRAM)


def test_a_changed_credential_file_is_another_key_and_no_key_shows_a_password(tmp_path):
    authority = tmp_path / "ca.pem"
    authority.write_text("one")
    properties = PROPERTIES | SCRAM | {"ssl.ca.location": str(authority)}
    before = producer_key(properties)
    authority.write_text("two")
    assert producer_key(properties) != before
    assert "kanarienvogel" not in repr(before)


def test_a_wrong_property_is_refused_at_once(table, made):
    with pytest.raises(ConfigError):
        table.share({**PROPERTIES, "acks": "perhaps"})
    assert made == []
