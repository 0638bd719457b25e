"""`sigmazero view`: only this machine, only who knows the token, only reading."""

import html
import http.client
import json
import signal
import subprocess
import sys
import threading

import pytest

from sigmazero.report.html import live
from sigmazero.report.html.page import make_page
from sigmazero.report.html.serve import HERE, LiveServer
from sigmazero.store.store import Store
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.plans import clean
from tests.report.test_layout import MINIMUM, cell, fill

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def server(tmp_path):
    path = fill(tmp_path / "a.db", MINIMUM)
    with LiveServer(path, lambda store: make_page(store, clean(store), limit=0)) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection(HERE, server.server_address[1], timeout=60)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_it_listens_on_this_machine_alone(server):
    assert server.server_address[0] == HERE == "127.0.0.1"
    assert len(server.token) >= 32


def test_who_knows_the_token_sees_the_page_and_how_far_it_is(server):
    answer, text = ask(server, f"/{server.token}/")
    assert answer.status == 200
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert "connect-src 'self'; frame-src 'self'" in html.unescape(text)
    _, text = ask(server, f"/{server.token}/page")
    with Store(server.path) as store:
        assert text == make_page(store, clean(store), limit=0)
        assert json.loads(ask(server, f"/{server.token}/progress")[1]) == {
            "version": live.version(store),
            "html": live.progress(store),
        }


@pytest.mark.parametrize(
    "path", ["/", "/page", "/{wrong}/", "/{token}", "/{token}/../a.db", "/{token}/a.db", "/{token}/page/"]
)
def test_nobody_else_sees_anything(server, path):
    asked = path.format(token=server.token, wrong=server.token[:-1])
    answer, text = ask(server, asked)
    assert (answer.status, text) == (404, "nothing here\n")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", ""])
def test_a_name_that_merely_leads_here_is_refused(server, host):
    assert ask(server, f"/{server.token}/progress", Host=host)[0].status == 404
    assert ask(server, f"/{server.token}/progress", Host=f"localhost:{server.server_address[1]}")[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(server, method):
    assert ask(server, f"/{server.token}/page", method)[0].status == 501


def test_the_page_is_made_again_only_for_new_facts(server):
    first = server.page()
    server._render = lambda store: "made anew"
    assert server.page() == first
    fill(server.path, [cell("another", "fmn", [1, 2])])
    assert server.page() == "made anew"


def test_a_store_that_is_gone_or_damaged_is_said_and_may_come_back(server):
    held = server.path.read_bytes()
    server.path.write_bytes(b"no store")
    said = json.loads(server.progress())
    assert list(said) == ["error"]
    assert "a.db" in said["error"]
    assert "a.db" in server.page()
    server.path.write_bytes(held)
    assert "version" in json.loads(server.progress())


def test_an_empty_store_is_one_that_waits(tmp_path):
    with Store(tmp_path / "a.db", write=True):
        pass
    with Store(tmp_path / "a.db") as store:
        assert "There are no cells yet" in live.progress(store)


def test_ctrl_c_ends_it(tmp_path):
    path = fill(tmp_path / "a.db", MINIMUM)
    command = [sys.executable, "-m", "sigmazero", "view", str(path)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    url = running.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:")
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in said


def test_misuse_is_one_line(sigmazero, tmp_path):  # noqa: F811
    absent = sigmazero("view", tmp_path / "none.db")
    with LiveServer(tmp_path / "a.db", lambda _: "") as taken:
        done = sigmazero("view", fill(tmp_path / "b.db", MINIMUM), "--port", taken.server_address[1])
    assert "leave it out for a free one" in done.stderr
    for each in (absent, done):
        assert each.exit_code == 2
        assert len(each.stderr.strip().splitlines()) == 1
