"""HTML report of a running command, served only on this machine. Each request renders the current state."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer

from headrace.errors import HeadraceError

REFRESH_S = 5
"""Refresh interval of the browser in seconds."""
LOOPBACK = "127.0.0.1"


class LivePageServer(HTTPServer):
    """Server of one page on the loopback address, which answers only requests with a matching `Host` header.

    The check stops DNS rebinding: a foreign site's script could point its own name here and read the answer.

    Args:
        page: Returns the current page.
        port: Port number, or 0 for any free port.
    """

    def __init__(self, page: Callable[[], str], port: int = 0) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.page = page

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/"

    @property
    def names(self) -> set[str]:
        """Accepted values of the `Host` header."""
        return {f"{host}:{self.server_port}" for host in (LOOPBACK, "localhost")}


class _Handler(BaseHTTPRequestHandler):
    server: LivePageServer
    server_version, sys_version = "headrace", ""
    timeout = 10

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.names:
            self.send_error(HTTPStatus.FORBIDDEN, "expected this machine's own address")
        elif self.path != "/":
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            try:
                body = self.server.page().encode()
            except HeadraceError as error:
                self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "no report", str(error))
            else:
                self._answer(body)

    def _answer(self, body: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        headers = {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Length": str(len(body)),
            "Refresh": str(REFRESH_S),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing: the terminal belongs to the user's command."""
