"""Stopped and started again a cascade comes to the same end, and no state is mistaken for another's."""

import json
from typing import Any

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.auto import VERSIONS
from sigmazero.core import faults
from tests.auto.conftest import MEMBERS, Counted, custom, problem


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
    wanted = whole.run_standard_evaluation(x, y, bs=2, state_path=tmp_path / "whole.npz")
    model = Counted(net)
    runs = 0
    while True:
        model.rows, model.stop, runs = 0, 450, runs + 1
        try:
            found = custom(model, eps).run_standard_evaluation(x, y, bs=2, state_path=tmp_path / "s.npz")
            break
        except KeyboardInterrupt:
            continue
    assert runs > 2
    assert torch.equal(found, wanted)
    # Once finished, only the check of the file asks the model: a few clean inputs, and every point in it.
    model.rows, again = 0, custom(model, eps)
    assert torch.equal(again.run_standard_evaluation(x, y, bs=7, state_path=tmp_path / "s.npz"), wanted)
    assert model.rows == 16 + int(whole.report.result.success.sum())
    same(again.report, whole.report)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.npz", "whole.npz"]


SHORT = [sz.get("sigma-zero", steps=8), sz.get("fmn", steps=8), sz.get("sparse-rs", steps=20)]


def _evaluate(path: Any) -> Any:
    net, x, y = problem(12, dtype=torch.float32)
    auto = custom(net, 2, SHORT)
    auto.run_standard_evaluation(x, y, bs=2, state_path=path)
    return auto.report


def test_killed_at_any_point_it_goes_on_to_the_same_end(children, tmp_path):
    """At the first time that it comes to a point, the second, ... until it does not come there so often any more."""
    whole, killed = _evaluate(tmp_path / "whole.npz"), dict.fromkeys(faults.POINTS, 0)
    for point in killed:
        path = tmp_path / f"{point}.npz"
        while children.killed(f"{point}:{killed[point] + 1}", _evaluate, path):
            killed[point] += 1
        same(_evaluate(path), whole)
    assert killed["batch.done"] > 2
    # Just before the state is kept, and just after.
    assert max(killed["store.commit"], killed["file.written"]) > 2
    assert max(killed["store.committed"], killed["file.replaced"]) > 2


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
    path = tmp_path_factory.mktemp("state") / "s.npz"
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
    with pytest.raises(ValueError, match=rf"s\.npz is the state of another evaluation .*{said}.*name another file"):
        auto.run_standard_evaluation(x, y, state_path=state)
    assert state.read_bytes() == before


def _rewritten(state: Any, path: Any, **changes: Any) -> Any:
    with np.load(state) as file:
        held = {name: file[name] for name in file.files}
    for name, change in changes.items():
        held[name] = change(held[name])
    np.savez(path, **{name: value for name, value in held.items() if value is not None})
    return path


def test_a_state_is_not_believed_blindly(state, tmp_path):
    net, x, y = problem()
    path = tmp_path / "t.npz"

    def fails(said: str) -> None:
        with pytest.raises(ValueError, match=said):
            custom(net, 3).run_standard_evaluation(x, y, state_path=path)

    _rewritten(state, path, l0=lambda l0: np.where(l0 == 3, 2, l0))
    fails("damaged: its counts")
    with np.load(state) as file:
        rows, places = file["row"], file["place"]
    nearly_clean = x.flatten(1).numpy()[rows, places] + 1e-9
    _rewritten(state, path, value=lambda value: np.where(rows == rows[0], nearly_clean, value))
    fails(f"an input for row {rows[0]} that does not fool this model")
    _rewritten(state, path, value=lambda value: np.where(value > 0.5, 9.0, -9.0))
    fails(r"holds an input for row \d+ that")  # lies outside the bounds, or does not even fool the model
    _rewritten(state, path, place=lambda place: place + 10**6)
    fails("is damaged")
    _rewritten(state, path, question=lambda _: np.array("[1, 2]"))
    fails("does not say what was asked")
    _rewritten(state, path, done=lambda _: None)
    fails("it has no done")
    path.write_bytes(state.read_bytes()[:100])
    fails("cannot be read as a state")
    np.savez(path, question=np.array([{"a": 1}], dtype=object))
    fails("cannot be read as a state")


def test_a_state_says_by_what_version_it_was_made(tmp_path):
    net, x, y = problem(4)
    auto = sz.SparseAutoAttack(net, eps=3, version="quick", verbose=False)
    auto.run_standard_evaluation(x, y, state_path=tmp_path / "s.npz")
    with np.load(tmp_path / "s.npz") as file:
        question = json.loads(str(file["question"]))
    assert question["version"] == auto.report.version == f"quick {VERSIONS['quick'].number}"
    assert "SigmaSwap(name='sigma-swap'" in question["members"][0]
