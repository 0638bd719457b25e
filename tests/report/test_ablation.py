import itertools
import math

import pytest

from sigmazero.report.figures import style
from sigmazero.report.figures.ablation import components, draw_ablation, families, surface
from sigmazero.report.tables.latex import to_latex
from sigmazero.report.tables.render import rows, to_csv
from tests.report.test_latex import strict
from tests.report.test_layout import INF, MINIMUM, SIGMA_ZERO, cell, compare


def run(label, l0, model="C3", **changes):
    return cell(model, label, l0, dataset="cifar10", parameters={**SIGMA_ZERO, **changes})


PARTS = [
    run("no-adaptation", [5, 20, 60, 70], adaptive_threshold=False),
    run("full", [5, 8, 30, 60]),
    run("no-projection", [5, 3000, 3000, INF], adaptive_threshold=False, projection=False),
]
SURFACE = [
    run(f"s {a} {b}", [1, 100 * a + 10 * b, INF], smoothing=a, threshold=b)
    for a, b in itertools.product((0.001, 0.1, 1.0), (0.1, 0.3))
][:-1]
RATES = [run(f"r {t}", [1, 2 + t, INF if t == 1 else 5], threshold_rate=t) for t in (0.01, 0.1, 1.0)]


def test_components_from_the_most_effective():
    made = compare(components([*MINIMUM, *PARTS]))
    (block,) = made.blocks
    assert [line.info.attack for line in block] == ["full", "no-adaptation", "no-projection"]
    assert made.words == ("model", "normalize", "adaptive_threshold", "projection", "l0_term")
    text = rows(made)[2]
    assert (text["model"], text["normalize"], text["projection"], text["median"]) == ("", "yes", "no", "3000")
    # Printed as C10, but the numbers are those of C3.
    assert [line.paper["median_l0"] for line in block] == [32, 32, 3070]
    assert block[0].paper["asr_10"] == pytest.approx(0.2168)
    assert len(strict(to_latex(made))) == 4
    assert "adaptive_threshold" in to_csv(made).splitlines()[0]


def test_families_differ_in_nothing_else():
    everything = [*MINIMUM, *PARTS, *SURFACE, *RATES[1:]]
    assert [len(group) for group in families(everything, ("smoothing", "threshold"))] == [5]
    # The usual setting is one cell that belongs to both.
    assert [info.attack for info, _ in families(everything, ("threshold_rate",))[0]] == [
        "s 0.001 0.3",
        "r 0.1",
        "r 1.0",
    ]


def test_heat_maps_and_curves(tmp_path):
    smoothings, thresholds, table = surface(SURFACE, {info.key: 1.0 for info, _ in SURFACE})
    assert (smoothings, thresholds) == ([0.001, 0.1, 1.0], [0.1, 0.3])
    assert math.isnan(table[2, 1])
    figure = draw_ablation([*SURFACE, *RATES], ks=(10,))
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert titles == ["C3 on cifar10: ASR 10, %", "C3 on cifar10: median l0"] * 2
    for kind in ("pdf", "svg", "png"):
        style.save(draw_ablation([*SURFACE, *RATES]), tmp_path / f"a.{kind}")
        assert (tmp_path / f"a.{kind}").stat().st_size > 1000


def test_failures_everywhere_can_be_drawn():
    lost = [run(f"{t}", [INF], threshold_rate=t) for t in (0.0, 0.1)]
    lost += [run(f"{a} {b}", [INF], smoothing=a, threshold=b) for a in (0.1, 1.0) for b in (0.1, 0.3)]
    assert draw_ablation(lost)


def test_stores_without_such_cells_say_what_to_run():
    with pytest.raises(ValueError, match=r"ablation-components\.toml"):
        components(MINIMUM)
    with pytest.raises(ValueError, match=r"ablation-threshold-rate\.toml.*\.md, \.csv or \.tex"):
        draw_ablation(PARTS)
    with pytest.raises(ValueError, match=r"give a name ending in \.pdf"):
        components(RATES)
