"""The paper's own figures: ablations and the first figure show the numbers of their stores."""

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from experiments.figures import ablation, figure_one
from matplotlib.figure import Figure

import sigmazero as sz
from tests.helpers.commands import run_command
from tests.helpers.stores import A, F, Run, write_store

mpl.use("agg")


def share(changes: Any, k: float) -> float:
    return 100 * float((np.asarray(changes) <= k).mean())


def ask(module: Any, patch: pytest.MonkeyPatch, *words: object) -> list[Figure]:
    """Call a script, and return the figures that it saves."""
    found = list[Figure]()
    patch.setattr(sys, "argv", ["script", *map(str, words)])
    patch.setattr(Figure, "savefig", lambda self, path, **how: (found.append(self), Path(path).write_bytes(b"")))
    module.main()
    return found


SWITCHES = ("normalize", "adaptive_threshold", "projection", "l0_term")


def varied(changes: list[float], **parameters: Any) -> Run:
    outcome = [A if c == 0 else F if c < math.inf else 2 for c in changes]
    return Run("first", "sigma-zero", changes, outcome, [102] * 8, [100] * 8, 1.0, parameters=parameters)


ABLATED = {
    "components": [
        varied([0, n, 2 * n, 3, 4 * n, 9, 30 * n, math.inf], **{name: k < n for k, name in enumerate(SWITCHES)})
        for n in (4, 3, 2)
    ],
    "surface": [
        varied([0, 1, 2, s * t, 3 * t, 9 * s, 30, math.inf], smoothing=s / 10, threshold=t / 10)
        for s in (1, 2)
        for t in (1, 3, 4)
    ],
    "rate": [varied([0, 1, 2, 30 * r, 31 * r, 32 * r, 33, math.inf], threshold_rate=r / 100) for r in (1, 2, 5)],
}


def ablation_panels(figure: Figure) -> Iterator[tuple[Any, Any]]:
    """Yield each panel, and the figure of a run that it is about."""
    for axis in figure.axes:
        if matched := re.fullmatch(r"first on digits: (?:ASR (\S+), %|(median))", axis.get_title()):
            k = None if matched[1] is None else math.inf if matched[1] == "∞" else float(matched[1])
            yield (
                axis,
                lambda run, k=k: (
                    float(np.median(run.changes))
                    if k is None
                    else 100 * np.mean([c <= k and c < math.inf for c in run.changes])
                ),
            )


def store_of(folder: Path, kind: str) -> Path:
    return write_store(folder / f"{kind}.db", ABLATED[kind])


def test_ablation_of_two_numbers_is_a_map(tmp_path, monkeypatch):
    seen = 0
    (figure,) = ask(ablation, monkeypatch, store_of(tmp_path, "surface"), "-o", tmp_path / "a.svg", "--k", "2,5")
    for axis, value in ablation_panels(figure):
        seen += 1
        (image,) = axis.images
        texts = {t.get_position(): t.get_text() for t in axis.texts}
        for run in ABLATED["surface"]:
            row, column = (
                (0.1, 0.2).index(run.parameters["smoothing"]),
                (0.1, 0.3, 0.4).index(run.parameters["threshold"]),
            )
            assert float(image.get_array()[row, column]) == pytest.approx(value(run))
            assert float(texts[column, row]) == pytest.approx(value(run), abs=0.05)
        assert [label.get_text() for label in axis.get_yticklabels()] == ["0.1", "0.2"]
        assert [label.get_text() for label in axis.get_xticklabels()] == ["0.1", "0.3", "0.4"]
    assert seen >= 3


def test_ablation_of_one_number_is_a_curve(tmp_path, monkeypatch):
    seen = 0
    (figure,) = ask(ablation, monkeypatch, store_of(tmp_path, "rate"), "-o", tmp_path / "a.svg", "--k", "2,35")
    for axis, value in ablation_panels(figure):
        seen += 1
        (line,) = axis.lines
        assert np.asarray(line.get_xdata()).tolist() == [0.01, 0.02, 0.05]
        assert np.asarray(line.get_ydata()) == pytest.approx([value(run) for run in ABLATED["rate"]])
        assert axis.get_ylim()[0] == 0
        assert axis.get_ylim()[1] > max(line.get_ydata())
        assert axis.get_xscale() == "log"
    assert seen >= 3


def test_ablation_of_components_is_a_table(tmp_path, monkeypatch):
    file = tmp_path / "table.md"
    ask(ablation, monkeypatch, store_of(tmp_path, "components"), "-o", file, "--k", "2,10")
    heading, _, *rows = [
        [cell.strip(" *") for cell in line.split("|")[1:-1]] for line in file.read_text().splitlines() if "|" in line
    ]
    shown = [dict(zip(heading, row, strict=True)) for row in rows]
    ordered = sorted(ABLATED["components"], key=lambda run: float(np.median(run.changes)))
    assert len(shown) == len(ordered)
    for row, run in zip(shown, ordered, strict=True):
        assert [row[name] for name in row if row[name] in ("yes", "no")] == [
            "yes" if run.parameters[name] else "no" for name in SWITCHES
        ]
        median = float(row["median"])
        assert median == float(np.median(run.changes))
        for k in (2, 10):
            assert float(row[f"ASR {k}"].rstrip("% ")) == pytest.approx(share(run.changes, k), abs=0.05)


NET = """
import torch
from torch import nn

def build():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 12), nn.ReLU(), nn.Linear(12, 4))

def plane():
    model = nn.Linear(2, 2)
    model.weight.data = torch.tensor([[4.0, 3.0], [0.0, 0.0]])
    model.bias.data = torch.tensor([0.0, 3.5])
    return model
"""
PLAN = """
steps = 12
[attacks.sigma-zero]
trace = true
[data.rows]
source = "mine.npz"
[data.plane]
source = "plane.npz"
[[grid]]
models = ["net.py:build"]
data = ["rows"]
attacks = ["sigma-zero"]
[[grid]]
models = ["net.py:plane"]
data = ["plane"]
attacks = ["sigma-zero"]
"""


def network(name: str) -> torch.nn.Module:
    held: dict[str, Any] = {}
    exec(NET, held)
    model: torch.nn.Module = held[name]()
    return model.eval().requires_grad_(False)


def test_the_path_of_a_search(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = torch.rand(3, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    small = torch.rand(3, 2, generator=torch.Generator().manual_seed(4))
    Path("net.py").write_text(NET)
    Path("plan.toml").write_text(PLAN)
    labels = network("plane")(small).argmax(1)
    np.savez("mine.npz", images=x.numpy(), labels=network("build")(x).argmax(1).numpy(), layout="NCHW")
    np.savez("plane.npz", images=small.numpy(), labels=labels.numpy())
    ran = run_command("run", "plan.toml", "--store", "traced.db", "--trust-code")
    assert ran.code == 0, ran.stderr
    (figure,) = ask(figure_one, monkeypatch, "traced.db", "-o", "f.svg")
    (plane,) = [axis for axis in figure.axes if axis.get_xlabel() == "feature 1"]
    lines = {line.get_label(): np.asarray(line.get_xydata(), float) for line in plane.lines}
    (start,), (end,) = lines["the input"], lines["what was found"]
    (row,) = [row for row in range(3) if np.allclose(small[row].numpy(), start)]
    assert np.allclose(lines["path"][-1], end)
    assert int(network("plane")(torch.tensor(end[None], dtype=torch.float32)).argmax()) != int(labels[row])
    asked = [axis for axis in figure.axes if "query" in axis.get_title()]
    counts = [int(figure.axes[figure.axes.index(axis) + len(asked)].get_xlabel().removeprefix("l0 ")) for axis in asked]
    for axis in asked:
        point = torch.from_numpy(np.asarray(axis.images[0].get_array(), float)).permute(2, 0, 1).float()
        assert axis.get_xlabel() == f"predicted {int(network('build')(point[None]).argmax())}"
    assert counts == sorted(counts, reverse=True)
    with sz.store.Store("traced.db") as held:
        (info,) = [info for info in held.cells() if info.dataset == "rows"]
        assert counts[-1] in held.facts(info.key).l0.tolist()


def test_a_store_without_their_runs_is_refused(tmp_path, monkeypatch):
    store = store_of(tmp_path, "rate")
    for module, out in ((ablation, "a.md"), (figure_one, "f.svg")):
        with pytest.raises(ValueError, match=r"ablation-components\.toml|rate\.db"):
            ask(module, monkeypatch, store, "-o", tmp_path / out)
