"""From Python: the gate, a test for pytest, proofs beside the attacks, and findings that matter."""

import numpy as np
import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.auto import Verdict
from sigmazero.bench.constraints import Allowed
from sigmazero.bench.loader import Loader
from sigmazero.bench.proofs import proof_key
from sigmazero.data import Rows
from sigmazero.store import StoreError
from sigmazero.testing import assert_robust
from tests.helpers.cascades import Noisy, Rounded
from tests.plans import keep_proofs

X = torch.ones(4, 5)
X[0, 1:4], X[1, 2:4] = 0, 0
Y = torch.tensor([0, 0, 0, 1])
TRUTH = [1, 2, 3, 0]  # of the rows: as many of the largest weights must go
ROWS = Rows(X, Y, torch.arange(4), "given")
CUSTOM = {"version": "custom", "attacks_to_run": [sz.get("sigma-zero", steps=30)]}


def network() -> nn.Module:
    model = nn.Sequential(nn.Linear(5, 2)).requires_grad_(False)
    weight, bias = model.parameters()
    weight.copy_(torch.tensor([[1.0, 0.9, 0.8, 0.7, 0.2], [0.0] * 5]))
    bias.copy_(torch.tensor([0.0, 0.95]))
    return model.eval()


def gate(eps: int | None = 1, **more) -> Verdict:
    return sz.gate(network(), (X, Y), eps=eps, doctor=False, **CUSTOM, **more)


def prove(path, least) -> None:
    keep_proofs(path, proof_key(network(), "feature", Allowed(), ROWS), ROWS, least, np.zeros(4), loader=Loader())


def test_a_verdict_is_its_record():
    found = gate(at_least=0.5)
    assert found.passed
    assert found.robust_accuracy == found.result.robust_accuracy() == 0.5
    read = Verdict.model_validate_json(found.to_json())
    assert read.to_json() == found.to_json()
    assert str(read) == str(found)
    assert read.to_markdown() == found.to_markdown()
    with pytest.raises(ValueError, match="points"):
        _ = read.result
    assert set(Verdict.model_json_schema()["required"]) == set(Verdict.model_fields) - {"format", "version"}
    with pytest.raises(ValueError, match="extra"):
        Verdict.model_validate(found.model_dump() | {"extra": 1})


def test_assert_robust_fails_with_the_verdict_and_the_findings():
    with pytest.raises(AssertionError, match=r"failed: .* at most 1 changed feature: .* at least 100\.0 % wanted"):
        assert_robust(network(), (X, Y), eps=1, at_least=1.0, doctor=False, **CUSTOM)
    net, x = Rounded(), torch.rand(4, 1, 8, 8)
    with pytest.raises(AssertionError, match=r"(?s)inconclusive \(SZ004\).*\nSZ004: .*Fix: "):
        assert_robust(net, (x, net(x).argmax(1)), eps=1, at_least=0.0, **CUSTOM)
    for wrong in ({"at_least": 60}, {"at_least": 0.5, "eps": None}, {"at_least": None, "lower_end": True}):
        with pytest.raises(ValueError, match="at_least"):
            gate(**{"eps": 1, **wrong})


def test_missing_gradients_condemn_only_attacks_that_use_them():
    net, x = Rounded(), torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    asked = (net, (x, net(x).argmax(1)), 1)
    for attack, code in (("sparse-rs", 0), ("fmn", 3)):
        members = [sz.get(attack, steps=5)]
        assert sz.gate(*asked, version="custom", attacks_to_run=members).exit_code == code


def test_a_version_copes_with_what_it_is_made_for():
    net, x = Noisy(1e-3).requires_grad_(False), torch.rand(8, 16, generator=torch.Generator().manual_seed(0))
    y = (x @ net.weight).argmax(1)
    for version, codes in (("rand", []), ("quick", ["SZ003"])):
        auto = sz.SparseAutoAttack(net, "L0", 1, version=version, verbose=False)
        assert [found.code for found in auto.examine(x, y)] == codes
    accepted = sz.gate(net, (x, y), 1, allow=["SZ003"], **CUSTOM)
    assert accepted.exit_code == 0
    assert accepted.findings[0].allowed


def test_proofs_of_a_store_are_the_lower_end(tmp_path):
    assert gate().figure.proved is None
    prove(tmp_path / "p.db", [1, 2, 0, 0])
    found = gate(proofs=tmp_path / "p.db")
    assert (found.figure.count, found.figure.proved, found.figure.of) == (2, 1, 4)
    assert "between 25.0 % (proved) and 50.0 % of 4 rows" in str(found)
    prove(tmp_path / "q.db", TRUTH)
    assert "exactly 50.0 % of 4 rows, which is proved" in str(gate(proofs=tmp_path / "q.db"))
    curve = {one.k: (one.proved, one.count) for one in gate(None, proofs=tmp_path / "q.db").curve}
    assert curve == {1: (2, 2), 2: (1, 1)}


def test_a_bound_above_a_point_is_refused(tmp_path):
    prove(tmp_path / "p.db", [3, 0, 0, 0])
    with pytest.raises(ValueError, match=r"row 0 .* 1 changes, .* 3 are needed"):
        gate(proofs=tmp_path / "p.db")
    prove(tmp_path / "q.db", [0, 0, 0, 1])
    with pytest.raises(ValueError, match="row 3 "):
        gate(proofs=tmp_path / "q.db")


def test_a_store_about_something_else_is_refused_at_once(tmp_path, monkeypatch):
    prove(tmp_path / "p.db", [2, 2, 2, 1])
    (tmp_path / "no.db").write_bytes(b"no store at all")
    monkeypatch.setattr(sz.SparseAutoAttack, "run", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(ValueError, match=r"p\.db"):
        gate(proofs=tmp_path / "p.db", bounds=(-1.0, 2.0))
    with pytest.raises(StoreError, match=r"no\.db"):
        gate(proofs=tmp_path / "no.db")
    with pytest.raises(FileNotFoundError, match=r"none\.db"):
        gate(proofs=tmp_path / "none.db")


def test_a_line_says_how_far_it_is_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sigmazero.run.progress.LINE_EVERY", 0.001)
    gate(progress=True)
    assert "sigma-zero, " in capsys.readouterr().err
