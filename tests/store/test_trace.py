import dataclasses

import numpy as np
import pytest
import torch

from sigmazero import attacks, models
from sigmazero.bench.loader import load_rows
from sigmazero.bench.plan import DataSpec
from sigmazero.bench.verify import verify
from sigmazero.core.inputs import make_problem
from sigmazero.models.toys import two_dimensions
from sigmazero.store.facts import SIDE, Trace
from sigmazero.store.store import Store
from tests.plans import assert_same, contents, run, trusting

PLAN = """
steps = 12
batch_size = 4
[data.mine]
source = "mine.npz"
rows = "0:5"
[attacks.traced]
attack = "sigma-zero"
trace = true
[[grid]]
models = ["net.py:build"]
data = ["mine"]
attacks = ["traced"]
"""
PLAIN = PLAN.replace("trace = true\n", "")


def traces(path) -> list[tuple[Trace, dict[str, np.ndarray]]]:
    """The traces of a store's one cell, and the facts of each row."""
    with Store(path) as store:
        (info,) = store.cells()
        facts = store.facts(info.key)
        assert store.traced(info.key).all()
        return [(store.trace(info.key, i), vars(facts.take(np.array([i])))) for i in range(len(facts))]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", sorted(attacks.ATTACKS))
def test_every_question_is_kept_and_the_last_record_is_what_was_found(name):
    text = PLAN.replace('"sigma-zero"', f'"{name}"')
    text = text.replace("trace = true", "trace = true\nbudgets = [6]") if attacks.get(name).kind == "budget" else text
    _, _, report = run(text, "a.db")
    assert not report.failed
    network, rows = models.load("net.py:build"), load_rows(DataSpec("mine", "mine.npz", rows="0:5"))
    for row, (trace, facts) in enumerate(traces("a.db")):
        assert len(trace) == facts["forwards"][0]
        assert np.array_equal(trace.point(0), rows.images[row].numpy())
        points = np.stack([trace.point(question) for question in range(len(trace))])
        assert (trace.l0 == (points != trace.clean).reshape(len(points), -1).sum(1)).all()
        logits = network(torch.from_numpy(points))
        goal = make_problem(rows.images[[row] * len(points)], rows.labels[[row] * len(points)])
        assert trace.margin == pytest.approx(goal.goal.margin(logits).double().numpy(), abs=1e-5)
        assert (trace.prediction == logits.argmax(1).numpy()).all()
        if np.isfinite(facts["l0"][0]):
            found = rows.images[row].numpy().copy().reshape(-1)
            found[facts["index"]] = facts["value"]
            assert np.array_equal(trace.point(trace.records[-1]).reshape(-1), found)
            # Verified at the end; after it an attack that keeps a point of its own asks about that.
            assert any(np.array_equal(point.reshape(-1), found) for point in points[-2:])
            assert facts["l0"][0] == trace.l0[trace.records[-1]]
        else:
            assert not trace.records


@pytest.mark.usefixtures("folder")
def test_a_trace_changes_neither_the_cell_nor_its_facts():
    cells, _, _ = run(PLAN, "a.db")
    plain, _, _ = run(PLAIN, "b.db")
    assert [cell.info.key for cell in cells] == [cell.info.key for cell in plain]
    assert_same(contents("a.db"), contents("b.db"))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("goal", ["", "goal = 'targeted'\ntarget = 'next'\n"])
def test_verify_asks_the_traces_too(goal):
    run(goal + PLAN, "a.db")
    with Store("a.db") as store:
        assert not verify(store, trusting()).disagreements
    with Store("a.db", write=True) as store:
        (info,) = store.cells()
        trace = store.trace(info.key, 3)
        store.append_trace(info.key, 3, dataclasses.replace(trace, margin=trace.margin + 1))
        store.append_trace(info.key, 4, dataclasses.replace(store.trace(info.key, 4), clean=trace.clean))
        messages = [str(one) for one in verify(store, trusting()).disagreements]
    assert [one.split(": ")[-1] for one in messages] == [
        "a margin of the trace is not the model's",
        "the trace begins at another input",
    ]


@pytest.mark.usefixtures("folder")
def test_a_coarse_search_cannot_be_traced():
    _, _, report = run(PLAN, "a.db", precision="bf16")
    assert "a trace needs fp32 or fp64: a search in bf16" in next(iter(report.failed.values()))
    assert not run(PLAN, "b.db", precision="fp64")[2].failed
    assert traces("b.db")[0][0].value.dtype == np.float64


def test_a_plane_has_its_landscape(tmp_path):
    text = """
    [data.plane]
    source = "sigmazero.models.toys.two_dimensions:rows"
    [models.hills]
    spec = "sigmazero.models.toys.two_dimensions:build"
    [attacks.sigma-zero]
    steps = 20
    parameters = { step_size = 0.03, threshold = 0.02 }
    trace = true
    [[grid]]
    models = ["hills"]
    data = ["plane"]
    """
    run(text, tmp_path / "a.db")
    ((trace, facts),) = traces(tmp_path / "a.db")
    assert facts["forwards"][0] == len(trace)  # the landscape is no question of the search
    assert trace.landscape is not None
    network = two_dimensions.build()
    for down, across in ((0, 0), (0, 100), (37, 80)):
        logits = network(torch.tensor([[across, down]]) / (SIDE - 1))[0]
        assert trace.landscape[down, across] == pytest.approx(float(logits[0] - logits[1]), abs=1e-5)
    assert (trace.landscape < 0).any()
