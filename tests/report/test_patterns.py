"""What samples have in common, counted by hand on small facts, and drawn from a real run."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sigmazero.core.metrics import Outcome
from sigmazero.report import patterns
from sigmazero.report.figures import FIGURES, classes
from sigmazero.report.figures.figure import Request
from sigmazero.report.html import charts, summary
from sigmazero.report.html.page import make_page
from sigmazero.report.measure import Measured, load
from sigmazero.store.store import Store
from tests.plans import PLAN, clean, run
from tests.report.test_layout import INF, cell

NAMES = ["cat", "<b>dog</b>", "hen", "cow"]


def changed(attack: str, features: list[list[int] | None], **columns: Any) -> Measured:
    """A run on 2×2 images of three channels that changed these features; None where nothing was found."""
    l0 = [INF if some is None else float(len(some)) for some in features]
    info, facts = cell("M", attack, l0, about={"shape": [3, 2, 2], "classes": NAMES})
    flat = [k for some in features for k in some or []]
    offsets = np.concatenate([[0], np.cumsum([len(some or []) for some in features])]).astype(np.int64)
    outcome = np.array([Outcome.NOT_FOUND if some is None else Outcome.FOUND for some in features], np.int8)
    held: dict[str, Any] = {name: np.array(values, np.int64) for name, values in columns.items()}
    index = np.array(flat, np.int64)
    return info, replace(
        facts, offsets=offsets, index=index, value=np.zeros(len(flat), np.float32), outcome=outcome, **held
    )


def test_classes_and_where_they_lead():
    info, facts = changed("fmn", [[0], [1, 2], None, [3]], label=[0, 0, 0, 2], prediction=[1, 3, 0, 1])
    first, second = patterns.by_class(info, facts)
    assert (first.label, first.samples, first.median) == (0, 3, 2)
    assert first.fooled == pytest.approx(2 / 3)
    assert (second.becomes, second.share) == (1, 1.0)
    named, counts = patterns.confusion(facts)
    assert named == [0, 1, 2, 3]
    assert counts.tolist() == [[0, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert classes.told((info, facts))[0] == NAMES


def test_classes_are_fooled_within_the_budget_alone():
    info, facts = changed("fmn", [[0], [1, 2], None], label=[0, 0, 0], prediction=[1, 3, 0])
    outcome = np.array([Outcome.FOUND, Outcome.BEYOND_BUDGET, Outcome.NOT_FOUND], np.int8)
    (line,) = patterns.by_class(replace(info, budget=1), replace(facts, outcome=outcome))
    assert line.fooled == pytest.approx(1 / 3)
    assert line.median is None


def test_a_position_counts_once_for_all_its_channels():
    info, facts = changed("fmn", [[0, 4, 8], [1], None, [0]])
    shares = patterns.heat(info, facts)
    assert shares is not None
    assert shares.tolist() == pytest.approx(np.array([[2 / 3, 1 / 3], [0, 0]]))
    assert patterns.heat(replace(info, about={"shape": [12]}), facts) is None


def test_effort_is_the_share_of_queries_up_to_the_step_that_found_it():
    info, facts = changed("fmn", [[0], [1], None, [2]], step_found=[0, 499, -1, 999])
    assert patterns.effort(info, facts).tolist() == [2, 1000, INF, 2000]
    assert patterns.effort(replace(info, budget=1), facts).tolist() == [2000, 2000, INF, 2000]
    wrong = replace(facts, outcome=np.full(4, Outcome.ALREADY, np.int8))
    assert patterns.effort(info, wrong).tolist() == [1, 1, 1, 1]


def test_agreement_is_over_what_both_fooled_and_in_any_order():
    one = changed("fmn", [[0, 1], [2], None, [5]])
    two = changed("bb", [[1, 2], [2], [3], [5, 6, 7]])
    found = patterns.agreement(one, two)
    assert found.overlap == pytest.approx((1 / 3 + 1 + 1 / 3) / 3)
    assert (found.fewer, found.more) == (0.25, 0.25)
    turned = two[0], two[1].take(np.array([3, 2, 1, 0]))
    assert patterns.agreement(one, turned) == found


def test_the_strongest_attack_is_the_one_of_the_summary_and_is_not_cut_off():
    """One attack fools few samples, with few changes; the other all of them, with many: its median is the lower one."""
    few = cell("M", "vfga", [1.0] * 9 + [INF] * 11)
    all_ = cell("M", "sigma-zero", [float(k) for k in range(20, 120, 5)])
    assert classes.strongest([few, all_])[0] is all_[0]
    assert "Best alone: sigma-zero" in str(summary.tile([few, all_], "M"))
    (chart,) = charts.build([few, cell("M", "fmn", [1.0] * 3 + [INF] * 17), all_])
    assert chart.data["view"] >= 95
    assert chart.data["leader"] == "sigma-zero"


@pytest.fixture
def ran(folder: Path) -> Path:
    with np.load("mine.npz") as held:
        np.savez("mine.npz", **held, classes=np.array(NAMES))
    run(PLAN.replace("steps = 30", "steps = 8"), folder / "run.db")
    return folder / "run.db"


def test_every_picture_is_drawn_and_the_page_has_them_with_names_of_classes(ran):
    """One run for all, as a run takes longer than its pictures."""
    made = {figure.name: figure for figure in FIGURES}
    with Store(ran) as store:
        cells = load(store)
        for name in ("histogram", "confusion", "heat", "effort", "agreement"):
            (path,) = made[name].write(Request(ran.with_name(f"{name}.png"), store, cells, clean(store)))
            assert path.read_bytes().startswith(b"\x89PNG")
        drawn = made["confusion"].draw(Request(ran, store, cells, clean(store)))
        assert {tick.get_text() for axis in drawn.axes for tick in axis.get_yticklabels()} <= set(NAMES)
        text = make_page(store, clean(store))
        with pytest.raises(ValueError, match="nothing to compare"):
            made["agreement"].draw(Request(ran, store, cells[:1], clean(store)))
    section = text[text.index('id="patterns"') : text.index('id="samples"')]
    assert section.count("<details") == 2
    for words in ("How many changes", "Which classes", "Which pixels", "Who finds the same"):
        assert section.count(f"<h3>{words}</h3>") == 2
    assert "&lt;b&gt;dog&lt;/b&gt;" in section
    assert "<b>dog</b>" not in section
    assert len(re.findall('class="heat"', section)) == 6
