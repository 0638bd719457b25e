"""docs/adding-to-reports.md, done to the letter."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sigmazero as sz
from sigmazero.core.metrics import METRICS
from sigmazero.report.formats import sample_row, to_csv
from sigmazero.report.runs import load
from sigmazero.report.table import build
from sigmazero.store import Store
from tests.helpers.cells import cell, fill
from tests.helpers.networks import linear_problem

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-to-reports.md").read_text(encoding="utf-8")
METRIC, FIGURE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def _registered():
    before = dict(METRICS)
    exec(compile(METRIC, "adding-to-reports.md", "exec"), {})
    yield
    METRICS.clear()
    METRICS.update(before)


def lines(path, name):
    with Store(path) as store:
        return [text.split(",") for text in to_csv(build(name, load(store))).splitlines()]


@pytest.mark.usefixtures("_registered")
def test_a_metric_is_one_function(tmp_path):
    model, x, y = linear_problem((3, 4, 4), 12)
    y[:3] = (y[:3] + 1) % 2  # some that are wrong already
    result = sz.get("sigma-zero", steps=20).run(model, x, y)
    wanted = float((result.l0 <= 1).double().mean())
    assert 0 < wanted < 1
    assert result.summary()["one_change"] == wanted
    assert sample_row(result.samples(y))["fooled by one change"] == f"{100 * wanted:.1f} %"
    done = sz.evaluate(model, (x, y), ["sigma-zero"], store=tmp_path / "s.db", steps=20)
    assert done.records()[0]["one_change"] == wanted
    assert re.search(rf"\| one \|.*\n.*\n.*{100 * wanted:.1f}", done.table())
    heads, line = lines(tmp_path / "s.db", "minimum-norm")
    assert float(line[heads.index("one_change")]) == wanted
    fixed = sz.evaluate(model, (x, y), ["sparse-rs"], store=tmp_path / "f.db", steps=20, budgets=[1, 3])
    heads, line = lines(fixed.store, "fixed-budget")
    assert float(line[heads.index("one_change")]) == fixed.records()[0]["one_change"]


def test_two_metrics_of_one_name_are_refused():
    with pytest.raises(ValueError, match="'asr'"):
        exec(METRIC.replace("one_change", "asr"), {})


def test_a_figure_is_one_file_and_one_name(tmp_path):
    package = tmp_path / "src" / "sigmazero"
    shutil.copytree(ROOT / "src" / "sigmazero", package, ignore=shutil.ignore_patterns("__pycache__"))
    folder = package / "report" / "figures"
    assert "`queries.py`" in PAGE
    (folder / "queries.py").write_text(FIGURE, encoding="utf-8")
    listed = (folder / "__init__.py").read_text(encoding="utf-8")
    assert '"grids")' in listed
    (folder / "__init__.py").write_text(listed.replace('"grids")', '"grids", "queries")'), encoding="utf-8")
    fill(tmp_path / "run.db", [cell("M1", "fmn", [1, 2, 3])])
    command = [sys.executable, "-m", "sigmazero", "plot", "run.db", "queries", "-o", "out.png"]
    env = {**os.environ, "PYTHONPATH": str(package.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "out.png" in done.stdout + done.stderr
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
