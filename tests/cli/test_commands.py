import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

import sigmazero as sz
from sigmazero import data, models
from sigmazero.cli import app, attack_words

ROOT = Path(__file__).resolve().parents[2]


def _paths(command, path=()):
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from _paths(child, (*path, name))


@pytest.mark.parametrize("path", list(_paths(typer.main.get_command(app))), ids=" ".join)
def test_every_help_shows_an_example(sigmazero, path):
    done = sigmazero(*path, "--help")
    assert done.exit_code == 0
    assert "Example:" in done.stdout
    assert f"  sigmazero {' '.join(path)}".rstrip() in done.stdout


def test_version(sigmazero):
    assert sigmazero("--version").stdout.strip() == f"sigmazero {sz.__version__}"


def test_list_attacks(sigmazero):
    shown = sigmazero("list", "attacks").stdout
    for attack in sz.ATTACKS.values():
        assert attack.name in shown
        assert attack.kind in shown
    assert "step_size" not in shown  # a table, not a wall


def test_list_attacks_tells_about_one(sigmazero):
    shown = sigmazero("list", "attacks", "sigma-swap").stdout
    assert "exchanged for others" in shown
    assert "docs/stronger.md" in shown
    assert "2 × steps" in shown
    for name in sz.get("sigma-swap").parameters():
        assert re.search(rf"^ {name} +\S+.*  \w", shown, re.MULTILINE), name
    assert "sigma-zero(step_size_end=1.0, beta2=0.99)" in shown
    assert "did you mean sigma-swap" in sigmazero("list", "attacks", "sigma-swp").stderr


def test_every_attack_and_every_parameter_is_explained():
    used = set()
    for attack in sz.ATTACKS.values():
        base = attack_words.base(attack)
        assert attack_words.IDEAS[base].count(". ") == 1, f"{base}: two sentences"
        assert attack_words.COSTS[base]
        for row in attack_words.parameter_rows(attack):
            assert row["meaning"], f"{attack.name}: say in cli/attack_words.py what {row['parameter']} is"
            used |= {row["parameter"], f"{base}.{row['parameter']}"}
    assert not attack_words.MEANINGS.keys() - used, "words about parameters that no attack has"


def test_list_attacks_by_what_they_need(sigmazero):
    shown = sigmazero("list", "attacks", "--needs", "labels").stdout
    assert "label-swap" in shown
    assert "sparse-rs" not in shown
    refused = sigmazero("list", "attacks", "--needs", "words")
    assert refused.exit_code != 0
    assert "--needs words is not one of gradients, scores, labels" in str(refused.exception) + refused.stderr


def test_list_models_and_datasets(sigmazero):
    shown = sigmazero("list", "models").stdout
    assert all(code in shown for code in models.entries())
    shown = sigmazero("list", "datasets").stdout
    assert all(name in shown for name in data.DATASETS)


def test_demo_writes_its_picture_and_its_page(sigmazero, tmp_path):
    out = tmp_path / "new"
    for attack, others in (("sigma-zero", ["fmn", "vfga"]), ("pgd-l0", ["sigma-zero", "fmn"])):
        done = sigmazero("demo", "--limit", 4, "--steps", 10, "--out", out, "--device", "cpu", "--attack", attack)
        assert done.exit_code == 0, done.output
        lines = done.stdout.splitlines()
        assert lines[0] == f"{attack}, {others[0]} and {others[1]} against the bundled network, 4 digits, 10 steps"
        end = lines.index("next:")
        assert lines[end - 2 : end] == [f"wrote {out / 'demo.png'}", f"wrote {out / 'report.html'}"]
        assert lines[-1].startswith(f"  sigmazero view {out / 'demo.db'} --open ")
        assert lines[2].split() == ["attack", attack, *others]
        assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
        page = (out / "report.html").read_text(encoding="utf-8")
        assert "4 of 4 samples are on this page" in page
        assert page.count("fixed-budget-caption") == (2 + 1 if attack == "pgd-l0" else 0)


def test_doctor(sigmazero, own):
    well = sigmazero("doctor", "net.py:build", "mine.npz")
    assert (well.exit_code, well.stdout) == (0, "The doctor found nothing wrong.\n")
    (own / "ill.py").write_text("def build(): return lambda x: x.detach().flatten(1)[:, :4]\n")
    ill = sigmazero("doctor", "ill.py:build", "mine.npz")
    assert ill.exit_code == 1
    assert "SZ012" in ill.stdout


def test_fetch_asks_the_zoo(sigmazero, tmp_path, monkeypatch):
    asked = []

    def fetch(code, directory, progress):
        progress(1, 2)
        asked.append((code, directory))
        return tmp_path / "weights.pt"

    monkeypatch.setattr(models, "fetch", fetch)
    done = sigmazero("fetch", "M1", "--model-dir", tmp_path)
    assert done.exit_code == 0, done.output
    assert asked == [("M1", tmp_path)]
    assert str(tmp_path / "weights.pt") in done.stdout


def test_errors_of_the_library_get_the_command_or_option_that_helps(sigmazero, own, monkeypatch):
    monkeypatch.setenv("SIGMAZERO_HOME", str(own))
    monkeypatch.setenv("XDG_CACHE_HOME", str(own))
    for model, help_ in (("M1", True), ("C1", False)):
        done = sigmazero("attack", "--model", model, "--data", "mine.npz")
        assert done.exit_code == 2
        assert "are missing: no file" in done.stderr
        assert (f"(on the command line: sigmazero fetch {model})" in done.stderr) == help_
    for name in ("mnist", "none.npz"):
        done = sigmazero("attack", "--model", "net.py:build", "--data", name)
        assert done.exit_code == 2
        assert "(on the command line: --data-dir" in done.stderr


@pytest.mark.parametrize("before", [("--no",), ("x",), ("attack", "--no"), ("demo", "x"), ("list", "x"), ("run", "x")])
def test_control_characters_of_arguments_do_not_reach_the_terminal(sigmazero, before):
    """Those that typer itself complains of, too: it knows of some, and of none in older versions."""
    evil = "\x1b[31m\x07\x9b31m\u202e\u2028\u2066"
    done = sigmazero(*before[:-1], f"{before[-1]}{evil}")
    assert done.exit_code == 2
    assert "\\x1b[31m\\x07\\x9b31m\\u202e\\u2028\\u2066" in done.output
    assert not set(evil) & set(done.output) - set("[31m")


def test_fetch_of_an_unknown_model(sigmazero):
    done = sigmazero("fetch", "M3")
    assert done.exit_code == 2
    assert "M1" in done.stderr


def test_interrupt_exits_with_130(sigmazero, own, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "load", interrupted)
    done = sigmazero("doctor", "net.py:build", "mine.npz")
    assert done.exit_code == 130
    assert "Traceback" not in done.output


@pytest.mark.parametrize("how", ["option", "variable"])
def test_debug_shows_where_an_error_came_from(sigmazero, monkeypatch, how):
    if how == "variable":
        monkeypatch.setenv("SIGMAZERO_DEBUG", "1")
    done = sigmazero(*(["--debug"] if how == "option" else []), "fetch", "M3")
    assert isinstance(done.exception, LookupError)


def _python(*arguments: str, cwd: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), more.pop("PYTHONPATH", "")])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **more}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=env, check=False)


def test_as_a_module_an_error_is_one_line(own):
    done = _python("-m", "sigmazero", "attack", "--model", "net.py:build", "--data", "none.npz", cwd=own)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: none.npz: no such file")
    assert done.stderr.count("\n") == 1


def test_without_typer_one_line_says_what_to_install(tmp_path):
    (tmp_path / "typer.py").write_text("raise ImportError('not here', name='typer')\n")
    done = _python("-m", "sigmazero", "--version", PYTHONPATH=str(tmp_path), PYTHONSAFEPATH="1")
    assert done.returncode == 2
    assert done.stderr == "the command line needs typer; pip install 'sigmazero[cli]'\n"
