"""Proved lower bounds stand beside what attacks found: by content, in every store, and never above it."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sigmazero.bench.constraints import Allowed
from sigmazero.bench.evaluate import evaluate
from sigmazero.bench.loader import Loader
from sigmazero.bench.proofs import certify_into, proof_key, recall_proofs, recognise_rows
from sigmazero.bench.verify import verify
from sigmazero.certifier.search import BranchAndBound
from sigmazero.data import Rows
from sigmazero.store import Store, StoreError
from sigmazero.store.merge import merge
from tests.helpers.networks import linear_optimum, linear_problem
from tests.plans import keep_proofs

N = 6
MODEL, X, Y = linear_problem((3, 4, 5), N)
X, MODEL = X.float(), MODEL.float()
TRUTH = linear_optimum(MODEL.double(), X.double(), Y).numpy()
MODEL = MODEL.float()
ROWS = Rows(X, Y, torch.arange(N), "given")
KEY = proof_key(MODEL, "feature", Allowed(), ROWS)
HOW: Any = {"method": "linear optimum", "version": 1, "loader": Loader()}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A store with what two attacks found."""
    path = tmp_path_factory.mktemp("attacked") / "s.db"
    evaluate(MODEL, (X, Y), ["sigma-zero", "vfga"], store=path, steps=30)
    return path


@pytest.fixture
def store_path(attacked, tmp_path):
    return Path(shutil.copy(attacked, tmp_path / "s.db"))


def keep(path: Path, least, rows: Rows = ROWS) -> list[str]:
    return keep_proofs(path, KEY, rows, least, [0.5] * len(rows), **HOW)


def proved(path: Path) -> list[list[int] | None]:
    with Store(path) as store:
        return [None if (found := store.proved(key)) is None else found.tolist() for key in store.cell_keys()]


def test_a_few_proved_rows_are_found_among_the_rows_of_a_cell(store_path):
    """In another order, under another name and other numbers: only the content counts."""
    some = Rows(X[[4, 1]], Y[[4, 1]], torch.tensor([40, 10]), "elsewhere")
    assert keep(store_path, TRUTH[[4, 1]].astype(int), some) == []
    expected = [0, int(TRUTH[1]), 0, 0, int(TRUTH[4]), 0]
    assert proved(store_path) == [expected, expected]
    assert recall_proofs(store_path, KEY, ROWS).tolist() == expected
    with Store(store_path) as store:
        assert store.damage() == []
        done = verify(store, Loader())
    assert not done.disagreements
    assert "2 proved lower bounds are compared with the points, and not proved again here" in done.notes


def test_other_weights_code_units_spaces_and_labels_have_no_proof(store_path):
    keep(store_path, [1] * N)
    assert recall_proofs(store_path, KEY, ROWS).all()
    for changed in ({"model": "0" * 64}, {"code": "0" * 64}, {"unit": "pixel"}):
        assert not recall_proofs(store_path, KEY._replace(**changed), ROWS).any()
    wider = proof_key(MODEL, "feature", Allowed(bounds=(-1.0, 1.0)), ROWS)
    assert not recall_proofs(store_path, wider, ROWS).any()
    assert not recall_proofs(store_path, KEY, replace(ROWS, labels=(Y + 1) % 4)).any()
    assert not recall_proofs(store_path.with_name("none.db"), KEY, ROWS).any()


def test_cells_and_proofs_that_were_merged_find_each_other(attacked, tmp_path):
    some = Rows(X[:2], Y[:2], torch.arange(2), "two")
    keep(tmp_path / "p.db", TRUTH[:2].astype(int), some)
    merge([attacked, tmp_path / "p.db"], tmp_path / "all.db")
    assert proved(tmp_path / "all.db") == [None, None]  # nobody knows yet that these rows are among those
    with Store(tmp_path / "all.db", write=True) as store:
        assert recognise_rows(store, Loader()) == []
    assert proved(tmp_path / "all.db") == [[*TRUTH[:2].astype(int).tolist(), *[0] * (N - 2)]] * 2


def test_a_bound_above_a_verified_point_is_refused_where_they_meet(store_path, tmp_path):
    with Store(store_path) as store:
        l0 = store.facts(store.cell_keys()[0]).l0.astype(int)
    words = rf"row 2 of given: sigma-zero fools .* with {l0[2]} changed .* linear optimum 1 proves that {l0[2] + 1}"
    wrong = np.where(np.arange(N) == 2, l0 + 1, 0)
    with pytest.raises(StoreError, match=words):
        keep(store_path, wrong)
    assert proved(store_path) == [None, None]  # nothing of it was kept
    keep(tmp_path / "proofs.db", wrong)
    with Store(tmp_path / "proofs.db", write=True) as store:
        assert store.digests(ROWS.content_hash) is not None
    with pytest.raises(StoreError, match=words):
        merge([store_path, tmp_path / "proofs.db"], tmp_path / "all.db")
    assert not (tmp_path / "all.db").exists()


def test_a_point_stored_below_a_bound_is_reported_by_verify(tmp_path):
    path = tmp_path / "s.db"
    keep(path, np.full(N, 60))
    with pytest.raises(StoreError, match="one of both is wrong"):
        evaluate(MODEL, (X, Y), ["vfga"], store=path, steps=30)  # what it found is stored all the same
    with Store(path) as store:
        messages = [str(one) for one in verify(store, Loader(), keys=store.cell_keys()).disagreements]
    assert any(re.search(r"vfga fools .* linear optimum 1 proves that 60 are needed", one) for one in messages), (
        messages
    )


def certified(path: Path, **options: Any) -> tuple[Any, Any, Any]:
    """A linear network, rows of which one is wrong, and what is proved of them."""
    linear = torch.nn.Linear(60, 4).requires_grad_(False)
    linear.weight.copy_(torch.randn(4, 60, generator=torch.Generator().manual_seed(1)) / 8)
    linear.bias.zero_()
    network = torch.nn.Sequential(torch.nn.Flatten(), linear).eval()
    rows = replace(ROWS, labels=network(X).argmax(1))
    rows.labels[0] = (rows.labels[0] + 1) % 4  # wrong as it is
    key = proof_key(network, "feature", Allowed(), rows)
    found, lost = certify_into(path, key, network, rows, Loader(), **{"attack": None} | options)
    assert lost == []
    return network, rows, found


def searched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What the search is asked from now on: the number of changes, and how many rows."""
    searches: list[tuple[int, int]] = []
    right = BranchAndBound.run

    def run(self: Any, rows: Any) -> Any:
        searches.append((self.t, len(rows)))
        return right(self, rows)

    monkeypatch.setattr(BranchAndBound, "run", run)
    return searches


def test_a_search_goes_on_from_what_is_proved(tmp_path, monkeypatch):
    searches = searched(monkeypatch)
    network, rows, found = certified(tmp_path / "p.db", up_to=1)
    proved = int((found.lower > 1).sum())
    assert searches.pop() == (1, N - 1)
    assert 0 < proved < N
    _, _, again = certified(tmp_path / "p.db", up_to=1)
    assert not searches  # the other rows have an example
    assert again.lower.tolist() == found.lower.tolist()
    assert bool(again.done.all())
    assert again.correct.tolist() == found.correct.tolist() == [False, *[True] * (N - 1)]
    _, _, more = certified(tmp_path / "p.db", up_to=2)
    assert searches[-1] == (2, proved)
    key = proof_key(network, "feature", Allowed(), rows)
    assert recall_proofs(tmp_path / "p.db", key, rows, network).tolist() == more.lower.tolist()


def test_what_is_proved_before_an_interruption_is_stored(tmp_path, monkeypatch):
    """Also what was proved of rows that were still being searched."""
    right = BranchAndBound.run

    def interrupted(self, rows):
        if self.t == 2:
            raise KeyboardInterrupt
        return right(self, rows)

    monkeypatch.setattr(BranchAndBound, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        certified(tmp_path / "p.db", up_to=3)
    monkeypatch.setattr(BranchAndBound, "run", right)
    searches = searched(monkeypatch)
    certified(tmp_path / "p.db", up_to=2)
    assert searches[-1][0] == 2
    with Store(tmp_path / "p.db") as store:
        (key,) = store.proof_keys()
        assert 2 in [proof.least for proof in store.proofs(key).values()]


def test_a_resumed_search_keeps_its_examples(tmp_path):
    path = tmp_path / "p.db"
    network, rows, found = certified(path, up_to=1, attack="sigma-zero")
    fooled = found.upper.isfinite() & found.correct
    assert bool((fooled & (found.lower > 1)).any()), "an example with more changes than were tried to be proved"
    for _ in range(2):
        _, _, again = certified(path, up_to=1)
        assert again.upper.tolist() == found.upper.tolist()
        assert torch.equal(again.x_adv, found.x_adv)
        assert again.status == found.status
    with Store(path) as store:
        assert len(store.examples(proof_key(network, "feature", Allowed(), rows))) == int(fooled.sum())


def test_a_line_says_that_examples_are_looked_for_first(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sigmazero.run.progress.LINE_EVERY", 0.001)
    certified(tmp_path / "p.db", up_to=1, attack="sigma-zero", progress=True)
    assert "certify: looking for examples first, 0 of 6 inputs decided (" in capsys.readouterr().err


def test_an_example_that_fools_the_model_no_longer_is_not_believed(tmp_path):
    path = tmp_path / "p.db"
    network, rows, found = certified(path, up_to=1, attack="sigma-zero")
    key = proof_key(network, "feature", Allowed(), rows)
    with Store(path, write=True) as store:
        wrong = {row: (places[:1], values[:1] * 0 + 7) for row, (places, values) in store.examples(key).items()}
        store.keep_examples(key, wrong)  # one change, outside the box
    _, _, again = certified(path, up_to=1)
    assert bool(again.upper[found.correct & (found.lower > 1)].isinf().all())


@pytest.mark.parametrize("least", ["9 changes", 9.5, None, -3, 0])
def test_a_stored_bound_that_no_search_can_have_proved_is_refused(tmp_path, least):
    path = tmp_path / "p.db"
    network, rows, _ = certified(path, up_to=1)
    key = proof_key(network, "feature", Allowed(), rows)
    with Store(path, write=True) as store:
        row = next(iter(store.proofs(key)))
        try:
            store._write("UPDATE proofs SET least = ? WHERE row = ?", least, row)
        except StoreError:
            return  # the table itself refuses it
    with pytest.raises(ValueError, match="changes are needed"):
        recall_proofs(path, key, rows, network)


def test_proofs_about_a_model_that_answers_differently_are_refused(tmp_path):
    """A hook that neither weights nor source files show."""
    torch.manual_seed(0)
    network, path = torch.nn.Linear(4, 3), tmp_path / "p.db"
    x = torch.rand(6, 4)
    rows = Rows(x, network(x).argmax(1), torch.arange(6), "given")
    key = proof_key(network, "feature", Allowed(), rows)
    first, _ = certify_into(path, key, network, rows, Loader(), up_to=1)
    assert (recall_proofs(path, key, rows, network) == first.lower.numpy()).all()
    network.register_forward_hook(lambda module, args, out: -out)
    assert proof_key(network, "feature", Allowed(), rows) == key
    with pytest.raises(ValueError, match="outputs differ"):
        recall_proofs(path, key, rows, network)
    with pytest.raises(ValueError, match="outputs differ"):
        certify_into(path, key, network, rows, Loader(), up_to=1)


def test_rows_that_cannot_be_loaded_are_said(store_path):
    with Store(store_path, write=True) as store:
        info = store.cells()[0]
        gone = replace(info, key="f" * 64, dataset="gone", data_hash="0" * 64, provenance={})
        store.register([gone])
        messages = recognise_rows(store, Loader(), KEY)
    assert len(messages) == 1
    assert messages[0].startswith("gone: its rows are not known here, so no proof is theirs: ")
    keep(store_path, TRUTH.astype(int))
    assert proved(store_path)[:2] == [TRUTH.astype(int).tolist()] * 2
