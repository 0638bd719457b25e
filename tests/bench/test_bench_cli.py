import re
import sys

from tests.cli.conftest import sigmazero  # noqa: F401


def test_run_status_verify(sigmazero, folder):  # noqa: F811
    (folder / "bad.toml").write_text("stepz = 3\n")
    bad = sigmazero("run", "bad.toml", "--dry-run")
    assert bad.exit_code == 2
    assert bad.stderr.startswith("error: bad.toml:1: unknown key 'stepz'; did you mean 'steps'?")
    waiting = sigmazero("run", "plan.toml", "--trust-code", "--dry-run")
    assert waiting.exit_code == 0, waiting.output
    assert "6 cells, 144 rows left" in waiting.stdout
    done = sigmazero("run", "plan.toml", "--trust-code", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "144 rows stored in runs/plan.db" in done.stdout
    assert "ASR ∞" in done.stdout
    assert "6 done" in sigmazero("status", "runs/plan.db").stdout
    again = sigmazero("run", "plan.toml", "--trust-code")
    assert "already done" in again.stdout
    checked = sigmazero("verify", "runs/plan.db", "--trust-code", "--eight-bit")
    assert checked.exit_code == 0, checked.output
    assert "144 rows checked, 0 disagreements" in checked.stdout
    assert re.search(r"\d+ of \d+ adversarial examples survive rounding to 8 bits", checked.stdout)
    (folder / "mine.npz").unlink()
    assert sigmazero("verify", "runs/plan.db", "--trust-code").exit_code == 1


def test_an_engine_that_cannot_be_had_leaves_no_store(sigmazero, folder, monkeypatch):  # noqa: F811
    monkeypatch.setitem(sys.modules, "ray", None)
    for name, words in (("magic", "'magic' is not one of"), ("ray", "pip install 'sigmazero[ray]'")):
        done = sigmazero("run", "plan.toml", "--trust-code", "--engine", name)
        assert done.exit_code == 2
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not (folder / "runs").exists()


def test_missing_and_failed_cells_end_with_1(sigmazero, folder, monkeypatch):  # noqa: F811
    monkeypatch.setenv("SIGMAZERO_HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    text = (folder / "plan.toml").read_text().replace('"net.py:other"', '"net.py:broken", "M1"')
    (folder / "plan.toml").write_text(text)
    done = sigmazero("run", "plan.toml", "--trust-code")
    assert done.exit_code == 1, done.output
    assert "72 rows stored" in done.stdout
    assert "missing: M1 (3 cells)" in done.stderr
    assert "sigmazero fetch M1" in done.stderr
    assert "not complete: 3 cells failed, 3 are missing" in done.stderr
    shown = sigmazero("status", "runs/plan.db")
    assert "3 failed, 3 done" in shown.stdout.replace("3 done, 3 failed", "3 failed, 3 done")
    assert "RuntimeError: no gradients here" in done.stderr
    assert "no gradients here" in shown.stderr
