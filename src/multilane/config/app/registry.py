"""The schema registry of a cluster: its address, its wire format and its login.

Thread: none (pure values).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from multilane.config.app.kinds import Hidden, Seconds, Text, Url, choice
from multilane.config.app.shape import Frozen, setting

CONFLUENT: Final = "confluent"
APICURIO: Final = "apicurio"
WireFormat = Annotated[Literal["confluent", "apicurio"], choice(CONFLUENT, APICURIO)]


class SchemaRegistryConfig(Frozen):
    """Without a login, requests are anonymous."""

    url: Url = setting("The address of its API: Confluent's, or with wireFormat apicurio the one of Apicurio.")
    wire_format: WireFormat = setting(
        "What precedes a payload: a zero byte and a schema id of 4 bytes (confluent) or of 8 bytes (apicurio).",
        CONFLUENT,
    )
    username: Text | None = setting("The user name of a basic login.", None)
    password: Hidden | None = setting("Its password; write ${NAME} and keep it in the environment.", None)
    token: Hidden | None = setting("A bearer token instead; write ${NAME} and keep it in the environment.", None)
    ca_file: Text | None = setting("A PEM file of authorities to trust; without it, the usual public ones.", None)
    certificate_file: Text | None = setting("A PEM file with the client's certificate, for mutual TLS.", None)
    key_file: Text | None = setting("A PEM file with its private key, unless the certificate's file has it.", None)
    timeout: Seconds = setting("How long a request may take.", 5.0)
