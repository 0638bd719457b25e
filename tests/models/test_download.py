import hashlib
import re
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from sigmazero.models import DownloadError, UncheckedDownload, UnknownModel, fetch, zoo

CONTENT = bytes(range(256)) * 2000
HASH = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves one file; the test sets how badly."""

    content = CONTENT
    ranges = True
    length = True
    cut: int | None = None
    status = 200
    said: str | None = None

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        body, status = self.server.content, self.server.status
        start = 0
        if wanted and self.server.ranges:
            start, status = int(re.findall(r"\d+", wanted)[0]), 206
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        self.send_response(status)
        if start:
            whole = self.server.said or len(body)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{whole}")
        if self.server.length:
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start : self.server.cut])

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")  # it is here, whatever the way to the network
    with Server() as running:
        thread = Thread(target=partial(running.serve_forever, poll_interval=0.01))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def published(server, monkeypatch):
    """A zoo with one model, published on the local server; call it to choose the hash."""

    def publish(sha256=HASH):
        address = f"http://127.0.0.1:{server.server_port}/x1.pt"
        entries = zoo.parse(
            '[X1]\ntitle = "x"\narchitecture = "smallcnn"\ndataset = "mnist"\nthreat_model = "none"\n'
            'input_size = [1, 28, 28]\nsource = "the page of X1"\n'
            f'weights = [{{ file = "deep/x1.pt", url = "{address}"'
            + (f', sha256 = "{sha256}"' if sha256 else "")
            + "}]\n"
        )
        monkeypatch.setattr(zoo, "entries", lambda: entries)

    publish()
    return publish


def test_download_reports_progress_and_ends_in_place(server, published, tmp_path):
    seen = []
    path = fetch("x1", tmp_path, lambda done, total: seen.append((done, total)))
    assert path == tmp_path / "deep" / "x1.pt"
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert [p.name for p in path.parent.iterdir()] == ["x1.pt"]
    assert fetch("X1", tmp_path) == path
    assert len(server.asked) == 1  # the file in place is not downloaded again


def test_default_folder_is_the_first_one_searched(published, tmp_path, monkeypatch):
    monkeypatch.setenv("SIGMAZERO_HOME", str(tmp_path / "home"))
    assert fetch("X1") == tmp_path / "home" / "models" / "deep" / "x1.pt"


def test_interrupted_transfer_is_resumed(server, published, tmp_path):
    server.cut = 100_000
    with pytest.raises(DownloadError, match=r"100000 of 512000 bytes.*fetch it again to go on.*the page of X1"):
        fetch("X1", tmp_path)
    assert not (tmp_path / "deep" / "x1.pt").exists()
    server.cut = None
    seen = []
    path = fetch("X1", tmp_path, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-"]
    assert seen[0][0] > 100_000
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_server_without_ranges_starts_over(server, published, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x1.pt.part").write_bytes(b"old" * 100)
    server.ranges = False
    assert fetch("X1", tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=300-"]


def test_partial_file_that_is_too_long_starts_over(server, published, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x1.pt.part").write_bytes(CONTENT + b"more")
    assert fetch("X1", tmp_path).read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(CONTENT) + 4}-", None]


def test_server_that_does_not_tell_the_length(server, published, tmp_path):
    server.length = False
    seen = []
    assert fetch("X1", tmp_path, lambda *state: seen.append(state)).read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), None)


def test_wrong_hash_leaves_nothing(published, tmp_path):
    published("0" * 64)
    with pytest.raises(DownloadError, match=f"wrong file, which was deleted: .*{HASH}, expected {'0' * 64}"):
        fetch("X1", tmp_path)
    assert not list((tmp_path / "deep").iterdir())


def test_wrong_file_in_place_is_replaced(published, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x1.pt").write_bytes(b"wrong")
    assert fetch("X1", tmp_path).read_bytes() == CONTENT


def test_web_page_in_place_of_the_file(server, published, tmp_path):
    server.content = b"<!DOCTYPE html><html>sign in</html>"
    with pytest.raises(DownloadError, match=r"sent a web page.*open the address in a browser"):
        fetch("X1", tmp_path)
    assert not list((tmp_path / "deep").iterdir())


def test_errors_of_the_server(server, published, tmp_path):
    server.status = 404
    with pytest.raises(DownloadError, match=r"404.*the page of X1"):
        fetch("X1", tmp_path)
    server.shutdown()
    server.server_close()
    with pytest.raises(DownloadError, match="failed"):
        fetch("X1", tmp_path)


def test_models_without_an_address_name_their_page(tmp_path):
    with pytest.raises(DownloadError, match=r"C1 cannot be downloaded .*drive\.google\.com") as caught:
        fetch("C1", tmp_path)
    assert str(tmp_path / "cifar10" / "Linf" / "Carmon2019Unlabeled.pt") in str(caught.value)
    with pytest.raises(UnknownModel):
        fetch("nothing", tmp_path)


def test_a_file_without_a_known_hash_says_so(server, published, tmp_path):
    published(None)
    with pytest.warns(
        UncheckedDownload, match=f"no hash is known for deep/x1.pt: .* 512000 bytes; its sha256 is {HASH}"
    ):
        path = fetch("X1", tmp_path)
    assert path.read_bytes() == CONTENT


def test_a_file_without_a_known_hash_is_caught_by_its_length(server, published, tmp_path):
    published(None)
    server.cut = 100_000
    with pytest.raises(DownloadError, match="100000 of 512000 bytes"):
        fetch("X1", tmp_path)
    # What came of it is not gone on with: by now it may be another file.
    server.cut, server.content = None, CONTENT[::-1]
    with pytest.warns(UncheckedDownload):
        assert fetch("X1", tmp_path).read_bytes() == CONTENT[::-1]
    assert server.asked == [None, None]


def test_a_file_with_neither_hash_nor_length_is_refused(server, published, tmp_path):
    published(None)
    server.length = False
    with pytest.raises(DownloadError, match=r"cannot be checked.*neither its hash nor its length.*the page of X1"):
        fetch("X1", tmp_path)
    assert not list((tmp_path / "deep").iterdir())


def test_a_file_that_changed_in_the_meantime_starts_over(server, published, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x1.pt.part").write_bytes(CONTENT[:1000])
    server.said = "600000"
    with pytest.raises(DownloadError, match="a file of 600000 bytes, and what it sends would make 512000"):
        fetch("X1", tmp_path)
    server.said = None
    assert fetch("X1", tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-", None]
