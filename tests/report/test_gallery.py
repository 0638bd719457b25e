import numpy as np
import pytest
import torch

from sigmazero.bench.cells import expand
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan import parse_plan
from sigmazero.bench.run import execute
from sigmazero.report.figures import style
from sigmazero.report.figures.curves import panels
from sigmazero.report.figures.figure import Request
from sigmazero.report.figures.gallery import FIGURE, draw_group, in_order
from sigmazero.report.figures.images import ACROSS, mark
from sigmazero.report.measure import load
from sigmazero.store.store import Store
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.plans import clean, run
from tests.report.test_curves import STARTS
from tests.report.test_layout import INF, cell

PLAN = """
steps = 15
[data.mine]
source = "mine.npz"
rows = "2:20"
[[grid]]
models = ["net.py:build", "net.py:other"]
data = ["mine"]
attacks = ["sigma-zero", "fmn", "vfga"]
"""
ONE = PLAN.replace(', "net.py:other"', "")


def texts(figure) -> list[str]:
    return [axis.get_xlabel() for axis in figure.axes]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("kind", style.FORMATS)
def test_every_format_is_written_and_repeats(sigmazero, folder, kind):  # noqa: F811
    run(ONE, "a.db")
    for name in ("a", "b"):
        done = sigmazero("report", "a.db", "--pictures", f"{name}.{kind}", "--rows", 2)
        assert done.exit_code == 0, done.output
        assert done.stdout.split() == ["wrote", f"{name}.{kind}"]
    first, second = ((folder / f"{name}.{kind}").read_bytes() for name in ("a", "b"))
    assert first == second
    assert first.startswith(STARTS[kind])


@pytest.mark.usefixtures("folder")
def test_the_grid_shows_what_is_stored():
    run(ONE, "a.db")
    with Store("a.db") as store:
        (group,) = panels(load(store))
        figure = draw_group(store, clean(store), group, 3)
        assert len(figure.axes) == 3 * (1 + 2 * 3)
        heads = [axis.get_title() for axis in figure.axes if axis.get_title()]
        assert heads == ["clean", *(info.attack for info, _ in in_order(group))]
        colours = [axis.title.get_color() for axis in figure.axes if axis.get_title()]
        assert colours[1:] == [style.colour(name) for name in heads[1:]]
        everyone = {info.attack: store.facts(info.key) for info, _ in group}
        rows = [int(text.split("row ")[1]) for text in texts(figure) if "row" in text]
        assert len(set(rows)) == 3
        for place, row in enumerate(rows):
            for column, name in enumerate(heads[1:]):
                facts = everyone[name].take(everyone[name].row == row)
                adversarial, changes = figure.axes[7 * place + 1 + 2 * column : 7 * place + 3 + 2 * column]
                assert np.isfinite(facts.l0[0])
                assert adversarial.get_xlabel() == f"→ {facts.prediction[0]}   l0 {facts.l0[0]:g}"
                (marks,) = changes.collections
                assert len(marks.get_paths()) == facts.l0_pixel[0]  # the picture's own count


@pytest.mark.usefixtures("folder")
def test_several_models_make_several_files(sigmazero, folder):  # noqa: F811
    run(PLAN, "a.db")
    done = sigmazero("report", "a.db", "--pictures", "deep/p.png", "--rows", 1)
    assert done.exit_code == 0, done.output
    made = sorted(path.name for path in (folder / "deep").iterdir())
    assert made == ["p-net.py-build-mine.png", "p-net.py-other-mine.png"]


@pytest.mark.usefixtures("folder")
def test_failures_and_budgets_are_shown():
    run(ONE.replace("steps = 15", "steps = 15\nbudgets = [0, 1]"), "a.db")
    with Store("a.db") as store:
        (group,) = panels(load(store))
        figure = draw_group(store, clean(store), group, 2)
        heads = [axis.get_title() for axis in figure.axes if axis.get_title()]
        assert len(heads) == 7
        assert all(name.endswith(" at 0") for name in heads[1:4])
        found = [text for text in texts(figure) if text and "row" not in text]
        assert "not found" in found  # nothing is found without a change
        assert {text.split(" l0 ")[1] for text in found if text != "not found"} == {"1"}


def test_attacks_stand_as_in_the_tables():
    weak, strong = cell("M1", "bb", [9, INF, INF]), cell("M1", "fmn", [1, 2, 3])
    fixed = [cell("M1", "sparse-rs", [1, 1, INF], budget=k) for k in (50, 24)]
    ordered = in_order([strong, *fixed, weak])
    assert [(info.attack, info.budget) for info, _ in ordered] == [
        ("bb", None), ("fmn", None), ("sparse-rs", 24), ("sparse-rs", 50),
    ]  # fmt: skip


@pytest.mark.parametrize("side", [28, 32, 224])
def test_marks_stay_visible_at_every_size(side):
    clean = torch.full((3, side, side), 0.5)
    adversarial = clean.clone()
    adversarial[1, 3, 5], adversarial[0, 9, 9], adversarial[2, 9, 9] = 1.0, 0.4, 0.2
    axis = style.figure(1, 1).add_subplot()
    mark(axis, clean, adversarial)
    (marks,) = axis.collections
    assert marks.get_array().tolist() == pytest.approx([0.5, -0.3])
    for path, (x, y) in zip(marks.get_paths(), [(5, 3), (9, 9)], strict=True):
        box = path.get_extents()
        assert box.width >= 0.98 * max(1, side / ACROSS)
        assert ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2) == pytest.approx((x, y), abs=1e-6)
    mark(axis, clean, 1 - clean + 0.1)
    assert len(axis.images) == 1  # so many that marks would cover everything
    assert len(axis.collections) == 1


@pytest.mark.usefixtures("folder")
def test_what_is_not_here_is_named(sigmazero, folder):  # noqa: F811
    run(ONE, "a.db")
    with np.load("mine.npz") as arrays:
        rows = dict(arrays)
    np.savez("mine.npz", images=rows["images"][::-1], labels=rows["labels"][::-1])
    done = sigmazero("report", "a.db", "--pictures", "a.png")
    assert done.exit_code == 2
    assert "mine has other rows here than those attacked" in done.stderr
    (folder / "mine.npz").unlink()
    done = sigmazero("report", "a.db", "--pictures", "a.png")
    assert done.exit_code == 2
    assert "the inputs of mine cannot be loaded again" in done.stderr
    assert "mine.npz" in done.stderr
    np.savez("mine.npz", images=rows["images"].reshape(24, 60), labels=rows["labels"])
    run(ONE, "flat.db")
    with Store("flat.db") as store, pytest.raises(ValueError, match="no images; curves can be drawn of any"):
        FIGURE.write(Request(folder / "a.png", store, load(store), clean(store)))
    assert not list(folder.glob("*.png"))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pictures", "a.gif"], "a.gif: end the name in one of .pdf"),
        (["--pictures", "a.png", "--rows", 0], "rows=0: give 1 or more"),
        (["--rows", 3], "give --pictures FILE too"),
        (["--data-dir", "."], "give --pictures FILE too"),
        (["--figure-1", "a.gif"], "a.gif: end the name in one of .pdf"),
        (["--figure-1", "a.pdf"], "no successful search on a problem with two features with a trace; sigmazero run"),
    ],
)
def test_errors(sigmazero, arguments, words):  # noqa: F811
    run(ONE.replace('"sigma-zero", "fmn", "vfga"', '"sigma-zero"'), "a.db")
    done = sigmazero("report", "a.db", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr


@pytest.mark.parametrize("name", ["cifar10", "imagenet"])
def test_real_images(shared_data, tmp_path, name):
    (tmp_path / "net.py").write_text(
        "import torch\n\ndef build():\n    torch.manual_seed(0)\n"
        "    layers = torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 1000)\n"
        "    return torch.nn.Sequential(*layers)\n"
    )
    text = ONE.replace("net.py", str(tmp_path / "net.py")).replace("mine.npz", name).replace("2:20", "0:2")
    loader = Loader("cpu", data_dir=shared_data, trust=[str(tmp_path / "net.py:build")])
    with Store(tmp_path / "a.db", write=True) as store:
        cells, missing = expand(parse_plan(text).questions, loader)
        assert not missing
        execute(cells, store, loader)
        asked = Request(tmp_path / "a.png", store, load(store), clean(store, loader), options={"rows": 2})
        (path,) = FIGURE.write(asked)
    assert path.read_bytes().startswith(STARTS["png"])
