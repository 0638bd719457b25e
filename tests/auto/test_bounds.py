"""Beside a cascade: what is proved makes its figure an interval, and is never above it."""

import json
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.auto import versions
from sigmazero.auto.document import schema
from sigmazero.bench.constraints import Allowed
from sigmazero.bench.loader import Loader
from sigmazero.bench.proofs import keep_proofs, proof_key, recall_proofs
from sigmazero.data import Rows
from sigmazero.spaces.space import Space
from sigmazero.store import Store, StoreError
from tests.cli.conftest import sigmazero  # noqa: F401

WEIGHT = torch.tensor([[1.0, 0.9, 0.8, 0.7, 0.2], [0.0] * 5])
TRUTH = np.array([1, 2, 3, 0])  # of the rows below: so many of the largest weights must go
X = torch.ones(4, 5)
X[0, 1:4], X[1, 2:4] = 0, 0
Y = torch.tensor([0, 0, 0, 1])
ROWS = Rows(X, Y, torch.arange(4), "given")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A cascade of one attack, few steps."""
    members = (sz.get("sigma-zero", steps=30),)
    monkeypatch.setitem(versions.VERSIONS, "quick", versions.Version("quick", 0, members, members))


def network() -> Any:
    model: Any = torch.nn.Sequential(torch.nn.Linear(5, 2)).requires_grad_(False)
    model[0].weight.copy_(WEIGHT)
    model[0].bias.copy_(torch.tensor([0.0, 0.95]))
    return model.eval()


def gate(eps: int | None = 1, **more) -> sz.auto.GateVerdict:
    found = sz.gate(network(), (X, Y), eps=eps, version="quick", doctor=False, **more)
    import_module("jsonschema").Draft202012Validator(schema()).validate(json.loads(found.json()))
    return found


def prove(path, least) -> None:
    key = proof_key(network(), "feature", Allowed(), ROWS)
    keep_proofs(path, key, ROWS, least, np.zeros(4), loader=Loader())


def test_nothing_is_said_of_proofs_where_nobody_asked():
    found = gate()
    assert found.document["robust_accuracy"]["proved"] is None
    assert "proved" not in str(found)


def test_proofs_of_a_store_are_the_lower_end(tmp_path):
    prove(tmp_path / "p.db", [1, 2, 0, 0])
    found = gate(proofs=tmp_path / "p.db")
    robust = found.document["robust_accuracy"]
    assert (robust["count"], robust["proved"], robust["of"]) == (2, 1, 4)
    assert "between 25.0 % (proved) and 50.0 % of 4 rows" in str(found)


def test_rows_that_stay_right_are_certified(tmp_path):
    found = gate(certify=20.0, proofs=tmp_path / "p.db")
    robust = found.document["robust_accuracy"]
    assert (robust["count"], robust["proved"]) == (2, 2)
    assert "exactly 50.0 % of 4 rows, which is proved" in str(found)
    assert recall_proofs(tmp_path / "p.db", proof_key(network(), "feature", Allowed(), ROWS), ROWS).tolist() == [
        *(0, 2, 2, 0)
    ]  # what the cascade fooled was not tried
    assert gate(certify=20.0).document["robust_accuracy"]["proved"] == 2


def test_without_a_budget_every_point_of_the_curve_has_its_lower_end(tmp_path):
    prove(tmp_path / "p.db", TRUTH)
    curve = {one["k"]: one for one in gate(None, proofs=tmp_path / "p.db").document["curve"]}
    assert {k: (one["proved"], one["count"]) for k, one in curve.items()} == {1: (2, 2), 2: (1, 1)}


def test_a_bound_above_a_point_is_refused_naming_both(tmp_path):
    prove(tmp_path / "p.db", [3, 0, 0, 0])
    with pytest.raises(ValueError, match=r"row 0 is fooled by sigma-zero with 1 changes, .* says that 3 are needed"):
        gate(proofs=tmp_path / "p.db")
    prove(tmp_path / "q.db", [0, 0, 0, 1])
    with pytest.raises(ValueError, match=r"row 3 is wrong as it is, and a proof says that 1 are needed"):
        gate(proofs=tmp_path / "q.db")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"certify": 0.0}, r"certify=0 must be more than 0 seconds"),
        ({"certify": 1.0, "eps": None}, r"needs a number of changes .* give eps"),
        ({"proofs": "none.db"}, r"there is no store none\.db; certify the rows"),
        ({"certify": 1.0, "space": Space()}, r"in a space is not possible"),
    ],
)
def test_what_cannot_be_proved_is_refused_at_once(wrong, words):
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        gate(**wrong)


def test_a_store_about_something_else_is_refused_at_once(tmp_path, monkeypatch):
    prove(tmp_path / "p.db", [2, 2, 2, 1])
    (tmp_path / "no.db").write_bytes(b"no store at all")
    monkeypatch.setattr(sz.SparseAutoAttack, "run_standard_evaluation", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(ValueError, match=r"p\.db has no proofs about this model with this unit and box"):
        gate(proofs=tmp_path / "p.db", bounds=(-1.0, 2.0))
    with pytest.raises(StoreError, match=r"no\.db: the file is damaged or no store"):
        gate(proofs=tmp_path / "no.db")


def test_the_command_says_between_which_shares(sigmazero, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "import torch\n\ndef build():\n"
        "    model = torch.nn.Sequential(torch.nn.Linear(5, 2)).requires_grad_(False)\n"
        f"    model[0].weight.copy_(torch.tensor({WEIGHT.tolist()}))\n"
        "    model[0].bias.copy_(torch.tensor([0.0, 0.95]))\n    return model.eval()\n"
    )
    np.savez(tmp_path / "mine.npz", images=X.numpy(), labels=Y.numpy())
    asked = ("net.py:build", "mine.npz", "--device", "cpu")
    said = sigmazero("certify", *asked, "--store", "p.db")
    assert said.exit_code == 0, said.output
    said = sigmazero("certify", *asked, "--out", "proofs.npz", "--store", "q.db")  # what is in the file is not redone
    assert said.exit_code == 0, said.output
    with Store("p.db") as one, Store("q.db") as other:
        assert [one.proofs(key).keys() for key in one.proof_keys()] == [
            other.proofs(key).keys() for key in other.proof_keys()
        ]
    more = ("--version", "quick", "--eps", 1, "--no-doctor", "--json", "gate.json")
    said = sigmazero("auto", *asked, *more, "--proofs", "p.db")
    assert said.exit_code == 0, said.output
    assert "robust at 1: exactly 50.0 %; the lower end is proved" in said.stdout
    assert json.loads((tmp_path / "gate.json").read_text())["robust_accuracy"]["proved"] == 2
