"""Asks Apicurio's registry by its own HTTP API, for its global ids and content ids.

Thread: any; one request at a time (its owner locks).

Confluent's API has no such ids. The address is the one of the API, as in http://host:8080/apis/registry/v3 (or v2).
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPSHandler, Request, build_opener

from multilane.config.app.registry import SchemaRegistryConfig
from multilane.errors import ConfigError
from multilane.registry.answers import (
    AVRO,
    JSON,
    MOST_REFERENCES,
    PROTOBUF,
    WriterSchema,
    refused,
    too_many_references,
    unknown,
    unreachable,
    unreadable,
)
from multilane.registry.framing import SchemaId
from multilane.registry.protobuf_reader import messages_of

_PATHS: Final = {"global id": "globalIds", "content id": "contentIds"}
_NOT_FOUND: Final = 404
_OWN_404: Final = ("VersionNotFoundException", "ArtifactNotFoundException", "ContentNotFoundException")
_LARGEST: Final = 16 << 20  # bytes of an answer
_JSON_ONLY: Final = ("object", "number", "integer")  # types that Avro does not have


class ApicurioApi:
    def __init__(self, config: SchemaRegistryConfig) -> None:
        """Connects to nobody."""
        self._url = config.url
        self._is_v2 = config.url.endswith("/v2")  # contents have other paths there
        self._timeout = config.timeout
        self._headers = _login(config)
        try:
            context = ssl.create_default_context(cafile=config.ca_file)
            if config.certificate_file is not None:
                context.load_cert_chain(config.certificate_file, config.key_file)
        except (OSError, ValueError) as error:
            raise ConfigError(f"schemaRegistry: its certificates cannot be used: {error}") from None
        self._opener = build_opener(HTTPSHandler(context=context))

    def schema(self, wanted: SchemaId) -> WriterSchema:
        path = f"ids/{_PATHS[wanted.kind]}/{wanted.number}"
        text, content_type = self._get(path, wanted)
        found = dict(self._references(f"{path}/references", wanted, {}))
        return WriterSchema(f"schema {wanted}", _kind(text, content_type, self._url), text, tuple(found.items()))

    def latest(self, subject: str) -> WriterSchema:
        """Of the default group, where Apicurio's serialisers register schemas by their topic."""
        newest = f"groups/default/artifacts/{quote(subject, safe='')}"
        path = newest if self._is_v2 else f"{newest}/versions/branch=latest/content"
        text, content_type = self._get(path, f"artifact {subject}")
        return WriterSchema(f"the newest schema of {subject}", _kind(text, content_type, self._url), text)

    def _references(
        self, path: str, wanted: SchemaId, seen: dict[tuple[object, ...], None]
    ) -> Iterator[tuple[str, str]]:
        for reference in _parsed(self._get(path, wanted)[0], self._url, wanted):
            place = (reference.get("groupId"), reference["artifactId"], reference["version"])
            if place in seen:
                continue
            seen[place] = None
            if len(seen) > MOST_REFERENCES:
                raise too_many_references(self._url, f"schema {wanted}")
            version = "groups/{}/artifacts/{}/versions/{}".format(
                *(quote(str(part), safe="") for part in (place[0] or "default", *place[1:]))
            )
            yield from self._references(f"{version}/references", wanted, seen)
            yield str(reference["name"]), self._get(version if self._is_v2 else f"{version}/content", wanted)[0]

    def _get(self, path: str, what: object) -> tuple[str, str]:
        request = Request(f"{self._url}/{path}", headers=self._headers)  # noqa: S310 - the configuration allows http(s)
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                return answer.read(_LARGEST).decode(), answer.headers.get_content_type()
        except HTTPError as error:
            raise self._refusal(error, what) from None
        except UnicodeDecodeError:
            raise unreadable(self._url, what) from None
        except (OSError, HTTPException) as error:  # URLError and the errors of TLS and of timeouts are OSErrors
            raise unreachable(self._url, what, error) from None

    def _refusal(self, error: HTTPError, what: object) -> Exception:
        try:
            said: Any = json.loads(error.read(_LARGEST))
            name, text = str(said["name"]), str(said.get("title") or said.get("message"))
        except (OSError, ValueError, KeyError, TypeError, HTTPException):
            name, text = "", ""
        if error.code == _NOT_FOUND and name in _OWN_404:
            return unknown(self._url, what)
        return refused(self._url, what, error.code, text)


def _parsed(text: str, url: str, what: object) -> list[Mapping[str, Any]]:
    try:
        found = json.loads(text)
        if all(isinstance(one, dict) and {"artifactId", "version", "name"} <= one.keys() for one in found):
            return list(found)
    except (ValueError, TypeError):
        pass
    raise unreadable(url, what)


def _kind(text: str, content_type: str, url: str) -> str:
    """Apicurio states the media type of a schema, but none for content ids, and JSON is that of two formats."""
    try:
        schema = json.loads(text)
    except ValueError:
        if content_type.endswith("protobuf") or next(messages_of(text), None) is not None:
            return PROTOBUF
        raise unreadable(url, "a schema") from None
    is_json = isinstance(schema, dict) and ("$schema" in schema or schema.get("type") in _JSON_ONLY)
    return JSON if is_json else AVRO


def _login(config: SchemaRegistryConfig) -> dict[str, str]:
    if config.token is not None:
        return {"Authorization": f"Bearer {config.token.reveal()}"}
    if config.username is not None and config.password is not None:
        pair = f"{config.username}:{config.password.reveal()}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}
