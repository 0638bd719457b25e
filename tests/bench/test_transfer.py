"""Examples of one model shown to another: asked once, kept, verified, and left out of tables."""

from sigmazero.bench.transfer import transfer
from sigmazero.bench.verify import rerun, verify
from sigmazero.core.metrics import Outcome
from sigmazero.core.model import logits_in
from sigmazero.report.runs import TRANSFER, load
from sigmazero.store.store import Store
from tests.plans import PLAN, clean, run, trusting

TWO = PLAN.replace("steps = 30", "steps = 8").replace('["sigma-zero", "fmn", "vfga"]', '["sigma-zero"]')


def test_every_point_is_judged_by_the_other_model_and_kept(folder):
    run(TWO, folder / "a.db")
    loader = trusting()
    with Store(folder / "a.db", write=True) as store:
        attacked = [info.key for info in store.cells()]
        assert transfer(store, loader) == 2 * 24
        assert transfer(store, loader) == 0
        transferred = [info for info in store.cells() if TRANSFER in info.origin]
        assert [run.info.key for run in load(store)] == attacked  # in tables there are attacks alone
        assert sorted(info.attack for info in transferred) == [
            "sigma-zero from net.py:build",
            "sigma-zero from net.py:other",
        ]
        rows = clean(store, loader)(store.cell(attacked[0])).images
        for info in transferred:
            found, there = store.facts(info.origin[TRANSFER]), store.facts(info.key)
            network = loader.model(next(i for i in map(origin_model, store.cells()) if i.name == info.model))
            predicted = logits_in(network(found.rebuild(rows))).argmax(1).numpy()
            judged = (found.outcome == Outcome.FOUND) & (there.outcome != Outcome.ALREADY)
            assert ((there.outcome == Outcome.FOUND) == (judged & (predicted != there.label)))[judged].all()
        done = verify(store, loader)
        assert (done.rows, done.disagreements, done.skipped) == (4 * 24, [], [])
        assert rerun(store, loader, 1.0, done) > 0  # attacks are run again, and nothing else
        assert (done.disagreements, done.skipped) == ([], [])


def test_cells_of_code_that_was_edited_are_left_out(folder):
    """Two codes never share a figure, and the old one cannot be asked any more."""
    run(TWO, folder / "a.db")
    source = folder / "net.py"
    source.write_text(source.read_text().replace("sum(2)", "sum(2).tanh()"))
    run(TWO, folder / "a.db")
    with Store(folder / "a.db", write=True) as store:
        present = {info.key for info in store.cells()[2:]}
        assert transfer(store, trusting()) == 2 * 24
        assert {info.origin[TRANSFER] for info in store.cells() if TRANSFER in info.origin} == present


def origin_model(info):
    from sigmazero.bench.loader import origin

    return origin(info).model
