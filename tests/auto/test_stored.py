"""Stopped and started again a cascade ends with the same result, and stored results of another model are not reused."""

import pytest
import torch

import sigmazero as sz
from sigmazero.auto.result import CascadeResult
from sigmazero.bench.loader import Loader, origin
from sigmazero.bench.verify import verify
from sigmazero.store import Store
from tests.helpers.cascades import Counted, Votes, custom, problem


def same(one: CascadeResult, two: CascadeResult) -> None:
    """Compare all but the seconds."""
    for name in ("x_adv", "l0", "prediction", "margin", "step_found", "forwards", "backwards", "outcome"):
        assert torch.equal(getattr(one.best, name).nan_to_num(), getattr(two.best, name).nan_to_num()), name
    for first, second in zip(one.runs, two.runs, strict=True):
        for name in ("l0", "cost", "queries", "attacked"):
            assert torch.equal(getattr(first, name), getattr(second, name)), name


@pytest.mark.parametrize("eps", [1, None])
def test_interrupted_anywhere_it_goes_on_to_the_same_end(eps, tmp_path):
    net, x, y = problem(dtype=torch.float32)
    whole = custom(net, eps).run(x, y, batch_size=2)
    model, runs = Counted(net), 0
    while True:
        model.rows, model.stop, runs = 0, 450, runs + 1
        try:
            found = custom(model, eps).run(x, y, batch_size=2, store=tmp_path / "s.db")
            break
        except KeyboardInterrupt:
            continue
    assert runs > 2
    same(found, whole)
    model.rows = 0
    same(custom(model, eps).run(x, y, batch_size=2, store=tmp_path / "s.db"), whole)
    assert model.rows < 150  # clean inputs and some stored points, and no search
    loader = Loader()
    with Store(tmp_path / "s.db") as store:
        loader.give_model(origin(store.cells()[0]).model, model)
        assert not verify(store, loader).disagreements


def test_a_member_s_results_are_shared_with_an_evaluation(tmp_path):
    net, x, y = problem(8)
    member = sz.get("fmn", steps=40)
    sz.evaluate(net, (x, y), [member], budgets=[3], store=tmp_path / "s.db")
    with Store(tmp_path / "s.db") as store:
        keys = store.cell_keys()
    custom(net, 3, [member]).run(x, y, store=tmp_path / "s.db")
    with Store(tmp_path / "s.db") as store:
        assert store.cell_keys() == keys


def test_another_model_with_the_same_weights_is_refused(tmp_path):
    net, x, y = problem(8)
    gain = torch.nn.Sequential(net)
    custom(gain, 3).run(x, y, store=tmp_path / "s.db")
    with Store(tmp_path / "s.db") as store:
        before = [info.text() for info in store.cells()]
    gain.register_forward_hook(lambda module, given, out: 3 * out)
    with pytest.raises(ValueError, match=r"s\.db"):
        custom(gain, 3).run(x, y, store=tmp_path / "s.db")
    with Store(tmp_path / "s.db") as store:
        assert [info.text() for info in store.cells()] == before


def test_functions_can_be_kept_too(tmp_path):
    x = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    y = Votes()(x).argmax(1)
    auto = custom(sz.limit(Votes(), ability="scores"), 8, ["query-swap"])
    first = auto.run(x, y, store=tmp_path / "s.db")
    same(auto.run(x, y, store=tmp_path / "s.db"), first)
