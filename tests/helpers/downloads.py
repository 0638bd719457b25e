"""A server on this machine that has one file."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Server(ThreadingHTTPServer):
    """Serve one file; a test says how badly."""

    content = b""
    cut: int | None = None
    status = 200
    asked = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    """Answer every question with the file."""

    server: Server

    def do_GET(self) -> None:
        """Send the file, or as much of it as the test allows."""
        self.server.asked += 1
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content[: self.server.cut])

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving(content: bytes) -> Iterator[Server]:
    """Run a server that has this content."""
    with Server() as server:
        server.content = content
        thread = Thread(target=partial(server.serve_forever, poll_interval=0.01))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
