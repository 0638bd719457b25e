import sys

from tests.cli.conftest import sigmazero  # noqa: F401


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


def test_an_engine_that_cannot_be_had_leaves_no_store(sigmazero, folder, monkeypatch):  # noqa: F811
    monkeypatch.setitem(sys.modules, "ray", None)
    for name, words in (("magic", "'magic' is not one of"), ("ray", "pip install 'sigmazero[ray]'")):
        done = sigmazero("run", "plan.toml", "--trust-code", "--engine", name)
        assert done.exit_code == 2
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not (folder / "runs").exists()
