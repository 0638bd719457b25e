"""A store, or a plan, of somebody else is data: what it names does not run unless the user says so."""

import re
import sys
from pathlib import Path

import pytest

from sigmazero.bench import loader as trust
from sigmazero.bench.evaluate import evaluate
from sigmazero.bench.loader import Loader, UntrustedCode, names_code
from sigmazero.bench.plan import DataSpec, ModelSpec
from sigmazero.bench.verify import verify
from sigmazero.store.store import Store
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.plans import NET, run

pytestmark = pytest.mark.slow

EVIL = f"""
from pathlib import Path
Path("touched").write_text("code ran")
{NET}
def rows():
    from sigmazero import data
    return data.load("mine.npz")
"""
PLAN = """
steps = 5
[data.theirs]
source = "evil:rows"
[[grid]]
models = ["evil.py:build"]
data = ["theirs"]
attacks = ["sigma-zero"]
"""


@pytest.fixture
def evil(folder, monkeypatch):
    """The current folder with a store and a plan that name code which leaves a trace; the trace is its answer."""
    (folder / "evil.py").write_text(EVIL)
    (folder / "plan.toml").write_text(PLAN)
    monkeypatch.syspath_prepend(str(folder))
    touched = folder / "touched"

    def forget() -> None:
        touched.unlink(missing_ok=True)
        for name in ("evil", "sigmazero_user_evil"):
            sys.modules.pop(name, None)

    forget()
    run(PLAN, "s.db")
    assert touched.exists()
    forget()
    yield touched
    forget()


PAGE = ("report", "s.db", "-o", "page.html")
PICTURES = ("plot", "s.db", "pictures", "-o", "p.png")
NEEDED = {  # each command that would run the code, what it says, and its exit code
    PAGE: ("no pictures: ", 0),
    PICTURES: ("error: ", 2),
    ("verify", "s.db"): ("cannot be checked here: ", 1),
    ("verify", "s.db", "--rerun", "1"): ("cannot be checked here: ", 1),
    ("run", "plan.toml", "--dry-run"): ("error: ", 2),
    ("run", "plan.toml"): ("error: ", 2),
}


@pytest.mark.parametrize("command", NEEDED, ids=" ".join)
def test_code_runs_only_if_it_is_trusted(evil, sigmazero, command):  # noqa: F811
    words, code = NEEDED[command]
    done = sigmazero(*command)
    assert done.exit_code == code, done.output
    assert words in done.stderr
    assert "evil:rows" in done.stderr
    assert "--trust-code" in done.stderr
    assert not evil.exists()
    assert not Path("runs").exists()
    done = sigmazero(*command, "--trust-code")
    assert done.exit_code == 0, done.output
    assert "--trust-code" not in done.stderr
    assert evil.exists()


@pytest.mark.parametrize(
    "command",
    [
        ("report", "s.db"),
        ("report", "s.db", "--bundle", "site"),
        ("plot", "s.db", "curves", "-o", "c.svg"),
        ("status", "s.db"),
        ("export", "s.db", "--out", "s.csv"),
        ("merge", "s.db", "-o", "new.db"),
    ],
    ids=" ".join,
)
def test_other_commands_run_none(evil, sigmazero, command):  # noqa: F811
    done = sigmazero(*command)
    assert done.exit_code == 0, done.output
    assert not evil.exists()


def test_a_check_names_all_code_of_a_cell(evil):
    with Store("s.db") as store:
        (skipped,) = verify(store, Loader()).skipped
        assert "evil.py:build, evil:rows" in skipped.what
        assert len(verify(store, Loader(trust=["evil.py:build"])).skipped) == 1
        assert not evil.exists()
        assert not verify(store, Loader(trust=["evil.py:build", "evil:rows"])).skipped


def test_what_a_user_names_in_python_is_trusted(folder):
    done = evaluate("net.py:build", "mine.npz", store="s.db", steps=5)
    assert done.verify().skipped == []


@pytest.mark.parametrize(
    "spec",
    [
        *("evil.py:build", "os:abort", "evil.pt2", "EVIL.PT2", "./M1.pt2", "C:evil.py"),
        *("sigmazero.models.toys.py:build", "sigmazero.models.toys.nearest_mean:torch", "sigmazero.cli:app"),
    ],
)
def test_a_model_that_is_code(spec):
    assert names_code(ModelSpec("M1", spec))
    with pytest.raises(UntrustedCode, match=re.escape(spec)):
        Loader().model(ModelSpec("M1", spec))


@pytest.mark.parametrize("spec", ["M1", "demo", "c5", "cifar10/Standard", "net.onnx", *sorted(trust.BUNDLED)])
def test_a_model_that_is_ours(spec):
    assert not names_code(ModelSpec("any", spec))


def test_data_that_is_code():
    assert names_code(DataSpec("mnist", "os:abort"))
    assert not any(names_code(DataSpec("a", name)) for name in ("mnist", "mine.npz", "C:/mine.npz", *trust.BUNDLED))
    with pytest.raises(UntrustedCode, match="os:abort"):
        Loader().rows(DataSpec("mnist", "os:abort"))
