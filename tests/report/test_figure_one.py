import re
from pathlib import Path

import numpy as np
import pytest
import torch

from sigmazero.models.toys import two_dimensions
from sigmazero.report.figures import style
from sigmazero.report.figures.figure_one import draw, highlights, objective, recorded
from sigmazero.store.store import Store
from sigmazero.store.trace import Trace
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.plans import run
from tests.report.test_curves import STARTS

PLAN = (Path(__file__).parents[2] / "experiments" / "figure-1.toml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("figure") / "figure-1.db"
    _, missing, report = run(PLAN, path)
    assert not missing
    assert not report.failed
    return path


@pytest.mark.parametrize("kind", style.FORMATS)
def test_one_command_makes_it_again(sigmazero, store, tmp_path, kind):  # noqa: F811
    made = [tmp_path / f"{name}.{kind}" for name in ("a", "b")]
    for path in made:
        done = sigmazero("report", store, "--figure-1", path)
        assert done.exit_code == 0, done.output
    first, second = (path.read_bytes() for path in made)
    assert first == second
    assert first.startswith(STARTS[kind])


def test_the_figure_shows_the_traces(store):
    with Store(store) as opened:
        plane, image = recorded(opened)
        facts = [opened.facts(one.info.key) for one in (plane, image)]
    figure = draw(plane, image)
    first, bar, *images = figure.axes
    assert bar.get_ylabel().startswith("what is made small")
    assert len(images) == 6
    start, found = (
        next(line for line in first.lines if line.get_label() == name) for name in ("the input", "what was found")
    )
    assert start.get_xydata()[0] == pytest.approx(two_dimensions.START)
    expected = np.array(two_dimensions.START)
    expected[facts[0].index] = facts[0].value
    assert facts[0].l0[0] == 1
    assert found.get_xydata()[0] == pytest.approx(expected)
    assert found.get_xydata()[0][1] == pytest.approx(two_dimensions.START[1])  # on a grey line
    lines = [line for line in first.lines if line.get_color() == "#8C8C8C"]
    assert {*lines[0].get_xdata(), *lines[1].get_ydata()} == {*plane.trace.clean.tolist()}
    shown = highlights(image.trace)
    assert [axis.get_title() for axis in images[:3]] == [f"{n} query {q}" for n, q in zip("①②③", shown, strict=True)]
    assert [axis.get_xlabel() for axis in images[3:]] == [f"l0 {image.trace.l0[question]}" for question in shown]
    assert images[2].get_xlabel() == f"predicted {facts[1].prediction[0]}"
    assert image.trace.l0[shown[-1]] == facts[1].l0[0]
    assert np.array_equal(image.trace.point(shown[2])[0], images[2].images[0].get_array())


def traced(l0: list[int], adversarial: list[bool]) -> Trace:
    n = len(l0)
    index = np.concatenate([np.arange(k) for k in l0])
    return Trace(
        clean=np.zeros(9, np.float32),
        margin=np.where(adversarial, -1.0, 1.0),
        prediction=np.zeros(n, np.int64),
        adversarial=np.array(adversarial),
        offsets=np.concatenate([[0], np.cumsum(l0)]),
        index=index,
        value=np.ones(len(index), np.float32),
    )


@pytest.mark.parametrize(
    ("l0", "adversarial", "shown"),
    [
        ([0, 0, 9, 8, 8, 5, 3, 3], [0, 0, 0, 1, 1, 1, 1, 1], [3, 5, 6]),
        ([0, 0, 2, 2, 2, 1, 1], [0, 0, 0, 0, 1, 1, 1], [2, 4, 5]),
        ([0, 0, 1, 1], [0, 0, 1, 1], [1, 2]),
        ([0, 0, 9, 7, 5, 4, 2], [0, 0, 1, 1, 1, 1, 1], [2, 4, 6]),
    ],
)
def test_three_points_are_highlighted(l0, adversarial, shown):
    assert highlights(traced(l0, [bool(each) for each in adversarial])) == shown


def test_the_objective_is_that_of_sigma_zero(store):
    with Store(store) as opened:
        plane = next(recorded(opened))
    along, height = objective(plane.trace, 1e-3)
    down, across = 120, 304  # of 401 along each side, on a place of the stored landscape
    point = np.array([along[across], along[down]])
    logits = two_dimensions.build()(torch.tensor(point[None], dtype=torch.float32))[0]
    squares = np.square(point - plane.trace.clean)
    smooth = (squares / (squares + 1e-3)).mean()
    assert height[down, across] == pytest.approx(max(float(logits[0] - logits[1]), 0) + smooth, abs=1e-5)
    assert plane.trace.landscape is not None
    assert np.array_equal(objective(plane.trace, None)[1][::4, ::4], plane.trace.landscape)


def test_a_store_without_an_image_says_so(sigmazero, tmp_path):  # noqa: F811
    head, _, tail = PLAN.partition('[[grid]]\nmodels = ["demo"]')
    assert tail
    head = re.sub(r"\[(data\.digit|attacks\.sigma-zero)\]\n(\w.*\n)*", "", head)  # a table that no grid uses is refused
    run(head, tmp_path / "a.db")
    done = sigmazero("report", tmp_path / "a.db", "--figure-1", tmp_path / "a.pdf")
    assert done.exit_code == 2
    assert "has no successful search on an image with a trace" in done.stderr
