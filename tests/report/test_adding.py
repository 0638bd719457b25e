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
from sigmazero.report.tables import layout
from sigmazero.report.tables.overview import run_row
from sigmazero.report.tables.render import to_csv
from tests.helpers.networks import linear_problem
from tests.report.test_layout import MINIMUM, fill, loaded

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-to-reports.md").read_text(encoding="utf-8")
METRIC, FIGURE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
(LINE,) = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def _registered():
    before = dict(METRICS)
    exec(compile(METRIC, "adding-to-reports.md", "exec"), {})
    yield
    METRICS.clear()
    METRICS.update(before)


@pytest.mark.usefixtures("_registered")
def test_a_metric_is_one_function(tmp_path):
    model, x, y = linear_problem((3, 4, 4), 12)
    y[:3] = (y[:3] + 1) % 2  # some that are wrong already
    result = sz.get("sigma-zero", steps=20).run(model, x, y)
    wanted = float((result.l0 <= 1).double().mean())
    assert 0 < wanted < 1
    assert result.summary()["one_change"] == wanted
    shown = f"{100 * wanted:.1f} %"
    assert run_row(result, y)["fooled by one change"] == shown
    done = sz.evaluate(model, (x, y), ["sigma-zero"], store=tmp_path / "s.db", steps=20)
    (record,) = done.records()
    assert record["one_change"] == wanted
    assert re.search(rf"\| one \|.*\n.*\n.*{re.escape(shown)}", done.table())
    table = layout.build("minimum-norm", loaded(tmp_path / "s.db"))
    heads, line = (text.split(",") for text in to_csv(table).splitlines())
    assert float(line[heads.index("one_change")]) == wanted
    fixed = sz.evaluate(model, (x, y), ["sparse-rs"], store=tmp_path / "f.db", steps=20, budgets=[1, 3])
    heads, line = (text.split(",") for text in to_csv(layout.build("fixed-budget", loaded(fixed.store))).splitlines())
    assert float(line[heads.index("one_change")]) == fixed.records()[0]["one_change"]


def test_two_metrics_of_one_name_are_refused():
    with pytest.raises(ValueError, match="there is a metric 'asr' already"):
        exec(METRIC.replace("one_change", "asr"), {})


def test_a_figure_is_one_file_and_one_line(tmp_path):
    package = tmp_path / "src" / "sigmazero"
    shutil.copytree(ROOT / "src" / "sigmazero", package, ignore=shutil.ignore_patterns("__pycache__"))
    folder = package / "report" / "figures"
    name = LINE.strip(' ",\n')
    assert f"`{name}.py`" in PAGE
    (folder / f"{name}.py").write_text(FIGURE, encoding="utf-8")
    listed = (folder / "__init__.py").read_text(encoding="utf-8")
    last = '        "figure_one",\n'
    assert last in listed
    (folder / "__init__.py").write_text(listed.replace(last, last + LINE), encoding="utf-8")
    fill(tmp_path / "run.db", MINIMUM)
    command = [sys.executable, "-m", "sigmazero", "report", "run.db", "--queries", "out.png", "--pareto", "p.svg"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(package.parent), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "wrote p.svg\nwrote out.png\n"
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
