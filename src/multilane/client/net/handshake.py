"""The handshakes before the first request: API versions and SASL.

Thread: none (pure): generators that yield a request, receive the reply, and return the result.

`introduce` returns the API versions of the broker. `authenticate` runs a SASL login and returns its lifetime (KIP-368);
it runs again on the live connection before that time ends.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

from multilane.errors import SaslError, printable
from multilane.version import __version__
from multilane.wire.framing import Frame
from multilane.wire.messages import ApiKey, decode_response, request_type, response_type
from multilane.wire.sasl import Conversation
from multilane.wire.versions import SPOKEN, Versions, decode_api_versions

_ILLEGAL_SASL_STATE: Final = 34
_UNSUPPORTED_MECHANISM: Final = 33


@dataclass(frozen=True, slots=True)
class Reply:
    frame: Frame
    correlation_id: int


Handshake = Generator[Any, Reply, Any]


def introduce() -> Generator[Any, Reply, Versions]:
    version = SPOKEN[ApiKey.API_VERSIONS][1]
    while True:
        kind = request_type(ApiKey.API_VERSIONS, version)
        reply = yield _introduction(kind)
        versions = decode_api_versions(reply.frame, reply.correlation_id, version)
        if versions.retry_with is None:
            return versions
        version = versions.retry_with


def _introduction(kind: Any) -> Any:
    if "client_software_name" not in kind.__dataclass_fields__:
        return kind()
    return kind(client_software_name="multilane", client_software_version=__version__)


def authenticate(mechanism: str, conversation: Conversation, versions: Versions) -> Generator[Any, Reply, float | None]:
    """The lifetime of the login in seconds; None: unlimited."""
    yield from _agree_on(mechanism, versions)
    kind = request_type(ApiKey.SASL_AUTHENTICATE, versions.pick(ApiKey.SASL_AUTHENTICATE))
    message: bytes | None = conversation.first()
    while True:
        reply = yield kind(auth_bytes=message)
        response = decode_response(response_type(kind), reply.frame, reply.correlation_id)
        if int(response.error_code):
            refusal = getattr(conversation, "refusal", None)  # OAUTHBEARER sends the reason one step before
            reason = printable(response.error_message) or "no reason given"
            raise refusal or SaslError(f"the broker refused the {mechanism} login: {reason}")
        message = conversation.next(bytes(response.auth_bytes))
        if message is None:
            return _lifetime(response)


def _agree_on(mechanism: str, versions: Versions) -> Generator[Any, Reply, None]:
    kind = request_type(ApiKey.SASL_HANDSHAKE, versions.pick(ApiKey.SASL_HANDSHAKE, at_least=1))
    reply = yield kind(mechanism=mechanism)
    response = decode_response(response_type(kind), reply.frame, reply.correlation_id)
    code = int(response.error_code)
    if code == _UNSUPPORTED_MECHANISM:
        offered = ", ".join(printable(m, 40) for m in response.mechanisms) or "none"
        raise SaslError(f"the broker does not offer sasl.mechanism {mechanism}; it offers {offered}")
    if code == _ILLEGAL_SASL_STATE:
        raise SaslError("this listener of the broker does not use SASL: security.protocol does not match")
    if code:
        raise SaslError(f"the broker refused the SASL handshake with error {code}")


def _lifetime(response: Any) -> float | None:
    lifetime = getattr(response, "session_lifetime", None)
    seconds = lifetime.total_seconds() if lifetime is not None else 0.0
    return seconds if seconds > 0 else None
