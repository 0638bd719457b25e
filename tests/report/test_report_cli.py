import csv

import pytest

from tests.cli.conftest import sigmazero  # noqa: F401
from tests.report.test_ablation import PARTS, RATES
from tests.report.test_layout import FIXED, MINIMUM, cell, fill


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return fill(tmp_path / "run.db", MINIMUM, peak=2**30)


def test_the_terminal_is_the_default(sigmazero, store):  # noqa: F811
    done = sigmazero("report", store)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Minimum-norm attacks, data mnist, steps 1000")
    assert [line.split()[0] for line in lines if "0.30" in line] == ["M1", "ead-paper", "sigma-zero", "M2"]
    assert "∞" in lines[4]
    fixed = sigmazero("report", fill(store.with_name("b.db"), FIXED))
    assert fixed.stdout.startswith("Fixed-budget attacks")


@pytest.mark.parametrize(("suffix", "start"), [("md", "Minimum"), ("csv", "model,"), ("tex", "% needs"), ("txt", "M")])
def test_tables_to_files(sigmazero, store, suffix, start):  # noqa: F811
    done = sigmazero("report", store, "--out", f"deep/t.{suffix}", "--compare", "paper", "--k", "10,24", "--k", 50)
    assert done.exit_code == 0, done.output
    assert f"wrote deep/t.{suffix}" in done.stdout
    text = (store.parent / f"deep/t.{suffix}").read_text(encoding="utf-8")
    assert text.startswith(start)
    assert "ASR 10" in text or "asr_10" in text


def test_csv_on_stdout(sigmazero, store):  # noqa: F811
    rows = list(csv.DictReader(sigmazero("report", store, "--to", "csv", "--compare", "paper").stdout.splitlines()))
    ours = next(row for row in rows if row["attack"] == "sigma-zero")
    assert (ours["model"], float(ours["asr_24"]), float(ours["median_l0_paper"])) == ("M1", 0.5, 16)
    assert float(ours["asr_24_difference"]) == 0.5 - 0.8379
    assert float(ours["memory_gb"]) == 1


def test_figures(sigmazero, store):  # noqa: F811
    done = sigmazero("report", store, "--curves", "c.svg", "--log", "--pareto", "p.png")
    assert done.exit_code == 0, done.output
    assert done.stdout.split() == ["wrote", "c.svg", "wrote", "p.png"]
    made = fill(store.with_name("ablation.db"), [*PARTS, *RATES])
    for name in ("a.md", "a.tex", "a.pdf"):
        assert sigmazero("report", made, "--ablation", name, "--compare", "paper").exit_code == 0
        assert (store.parent / name).stat().st_size > 200


def test_standalone(sigmazero, store):  # noqa: F811
    assert "\\documentclass" in sigmazero("report", store, "--to", "latex", "--standalone").stdout


def test_wide(sigmazero, store):  # noqa: F811
    lines = sigmazero("report", store, "--wide").stdout.splitlines()
    assert [line.split()[0] for line in lines if "0.30" in line] == ["bb", "ead-paper", "fmn", "sigma-zero"]
    assert "M1" in lines[2]
    assert "\\cmidrule(lr){2-9}\\cmidrule(lr){10-17}" in sigmazero("report", store, "--wide", "--to", "latex").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--table", "none"], "there is no table 'none'; choose one of minimum-norm, fixed-budget"),
        (["--table", "fixed-budget"], "ask for minimum-norm"),
        (["--to", "html"], "--to html is no known format; end --out in .html, .md, .csv, .tex, .txt"),
        (["--out", "a.doc"], "--out a.doc is no known format"),
        (["--compare", "other"], "choose one of paper"),
        (["--k", "x"], "--k x: give whole numbers"),
        (["--standalone"], "add --to latex"),
        (["--wide", "--to", "csv"], "a CSV file has one line per run"),
        (["--curves", "a.gif"], "a.gif: end the name in one of .pdf, .svg, .png"),
        (["--ablation", "a.gif"], "a.gif: end the name in one of .md"),
        (["--ablation", "a.md"], "run such a plan into it first"),
        (["--log"], "--log says how to draw --curves; give --curves FILE too"),
        (["--curves", "run.db"], "run.db is the store itself"),
    ],
)
def test_errors(sigmazero, store, arguments, words):  # noqa: F811
    done = sigmazero("report", store, *arguments)
    assert done.exit_code == 2, done.output
    assert words in done.stderr
    assert [path.name for path in store.parent.iterdir() if path.suffix not in (".db", ".lock")] == []


def test_mixing_is_refused_unless_allowed(sigmazero, store):  # noqa: F811
    mixed = fill(store.with_name("mixed.db"), [*MINIMUM, cell("M1", "fmn", [1], precision="bf16")])
    refused = sigmazero("report", mixed)
    assert refused.exit_code == 2
    assert "more than one precision" in refused.stderr
    assert "on the command line: --mix" in refused.stderr
    allowed = sigmazero("report", mixed, "--mix")
    assert allowed.exit_code == 0
    assert "bf16" in allowed.stdout


def test_help_has_an_example(sigmazero):  # noqa: F811
    assert "sigmazero report runs/small.db" in sigmazero("report", "--help").stdout
