"""Protocols, logins and TLS sources from properties, and the secrecy of secrets."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import pytest

from certificates import Authority
from multilane import Admin, Producer
from multilane.client.net.tls import tls_context
from multilane.config.connection import ConnectionConfig, connection_key, parse_connection
from multilane.config.security import PasswordLogin, SecurityProtocol, Token, TokenLogin
from multilane.config.tls import PemFile, PemText, TlsConfig
from multilane.errors import ConfigError
from multilane.secret import Secret

CANARY = "canary-7f3a"
SCRAM = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": CANARY}
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{CANARY}";'
AUTHORITY = Authority()
CLIENT = AUTHORITY.client()


def provider() -> Token:
    return Token(Secret(CANARY), expires_at=0.0)


def parse(protocol: str | None = None, **more: Any) -> ConnectionConfig:
    chosen = {} if protocol is None else {"security.protocol": protocol}
    config = parse_connection({"bootstrap.servers": "a:1", **chosen, **more})
    assert CANARY not in repr(config)
    assert CANARY not in str(config)
    assert CANARY not in repr(connection_key(config))
    return config


def fault(protocol: str | None = None, **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(protocol, **more)
    # The whole rendered exception, so a chained cause cannot carry the secret out either.
    message = "".join(traceback.format_exception_only(caught.value))
    cause = caught.value.__cause__ or ("" if caught.value.__suppress_context__ else caught.value.__context__)
    assert CANARY not in message
    assert CANARY not in str(cause)
    return str(caught.value)


def tls_of(**more: Any) -> TlsConfig:
    tls = parse("SSL", **more).security.tls
    assert tls is not None
    return tls


class TestProtocol:
    def test_default(self) -> None:
        security = parse().security
        assert security.protocol is SecurityProtocol.PLAINTEXT
        assert security.tls is None
        assert security.sasl is None

    @pytest.mark.parametrize(
        ("name", "tls", "sasl"),
        [("PLAINTEXT", False, False), ("ssl", True, False), ("SASL_PLAINTEXT", False, True), ("sasl_ssl", True, True)],
    )
    def test_parts(self, name: str, tls: bool, sasl: bool) -> None:
        security = parse(name, **(SCRAM if sasl else {})).security
        assert (security.tls is not None, security.sasl is not None) == (tls, sasl)

    def test_unknown(self) -> None:
        assert "'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT', 'SASL_SSL'" in fault("TLS")

    def test_credentials_without_a_protocol_are_an_error(self) -> None:
        message = fault(**SCRAM)
        assert message.startswith(
            "sasl.mechanism, sasl.username, sasl.password: set, but security.protocol is PLAINTEXT"
        )
        assert message.endswith("set it to SASL_SSL")

    def test_an_authority_without_a_protocol_is_an_error(self) -> None:
        assert "set it to SSL or SASL_SSL" in fault(**{"ssl.ca.location": "ca.pem"})

    def test_unused_credentials_with_an_explicit_protocol_are_a_warning(self) -> None:
        config = parse("SSL", **SCRAM)
        assert config.security.sasl is None
        assert config.warnings == (
            "sasl.mechanism, sasl.username, sasl.password: set, but security.protocol is SSL, so it is not used",
        )


class TestLogin:
    def test_password(self) -> None:
        assert parse("SASL_SSL", **SCRAM).security.sasl == PasswordLogin("SCRAM-SHA-512", "alice", Secret(CANARY))

    def test_jaas_means_the_same(self) -> None:
        jaas = parse("SASL_SSL", **{"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS})
        assert jaas == parse("SASL_SSL", **SCRAM)
        assert jaas == parse("SASL_SSL", **SCRAM, **{"sasl.jaas.config": Secret(JAAS)})

    def test_jaas_that_differs(self) -> None:
        assert "differ" in fault("SASL_SSL", **{**SCRAM, "sasl.password": f"{CANARY}2"}, **{"sasl.jaas.config": JAAS})

    def test_jaas_for_another_mechanism(self) -> None:
        message = fault("SASL_SSL", **{"sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS})
        assert message == "sasl.jaas.config: its login module is for SCRAM, but sasl.mechanism is PLAIN"

    @pytest.mark.parametrize("missing", ["sasl.username", "sasl.password"])
    @pytest.mark.parametrize("value", [None, ""])
    def test_incomplete(self, missing: str, value: str | None) -> None:
        assert "needs a user name and a password" in fault("SASL_SSL", **{**SCRAM, missing: value})

    def test_mechanism_missing(self) -> None:
        assert "GSSAPI, is not supported" in fault("SASL_SSL", **{**SCRAM, "sasl.mechanism": None})

    def test_mechanism_unknown(self) -> None:
        assert "'OAUTHBEARER'" in fault("SASL_SSL", **{**SCRAM, "sasl.mechanism": "GSSAPI"})

    def test_a_password_that_is_no_text(self) -> None:
        assert "a value of type bytes" in fault("SASL_SSL", **{**SCRAM, "sasl.password": CANARY.encode()})

    @pytest.mark.parametrize("name", ["sasl.username", "sasl.password", "sasl.jaas.config"])
    @pytest.mark.parametrize("wrap", [str, Secret])
    def test_a_text_that_is_not_unicode(self, name: str, wrap: Any) -> None:
        assert "not valid Unicode" in fault("SASL_SSL", **{**SCRAM, name: wrap(f"{CANARY}\udcff")})

    def test_plain_with_tls(self) -> None:
        assert parse("SASL_SSL", **{**SCRAM, "sasl.mechanism": "PLAIN"}).warnings == ()

    def test_plain_without_tls_is_refused(self) -> None:
        assert "sends the password unencrypted" in fault("SASL_PLAINTEXT", **{**SCRAM, "sasl.mechanism": "PLAIN"})

    def test_plain_without_tls_by_name(self) -> None:
        config = parse("SASL_PLAINTEXT", **{**SCRAM, "sasl.mechanism": "PLAIN", "sasl.allow.insecure": "true"})
        assert config.security.sasl == PasswordLogin("PLAIN", "alice", Secret(CANARY))
        assert config.warnings == ("sasl.allow.insecure is set: the password is sent unencrypted",)

    def test_plain_without_tls_by_the_flag_as_it_was_spelled_before(self) -> None:
        config = parse("SASL_PLAINTEXT", **{**SCRAM, "sasl.mechanism": "PLAIN", "sasl.plain.allow.insecure": "true"})
        assert config.warnings == ("sasl.plain.allow.insecure is set: the password is sent unencrypted",)

    def test_pickle_is_refused_with_a_secret(self) -> None:
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(parse("SASL_SSL", **SCRAM))


class TestTokenLogin:
    OAUTH = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": provider}  # noqa: RUF012 - a constant

    def test_provider_and_extensions(self) -> None:
        login = parse("SASL_SSL", **self.OAUTH, **{"sasl.oauthbearer.extensions": "b=2, a=1"}).security.sasl
        assert login == TokenLogin(provider, (("a", "1"), ("b", "2")))

    def test_a_token_without_tls_is_refused(self) -> None:
        message = fault("SASL_PLAINTEXT", **self.OAUTH)
        assert "OAUTHBEARER over SASL_PLAINTEXT sends the token unencrypted; use SASL_SSL" in message
        assert "sasl.allow.insecure=true" in message

    def test_a_token_without_tls_by_name(self) -> None:
        config = parse("SASL_PLAINTEXT", **self.OAUTH, **{"sasl.allow.insecure": "true"})
        assert config.security.sasl == TokenLogin(provider)
        assert config.warnings == ("sasl.allow.insecure is set: the token is sent unencrypted",)

    @pytest.mark.parametrize("client", [Producer, Admin])
    def test_clients_of_librdkafka_have_the_same_rule(self, client: Any) -> None:
        properties = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT", **self.OAUTH}
        with pytest.raises(ConfigError, match="sends the token unencrypted"):
            client(properties)

    def test_the_function_is_not_shown(self) -> None:
        class Provider:
            def __repr__(self) -> str:
                return CANARY

            def __call__(self) -> Token:
                return provider()

        parse("SASL_SSL", **{**self.OAUTH, "sasl.oauthbearer.token.provider": Provider()})

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            ({"sasl.oauthbearer.token.provider": None}, "needs sasl.oauthbearer.token.provider"),
            ({"sasl.oauthbearer.token.provider": CANARY}, "a value of type str is not valid; write a function"),
            ({"sasl.password": CANARY}, "sasl.password does not apply to sasl.mechanism OAUTHBEARER"),
            ({"sasl.oauthbearer.extensions": CANARY}, "write every extension as name=value"),
            ({"sasl.oauthbearer.extensions": f"a={CANARY},a=2"}, "given twice"),
        ],
    )
    def test_refused(self, more: dict[str, object], message: str) -> None:
        assert message in fault("SASL_SSL", **{**self.OAUTH, **more})

    def test_an_unhashable_function(self) -> None:
        class Provider:
            __hash__ = None  # type: ignore[assignment]

            def __call__(self) -> Token:
                return provider()

        assert "hashable" in fault("SASL_SSL", **{**self.OAUTH, "sasl.oauthbearer.token.provider": Provider()})


class TestTls:
    def test_default(self) -> None:
        assert tls_of() == TlsConfig()

    def test_disabled_host_name_verification_gets_a_warning(self) -> None:
        for value in ("", "none"):
            config = parse("SSL", **{"ssl.endpoint.identification.algorithm": value})
            assert config.security.tls == TlsConfig(verify_hostname=False)
            assert "are not verified" in config.warnings[0]

    def test_authority_file(self) -> None:
        expected = TlsConfig(trust=PemFile("ca.pem"))
        assert tls_of(**{"ssl.ca.location": "ca.pem"}) == expected
        assert tls_of(**{"ssl.truststore.location": "ca.pem", "ssl.truststore.type": "pem"}) == expected

    def test_authority_text(self) -> None:
        assert tls_of(**{"ssl.truststore.certificates": AUTHORITY.certificate}).trust == PemText(
            Secret(AUTHORITY.certificate)
        )

    def test_librdkafka_client_files(self) -> None:
        tls = tls_of(**{"ssl.certificate.location": "c.pem", "ssl.key.location": "k.pem", "ssl.key.password": CANARY})
        assert (tls.certificate, tls.key, tls.key_password) == (PemFile("c.pem"), PemFile("k.pem"), Secret(CANARY))

    def test_java_pem_keystore(self) -> None:
        tls = tls_of(**{"ssl.keystore.location": "both.pem", "ssl.keystore.type": "PEM"})
        assert (tls.certificate, tls.key) == (PemFile("both.pem"), None)

    def test_java_inline_keystore(self) -> None:
        tls = tls_of(**{"ssl.keystore.certificate.chain": CLIENT.certificate, "ssl.keystore.key": CLIENT.key})
        assert tls.key == PemText(Secret(CLIENT.key))
        assert CLIENT.key.splitlines()[1] not in repr(tls)
        tls_context(tls)

    def test_pem_on_one_line_as_properties_files_have_it(self) -> None:
        tls = tls_of(
            **{
                "ssl.truststore.certificates": AUTHORITY.certificate.replace("\n", " "),
                "ssl.keystore.certificate.chain": CLIENT.certificate.replace("\n", ""),
                "ssl.keystore.key": CLIENT.key.replace("\n", " "),
            }
        )
        tls_context(tls)

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            ({"ssl.truststore.location": "t.jks"}, "keytool -exportcert"),
            ({"ssl.truststore.location": "t.jks"}, "if the file is PEM, set ssl.truststore.type=PEM"),
            ({"ssl.truststore.location": "t.p12", "ssl.truststore.type": "PKCS12"}, "openssl pkcs12"),
            ({"ssl.keystore.location": "k.jks"}, "keytool -importkeystore"),
            ({"ssl.keystore.location": "k.jks", "ssl.keystore.type": "JKS"}, "'JKS' is not supported"),
            ({"ssl.truststore.password": CANARY}, "PEM truststore has no password"),
            ({"ssl.keystore.password": CANARY}, "set the key's password with ssl.key.password"),
            ({"ssl.ca.location": "a", "ssl.truststore.certificates": CANARY}, "exclude each other"),
            ({"ssl.certificate.location": "a", "ssl.keystore.certificate.chain": CANARY}, "exclude each other"),
            ({"ssl.key.location": "a", "ssl.keystore.key": CANARY}, "exclude each other"),
            ({"ssl.truststore.certificates": CANARY}, "no PEM block of a certificate"),
            ({"ssl.certificate.location": "a", "ssl.keystore.key": CANARY}, "no PEM block of a private key"),
            ({"ssl.key.location": "k.pem"}, "without a certificate"),
            ({"ssl.key.password": CANARY}, "without a private key"),
            ({"ssl.keystore.certificate.chain": CLIENT.certificate}, "without its private key"),
            ({"ssl.ca.location": f"-----BEGIN {CANARY}"}, "PEM text, not a path"),
            (
                {"ssl.certificate.location": "a", "ssl.key.location": f"-----BEGIN {CANARY}"},
                "set ssl.keystore.key instead",
            ),
            ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "'TLSv1.1' is not supported"),
            ({"ssl.enabled.protocols": ""}, "is empty"),
            ({"enable.ssl.certificate.verification": "false"}, "always verified"),
        ],
    )
    def test_refused(self, more: dict[str, object], message: str) -> None:
        assert message in fault("SSL", **more)

    def test_versions(self) -> None:
        assert tls_of(**{"ssl.enabled.protocols": "TLSv1.3"}).versions == ("TLSv1.3",)
        assert tls_of(**{"ssl.enabled.protocols": ["TLSv1.3", "TLSv1.2"]}).versions == ("TLSv1.2", "TLSv1.3")


class TestConnectionKey:
    SAME = {"security.protocol": "SASL_SSL", **SCRAM, "ssl.ca.location": "ca.pem"}  # noqa: RUF012 - a constant

    def key(self, **more: Any) -> object:
        return connection_key(parse_connection({"bootstrap.servers": "a:1,b:2", **self.SAME, **more}))

    @pytest.mark.parametrize(
        "more",
        [
            {"bootstrap.servers": "b:2,a:1,b:2"},
            {"client.id": "other"},
            {"client.rack": "r1"},
            {"default.api.timeout.ms": 5},
            {"metric.reporters": "x"},
            {"request.timeout.ms": "30s"},
        ],
    )
    def test_shared(self, more: dict[str, object]) -> None:
        assert self.key(**more) == self.key()
        assert hash(self.key(**more)) == hash(self.key())

    @pytest.mark.parametrize(
        "more",
        [
            {"bootstrap.servers": "a:1"},
            {"sasl.password": "another"},
            {"sasl.username": "bob"},
            {"sasl.mechanism": "SCRAM-SHA-256"},
            {"security.protocol": "SASL_PLAINTEXT"},
            {"ssl.ca.location": "other.pem"},
            {"ssl.endpoint.identification.algorithm": ""},
            {"request.timeout.ms": 29_000},
            {"receive.message.max.bytes": 99_000_000},
        ],
    )
    def test_apart(self, more: dict[str, object]) -> None:
        assert self.key(**more) != self.key()
