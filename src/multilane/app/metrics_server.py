"""Serves `/metrics`, `/livez` and `/readyz` of a run, for the option `--metrics HOST:PORT`.

Thread: its own, one per request; `served` from any.

It answers GET of these three paths and nothing else. A request has five seconds, and at most 16 are served at a time.
On Spark it runs in the driver, which receives what workers report. The probes answer 200, or 503 with the reasons, one
per line.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from multilane.app.client_bounds import ClientBounds
from multilane.app.probes import stalled, unready
from multilane.clock import SystemClock
from multilane.errors import ConfigError
from multilane.logs import logger

if TYPE_CHECKING:
    from multilane.app.app import App
    from multilane.metrics.observer import Observer

log = logger(__name__)

_TIMEOUT: Final = 5.0  # seconds for a whole request, and for its answer
_MAX_CLIENTS: Final = 16  # at a time
_OWN_MACHINE: Final = "127.0.0.1"

HttpAnswer = tuple[int, bytes]  # status and body


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, or `:PORT` for this machine alone."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(f"{text!r} is not HOST:PORT, as in {_OWN_MACHINE}:9400")
    return host or _OWN_MACHINE, int(port)


@contextmanager
def served(app: App, address: str | None, reasons_unready: Callable[[], Sequence[str]] | None = None) -> Iterator[None]:
    """While this lasts, Prometheus can scrape the app there. Without an address nothing happens. `reasons_unready` is
    for a run without groups."""
    if address is None:
        yield
        return
    observer, exposition = _exporter()
    clock = SystemClock()
    ready = reasons_unready or (lambda: unready(app, clock.monotonic()))
    pages = {
        "/metrics": lambda: (200, exposition()),
        "/livez": lambda: _verdict(stalled(app, clock.monotonic())),
        "/readyz": lambda: _verdict(ready()),
    }
    server = _listen(parse_address(address), pages)
    thread = threading.Thread(target=server.serve_forever, name="multilane-metrics", daemon=True)
    thread.start()
    log.info("metrics at http://%s:%d/metrics", *server.server_address[:2])
    try:
        with app.observed_by(observer):
            yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _verdict(reasons: Sequence[str]) -> HttpAnswer:
    return (503, "".join(f"{reason}\n" for reason in reasons).encode()) if reasons else (200, b"ok\n")


def _exporter() -> tuple[Observer, Callable[[], bytes]]:
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        raise ConfigError("--metrics needs the extra `prometheus`: pip install 'multilane[prometheus]'") from None
    from multilane.metrics.prometheus import PrometheusObserver

    observer, registry = PrometheusObserver(), CollectorRegistry()
    registry.register(observer)
    return observer, lambda: generate_latest(registry)


class _MetricsServer(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._clients = ClientBounds("--metrics", "multilane-scraper", _MAX_CLIENTS, _TIMEOUT)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._clients.serve(request, partial(self.process_request_thread, request, client_address))

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if isinstance(error, OSError):
            log.debug("metrics: a client disconnected or was too slow: %s", error)
        else:
            log.exception("metrics: a request failed")


def _listen(address: tuple[str, int], pages: Mapping[str, Callable[[], HttpAnswer]]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            if page is None:
                self.send_error(404)
                return
            status, body = page()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            log.debug("metrics: " + format, *arguments)

    try:
        return _MetricsServer(address, Handler)
    except OSError as error:
        raise ConfigError(f"--metrics {address[0]}:{address[1]}: {error.strerror}. Choose another port") from None
