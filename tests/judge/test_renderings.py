"""Every figure that is shown anywhere is the one that the judge computes from points and logits.

Real runs go through each rendering, a reader takes the figures back, and each is compared to the digits shown. The
judge sees the inputs, the points, the model and what was asked; of the counts of passes it sees those per sample.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sigmazero as sz
from tests.helpers import judge, readers
from tests.helpers.commands import run_command
from tests.helpers.readers import Shown

KS = tuple(range(61))
Array = np.ndarray[Any, Any]


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 12), nn.ReLU(), nn.Linear(12, 4)).eval().requires_grad_(False)


NET = """
import torch
from torch import nn

def build():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 12), nn.ReLU(), nn.Linear(12, 4))

def other():
    torch.manual_seed(4)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
"""


def inputs() -> tuple[Tensor, Tensor]:
    """Twelve images and their classes, two of which the network gets wrong."""
    x = torch.rand(12, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    y = network()(x).argmax(1)
    y[[0, 5]] = (y[[0, 5]] + 1) % 4
    return x, y


def few() -> Tensor:
    """A mask that leaves three features, which is not enough for every sample."""
    mask = torch.zeros(3, 4, 4, dtype=torch.bool)
    mask.view(-1)[[3, 11, 20]] = True
    return mask


COSTS = tuple([0.5, 1.0, 2.5] * 16)


@dataclass(frozen=True)
class Asked:
    """A run by public names, and what the judge needs to know about it."""

    attack: str
    how: dict[str, Any] = field(default_factory=dict)
    steps: int = 20
    targeted: bool = False
    costs: bool = False
    queries: int | None = None  # that the model answers, and no more


RUNS = {
    "free": Asked("sigma-zero"),
    "free, in pixels": Asked("fmn", {"unit": "pixel"}),
    "never fooled": Asked("fmn", {"mask": few()}),
    "beyond the budget": Asked("pdpgd", {"budget": 3}),
    "beyond the budget, in pixels": Asked("fmn", {"budget": 1, "unit": "pixel"}),
    "for a budget": Asked("sparse-rs", {"budget": 3, "unit": "pixel"}),
    "for a budget of features": Asked("pgd-l0", {"budget": 2}),
    "targeted": Asked("sigma-zero", targeted=True),
    "own answer": Asked("ead-paper", steps=10),
    "own answer, in pixels": Asked("pdpgd-paper", {"unit": "pixel"}),
    "with costs": Asked("sigma-swap", costs=True),
    "stopped": Asked("sparse-rs", {"budget": 2, "batch_size": 4}, queries=170),
}


@dataclass(frozen=True)
class Known:
    """What the judge knows about a run: figures by name, and the arrays they come from."""

    figures: Mapping[str, float]
    rows: Mapping[str, Array]

    def __getitem__(self, name: str) -> float:
        bare, _, end = name.partition(".") if name.endswith((".low", ".high")) else (name, "", "")
        if end:
            return self.ends(bare)[end == "high"]
        kind, _, at = name.partition("@")
        if kind == "cost_asr":
            return float((self.rows["cost"] <= float(at) * (1 + 1e-6)).mean())
        if kind == "asr" and name not in self.figures:  # a k between two whole numbers
            return self.figures[f"asr@{math.floor(float(at))}"]
        return self.figures[name]

    def ends(self, name: str) -> tuple[float, float]:
        """The ends of Wilson's 95 % interval: where the share is 1.96 standard deviations away."""
        n, share, z = self.figures["samples"], self[name], 1.959963984540054
        low, high = sorted(np.roots([1 + z * z / n, -(2 * share + z * z / n), share * share]).real)
        return max(low, 0.0), min(high, 1.0)


def know(model: Any, x: Tensor, x_adv: Tensor, y: Tensor, *, labels: Tensor | None = None, **asked: Any) -> Known:
    """Ask the model and let the judge compute."""
    with torch.no_grad():
        logits = [model(each).double().numpy() for each in (x, x_adv)]
    counted = {name: asked.pop(name, None) for name in ("forwards", "backwards", "seconds")}
    given: Any = x.numpy(), x_adv.numpy(), y.numpy(), *logits
    rows = judge.per_sample(*given, **asked)
    found = judge.figures(*given, ks=KS, labels=None if labels is None else labels.numpy(), **counted, **asked)
    found |= {"in_pixels": float(asked.get("unit") == "pixel"), "non_finite": float((rows["outcome"] == 3).mean())}
    found |= {"beyond_samples": float((rows["outcome"] == 7).sum())}
    if asked.get("costs") is not None:
        found["median_cost"] = float(np.median(rows["cost"]))
    return Known(found, rows)


@dataclass(frozen=True)
class Run:
    """A finished run, and the judge's word about it."""

    asked: Asked
    result: sz.Result
    known: Known
    x: Tensor


def finish(asked: Asked) -> Run:
    x, labels = inputs()
    how = dict(asked.how)
    if asked.costs:
        how["space"] = sz.Space(cost=COSTS)
    y = (labels + 1) % 4 if asked.targeted else labels
    attack, model = sz.get(asked.attack, steps=asked.steps), network()
    if asked.queries is None:
        result = attack.run(model, x, y, targeted=asked.targeted, **how)
    else:
        service = sz.wrap(lambda rows: model(rows), takes="torch", max_queries=asked.queries)
        with pytest.warns(RuntimeWarning, match=f"max_queries={asked.queries}"):
            result = attack.run(service, x, y, targeted=asked.targeted, **how)
    told = {name: how[name] for name in ("unit", "budget") if name in how} | {"targeted": asked.targeted}
    told |= {"costs": COSTS, "sites": [[k] for k in range(48)]} if asked.costs else {}
    counts = {"forwards": result.forwards.numpy(), "backwards": result.backwards.numpy(), "seconds": result.seconds}
    known = know(network(), x, result.x_adv, y, **told, **counts)
    if result.own is not None:
        own = know(network(), x, result.own.x_adv, y, **told)
        known.figures.update(returned_asr=own["asr@inf"], returned_median_l0=own["median_l0"])  # type: ignore[attr-defined]
    stopped = result.outcome == sz.Outcome.STOPPED
    shares = {name: float((result.outcome == sz.Outcome[name.upper()]).double().mean()) for name in ("unverified", "no_start")}
    known.figures.update(shares, stopped_samples=float(stopped.sum()))  # type: ignore[attr-defined]
    return Run(asked, result, known, x)


@pytest.fixture(scope="module")
def runs() -> Mapping[str, Run]:
    class Once(dict[str, Run]):
        def __missing__(self, name: str) -> Run:
            self[name] = finish(RUNS[name])
            return self[name]

    return Once()


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, runs: Mapping[str, Run]) -> Run:
    return runs[request.param]


def compare(read: Mapping[str, float], known: Known, *must: str, where: str = "") -> None:
    """Every figure read is the judge's, and those that must be there are."""
    wrong = [f"{where} {name}: {float(value)} is shown, {known[name]} is true" for name, value in read.items() if not Shown.agrees(value if isinstance(value, Shown) else Shown(value), known[name])]
    assert not wrong, "\n".join(wrong)
    assert set(must) <= set(read), f"{where} {set(must) - set(read)} not shown"


def first(run: Run) -> list[str]:
    """The figures that everything must show that people read."""
    budget = run.asked.how.get("budget")
    return [f"asr@{budget}"] if budget is not None else ["asr@inf", "median_l0", "mean_l0", "in_pixels"]


def test_repr(run: Run) -> None:
    compare(readers.read_repr(repr(run.result)), run.known, "samples", "queries", *first(run))


def test_print(run: Run) -> None:
    read = readers.read_print(str(run.result))
    compare(read, run.known, "samples", "already_wrong", "forwards", "backwards", *first(run))
    assert ("beyond_samples" in read) == (run.known["beyond_samples"] > 0)
    assert ("stopped_samples" in read) == (run.known["stopped_samples"] > 0)


def test_notebook(run: Run) -> None:
    read, shown = readers.read_notebook(run.result._repr_html_())
    compare(read, run.known, "samples", "queries", *first(run))
    changes = run.known.rows["changes"]
    within = run.known.rows["success"]
    assert all(each["changes"] in changes[within] if "changes" in each else not within.all() for each in shown)


def test_summary(run: Run) -> None:
    read = readers.read_summary(run.result.summary())
    own = ("returned_asr", "returned_median_l0") if run.result.own is not None else ()
    compare(read, run.known, "samples", "asr@inf", "median_l0", "mean_l0", "mean_l0_found", "queries", *own)


def test_methods(run: Run) -> None:
    result, known = run.result, run.known
    read = {f"asr@{k}": result.asr(k) for k in KS} | {"asr@inf": result.asr(), "success": float(result.success.double().mean())}
    read |= {"median_l0": result.median_l0, "mean_l0": result.mean_l0}
    read |= {f"cost_asr@{cost}": result.asr_at_cost(cost) for cost in (0.5, 1.0, 1.5, 3.0, 10.0)}
    compare(read, known)
    assert result.asr_at_cost() == known["asr@inf"]


def compare_rows(columns: Mapping[str, Any], known: Known, where: str = "") -> None:
    """Every row of a table by samples is what the judge says of it."""
    names = {number: name for name, number in (("already", 0), ("found", 1), ("beyond_budget", 7), ("non_finite", 3))}
    rows, there = known.rows, np.isfinite(known.rows["l0"])
    asked = np.asarray(columns["outcome"]) != "stopped"  # of the others the model has not even seen the clean input
    for name in ("l0", "l0_pixel", "cost", "success", "clean_prediction"):
        if name in columns:
            given, true = np.asarray(columns[name], dtype=float), rows[name].astype(float)
            np.testing.assert_allclose(given[asked], true[asked], err_msg=f"{where} {name}")
    for name, close in (("prediction", 0.0), ("margin", 1e-4)):
        if name in columns:
            given = np.asarray(columns[name], dtype=float)[there]
            np.testing.assert_allclose(given, rows[name][there], rtol=close, atol=close, err_msg=where)
    for code, told in zip(rows["outcome"].tolist(), columns["outcome"], strict=True):
        assert told == names.get(code, told) and (told in names.values()) == (code in names), f"{where}: {told}, {code}"


def test_frame(run: Run) -> None:
    columns = readers.read_frame(run.result.to_pandas())
    compare_rows(columns, run.known)
    assert columns["forwards"] == run.result.forwards.tolist()
    assert columns["id"] == run.result.ids.tolist()


def test_saved_and_loaded(run: Run, tmp_path: Path) -> None:
    loaded = sz.load_result(run.result.save(tmp_path / "result.npz"))
    assert repr(loaded) == repr(run.result)
    assert str(loaded) == str(run.result)
    compare(readers.read_summary(loaded.summary()), run.known)
    compare_rows(readers.read_frame(loaded.to_pandas()), run.known)
    assert torch.equal(loaded.x_adv, run.result.x_adv)
