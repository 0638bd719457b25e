"""Pictures, plots and animations show the inputs, points and counts of a run: what matplotlib is given is compared."""

import base64
import math
import re
import shutil
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import sigmazero as sz
from tests.helpers import readers
from tests.helpers.commands import run_command

mpl.use("agg")
NET = """
import torch
from torch import nn

def build():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 12), nn.ReLU(), nn.Linear(12, 4))

def other():
    torch.manual_seed(5)
    model = build()
    for each in model.parameters():
        each.data += 0.05 * torch.randn(each.shape)
    return model

def plane():
    model = nn.Linear(2, 2)
    model.weight.data = torch.tensor([[4.0, 3.0], [0.0, 0.0]])
    model.bias.data = torch.tensor([0.0, 3.5])
    return model
"""


def network(name: str = "build") -> nn.Module:
    held: dict[str, Any] = {}
    exec(NET, held)
    model: nn.Module = held[name]()
    return model.eval().requires_grad_(False)


def inputs() -> tuple[Tensor, Tensor]:
    x = torch.rand(8, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    y = network()(x).argmax(1)
    y[2] = (y[2] + 1) % 4
    return x, y


def plane_inputs() -> tuple[Tensor, Tensor]:
    x = torch.rand(3, 2, generator=torch.Generator().manual_seed(4))
    return x, network("plane")(x).argmax(1)


def saved(patch: pytest.MonkeyPatch) -> list[Figure]:
    """Keep the figures that are saved from now on, instead of files."""
    found = list[Figure]()
    patch.setattr(Figure, "savefig", lambda self, path, **how: (found.append(self), Path(path).write_bytes(b"")))
    return found


def shown(axis: Any) -> Any:
    """Return the image in an axis, with a channel for each colour."""
    values = np.asarray(axis.images[0].get_array(), float)
    return values if values.ndim == 3 else values[..., None]


def as_drawn(image: Tensor) -> Any:
    return image.permute(1, 2, 0).numpy()


def pale(image: Tensor) -> Any:
    """Return the grey ground that changes are marked upon: lighter where the input is, and never dark."""
    return image.mean(0, keepdim=True).permute(1, 2, 0).numpy()


def marked(axis: Any) -> dict[tuple[int, int], float]:
    """Return the marked pixels of an axis by row and column, with the change that their colour stands for."""
    if axis.collections:
        (marks,) = axis.collections
        centres = [path.vertices[:-1].mean(0) for path in marks.get_paths()]
        assert marks.get_clim() == (-1, 1)
        return {(round(y), round(x)): float(v) for (x, y), v in zip(centres, marks.get_array(), strict=True)}
    if len(axis.images) < 2:
        return {}
    values = axis.images[1].get_array()
    assert axis.images[1].get_clim() == (-1, 1)
    return {
        (int(i), int(j)): float(values[i, j]) for i, j in zip(*np.nonzero(~np.ma.getmaskarray(values)), strict=True)
    }


def changed(x: Tensor, point: Tensor) -> dict[tuple[int, int], float]:
    """Return the changed pixels with the largest change of a channel."""
    delta = (point - x).numpy()
    where = np.argwhere((delta != 0).any(0))
    return {(int(i), int(j)): float(max(delta[:, i, j], key=abs)) for i, j in where}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, (x, y) = tmp_path_factory.mktemp("own"), inputs()
    (made / "net.py").write_text(NET)
    np.savez(made / "mine.npz", images=x.numpy(), labels=y.numpy(), layout="NCHW")
    return made


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def result() -> sz.Result:
    x, y = inputs()
    return sz.get("fmn", steps=20).run(network(), x, y)


def rates(result: sz.Result, ks: Any) -> list[float]:
    return [100 * float((result.l0 <= k).double().mean()) for k in ks]


def test_a_curve_of_a_result(result: sz.Result) -> None:
    axis = result.plot_curve(label="sigma-zero")
    (line,), (band,) = axis.lines, axis.collections
    ks = np.asarray(line.get_xdata(), float)
    assert ks[0] == 0
    assert ks[-1] <= axis.get_xlim()[1] < 1.2 * ks[-1]
    assert set(result.l0[result.l0.isfinite()].tolist()) <= set(ks.tolist())
    assert np.asarray(line.get_ydata()) == pytest.approx(rates(result, ks))
    known = [n * 100 / 8 for n in range(9)]
    low, high = band.get_paths()[0].vertices[:, 1].min(), band.get_paths()[0].vertices[:, 1].max()
    assert low < min(line.get_ydata()) <= max(line.get_ydata()) <= max(high, known[-1])
    assert tuple(band.get_facecolor()[0][:3]) == pytest.approx(mpl.colors.to_rgb(line.get_color()))
    again = result.plot_curve(axis, label="mine")
    assert again is axis
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["sigma-zero", "mine"]
    assert axis.collections[1].get_alpha() < axis.collections[0].get_alpha()
    assert axis.lines[0].get_color() != axis.lines[1].get_color()
    assert "features" in axis.get_xlabel()


def test_examples_of_a_result(result: sz.Result) -> None:
    x, _ = inputs()
    above, middle, below = result.plot_examples(count=3)
    chosen = []
    for first, second, third in zip(above, middle, below, strict=True):
        (row,) = [row for row in range(8) if np.allclose(shown(first), as_drawn(x[row]))]
        chosen.append(row)
        assert shown(second) == pytest.approx(as_drawn(result.x_adv[row]), abs=1e-6)
        assert marked(third) == pytest.approx(changed(x[row], result.x_adv[row]))
        assert first.get_xlabel() == f"class {int(result.clean_prediction[row])}"
        assert second.get_xlabel() == f"→ {int(result.prediction[row])}"
        assert third.get_xlabel() == f"{int(result.l0[row])} changed"
        assert not [*first.get_xticks(), *second.get_yticks()]
    counts = sorted(result.l0[result.l0 > 0].tolist())
    assert len(chosen) == 3
    assert [float(result.l0[row]) for row in chosen] == sorted(float(result.l0[row]) for row in chosen)
    assert (float(result.l0[chosen[0]]), float(result.l0[chosen[-1]])) == (counts[0], counts[-1])


def test_changes_of_a_result(result: sz.Result) -> None:
    x, _ = inputs()
    found = result.outcome == sz.Outcome.FOUND
    differs = (x != result.x_adv)[found].double().mean(0)
    axis = result.plot_changes()
    assert shown(axis)[..., 0] == pytest.approx(100 * differs.amax(0).numpy())
    flat = sz.get("fmn", steps=20).run(nn.Sequential(nn.Unflatten(1, (3, 4, 4)), network()), x.flatten(1), inputs()[1])
    bars = flat.plot_changes(count=5)
    share = (x.flatten(1) != flat.x_adv)[flat.outcome == sz.Outcome.FOUND].double().mean(0)
    top = share.argsort(descending=True, stable=True)[:5].flip(0)
    assert [label.get_text() for label in bars.get_yticklabels()] == [str(int(k)) for k in top]
    assert [bar.get_width() for bar in bars.patches] == pytest.approx((100 * share[top]).tolist())


def test_a_notebook_shows_the_pixels(result: sz.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[Figure]()
    monkeypatch.setattr(Figure, "savefig", lambda self, file, **how: (found.append(self), file.write(b"a picture")))
    html = result._repr_html_()
    assert re.findall(r"base64,([^\"]+)", html) == [base64.b64encode(b"a picture").decode()]
    assert_picture(found[0], result, None)


def assert_picture(figure: Figure, result: sz.Result, budget: int | None) -> None:
    """Some samples clean, adversarial and with their changes, and the curve."""
    x, _ = inputs()
    *pictures, last = figure.axes
    assert len(pictures) % 3 == 0
    assert pictures
    for column in range(0, len(pictures), 3):
        clean, adversarial, difference = pictures[column : column + 3]
        (row,) = [row for row in range(8) if np.allclose(shown(clean), as_drawn(x[row]))]
        assert shown(adversarial) == pytest.approx(as_drawn(result.x_adv[row]), abs=1e-6)
        assert marked(difference) == pytest.approx(changed(x[row], result.x_adv[row]))
        titles = [axis.get_title() for axis in (adversarial, difference)]
        there = result.l0[row] < math.inf
        beyond = "" if result.success[row] else ",\nbeyond the budget"
        told = (
            [f"→ {int(result.prediction[row])}", f"{int(result.l0[row])} changed{beyond}"]
            if there
            else ["not fooled", "∞"]
        )
        assert titles == told
        assert [axis.get_ylabel() for axis in (clean, adversarial, difference)] == (
            ["clean", "adversarial", "changes"] if column == 0 else [""] * 3
        )
    line, mark = last.lines
    ks = np.asarray(line.get_xdata(), float)
    assert np.asarray(line.get_ydata()) == pytest.approx(rates(result, ks))
    assert mark.get_xdata()[0] == (result.median_l0 if budget is None else budget)
    assert "n = 8" in last.get_title()


def test_a_notebook_tells_the_changes_of_a_table() -> None:
    x, y = plane_inputs()
    result = sz.get("fmn", steps=25).run(network("plane"), x, y)
    lines = readers.parse(result._repr_html_()).texts["li"]
    rows = (result.outcome == sz.Outcome.FOUND).nonzero().flatten().tolist()
    assert len(lines) == len(rows) > 0
    for line, row in zip(lines, rows, strict=True):
        told = re.findall(r"feature (\d+): (\S+) → ([^\s,]+)", line)
        after, count = int(result.prediction[row]), int(result.l0[row])
        assert line.startswith(f"row {row}, {int(y[row])} → {after}, {count} changed")
        assert [int(k) for k, *_ in told] == (x[row] != result.x_adv[row]).nonzero().flatten().tolist()
        for k, before, after in told:
            assert float(before) == pytest.approx(float(x[row, int(k)]), rel=1e-5)
            assert float(after) == pytest.approx(float(result.x_adv[row, int(k)]), rel=1e-5)


@pytest.mark.parametrize("budget", [None, 1])
def test_the_picture_of_an_attack(budget: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = saved(monkeypatch)
    more = () if budget is None else ("--budget", budget)
    model = ("net.py:build", "mine.npz", "--attack", "fmn", "--steps", 15)
    ran = run_command("attack", *model, "-o", tmp_path / "r.npz", "-o", tmp_path / "r.png", *more)
    assert ran.code == 0, ran.stderr
    (figure,), (x, y) = found, inputs()
    result = sz.load_result(next(tmp_path.rglob("*.npz")))
    assert_picture(figure, result, budget)
    for column in range(0, len(figure.axes) - 1, 3):
        (row,) = [row for row in range(8) if np.allclose(shown(figure.axes[column]), as_drawn(x[row]))]
        assert figure.axes[column].get_title() == f"class {int(y[row])}"
    assert figure.get_suptitle()


@pytest.fixture(scope="module")
def store(folder: Path) -> Path:
    path = folder / "runs.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        attacks = [sz.get("fmn", steps=15), sz.get("sigma-zero", steps=15)]
        for name in ("build", "other"):
            sz.evaluate(f"net.py:{name}", "mine.npz", attacks, store=path, name=name)
        sz.evaluate("net.py:build", "mine.npz", attacks[:1], store=path, name="build", budgets=[2])
    return path


def points(path: Path) -> dict[tuple[str, str], tuple[Any, Tensor]]:
    """Return the facts and the points of every cell, by model and what an attack is called."""
    x, found = inputs()[0], {}
    with sz.store.Store(path) as held:
        for info in held.cells():
            facts = held.facts(info.key)
            name = info.attack if info.budget is None else f"{info.attack} at {info.budget}"
            found[info.model, name] = facts, facts.rebuild(x)
    return found


def test_pictures_of_attacks_side_by_side(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = saved(monkeypatch)
    ran = run_command("plot", store, "pictures", "-o", tmp_path / "p.png", "--set", "rows=2", "--trust-code")
    assert ran.code == 0, ran.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p-build-mine.npz.png", "p-other-mine.npz.png"]
    x, y = inputs()
    known = points(store)
    for figure in found:
        (heading,) = [text.get_text() for text in figure.texts]
        model = heading.split()[0]
        mine = {name: held for (of, name), held in known.items() if of == model}
        across = 1 + 2 * len(mine)
        assert len(figure.axes) == 2 * across
        names = [axis.get_title() for axis in figure.axes[1:across:2]]
        assert sorted(names) == sorted(mine)
        for first, *others in (figure.axes[:across], figure.axes[across:]):
            (row,) = [row for row in range(8) if np.allclose(shown(first), as_drawn(x[row]))]
            assert first.get_xlabel() == f"class {int(y[row])}\nrow {row}"
            for name, above, below in zip(names, others[::2], others[1::2], strict=True):
                facts, x_adv = mine[name]
                assert np.ptp(shown(below)) <= np.ptp(pale(x[row]))
                assert np.corrcoef(shown(below).flatten(), pale(x[row]).flatten())[0, 1] > 0.999
                if facts.success[row]:
                    assert above.get_xlabel() == f"→ {facts.prediction[row]}   l0 {facts.l0[row]:g}"
                    assert shown(above) == pytest.approx(as_drawn(x_adv[row]), abs=1e-6)
                    assert marked(below) == pytest.approx(changed(x[row], x_adv[row]))
                else:
                    assert above.get_xlabel() == "not found"
                    assert not marked(below)
                boxes = [axis.get_position() for axis in (first, above, below)]
                assert boxes[0].x0 < boxes[1].x0
                assert boxes[1].x0 == pytest.approx(boxes[2].x0, abs=1e-4)
                assert boxes[2].y1 <= boxes[1].y0
                assert boxes[0].y0 == pytest.approx(boxes[1].y0, abs=1e-4)


def test_transfer_between_models(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The share, of the points that fool one model, of those that fool another one which has the input right."""
    (x, y), known, copied = inputs(), points(store), tmp_path / "copy.db"
    shutil.copy(store, copied)
    ran = run_command("transfer", copied, "--trust-code")
    assert ran.code == 0, ran.stderr
    best, shares = {}, {}
    for model in ("build", "other"):
        best[model] = min(("fmn", "sigma-zero"), key=lambda name: float(np.median(known[model, name][0].l0)))
    for start, end in (("build", "other"), ("other", "build")):
        facts, x_adv = known[start, best[start]]
        right = torch.from_numpy(facts.outcome == sz.Outcome.FOUND) & (network(end)(x).argmax(1) == y)
        assert right.any()
        shares[start, end] = float((network(end)(x_adv).argmax(1) != y)[right].double().mean())
    found = saved(monkeypatch)
    assert run_command("plot", copied, "transfer", "-o", tmp_path / "t.svg").code == 0
    (axis,) = found[0].axes
    down, across = ([label.get_text() for label in side.get_ticklabels()] for side in (axis.yaxis, axis.xaxis))
    values = np.asarray(axis.images[0].get_array(), float)
    assert down == [f"{model} ({best[model]})" for model in across]
    for (start, end), value in shares.items():
        at = across.index(start), across.index(end)
        assert values[at] == pytest.approx(100 * value)
        (text,) = [text.get_text() for text in axis.texts if text.get_position() == at[::-1]]
        assert text == f"{100 * value:.0f}"
    assert run_command("report", copied, "-o", tmp_path / "page.html", "--trust-code").code == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    grid = readers.read_page(page)["transfer: mine.npz"]
    for (start, end), value in shares.items():
        assert readers.Shown.agrees(grid[f"{start} ({best[start]})"][end], value)
    (group,) = readers.parse(page).data["samples"]["sets"]
    held = np.frombuffer(base64.b64decode(group["images"]), np.uint8).reshape(8, 3, 4, 4)
    assert np.abs(held - 255 * x.numpy()).max() <= 0.51
