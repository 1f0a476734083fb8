"""Which consumers may be one: any difference in who they are keeps them apart, and no secret is seen."""

from __future__ import annotations

import pytest

from multilane.config.consumer import parse_consumer
from multilane.config.sharing_key import SharingKey, sharing_key

SCRAM = {
    "bootstrap.servers": "a:1,b:2",
    "group.id": "g",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "ann",
    "sasl.password": "canary-9f3b",
}


def key(topic: str | None = "t", **changes: object) -> SharingKey:
    properties = SCRAM | {name.replace("__", "."): value for name, value in changes.items()}
    return sharing_key(parse_consumer(properties), topic)


@pytest.mark.parametrize("brokers", ["b:2,a:1", " a:1 , b:2 ", "A:1,b:2", "a:1,b:2,a:1"])
def test_the_order_and_spelling_of_brokers_do_not_matter(brokers):
    assert key(bootstrap__servers=brokers) == key()
    assert key(bootstrap__servers=brokers).digest == key().digest


def test_settings_of_fetching_do_not_matter():
    assert key(fetch__max__bytes=1_000_000, session__timeout__ms=20_000, client__id="other") == key()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"bootstrap__servers": "a:1"}, "brokers"),
        ({"group__id": "h"}, "group"),
        ({"sasl__mechanism": "SCRAM-SHA-256"}, "SASL mechanism"),
        ({"sasl__username": "bob"}, "SASL user name"),
        ({"sasl__password": "another"}, "SASL credentials"),
        ({"isolation__level": "read_committed"}, "isolation level"),
        ({"ssl__endpoint__identification__algorithm": ""}, "TLS certificates"),
    ],
)
def test_any_other_difference_does(changes, what):
    assert key(**changes) != key()
    assert key(**changes).digest != key().digest
    assert key().differences(key(**changes)) == (what,)


def test_the_topic_counts_where_it_is_given():
    assert key("t") != key("u")
    assert key(None) == key(None)


def test_a_changed_file_is_another_key(tmp_path):
    path = tmp_path / "ca.pem"
    path.write_text("one")
    first = key(ssl__ca__location=str(path))
    assert key(ssl__ca__location=str(path)) == first
    copy = tmp_path / "copy.pem"
    copy.write_text("one")
    assert key(ssl__ca__location=str(copy)) == first, "what it holds counts, not where it is"
    path.write_text("two")
    assert key(ssl__ca__location=str(path)) != first


def test_a_token_function_is_known_by_itself():
    def one() -> None: ...

    def other() -> None: ...

    base = {name: value for name, value in SCRAM.items() if name not in ("sasl.username", "sasl.password")}

    def token_key(provider: object) -> SharingKey:
        properties = base | {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": provider}
        return sharing_key(parse_consumer(properties), "t")

    assert token_key(one) == token_key(one) != token_key(other)


def test_no_secret_and_no_name_is_seen():
    shown = f"{key()!r} {key()} {key().digest}"
    for hidden in ("canary-9f3b", "ann", "a:1"):
        assert hidden not in shown
    assert "canary-9f3b" not in "".join(str(getattr(key(), name)) for name in key().__slots__)
