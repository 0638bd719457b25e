"""Stopped and started again a cascade comes to the same end, and no state is mistaken for another's."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.auto import VERSIONS
from sigmazero.store import Store
from tests.auto.conftest import MEMBERS, Counted, custom, problem
from tests.plans import PLAN, run


def same(one: Any, two: Any) -> None:
    """Two reports agree in all but the seconds."""
    for name in ("x_adv", "l0", "prediction", "margin", "step_found", "forwards", "backwards", "outcome"):
        assert torch.equal(getattr(one.result, name).nan_to_num(), getattr(two.result, name).nan_to_num()), name
    for name in ("l0", "queries", "attacked"):
        assert torch.equal(getattr(one, name), getattr(two, name)), name
    assert one.found_by == two.found_by


@pytest.mark.parametrize("eps", [1, None])
def test_interrupted_anywhere_it_goes_on_to_the_same_end(eps, tmp_path):
    net, x, y = problem(dtype=torch.float32)
    whole = custom(net, eps)
    wanted = whole.run_standard_evaluation(x, y, bs=2, state_path=tmp_path / "whole.db")
    model = Counted(net)
    runs = 0
    while True:
        model.rows, model.stop, runs = 0, 450, runs + 1
        try:
            found = custom(model, eps).run_standard_evaluation(x, y, bs=2, state_path=tmp_path / "s.db")
            break
        except KeyboardInterrupt:
            continue
    assert runs > 2
    assert torch.equal(found, wanted)
    # Once finished, only the check of the file asks the model: a few clean inputs, and of every row in it both inputs.
    model.rows, again = 0, custom(model, eps)
    assert torch.equal(again.run_standard_evaluation(x, y, bs=7, state_path=tmp_path / "s.db"), wanted)
    assert model.rows == 16 + 2 * int(whole.report.attacked.sum())
    same(again.report, whole.report)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".lock") == ["s.db", "whole.db"]


OTHER: dict[str, tuple[dict[str, Any], str]] = {
    "eps": ({"eps": 4}, "eps is 3 there, 4 here"),
    "no eps": ({"eps": None, "members": MEMBERS[:2]}, "eps is 3 there, None here"),
    "seed": ({"seed": 7}, "seed is 0 there, 7 here"),
    "unit": ({"unit": "pixel"}, "unit is 'feature' there, 'pixel' here"),
    "bounds": ({"bounds": (-1, 1)}, r"bounds is \[0.0, 1.0\] there, \[-1.0, 1.0\] here"),
    "members": ({"members": MEMBERS[:2]}, "other members"),
    "steps": ({"members": [sz.get("sigma-zero", steps=41), *MEMBERS[1:]]}, "other members"),
    "inputs": ({"x": lambda x: x * 0.5}, "other inputs"),
    "labels": ({"y": lambda y: (y + 1) % 3}, "other labels"),
    "model": ({"model": lambda net: lambda x: net(x) * 1.01}, "another model"),
}


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    net, x, y = problem()
    path = tmp_path_factory.mktemp("state") / "s.db"
    custom(net, 3).run_standard_evaluation(x, y, state_path=path)
    return path


@pytest.mark.parametrize("case", OTHER)
def test_the_state_of_another_question_is_refused(case, state):
    before = state.read_bytes()
    change, said = OTHER[case]
    change = dict(change)
    net, x, y = problem()
    x, y, model = (change.pop(name, lambda same: same)(value) for name, value in (("x", x), ("y", y), ("model", net)))
    auto = custom(model, change.pop("eps", 3), change.pop("members", MEMBERS), **change)
    with pytest.raises(ValueError, match=rf"s\.db is the state of another evaluation .*{said}.*name another file"):
        auto.run_standard_evaluation(x, y, state_path=state)
    assert state.read_bytes() == before


def test_a_state_is_not_believed_blindly(state, tmp_path):
    """Altered by somebody who knows about checksums; whoever does not is caught by them (tests/store)."""
    net, x, y = problem()
    path = tmp_path / "t.db"

    def altered(change: Any) -> None:
        shutil.copy(state, path)
        with Store(path) as store:
            cells, facts = store.cells(), {info.key: store.facts(info.key) for info in store.cells()}
            places, answers = {key: store.positions(key) for key in facts}, store.answers(cells[0].key)
        path.unlink()
        with Store(path, write=True) as store:
            store.register(cells)
            assert answers is not None
            store.keep_answers(cells[0].key, answers)
            run = store.begin({})
            for key, held in facts.items():
                store.append(key, places[key], change(held), run=run)

    def fails(said: str) -> None:
        with pytest.raises(ValueError, match=said):
            custom(net, 3).run_standard_evaluation(x, y, state_path=path)

    altered(lambda facts: replace(facts, l0=np.where(facts.l0 == 3, 2, facts.l0)))
    fails("l0 is not the number of changed features; name another file")
    altered(lambda facts: replace(facts, value=np.where(facts.value > 0.5, 9.0, -9.0)))
    fails(r"row \d+ of sigma-zero: the (stored example leaves the box|model is not fooled)")
    altered(lambda facts: facts)
    custom(net, 3).run_standard_evaluation(x, y, state_path=path)


def test_what_is_no_state_is_named_and_left_alone(folder, tmp_path):
    net, x, y = problem()
    run(PLAN, folder / "bench.db")
    (folder / "text.db").write_text("not a store\n" * 100)
    said = {
        folder / "bench.db": "a store of a benchmark",
        folder / "text.db": "no store",
    }
    for path, words in said.items():
        before = Path(path).read_bytes()
        with pytest.raises((ValueError, RuntimeError), match=words):
            custom(net, 3).run_standard_evaluation(x, y, state_path=path)
        assert Path(path).read_bytes() == before


def test_a_state_says_by_what_version_it_was_made(tmp_path):
    net, x, y = problem(4)
    auto = sz.SparseAutoAttack(net, eps=3, version="quick", verbose=False)
    auto.run_standard_evaluation(x, y, state_path=tmp_path / "s.db")
    with Store(tmp_path / "s.db") as store:
        question = store.cells()[0].origin["cascade"]
    assert question["version"] == auto.report.version == f"quick {VERSIONS['quick'].number}"
    assert "SigmaSwap(name='sigma-swap'" in question["members"][0]
