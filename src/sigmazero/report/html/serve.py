"""A store as a page that is made anew while facts arrive, for this machine alone.

Whoever knows the address may read: it has a token that nobody can guess, and the server listens on 127.0.0.1 only. A
page of another site cannot reach it by a name of its own that leads here: a request must call this machine by its own.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from sigmazero.core.messages import one_line
from sigmazero.report.html import live
from sigmazero.store.store import Store

HERE = "127.0.0.1"
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address has the token
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
}
# What a store that is damaged, gone or being written anew raises; it may be whole again when asked next.
UNREADABLE = (OSError, ValueError, LookupError, RuntimeError)


class LiveServer(ThreadingHTTPServer):
    """Serves one store; `render` makes its page."""

    daemon_threads = True

    def __init__(self, path: Path, render: Callable[[Store], str], port: int = 0, seconds: float = 2.0) -> None:
        self.path, self._render, self.seconds = path, render, seconds
        self.token = secrets.token_urlsafe(24)
        self._one, self._made = Lock(), ("", "")
        super().__init__((HERE, port), Handler)

    @property
    def url(self) -> str:
        """Where to look."""
        return f"http://{HERE}:{self.server_address[1]}/{self.token}/"

    def names(self) -> tuple[str, ...]:
        """What a request may call this server."""
        return tuple(f"{name}:{self.server_address[1]}" for name in (HERE, "localhost"))

    def page(self) -> str:
        """The report, made anew if there are new facts; one at a time, since a large one takes a while."""
        with self._one:
            try:
                with Store(self.path) as store:
                    now = live.version(store)
                    if self._made[0] != now:
                        self._made = now, self._render(store)
            except UNREADABLE as error:
                return live.notice(self.path.stem, one_line(error))
            return self._made[1]

    def progress(self) -> str:
        """How far the store is, for the script of the page."""
        said: dict[str, Any]
        try:
            with Store(self.path) as store:
                said = {"version": live.version(store), "html": live.progress(store)}
        except UNREADABLE as error:
            said = {"error": one_line(error)}
        return json.dumps(said)


class Handler(BaseHTTPRequestHandler):
    """Answers requests for three pages, and no others."""

    server: LiveServer
    server_version, sys_version = "sigmazero", ""
    timeout = 30  # seconds in which a request must be said

    def do_GET(self) -> None:
        """A page, if the request is for this machine and knows the token."""
        server = self.server
        token, slash, name = self.path.removeprefix("/").partition("/")
        known = slash and secrets.compare_digest(token.encode(), server.token.encode())
        if self.headers.get("Host") not in server.names() or not known:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "nothing here\n")
        elif name == "":
            self._answer(HTTPStatus.OK, "text/html", live.live_page(server.path.stem, server.seconds))
        elif name == "page":
            self._answer(HTTPStatus.OK, "text/html", server.page())
        elif name == "progress":
            self._answer(HTTPStatus.OK, "application/json", server.progress())
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "nothing here\n")

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            **HEADERS,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is written down: the address has the token."""
