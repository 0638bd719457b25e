"""The leaderboard over stores: one implementation for `report --bundle` and for the entries of a folder."""

import math
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from sigmazero.report.pages.leaderboard import Board, Card, Source, boards, write_site
from sigmazero.store import Store
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.helpers.cells import cell, fill
from tests.helpers.links import Page, broken

INF = math.inf
HOSTILE = ["../<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a/b\\c", "..", " ", "</script>", "é 模型"]
SMALL = [
    cell("robust", "fmn", [30, 60, 90, INF]),
    cell("robust", "bb", [20, 80, INF, 40]),
    cell("weak", "fmn", [0, 1, 2, 3]),
    cell("weak", "bb", [0, 4, 1, 3]),
    cell("tie", "fmn", [0, 1, 2, 3]),
    cell("tie", "bb", [0, 4, 1, 3]),
]


def no_inputs(_: object) -> Any:
    raise FileNotFoundError("there are no inputs here")


@pytest.fixture
def made(tmp_path_factory):
    """A function from lists of cells, one for each store, to boards; the stores stay open until the test ends."""
    with ExitStack() as opened:

        def build(*stores: Any, about: Mapping[str, str] | None = None, **how: Any) -> list[Board]:
            folder = tmp_path_factory.mktemp("stores")
            paths = [fill(folder / f"{at}.db", cells) for at, cells in enumerate(stores)]
            card = Card(about or {}, {"paper": "https://example.org/a"})
            sources = [Source(opened.enter_context(Store(path)), lambda _: card, no_inputs) for path in paths]
            return boards(sources, **how)

        yield build


def order(board: Board) -> list[tuple[int | None, str]]:
    return [(rank, entry.name) for rank, entry in board.ranked]


@pytest.mark.parametrize(
    "other",
    [
        {"dataset": "cifar10", "data_hash": "x"},
        {"dataset": "MNIST", "data_hash": "x"},
        {"data_hash": "x"},
        {"unit": "pixel"},
        {"goal": "targeted"},
        {"goal": "targeted", "origin": {"target": 3}},
        {"precision": "bf16"},
    ],
)
def test_what_does_not_compare_is_apart(made, other):
    found = made([*SMALL, cell("weak", "fmn", [9, 9, 9, 9], **other), cell("new", "fmn", [9, 9, 9, 9], **other)])
    assert [len(board.entries) for board in found] == [3, 2]
    assert len({board.name for board in found}) == len({board.title for board in found}) == 2


def test_versions_are_not_mixed(made):
    mixed = [cell("a", "fmn", [1]), cell("b", "fmn", [2], version=2)]
    with pytest.raises(ValueError, match="more than one version"):
        made(mixed)
    assert len(made(mixed, mix=True)[0].entries) == 2


@pytest.mark.parametrize("other", [{"model_sha256": "other"}, {"identity": {"model": {"code": {"net.py": "b"}}}}])
def test_one_name_with_other_weights_or_code_is_another_model(made, other):
    (board,) = made(
        [cell("a", "fmn", [1], identity={"model": {"code": {"net.py": "a"}}}), cell("a", "fmn", [2], **other)]
    )
    assert sorted(entry.changes.tolist() for entry in board.entries) == [[1], [2]]
    assert len({entry.name for entry in board.entries}) == len({entry.slug for entry in board.entries}) == 2


def test_unfinished_models_have_no_rank_and_fewer_attacks_are_told(made, tmp_path):
    found = made([*SMALL, cell("begun", "fmn", [50, 60], rows=4), cell("easy", "fmn", [99, 99, 99, 99])])
    assert order(found[0])[0] == (1, "easy")
    assert order(found[0])[-1] == (None, "begun")
    write_site(tmp_path / "site", "A title", "A lead.", found)
    text = (tmp_path / "site/index.html").read_text()
    assert "2 rows missing" in text
    assert "easy was not attacked by bb, and may look better for it." in text


def test_a_cell_in_several_stores_counts_once(made):
    info, facts = cell("a", "fmn", [1, 2, 3, 4])
    part = info, facts.take(slice(0, 2))
    for stores in ([[part], [(info, facts)]], [[(info, facts)], [part]]):
        (entry,) = made(*stores)[0].entries
        assert entry.changes.tolist() == [1, 2, 3, 4]
        assert entry.missing == 0


def test_a_site_with_hostile_names_stays_in_its_folder(made, tmp_path):
    cells = [cell(name, attack, [1, 2, i]) for i, name in enumerate(HOSTILE) for attack in ("fmn", HOSTILE[0])]
    cells += [cell(HOSTILE[1], HOSTILE[2], [5, 5, 5], dataset=HOSTILE[0], data_hash="y")]
    site = tmp_path / "deep" / "site"
    assert write_site(site, HOSTILE[0], HOSTILE[1], made(cells, about={HOSTILE[1]: HOSTILE[0]})) == len(HOSTILE)
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    pages = list(site.rglob("*.html"))
    assert len(pages) == 1 + len(HOSTILE)
    assert not [line for line in broken(site) if "#sample-" not in line]
    for path in pages:
        assert not [tag for tag, _ in Page(path).links if tag in ("img", "script")]
        assert "<script>alert" not in path.read_text(encoding="utf-8")
        assert path.name.isascii()
        assert path.name.replace("-", "").replace(".", "").isalnum()


def test_an_older_site_is_replaced_and_nothing_else_is(made, tmp_path):
    site = tmp_path / "site"
    write_site(site, "A title", "A lead.", made(SMALL))
    (site / "CNAME").write_text("mine")
    (site / "models" / "mine.html").write_text("mine")
    write_site(site, "A title", "A lead.", made(SMALL[:2]))
    assert {path.name for path in (site / "models").iterdir()} == {"robust.html", "mine.html"}
    assert (site / "CNAME").read_text() == "mine"
    other = tmp_path / "other"
    other.mkdir()
    (other / "index.html").write_text("mine")
    with pytest.raises(ValueError, match="no site made by sigmazero"):
        write_site(other, "A title", "A lead.", made(SMALL))
    with pytest.raises(ValueError, match="no site made by sigmazero"):
        write_site(other / "index.html", "A title", "A lead.", made(SMALL))
    assert (other / "index.html").read_text() == "mine"


def test_stores_without_samples_are_named(made):
    with pytest.raises(ValueError, match="no samples yet"):
        made([])
