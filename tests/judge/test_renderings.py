"""Every figure that is shown anywhere is the one that the judge computes from points and logits.

Real runs go through each rendering, a reader takes the figures back, and each is compared to the digits shown. The
judge sees the inputs, the points, the model and what was asked; of the counts of passes it sees those per sample.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import sigmazero as sz
from tests.helpers import judge, readers
from tests.helpers.commands import run_command
from tests.helpers.readers import Shown

KS = tuple(range(201))
FOUND = 1  # the outcome that drawings and tables of classes are about: by a change, within the budget
Array = np.ndarray[Any, Any]


NET = """
import torch
from torch import nn

def build():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 12), nn.ReLU(), nn.Linear(12, 4))

def other():
    model = build()
    for each in model.parameters():
        each.data += 0.03 * torch.randn(each.shape)
    return model
"""


def network(name: str = "build") -> nn.Module:
    held: dict[str, Any] = {}
    exec(NET, held)
    model: nn.Module = held[name]()
    return model.eval().requires_grad_(False)


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
        if name.endswith((".low", ".high")):
            return self.ends(name.rpartition(".")[0])[name.endswith(".high")]
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

    def median_end(self, name: str) -> float:
        """An end of the 95 % interval of the median: so many values lie beyond it as coins rarely show heads."""
        changes = sorted(self.rows["changes"].tolist())
        n = len(changes)
        heads = [sum(math.comb(n, k) for k in range(m + 1)) / 2**n for m in range(n)]
        beyond = max(0, sum(each <= 0.025 for each in heads) - 1)
        return float(changes[n - 1 - beyond if name.endswith("high") else beyond])


def know(model: Any, x: Tensor, x_adv: Tensor, y: Tensor, **asked: Any) -> Known:
    """Ask the model and let the judge compute."""
    with torch.no_grad():
        logits = [model(each).double().numpy() for each in (x, x_adv)]
    counted: dict[str, Any] = {name: asked.pop(name, None) for name in ("forwards", "backwards", "seconds")}
    ended, labels = np.asarray(asked.pop("outcome", ())), asked.pop("labels", None)
    given: tuple[Any, Any, Any, Any, Any] = (x.numpy(), x_adv.numpy(), y.numpy(), logits[0], logits[1])
    counted |= {"labels": None if labels is None else labels.numpy(), "ks": KS}
    rows = judge.per_sample(*given, **asked)
    found = judge.figures(*given, **{**counted, **asked})
    found |= {"in_pixels": float(asked.get("unit") == "pixel"), "non_finite": float((rows["outcome"] == 3).mean())}
    found |= {"beyond_samples": float((rows["outcome"] == 7).sum()), "stopped_samples": float((ended == 6).sum())}
    found |= {name: float((ended == code).sum()) / len(x) for name, code in (("unverified", 4), ("no_start", 5))}
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
        service = sz.limit(lambda rows: model(rows), max_queries=asked.queries)
        with pytest.warns(RuntimeWarning, match=f"max_queries={asked.queries}"):
            result = attack.run(service, x, y, targeted=asked.targeted, **how)
    told = {name: how[name] for name in ("unit", "budget") if name in how} | {"targeted": asked.targeted}
    told |= {"costs": COSTS, "sites": [[k] for k in range(48)]} if asked.costs else {}
    counts = {"forwards": result.forwards.numpy(), "backwards": result.backwards.numpy(), "seconds": result.seconds}
    counts |= {"outcome": result.outcome.numpy()}
    known = know(network(), x, result.x_adv, y, **told, **counts)
    if result.own is not None:
        own = know(network(), x, result.own.x_adv, y, **told)
        known.figures.update(returned_asr=own["asr@inf"], returned_median_l0=own["median_l0"])  # type: ignore[attr-defined]
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
    wrong = []
    for name, value in read.items():
        true = known.median_end(name) if name.startswith("median_l0.") else known[name]
        right = (value if isinstance(value, Shown) else Shown(value)).agrees(true)
        if not right:
            wrong.append(f"{where} {name}: {float(value)} is shown, {true} is true")
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
    success, changes = run.known.rows["success"], run.known.rows["changes"]
    needed = np.where(success & (changes > 0), changes, np.inf)
    row, least = int(read.pop("weakest_row", 0)), read.pop("weakest", math.inf)
    assert least == needed.min() == needed[row]
    compare(read, run.known, "samples", "already_wrong", "forwards", "backwards", *first(run))
    assert ("beyond_samples" in read) == (run.known["beyond_samples"] > 0)
    assert ("stopped_samples" in read) == (run.known["stopped_samples"] > 0)


def test_notebook(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Figure, "savefig", lambda self, file, **how: file.write(b"a picture"))
    html = run.result._repr_html_()
    read, shown = readers.read_notebook(html)
    compare(read, run.known, "samples", "already_wrong", "queries", *first(run))
    assert html.count("<img") == 1  # tests/judge/test_pictures.py has what is drawn
    assert not shown


def test_summary(run: Run) -> None:
    read = readers.read_summary(run.result.summary())
    own = ("returned_asr", "returned_median_l0") if run.result.own is not None else ()
    compare(read, run.known, "samples", "asr@inf", "median_l0", "mean_l0", "mean_l0_found", "queries", *own)


def test_methods(run: Run) -> None:
    result, known = run.result, run.known
    read = {f"asr@{k}": result.asr(k) for k in KS} | {
        "asr@inf": result.asr(math.inf),
        "success": float(result.success.double().mean()),
    }
    read |= {"median_l0": result.median_l0, "mean_l0": result.mean_l0}
    read |= {f"cost_asr@{cost}": result.asr_at_cost(cost) for cost in (0.5, 1.0, 1.5, 3.0, 10.0)}
    compare(read, known)
    assert result.asr() == pytest.approx(known["success"])
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
        assert told == names.get(code, told), f"{where}: {told}, {code}"
        assert (told in names.values()) == (code in names), f"{where}: {told}, {code}"


def test_some_samples_alone(run: Run) -> None:
    """A part of a result has the figures of its samples, and the same seconds for each."""
    rows = torch.tensor([0, 1, 3, 8])
    part, mine = run.result.take(rows), rows.numpy()
    changes = run.known.rows["changes"][mine]
    known = {"samples": 4.0, "median_l0": float(np.median(changes)), "asr@inf": float(np.isfinite(changes).mean())}
    known |= {f"asr@{k}": float((changes <= k).mean()) for k in KS}
    known["seconds_per_sample"] = run.known["seconds_per_sample"]
    read = readers.read_summary(part.summary()) | readers.read_repr(repr(part))
    compare({name: value for name, value in read.items() if name in known}, Known(known, {}), "seconds_per_sample")


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


# Commands that attack, cascades and gates -----------------------------------------------------------------------------

COMMANDS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "free": ((), {}),
    "in pixels": (("--unit", "pixel"), {"unit": "pixel"}),
    "beyond the budget": (("--attack", "pdpgd", "--budget", "3"), {"budget": 3}),
    "for a budget": (("--attack", "sparse-rs", "--budget", "2", "--unit", "pixel"), {"budget": 2, "unit": "pixel"}),
    "own answer": (("--attack", "ead-paper"), {}),
    "targeted": (("--target", "1"), {"targeted": True}),
    "with costs": (("--space", "space.toml"), {"costs": COSTS, "sites": [[k] for k in range(48)]}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, (x, y) = tmp_path_factory.mktemp("own"), inputs()
    (made / "net.py").write_text(NET)
    (made / "space.toml").write_text(sz.Space(cost=COSTS).to_toml())
    np.savez(made / "mine.npz", images=x.numpy(), labels=y.numpy(), layout="NCHW")
    return made


MODEL = ("net.py:build", "mine.npz")


@pytest.mark.parametrize("name", COMMANDS)
def test_attack_command(name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    arguments, told = COMMANDS[name]
    out = tmp_path / "result.npz"
    ran = run_command("attack", *MODEL, "--steps", 15, "--out", out, *arguments)
    assert ran.code == 0, ran.stderr
    loaded, (x, labels) = sz.load_result(out), inputs()
    with np.load(out) as arrays:
        y = torch.from_numpy(arrays["targets"] if "targets" in arrays.files else arrays["labels"])
    x, labels = x[loaded.ids], labels[loaded.ids]
    counts = {each: getattr(loaded, each).numpy() for each in ("forwards", "backwards", "outcome")}
    known = know(network(), x, loaded.x_adv, y, labels=labels, **counts, **told)
    ((_, read),) = readers.read_table(ran.stdout).items()
    read.pop("seconds_per_sample")
    if name == "own answer":
        own = sz.get("ead-paper", steps=15).run(network(), x, y).own
        assert own is not None
        returned = know(network(), x, own.x_adv, y)
        assert Shown.agrees(read.pop("returned_asr"), returned["asr@inf"])
        assert Shown.agrees(read.pop("returned_median_l0"), returned["median_l0"])
    budget = told.get("budget")
    must = ["asr@inf", "median_l0", "mean_l0"] if budget is None else [f"asr@{budget}"]
    compare(
        read, known, "samples", "clean_accuracy", "queries", *must, *(["median_cost"] if name == "with costs" else [])
    )
    read = readers.read_summary(loaded.summary())
    read = {each: value for each, value in read.items() if not each.startswith(("returned", "seconds"))}
    compare(read, known)
    compare({each: value for each, value in readers.read_repr(repr(loaded)).items()}, known)
    compare_rows(readers.read_frame(loaded.to_pandas()), known)


def few_members() -> list[sz.Attack]:
    return [sz.get("fmn", steps=8), sz.get("sparse-rs", steps=10)]


def members_known(run: Any, names: list[str], known: Known, k: int) -> dict[str, Known]:
    """What the judge says of each member of a cascade, from a run of its own on the samples that were left to it."""
    x, y = inputs()
    left, told = np.ones(12, dtype=bool), {}
    for attack, name in zip(few_members(), names, strict=True):
        rows = torch.from_numpy(np.flatnonzero(left))
        result = attack.run(network(), x[rows], y[rows], budget=k, ids=rows, **run)
        mine = know(network(), x[rows], result.x_adv, y[rows], budget=k, **run)
        right = known.rows["outcome"][left] != 0
        counted = (result.forwards + result.backwards).double()
        fooled = mine.rows["success"] & right
        left[rows.numpy()[mine.rows["success"]]] = False
        told[name] = Known(
            {
                "attacked": float(len(rows)),
                "attacked_right": float(right.sum()),
                "fooled": float(fooled.sum()),
                "queries": float(counted.mean()),
                "queries_in_all": float(counted.sum()),
                "robust_after": left.mean(),
                f"robust@{k}": left.mean(),
            },
            {},
        )
    return told


def robust_of(known: Known, ks: Any) -> Known:
    """Figures of robustness: right, and not fooled with k changes."""
    right = known.rows["outcome"] != 0
    shares = {f"robust@{k}": float((right & (known.rows["changes"] > k)).mean()) for k in ks}
    return Known({**known.figures, **shares}, known.rows)


@pytest.mark.parametrize("unit", ["feature", "pixel"])
def test_cascade_and_gate_for_a_budget(unit: str, capsys: pytest.CaptureFixture[str]) -> None:
    (x, y), run = inputs(), {"unit": unit}
    how: Any = {"version": "custom", "attacks_to_run": few_members(), "seed": 0, **run}
    verdict = sz.gate(network(), (x, y), 2, doctor=False, **how)
    capsys.readouterr()
    cascade = sz.SparseAutoAttack(network(), eps=2, doctor=False, **how)
    x_adv = cascade.run_standard_evaluation(x, y)
    printed = capsys.readouterr().out
    assert torch.equal(x_adv, verdict.result.best.x_adv)
    known = robust_of(know(network(), x, x_adv, y, budget=2, **run), [2])
    members = members_known(run, ["fmn", "sparse-rs"], known, 2)
    for read in (
        readers.read_cascade(printed),
        readers.read_cascade(str(cascade.result)),
        readers.read_gate(verdict.model_dump(mode="json")),
    ):
        top = read.pop("")
        assert top.pop("most_queries", 26.0) == 26.0
        assert Shown.agrees(top.pop("at_least", top.get("robust@2", Shown(0.0))), top.get("robust@2", 0.0))
        compare(top, known, "samples", "clean_accuracy")
        assert set(read) == set(members)
        for name, figures in read.items():
            figures.pop("seconds", None)
            compare(figures, members[name], "fooled", where=name)
    said = readers.read_verdict(str(verdict))
    compare(said, known, "robust@2", "samples", "robust@2.low")
    for name, figures in readers.read_markdown(verdict.to_markdown()).items():
        compare(figures, members[name], "fooled", "robust_after", "queries_in_all", where=name)
    compare({f"robust@{2}": verdict.robust_accuracy or 0.0, "clean_accuracy": cascade.result.clean_accuracy}, known)


def test_cascade_and_gate_without_a_budget() -> None:
    x, y = inputs()
    for space in (None, sz.Space(cost=COSTS)):
        how: Any = {"version": "custom", "attacks_to_run": [sz.get("fmn", steps=8), sz.get("query-swap", steps=10)]}
        verdict = sz.gate(network(), (x, y), None, doctor=False, space=space, **how)
        told = {} if space is None else {"costs": COSTS, "sites": [[k] for k in range(48)]}
        known = robust_of(know(network(), x, verdict.result.best.x_adv, y, **told), KS)
        compare(readers.read_verdict(str(verdict)), known, "median_l0", "samples")
        read = readers.read_cascade(str(verdict.result))
        document = readers.read_gate(verdict.model_dump(mode="json"))[""]
        last = read["query-swap"]
        if space is not None:  # the points are the cheapest, which need not be the sparsest that were found
            cost, right = known.rows["cost"], known.rows["outcome"] != 0
            for name in [name for name in last if name.startswith("cost_robust@")]:
                true = float((right & (cost > float(name.partition("@")[2]) + 1e-6)).mean())
                assert Shown.agrees(last.pop(name), true)
            for figures in (last, document):
                for name in [name for name in figures if name.startswith("robust@")]:
                    value = figures.pop(name)
                    assert name.endswith((".low", ".high")) or value <= known[name] + 0.0006
        rates = {name: value for name, value in last.items() if name.startswith("robust@")}
        compare(rates, known, *(["robust@1"] if space is None else []))
        compare(document, known, "samples", "median_l0", "clean_accuracy")


def test_gate_that_ends_early() -> None:
    x, y = inputs()
    how: Any = {"version": "custom", "attacks_to_run": few_members(), "doctor": False}
    verdict, whole = (sz.gate(network(), (x, y), 2, at_least=0.9, complete=each, **how) for each in (False, True))
    read, true = readers.read_verdict(str(verdict)), readers.read_verdict(str(whole))
    assert read["at_least"] <= true["robust@2"] <= read["robust@2"]
    assert not verdict.complete
    assert verdict.exit_code == whole.exit_code == 1


def test_auto_command(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    names = {each: tmp_path / f"gate.{each}" for each in ("json", "markdown")}
    more = [word for each, path in names.items() for word in (f"--{each}", path)]
    ran = run_command(
        "auto",
        *MODEL,
        "--eps",
        1,
        "--cascade",
        "quick",
        "--rows",
        "0:4",
        "--out",
        tmp_path / "r.npz",
        *more,
        columns=400,
    )
    assert ran.code == 0, ran.stderr
    loaded, (x, y) = sz.load_result(tmp_path / "r.npz"), inputs()
    known = robust_of(know(network(), x[:4], loaded.x_adv, y[:4], budget=1), [1])
    document = readers.read_gate(json.loads(names["json"].read_text()))
    top = document.pop("")
    top.pop("at_least")
    compare(top, known, "robust@1", "clean_accuracy", "samples")
    printed, summary = readers.read_table(ran.stdout), readers.read_markdown(names["markdown"].read_text())
    assert set(printed) == set(summary) == set(document)
    *_, last = printed.values()
    compare({"robust@1": last["robust@1"]}, known)
    for name, figures in printed.items():
        record = document[name]
        assert figures["fooled"] == record["fooled"] == summary[name]["fooled"]
        assert Shown.agrees(figures["robust@1"], record["robust_after"])
        assert Shown.agrees(figures["queries"], record["queries_in_all"] / max(record["attacked"], 1))
        assert summary[name]["queries_in_all"] == record["queries_in_all"]


# Stores --------------------------------------------------------------------------------------------------------------


@dataclass
class Held:
    """A store, and the judge's word about each of its cells: by model and attack, for runs with a budget by it too."""

    path: Path
    evaluations: list[Any]
    free: dict[str, Known] = field(default_factory=dict)
    fixed: dict[str, dict[int, Known]] = field(default_factory=dict)
    cells: dict[str, Known] = field(default_factory=dict)
    points: dict[str, Tensor] = field(default_factory=dict)
    panels: dict[str, dict[str, str]] = field(default_factory=dict)  # of a page: runs by their names, each a cell

    def known(self, panel: str, label: str) -> Known:
        """What a page calls a run: by its attack, with its budget, or all without one together."""
        runs = self.panels[panel]
        free = [self.cells[key] for name, key in runs.items() if " within " not in name]
        if label == "best of all":  # of the runs without a budget
            rows = {"changes": np.min([each.rows["changes"] for each in free], axis=0)}
            rows["cost"] = np.min([each.rows["cost"] for each in free], axis=0)
            return Known(
                {f"asr@{k}": float((rows["changes"] <= k).mean()) for k in KS}
                | {"samples": 12.0, "asr@inf": float(np.isfinite(rows["changes"]).mean())},
                rows,
            )
        return self.cells[runs[label]]

    def line(self, label: str, table: str) -> Known:
        """A line of a table: success at each budget is of the run with that budget, the rest of the smallest."""
        if table == "minimum-norm":
            return self.free[label]
        runs = self.fixed[label]
        smallest = runs[min(runs)]
        rates = {f"asr@{k}": known[f"asr@{k}"] for k, known in runs.items()}
        others = {name: value for name, value in smallest.figures.items() if not name.startswith(("asr@", "me"))}
        return Known({**others, **rates}, smallest.rows)


def by_cost(known: Known) -> Known:
    """The same figures with changes counted by what they cost."""
    cost = known.rows["cost"]
    shares = {f"asr@{c:g}": float((cost <= c + 1e-6).mean()) for c in np.arange(0, 200, 0.5)}
    figures = {**known.figures, **shares, "median_l0": float(np.median(cost)), "mean_l0": float(cost.mean())}
    return Known(figures, {**known.rows, "changes": cost})


def judged(path: Path, evaluations: list[Any], costs: bool) -> Held:
    """Read a store by its public names, and let the judge compute every cell from its points."""
    held, (x, labels) = Held(path, evaluations), inputs()
    with sz.store.Store(path) as store:
        for info in store.cells():
            facts = store.facts(info.key)
            x_adv, targeted = facts.rebuild(x), info.goal == "targeted"
            y = torch.from_numpy(facts.target) if targeted else labels
            told: dict[str, Any] = {"targeted": targeted, "unit": info.unit, "budget": info.budget, "labels": labels}
            told |= {"costs": COSTS, "sites": [[k] for k in range(48)]} if costs else {}
            counts = {"forwards": facts.forwards, "backwards": facts.backwards, "seconds": float(facts.seconds.sum())}
            counts |= {"outcome": facts.outcome}
            known = know(network(info.model), x, x_adv, y, **told, **counts)
            if info.attack in ("ead-paper", "vfga"):  # these return points by rules of their own
                own = sz.get(info.attack, steps=info.steps).run(network(info.model), x, y).own
                assert own is not None
                returned = know(network(info.model), x, own.x_adv, y)
                known = Known(
                    {**known.figures, "returned_asr": returned["asr@inf"], "returned_median_l0": returned["median_l0"]},
                    known.rows,
                )
            label = f"{info.model} {info.attack}"
            if info.budget is None:
                held.free[label] = known
            else:
                held.fixed.setdefault(label, {})[info.budget] = known
            held.cells[info.key], held.points[info.key] = known, x_adv
            goal = ", target next" if targeted else ""
            place = (
                f"{info.model} on mine.npz{goal}",
                info.attack if info.budget is None else f"{info.attack} within {info.budget}",
            )
            held.panels.setdefault(place[0], {})[place[1]] = info.key
    return held


STORES = ("features", "pixels", "costs")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Held]]:
    folder, (x, y) = tmp_path_factory.mktemp("stores"), inputs()
    (folder / "net.py").write_text(NET)
    np.savez(folder / "mine.npz", images=x.numpy(), labels=y.numpy(), layout="NCHW")

    def attacks(*names: str) -> list[Any]:
        return [sz.get(name, steps=10 if name == "ead-paper" else 20) for name in names]

    def ask(store: str, name: str, *attacked: str, **how: Any) -> Any:
        how = {"store": folder / f"{store}.db", "name": name, **how}
        return sz.evaluate(f"net.py:{name}", "mine.npz", attacks(*attacked), **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        made = {
            "features": [
                *(ask("features", name, "sigma-zero", "ead-paper", "vfga") for name in ("build", "other")),
                *(ask("features", name, "sparse-rs", "fmn", budgets=[1, 3]) for name in ("build", "other")),
                ask("features", "build", "pdpgd", target="next"),
            ],
            "pixels": [
                ask("pixels", "build", "sigma-zero", "fmn", unit="pixel"),
                ask("pixels", "build", "sparse-rs", "fmn", unit="pixel", budgets=[2]),
            ],
            "costs": [ask("costs", "build", "sigma-swap", "fmn", space=sz.Space(cost=COSTS))],
        }
        yield {name: judged(folder / f"{name}.db", made[name], name == "costs") for name in STORES}


@pytest.fixture(params=STORES)
def held(request: pytest.FixtureRequest, stores: Mapping[str, Held], monkeypatch: pytest.MonkeyPatch) -> Held:
    monkeypatch.chdir(stores[request.param].path.parent)
    return stores[request.param]


def kinds(held: Held) -> dict[str, dict[str, Any]]:
    return {name: found for name, found in (("minimum-norm", held.free), ("fixed-budget", held.fixed)) if found}


FORMATS = {
    "terminal": readers.read_table,
    "markdown": readers.read_markdown,
    "csv": readers.read_csv,
    "latex": readers.read_latex,
}


@pytest.mark.parametrize("more", [(), ("--intervals",), ("--k", "1,3,7")], ids=["plain", "intervals", "other k"])
@pytest.mark.parametrize("to", FORMATS)
def test_report(held: Held, to: str, more: tuple[str, ...]) -> None:
    for table, lines in kinds(held).items():
        ran = run_command("report", held.path, "--table", table, "--to", to, *more, columns=400)
        assert ran.code == 0, ran.stderr
        read = FORMATS[to](ran.stdout)
        assert set(read) == set(lines)
        must = ["queries", "seconds_per_sample", *(["median_l0"] if table == "minimum-norm" else [])]
        for label, figures in read.items():
            compare(figures, held.line(label, table), *must, where=label)
        if more and table == "minimum-norm":
            wanted = "median_l0.low" if more[0] == "--intervals" else "asr@7"
            assert all(wanted in figures for figures in read.values())


@pytest.mark.parametrize("to", FORMATS)
def test_report_by_cost(stores: Mapping[str, Held], to: str) -> None:
    held = stores["costs"]
    read = FORMATS[to](run_command("report", held.path, "--cost", "--to", to, columns=400).stdout)
    assert set(read) == set(held.free)
    for label, figures in read.items():
        compare(figures, by_cost(held.free[label]), "median_l0", "asr@2.5", where=label)


def test_evaluation(held: Held) -> None:
    for evaluation in held.evaluations:
        for record in evaluation.records(level=0.95):
            read, known = readers.read_record(record), held.cells[str(record["cell"])]
            assert read.pop("missing") == 0
            budget = record["budget"]
            must = ["median_l0", "mean_l0", "asr@inf"] if budget is None else [f"asr@{budget}"]
            compare(read, known, "samples", "clean_accuracy", "already_wrong", "queries", *must)
        said, read_tables = readers.read_evaluation(str(evaluation))
        assert read_tables
        for table, lines in read_tables.items():
            for label, figures in lines.items():
                compare(figures, held.line(label, table), "clean_accuracy", "queries", where=label)
        assert evaluation.to_pandas().to_dict("records")[0]["samples"] == 12
        ((best, figures),) = said
        runs = [(record["attack"], held.cells[str(record["cell"])]) for record in evaluation.records()]
        told = next(name for name in figures if name == "median_l0" or name.startswith("asr@"))
        if told == "median_l0":
            assert min(known[told] for _, known in runs) == next(known for name, known in runs if name == best)[told]
        compare(figures, next(known for name, known in runs if name == best), "samples", told)


@pytest.mark.parametrize("to", ["csv", "jsonl"])
def test_export(held: Held, to: str, tmp_path: Path) -> None:
    out = tmp_path / f"out.{to}"
    assert run_command("export", held.path, "--out", out, "--perturbations").code == 0
    read = readers.read_export(out.read_text(), to)
    assert set(read) == set(held.cells)
    x, _ = inputs()
    for key, columns in read.items():
        known = held.cells[key]
        if np.isnan(np.asarray(columns["cost"], dtype=float)).all():
            del columns["cost"]
        compare_rows(columns, known, key)
        for row, index, value in zip(range(12), columns["index"], columns["value"], strict=True):
            flat = x[row].flatten().clone()
            flat[[int(k) for k in index]] = torch.tensor(value, dtype=torch.float32)
            assert torch.equal(flat, held.points[key][row].flatten())
        means = {name: float(np.mean(columns[name])) for name in ("forwards", "backwards")}
        compare({**means, "seconds_per_sample": float(np.mean(columns["seconds"]))}, known)


@pytest.fixture(scope="module")
def pages() -> dict[Path, str]:
    return {}


@pytest.fixture
def page(held: Held, pages: dict[Path, str], tmp_path: Path) -> str:
    if held.path not in pages:
        ran = run_command("report", held.path, "-o", tmp_path / "page.html", "--trust-code")
        assert ran.code == 0, ran.stderr
        pages[held.path] = (tmp_path / "page.html").read_text()
    return pages[held.path]


def test_page(held: Held, page: str) -> None:
    read = readers.read_page(page)
    for name, lines in read.items():
        kind, _, panel = name.partition(": ")
        for label, figures in lines.items():
            where = f"{name}, {label}"
            if kind.startswith(("minimum-norm", "fixed-budget")):
                compare(figures, held.line(label, kind.split()[0]), where=where)
            elif kind.startswith("by-cost"):
                compare(figures, by_cost(held.free[label]), where=where)
            elif kind.startswith("curve"):
                compare(figures, held.known(panel, label), where=where)
            elif kind.startswith("cost"):
                compare(figures, by_cost(held.known(panel, label)), where=where)
            elif kind == "classes":
                compare(figures, of_class(held.known(*panel.split(": ")), int(label)), where=where)
            elif kind == "confusion":
                compare_confusion(figures, held.known(*panel.split(": ")), int(label), where)
            else:
                assert kind == "wins"
                for other, value in figures.items():
                    one, two = (held.known(panel, each).rows["changes"] for each in (label, other))
                    assert Shown.agrees(value, float((one < two).mean())), where
    wanted = [*kinds(held), *(f"{kind}: {panel}" for panel in held.panels for kind in ("curve", "curve in numbers"))]
    assert set(wanted) <= set(read)


def compare_confusion(figures: Mapping[str, Any], known: Known, label: int, where: str) -> None:
    """The shares of the examples found of a class; a class without any has none."""
    _, labels = inputs()
    mine = (labels.numpy() == label) & (known.rows["outcome"] == FOUND)
    assert bool(figures) == bool(mine.any()), where
    for other, value in figures.items():
        assert Shown.agrees(value, float((known.rows["prediction"][mine] == int(other)).mean())), where


def test_answers_of_a_page(held: Held, page: str) -> None:
    answers = readers.read_answers(page)
    assert set(answers) == set(held.panels)
    for panel, figures in answers.items():
        known = held.known(panel, "best of all")
        assert figures.pop("sites") == (16 if figures["in_pixels"] else 48)
        assert figures.pop("runs", 1) == sum(" within " not in name for name in held.panels[panel])
        rows = known.rows["changes"]
        first = next(iter(held.panels[panel].values()))
        truth = {**known.figures, "median_l0": float(np.median(rows))}
        truth |= {"clean_accuracy": held.cells[first]["clean_accuracy"], "in_pixels": figures["in_pixels"]}
        compare(figures, Known(truth, {}), "samples", "median_l0", where=panel)
    groups = [*held.panels]
    strip = readers.read_strip(page)
    assert strip
    for each in strip:
        changes = held.known(groups[int(each["group"])], "best of all").rows["changes"]
        assert float(each["changes"]) == changes[int(each["row"])]


def of_class(known: Known, label: int) -> Known:
    """What the judge says of the samples of one class."""
    _, labels = inputs()
    mine = labels.numpy() == label
    changes, found = known.rows["changes"][mine], mine & (known.rows["outcome"] == FOUND)
    names, counts = np.unique(known.rows["prediction"][found], return_counts=True)
    return Known(
        {
            "samples": float(mine.sum()),
            "clean_accuracy": float((known.rows["clean_prediction"] == labels.numpy())[mine].mean()),
            "median_l0": float(np.median(changes)),
            "asr@inf": float(np.isfinite(changes).mean()),
            "taken_for": float(names[counts.argmax()]) if len(names) else math.nan,
            "taken_share": float(counts.max() / counts.sum()) if len(names) else math.nan,
        },
        {},
    )


def test_samples_of_a_page(held: Held, page: str) -> None:
    words = readers.parse(page).data["outcomes"]
    for cell in readers.read_samples(page):
        known = held.cells[held.panels[cell["group"]][cell["name"]]]
        rows, there = known.rows, np.isfinite(known.rows["changes"])
        changes = [math.inf if each is None else float(each) for each in cell["changes"]]
        assert changes == rows["changes"].tolist()
        assert cell["before"] == rows["clean_prediction"].tolist()
        assert np.array_equal(np.asarray(cell["after"])[there], rows["prediction"][there])
        assert np.array_equal(np.asarray(cell["outcome"])[there], rows["outcome"][there])
        assert {str(code) for code in cell["outcome"]} <= set(words)
        assert Shown(float(np.mean(cell["queries"]))).agrees(known["queries"])


@pytest.mark.parametrize("to", ["terminal", "markdown"])
def test_two_stores(to: str, stores: Mapping[str, Held], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after on the same samples: shares, their difference and its interval, and the rows that changed."""
    held = stores["features"]
    monkeypatch.chdir(held.path.parent)
    after = tmp_path / "after.db"
    sz.evaluate("net.py:build", "mine.npz", [sz.get("sigma-zero", steps=4)], store=after, name="build")
    ran = run_command("report", held.path, after, "--to", to, "--k", "2,5", columns=400)
    assert ran.code == 0, ran.stderr
    later = judged(after, [], False)
    one, two = (each.free["build sigma-zero"].rows["changes"] for each in (held, later))
    read = readers.read_comparison(ran.stdout)
    for k in (2, 5):
        before, now = one <= k, two <= k
        shown = read["figures"][f"ASR {k}, %"]
        assert [shown[0], shown[1]] == [f"{100 * each.mean():.1f}" for each in (before, now)]
        gained, lost = (now & ~before).sum() + 0.5, (before & ~now).sum() + 0.5
        middle, half = (gained - lost) / 14, 1.959964 * math.sqrt(gained + lost - (gained - lost) ** 2 / 14) / 14
        assert shown[2] == pytest.approx(100 * (now.mean() - before.mean()), abs=0.051)
        assert shown[3:] == pytest.approx([100 * (middle - half), 100 * (middle + half)], abs=0.051)
    changed = {row: (a, b) for row, (a, b) in enumerate(zip(one.tolist(), two.tolist(), strict=True)) if a != b}
    assert changed
    assert read["rows"] == changed


def test_leaderboard(stores: Mapping[str, Held], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = stores["features"]
    monkeypatch.chdir(held.path.parent)
    assert run_command("report", held.path, "--bundle", tmp_path / "site", "--k", "1,2,5").code == 0
    text = (tmp_path / "site/index.html").read_text()
    boards = readers.read_leaderboard(text)
    assert readers.parse(text).texts["h2"] == ["mine.npz", "mine.npz, target next"]
    known = [
        {model: standing(held, f"{model} on mine.npz{goal}") for model in board}
        for board, goal in zip(boards, ("", ", target next"), strict=True)
    ]
    for board, truth in zip(boards, known, strict=True):
        worth = {
            model: [-truth[model]["median_l0"], *(-truth[model][f"robust@{k}"] for k in (1, 2, 5))] for model in board
        }
        for model, figures in board.items():
            assert figures.pop("rank") == 1 + sum(other < worth[model] for other in worth.values())
            drawn = {name[6:]: figures.pop(name) for name in [*figures] if name.startswith("drawn ")}
            compare(figures, truth[model], "median_l0", "clean_accuracy", "robust@5", "robust@5.low", where=model)
            compare(drawn, truth[model], "robust@1", "robust@5.high", where=f"{model}, drawn")
    for file in (tmp_path / "site/models").iterdir():
        model = readers.parse(file.read_text()).texts["h1"][0]
        on = [each for each in known if model in each]
        for read, truth in zip(readers.read_standings(file.read_text()), on, strict=True):
            figures = read["figures"][""]
            del figures["rank"], figures["models"]
            compare(figures, truth[model], "robust@1", "robust@5", where=model)
            compare(read["drawn"][model], truth[model], "robust@5", where=f"{model}, drawn")
            rows = truth[model].rows["changes"]
            assert {int(row): float(each["changes"]) for row, each in read["samples"].items()} == dict(enumerate(rows))


def standing(held: Held, panel: str) -> Known:
    """What the judge says of a model against all attacks; a point beyond a run's budget fools all the same."""
    runs = [held.cells[key] for key in held.panels[panel].values()]
    fewest = np.min([one.rows["changes"] for one in runs], axis=0)
    return Known(robustness(fewest) | {"clean_accuracy": runs[0]["clean_accuracy"]}, {"changes": fewest})


def robustness(changes: Any) -> dict[str, float]:
    """Return the median and the robust accuracies, from the fewest changes of each sample."""
    known = {f"robust@{k}": float((changes > k).mean()) for k in KS}
    return known | {"median_l0": float(np.median(changes)), "samples": float(len(changes))}


def test_board_in_a_folder(stores: Mapping[str, Held], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, (x, y) = stores["features"], inputs()
    monkeypatch.chdir(held.path.parent)
    board, site = tmp_path / "board", tmp_path / "site"
    card = held.path.with_name("mine.toml")
    card.write_text('name = "mine"\nmodel = "net.py:build"\nboards = ["small"]\n')
    trusted = ("--by", "Ada", "--cascade", "none", "--from", held.path, "--trust-code")
    for arguments in (("init", board, "small", "mine.npz", "--k", "1,2,5"), ("add", board, card, *trusted)):
        ran = run_command("board", *arguments)
        assert ran.code == 0, ran.stderr
        again = arguments if arguments[0] == "init" else arguments[:-1]  # without trust
        assert run_command("board", *again).code == 2
    assert run_command("board", "site", board, "--out", site).code == 0
    # Points that were found on the other model count too where they hold.
    changes = np.min([know(network(), x, each, y).rows["changes"] for each in held.points.values()], axis=0)
    truth = Known(robustness(changes) | {"clean_accuracy": float((changes > 0).mean())}, {"changes": changes})
    (models,) = readers.read_leaderboard((site / "index.html").read_text())
    figures = models["mine"]
    assert figures.pop("rank") == 1
    drawn = {name[6:]: figures.pop(name) for name in [*figures] if name.startswith("drawn ")}
    compare(figures, truth, "median_l0", "clean_accuracy", "robust@1", "robust@2.low", "robust@5", where="the board")
    compare(drawn, truth, "robust@2", where="the chart of the board")
    (read,) = readers.read_standings((site / "models" / "mine.html").read_text())
    compare({k: v for k, v in read["figures"][""].items() if k[:6] == "robust"}, truth, "robust@5", where="the page")
    for row, each in read["samples"].items():
        assert each["changes"] == changes[int(row)]
        assert each["label"] == y[int(row)]
        assert each["least"] <= each["changes"]
    fooled = float((np.isfinite(changes) & (changes > 0)).sum())
    assert sum(float(each["samples"]) for who, each in read["finders"].items() if who.endswith(", Ada")) == fooled
    # A proof stands beside the robust accuracy of its number of changes, and never above it.
    ran = run_command("board", "prove", board, "mine", "--up-to", "1", "--trust-code")
    assert ran.code == 0, ran.stderr
    assert run_command("board", "site", board, "--out", site).code == 0
    shares = [float(text) for text in re.findall(r"≥ ([\d.]+) proved", (site / "index.html").read_text())]
    assert shares
    assert 0 < max(shares) <= 100 * robustness(changes)["robust@1"]
    pictured = readers.read_samples((site / "models" / "mine.html").read_text())
    for at, row in enumerate(pictured[0]["rows"]):
        assert pictured[0]["changes"][at] == changes[row]


def test_what_fell_to_no_gradients(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence counts samples that no attack with gradients fooled within the budget, of all those in the store."""
    monkeypatch.chdir(folder)
    how: Any = {"store": tmp_path / "doubts.db", "name": "build"}
    with pytest.warns(UserWarning, match="SZ014"):
        sz.evaluate(
            "net.py:build",
            "mine.npz",
            [sz.get("sparse-rs", steps=60), sz.get("pdpgd", steps=20)],
            budgets=[2, 3],
            **how,
        )
    held = judged(how["store"], [], False)
    runs = {name: held.cells[key].rows["success"] for name, key in held.panels["build on mine.npz"].items()}
    missed = [int((runs[f"sparse-rs within {k}"] & ~runs[f"pdpgd within {k}"]).sum()) for k in (2, 3)]
    page = tmp_path / "page.html"
    assert run_command("report", how["store"], "-o", page).code == 0
    told = readers.read_doctor(page.read_text())
    assert [int(text.partition(": ")[2].split()[0]) for text in told] == sorted(missed, reverse=True)
    assert len(told) == 2
    sz.evaluate("net.py:build", "mine.npz", [sz.get("sigma-zero", steps=60)], **how)
    ran = run_command("report", how["store"])
    held = judged(how["store"], [], False)
    free = held.free["build sigma-zero"].rows["changes"]
    left = [int((runs[f"sparse-rs within {k}"] & ~runs[f"pdpgd within {k}"] & (free > k)).sum()) for k in (2, 3)]
    assert max(left) <= 2  # as many may fall by luck
    assert "SZ014" not in ran.stderr


def test_demo(tmp_path: Path) -> None:
    ran = run_command("demo", "--limit", 4, "--steps", 6, "--out", tmp_path)
    assert ran.code == 0, ran.stderr
    read = readers.read_table(ran.stdout)
    rows, model = sz.data.load("mnist-5k-heldout", limit=4), sz.models.load("demo")
    with sz.store.Store(next(tmp_path.glob("*.db"))) as store:
        for info in store.cells():
            facts = store.facts(info.key)
            counts = {"forwards": facts.forwards, "backwards": facts.backwards, "seconds": float(facts.seconds.sum())}
            known = know(model, rows.images, facts.rebuild(rows.images), rows.labels, **counts)
            figures = {name: value for name, value in read.pop(info.attack).items() if not name.startswith("returned")}
            compare(figures, known, "asr@inf", "median_l0", "mean_l0", "clean_accuracy", "queries")
    assert not read
