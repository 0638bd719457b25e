import os
import re
import subprocess
import sys
from pathlib import Path

import sigmazero as sz
from sigmazero import models
from sigmazero.attacks.registry import idea, parameter_rows

ROOT = Path(__file__).resolve().parents[2]


def test_list_attacks_tells_about_one(sigmazero):
    shown = sigmazero("list", "attacks", "sigma-swap").stdout
    assert "exchange changed sites" in shown
    assert "docs/stronger.md" in shown
    assert "2 × steps" in shown
    for name in sz.get("sigma-swap").parameters():
        assert re.search(rf"^ {name} +\S+.*  \w", shown, re.MULTILINE), name
    assert "sigma-zero(step_size_end=1.0, beta2=0.99)" in shown
    assert "did you mean sigma-swap" in sigmazero("list", "attacks", "sigma-swp").stderr


def test_every_attack_and_every_parameter_is_explained():
    for attack in sz.ATTACKS.values():
        assert idea(attack).count(". ") == 1, f"{attack.name}: two sentences"
        assert attack.asks
        for row in parameter_rows(attack):
            assert row["meaning"], f"{attack.name}: add a text to the field {row['parameter']}"


def test_fetch_asks_the_zoo(sigmazero, tmp_path, monkeypatch):
    asked = []

    def fetch(code, directory):
        asked.append((code, directory))
        return tmp_path / "weights.pt"

    monkeypatch.setattr(models, "fetch", fetch)
    done = sigmazero("fetch", "M1", "--model-dir", tmp_path)
    assert done.exit_code == 0, done.output
    assert asked == [("M1", tmp_path)]
    assert str(tmp_path / "weights.pt") in done.stdout


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
