"""`sigmazero run` with some models and attacks of a plan, and without running anything."""

import pytest

from tests.plans import PLAN


@pytest.fixture
def plan(folder):
    (folder / "plan.toml").write_text(PLAN)
    return folder / "plan.toml"


def ran(done):
    return {tuple(line.split()[:2]) for line in done.stdout.splitlines() if line.strip().startswith("net.py")}


def test_names_with_spaces_and_with_commas_choose_alike(sigmazero, plan):
    listed = ("--models", "net.py:build", "net.py:other", "--attacks", "sigma-zero", "--dry-run", "--trust-code")
    spaced = sigmazero("run", plan, *listed)
    commas = sigmazero("run", plan, "--models", "net.py:build,net.py:other", "--attacks=sigma-zero", *listed[-2:])
    assert spaced.exit_code == commas.exit_code == 0, spaced.stderr + commas.stderr
    assert ran(spaced) == ran(commas)
    assert len(ran(spaced)) == 2
    assert "2 cells, 48 rows left, about" in spaced.stdout
    assert "nothing was run" in spaced.stdout
    assert not (plan.parent / "runs").exists()


def test_a_dry_run_goes_by_what_is_stored(sigmazero, plan):
    chosen = ("--models", "net.py:build", "--attacks", "sigma-zero", "--trust-code", "--device", "cpu")
    assert sigmazero("run", plan, *chosen).exit_code == 0
    done = sigmazero("run", plan, *chosen[:2], *chosen[4:], "--dry-run")
    assert "24/24" in done.stdout
    assert "0/24" in done.stdout


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--models", "net.py:biuld"], "has no model 'net.py:biuld'; did you mean 'net.py:build'?"),
        (["--attacks", "fmnn"], "has no attack 'fmnn'"),
    ],
)
def test_a_name_that_the_plan_lacks_is_one_line(sigmazero, plan, given, words):
    done = sigmazero("run", plan, *given, "--trust-code")
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
