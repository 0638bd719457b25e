"""The examples for pipelines parse, their commands are ours, and the test for pytest passes and can fail."""

import runpy
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer.main

from sigmazero import testing
from sigmazero.cli import app

ROOT = Path(__file__).parents[2]
CI = ROOT / "examples" / "ci"


def parsed(name: str) -> Any:
    return import_module("yaml").safe_load((CI / name).read_text(encoding="utf-8"))


def understood(command: str) -> dict[str, Any]:
    """The options of a command line, as the command itself would get them."""
    words = shlex.split(command)
    assert words[:2] == ["sigmazero", "auto"]
    top: Any = typer.main.get_command(app)
    found: dict[str, Any] = top.commands["auto"].make_context("auto", words[2:]).params
    return found


def test_github():
    job = parsed("github.yml")["jobs"]["gate"]
    runs = [step["run"] for step in job["steps"] if "run" in step]
    estimate, gate = (understood(run) for run in runs if run.startswith("sigmazero"))
    assert estimate["dry_run"]
    assert (gate["eps"], gate["fail_under"], gate["quiet"]) == (24, 60, True)
    written = {str(gate["json"]), *map(str, gate["out"])}
    kept = next(step for step in job["steps"] if step.get("uses", "").startswith("actions/upload-artifact"))
    assert set(kept["with"]["path"].split()) == written
    assert kept["if"] == "always()"  # also of a gate that was not passed
    assert any(f'cat {gate["markdown"]} >> "$GITHUB_STEP_SUMMARY"' in run for run in runs)


def test_gitlab():
    job = parsed("gitlab-ci.yml")["robustness"]
    gate = understood(job["script"][-1])
    assert (gate["eps"], gate["fail_under"], gate["quiet"]) == (24, 60, True)
    assert job["artifacts"]["paths"] == [str(gate["json"]), str(gate["markdown"])]
    assert job["artifacts"]["when"] == "always"
    assert job["cache"]["paths"] == [str(gate["store"])]


def test_pytest(monkeypatch):
    example = runpy.run_path(str(CI / "test_robustness.py"))
    example["test_half_of_the_digits_withstand_one_change"]()
    # The same with a figure that the model does not reach.
    asked: Any = testing.assert_robust
    monkeypatch.setattr(testing, "assert_robust", lambda *given, **how: asked(*given, **{**how, "eps": 8}))
    again = runpy.run_path(str(CI / "test_robustness.py"))
    with pytest.raises(AssertionError, match="failed: robust accuracy with at most 8 changed features"):
        again["test_half_of_the_digits_withstand_one_change"]()
