"""The comparison over seeds has the means of both attacks on the same rows, and an interval around their difference."""

import numpy as np
import pytest

from experiments import evidence, seeds
from sigmazero.store import Store
from tests.helpers.commands import run_command

PLAN = """
[data.digits]
source = "mnist-5k-heldout"
limit = 6
[attacks.sigma-zero-40]
attack = "sigma-zero"
steps = 20
[attacks.sigma-swap-40]
attack = "sigma-swap"
steps = 20
parameters = { queries = 40 }
[attacks.sigma-zero-60]
attack = "sigma-zero"
steps = 30
"""
GRID = """
[[grid]]
models = ["demo"]
data = ["digits"]
seed = {}
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Two stores that share the runs of one seed."""
    folder = tmp_path_factory.mktemp("seeds")
    made = []
    for name, some in (("a", (0, 1)), ("b", (1,))):
        (folder / f"{name}.toml").write_text(PLAN + "".join(map(GRID.format, some)))
        ran = run_command("run", folder / f"{name}.toml", "--store", folder / f"{name}.db")
        assert ran.code == 0, ran.stderr
        made.append(folder / f"{name}.db")
    return made


def test_a_line_has_the_means_over_rows_and_seeds(stores):
    (line,) = seeds.lines(stores)  # 60 queries have no sigma-swap to compare with
    assert (line["queries"], line["rows"], line["seeds"], len(line["cells"].split())) == ("40", "6", "2", 4)
    means = {}
    with Store(stores[0]) as store:
        for attack in ("sigma-zero-40", "sigma-swap-40"):
            every = [store.facts(info.key).l0 for info in store.cells() if info.attack == attack]
            means[attack] = np.where(np.isfinite(every), every, 784).mean()
    zero, swap = means["sigma-zero-40"], means["sigma-swap-40"]
    assert float(line["sigma_zero"]) == pytest.approx(zero, abs=0.005)
    assert float(line["sigma_swap"]) == pytest.approx(swap, abs=0.005)
    assert float(line["percent"]) == pytest.approx(100 * (swap / zero - 1), abs=0.06)
    assert float(line["low"]) <= float(line["percent"]) <= float(line["high"])


def test_the_interval_is_paired_by_row():
    before = np.random.default_rng(1).uniform(1, 100, 200)
    assert seeds.interval(before, 0.8 * before) == pytest.approx((-20, -20))
    low, high = seeds.interval(before, before[::-1])
    assert low < 0 < high


def test_the_table_of_a_page_is_made_from_its_file(tmp_path, monkeypatch, stores):
    monkeypatch.setattr(evidence, "FOLDER", tmp_path)
    evidence.main(["stronger", *map(str, stores), "--out", str(tmp_path / "stronger.csv")])
    made = evidence.filled("before\n<!-- stronger.csv -->\nold\n<!-- end -->\nafter\n", evidence.PARTS)
    (line,) = seeds.lines(stores)
    assert made.startswith("before\n<!-- stronger.csv -->\nMean l0")
    assert made.endswith("<!-- end -->\nafter\n")
    assert "| queries | 40 |" in made
    assert f"| {line['network']} | {line['sigma_zero']} → {line['sigma_swap']}, " in made
