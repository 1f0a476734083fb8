"""A schema registry of ours for tests: Confluent's HTTP API on loopback, with logins, TLS, and ways to fail.

Thread: its own threads serve; the test changes `failure` and reads `requests`.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RegistryServer:
    """`failure`: None, a status, "hang", "garbage" or "drop"."""

    def __init__(
        self, *, login: tuple[str, str] | None = None, token: str | None = None, context: ssl.SSLContext | None = None
    ) -> None:
        self.failure: int | str | None = None
        self.requests: list[str] = []
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self._expected = None
        if login is not None:
            self._expected = "Basic " + base64.b64encode(":".join(login).encode()).decode()
        if token is not None:
            self._expected = f"Bearer {token}"
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        scheme = "http"
        if context is not None:
            scheme = "https"
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> RegistryServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def register(
        self, subject: str, schema: object, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        number = len(self._schemas) + 1
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self._schemas[number] = {"schema": text, "schemaType": kind, "references": references or []}
        self._subjects.setdefault(subject, []).append(number)
        return number

    # --- the API -----------------------------------------------------------------------------------------------------

    def answer(self, path: str, headers: Mapping[str, str]) -> tuple[int, object]:
        if self._expected is not None and headers.get("Authorization") != self._expected:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if isinstance(self.failure, int):
            return self.failure, {"error_code": self.failure, "message": "no"}
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            schema = self._schemas.get(int(found[1]))
            return (200, schema) if schema else (404, {"error_code": 40403, "message": "Schema not found"})
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(\w+)", path):
            numbers = self._subjects.get(found[1])
            if not numbers:
                return 404, {"error_code": 40401, "message": "Subject not found"}
            version = len(numbers) if found[2] == "latest" else int(found[2])
            number = numbers[version - 1]
            return 200, {"subject": found[1], "version": version, "id": number, **self._schemas[number]}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                server.requests.append(path)
                if server.failure == "hang":
                    server._released.wait()
                if server.failure in ("drop", "hang"):
                    self.close_connection = True
                    return
                status, body = server.answer(path, self.headers)
                content = json.dumps(body).encode()
                if server.failure == "garbage":
                    status, content = 200, b"<html>"
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
