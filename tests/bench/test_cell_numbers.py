"""The numbers and the margin of a cell: in its key, in its provenance, and asked for again by verify."""

import pytest
import torch

from sigmazero.bench.evaluate import evaluate
from sigmazero.bench.verify import Verification, rerun, verify
from sigmazero.run.precision import Numbers
from sigmazero.store.store import Store
from tests.plans import ONE_CELL as BASE
from tests.plans import run, trusting
from tests.run.test_precision import STRICT, as_on_cuda, own_flags, question  # noqa: F401


@pytest.mark.usefixtures("folder")
def test_a_margin_is_kept_and_checked():
    text = BASE.replace("seed = 3", "seed = 3\nmargin = 0.25").replace("steps = 9", "steps = 60")
    run(text, "s.db")
    with Store("s.db") as store:
        (info,) = store.cells()
        assert info.margin == 0.25
        facts = store.facts(info.key)
        assert facts.success.any()
        assert (facts.margin[facts.success] <= -0.25).all()
        done = Verification()
        assert verify(store, trusting()).disagreements == []
        assert rerun(store, trusting(), 1, done) == len(facts)
        assert done.disagreements == done.skipped == []


@pytest.mark.usefixtures("as_on_cuda", "own_flags")
def test_a_cell_in_the_numbers_of_its_process(tmp_path):
    net, x, y = question(40)
    done = evaluate(net, (x, y), steps=60, store=tmp_path / "s.db")
    with Store(done.store) as store:
        (info,) = store.cells()
        assert info.precision == "conv-tf32"
        assert info.provenance["numbers"] == "fp32 for matmul, tf32 for conv, tf32 for rnn, no autocast"
    assert done.verify().disagreements == []
    # Run again elsewhere, in the numbers of the cell.
    assert done._loader is not None
    compared = Verification()
    torch.backends.cudnn.allow_tf32 = False
    with Store(done.store) as store:
        assert rerun(store, done._loader, 1, compared) == 40
    assert compared.disagreements == compared.skipped == []
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.usefixtures("as_on_cuda", "own_flags")
def test_verify_names_points_that_hold_in_one_kind_of_numbers_only(tmp_path):
    net, x, y = question(300)
    with STRICT.applied():
        done = evaluate(net, (x, y), steps=100, store=tmp_path / "s.db")
        assert done.verify().disagreements == []
    assert Numbers.current("cpu").name == "conv-tf32"
    found = [str(one) for one in done.verify().disagreements]
    assert found
    assert all("reaches the goal in fp32 and not in conv-tf32" in one for one in found)
