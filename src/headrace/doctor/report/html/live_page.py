"""The HTML report of a run that goes on, served on this machine alone: each request renders what is known by then."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer

from headrace.errors import HeadraceError

REFRESH_S = 5
"""Seconds after which a browser asks again."""
LOOPBACK = "127.0.0.1"


class LivePageServer(HTTPServer):
    """Server of one page on the loopback address. Only requests that name this address are answered.

    (Another site's script may send a request to a name of its own that leads here; it could then read the answer.)

    Args:
        page: Returns the page as it is now.
        port: 0 for any that is free.
    """

    def __init__(self, page: Callable[[], str], port: int = 0) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.page = page

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/"

    @property
    def names(self) -> set[str]:
        """Names by which a browser may ask for it."""
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
        """Print nothing: the terminal belongs to whoever started it."""
