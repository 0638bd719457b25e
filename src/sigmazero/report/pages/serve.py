"""Serve the page of a store to this machine alone, made anew while facts arrive.

Anyone with the address may read: it has a token that cannot be guessed, and the server listens on 127.0.0.1 only. A
page of another site cannot reach it by a name of its own that leads here, since requests must use this machine's name.
"""

import json
import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from sigmazero.core.messages import one_line
from sigmazero.report.pages.render import lined_up, render
from sigmazero.report.status import running, status_rows
from sigmazero.store.store import Store

HOST = "127.0.0.1"
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address has the token
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
}
# Errors of a store that is damaged, gone or being replaced; it may be whole again at the next request.
UNREADABLE = (OSError, ValueError, LookupError, RuntimeError)
MAX_FAILURES = 20  # that the page lists


class LiveServer(ThreadingHTTPServer):
    """Serve one store; `render` makes its page, and the browser asks for news every few `seconds`."""

    daemon_threads = True

    def __init__(self, path: Path, render: Callable[[Store], str], port: int = 0, seconds: float = 2.0) -> None:
        self.path, self._render, self.seconds = path, render, seconds
        self.token = secrets.token_urlsafe(24)
        self._lock, self._made = Lock(), ("", "")
        super().__init__((HOST, port), Handler)

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"http://{HOST}:{self.server_address[1]}/{self.token}/"

    def shell(self) -> str:
        """Return the page around the report: how far the run is, and a frame with the report."""
        live = {"milliseconds": round(self.seconds * 1000)}
        return render("live.html", title=self.path.stem, data={"live": live})

    def page(self) -> str:
        """Return the report, made anew if the store has changed; one at a time, since a large one takes a while."""
        with self._lock:
            try:
                with Store(self.path) as store:
                    now = store.version()
                    if self._made[0] != now:
                        self._made = now, self._render(store)
            except UNREADABLE as error:
                return render("notice.html", title=self.path.stem, text=one_line(error), data={})
            return self._made[1]

    def progress(self) -> str:
        """Return how far the store is, as JSON for the script of the page."""
        answer: dict[str, Any]
        try:
            with Store(self.path) as store:
                answer = {"version": store.version(), "html": progress(store)}
        except UNREADABLE as error:
            answer = {"error": one_line(error)}
        return json.dumps(answer)


def progress(store: Store) -> str:
    """Return how far each cell is, how fast the run at work is, and what failed, as HTML."""
    states, note = store.status(), store.progress()
    done, total = sum(one.done for one in states), sum(one.cell.rows for one in states)
    ended = f"{done} of {total} rows; nothing is running" if done < total else f"all {total} rows are done"
    names = {one.cell.key: f"{one.cell.attack} against {one.cell.model}" for one in states}
    failures = [
        (f"{names.get(one.key, one.key[:12])}, rows {one.start} to {one.stop - 1}", one.error.strip().splitlines()[-1:])
        for one in store.failures()
    ]
    rows = status_rows(states)
    return render(
        "progress.html",
        line=running(note) if note else ended,
        done=done,
        total=total,
        failures=failures[:MAX_FAILURES],
        more=max(len(failures) - MAX_FAILURES, 0),
        table=lined_up("progress-cells", "Cells", rows, rows[0] if rows else ()),
    )


class Handler(BaseHTTPRequestHandler):
    """Answer requests for three pages, and no others."""

    server: LiveServer
    server_version, sys_version = "sigmazero", ""
    timeout = 30  # seconds in which a request must be complete

    def do_GET(self) -> None:
        """Answer if the request is for this machine and knows the token."""
        server = self.server
        token, slash, name = self.path.removeprefix("/").partition("/")
        known = slash and secrets.compare_digest(token.encode(), server.token.encode())
        here = self.headers.get("Host") in [f"{host}:{server.server_address[1]}" for host in (HOST, "localhost")]
        pages = {"": (server.shell, "text/html"), "page": (server.page, "text/html")}
        pages["progress"] = (server.progress, "application/json")
        answered = known and here and name in pages
        make, kind = pages[name] if answered else (lambda: "not found\n", "text/plain")
        body = make().encode()
        self.send_response(HTTPStatus.OK if answered else HTTPStatus.NOT_FOUND)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), **HEADERS}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing: the address has the token."""
