"""`sigmazero view`: only this machine, only with the token, only reading, and new whenever the store is."""

import html
import http.client
import json
import threading

import numpy as np
import pytest

from sigmazero.report.pages.serve import HOST, LiveServer
from sigmazero.store import Store
from sigmazero.store.proofs import Proof, ProofKey
from tests.helpers.cells import cell, fill

CELLS = [cell("M1", "fmn", [1, 2]), cell("M1", "<b>", [3, np.inf])]


@pytest.fixture
def server(tmp_path):
    path, made = fill(tmp_path / "a.db", CELLS), []
    with LiveServer(path, lambda store: f"page {made.append(1) or len(made)} of {store.path.name}") as live:
        thread = threading.Thread(target=live.serve_forever, args=(0.01,))
        thread.start()
        yield live
        live.shutdown()
        thread.join()


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection(HOST, server.server_address[1], timeout=60)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_with_the_token_one_sees_the_page_and_how_far_it_is(server):
    assert server.server_address[0] == HOST == "127.0.0.1"
    assert len(server.token) >= 32
    answer, text = ask(server, f"/{server.token}/")
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert "connect-src 'self'; frame-src 'self'" in html.unescape(text)
    assert ask(server, f"/{server.token}/page")[1] == "page 1 of a.db"
    told = json.loads(ask(server, f"/{server.token}/progress")[1])
    assert "all 4 rows are done" in told["html"]
    assert "&lt;b&gt;" in told["html"]


@pytest.mark.parametrize(
    "path", ["/", "/page", "/{wrong}/", "/{token}", "/{token}/../a.db", "/{token}/a.db", "/{token}/page/"]
)
def test_without_it_one_sees_nothing(server, path):
    answer, text = ask(server, path.format(token=server.token, wrong=server.token[:-1]))
    assert (answer.status, text) == (404, "not found\n")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", ""])
def test_a_name_that_merely_leads_here_is_refused(server, host):
    assert ask(server, f"/{server.token}/progress", Host=host)[0].status == 404
    assert ask(server, f"/{server.token}/progress", Host=f"localhost:{server.server_address[1]}")[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(server, method):
    assert ask(server, f"/{server.token}/page", method)[0].status == 501


def more_facts(store):
    info, facts = cell("M2", "fmn", [1, 2])
    store.register([info])
    store.append(info.key, 0, facts, run=store.begin({}))


def test_the_page_is_made_again_when_anything_on_it_changes_and_not_before(server):
    changes = [
        lambda store: store.diagnose(store.cell_keys()[0], [{"code": "SZ014", "severity": "error"}]),
        lambda store: store.fail(store.cell_keys()[0], "out of memory"),
        lambda store: store.prove(ProofKey("model", "code", "feature", "–"), {"row": Proof(2, "certify", 1, 0.0)}),
        more_facts,
    ]
    assert server.page() == server.page() == "page 1 of a.db"
    with Store(server.path, write=True) as store:
        store.note_progress({"cell": "fmn"})
    assert server.page() == "page 1 of a.db"
    for times, change in enumerate(changes, 2):
        with Store(server.path, write=True) as store:
            change(store)
        assert server.page() == server.page() == f"page {times} of a.db"


def test_a_damaged_store_is_reported_and_may_come_back(server):
    content = server.path.read_bytes()
    server.path.write_bytes(b"no store")
    assert "a.db" in json.loads(server.progress())["error"]
    assert "a.db" in server.page()
    server.path.write_bytes(content)
    assert "version" in json.loads(server.progress())


def test_an_empty_store_waits(tmp_path):
    with Store(tmp_path / "a.db", write=True):
        pass
    with LiveServer(tmp_path / "a.db", lambda _: "") as live:
        assert "There are no cells yet" in json.loads(live.progress())["html"]
