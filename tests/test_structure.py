"""Rules of the house that a machine can check; import-linter checks who imports whom (pyproject.toml)."""

import importlib
import re
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sigmazero as sz

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "sigmazero"
# Folders of which the map says what each file is, and the registries that name their files.
BY_FOLDER = ("cli/commands", "models/architectures", "models/toys", "report/figures")
BY_NAME = {"attacks": set(sz.__all__), "adapters": set(sz.adapters.__all__)}


def test_attacks_round_alike_everywhere():
    """exp2 rounds differently at the end of a vector on a CPU: a result would depend on the place in the batch."""
    for path in (PACKAGE / "attacks").glob("*.py"):
        assert "torch.exp2(" not in path.read_text(encoding="utf-8"), f"{path.name} uses exp2; write it with exp"


def test_the_map_names_every_module():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    words = {word for text in re.findall(r"`([^`]+)`", page) for word in re.findall(r"\w+", text)}
    missing = []
    for path in sorted(PACKAGE.rglob("*.py")):
        folder, name = path.parent.relative_to(PACKAGE).as_posix(), path.stem
        if folder in BY_FOLDER:
            assert {*folder.split("/")} & words, folder
        elif name not in words | {"__init__"} | BY_NAME.get(folder.split("/")[0], set()):
            missing.append(f"{folder}/{name}.py")
    assert not missing


def test_workflows_call_targets_that_the_makefile_has():
    """A person who publishes runs them on another host; here they can only be read."""
    targets = set(re.findall(r"^([\w.$()/-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert {path.stem for path in files} == {"ci", "nightly", "release"}
    called = set()
    for path in files:
        flow: dict[Any, Any] = importlib.import_module("yaml").safe_load(path.read_text(encoding="utf-8"))
        assert flow["name"] == path.stem
        assert flow[True]  # when it runs: YAML reads `on` as true
        for job in flow["jobs"].values():
            steps = job["steps"]
            assert job["runs-on"]
            assert all(("run" in step) != ("uses" in step) for step in steps)
            called |= {step["run"].removeprefix("make ") for step in steps if "run" in step}
            assert set(job.get("needs", "").split()) <= set(flow["jobs"])
    assert {"test", "rest", "lowest", "peers", "docs", "nightly", "dist"} == called
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert called | set(re.findall(r"`make ([\w-]+)`", page)) <= targets


def test_public_names_exist():
    assert all(hasattr(sz, name) for name in sz.__all__)


def test_every_night_draws_other_examples(monkeypatch: pytest.MonkeyPatch):
    """The profile of `make nightly` goes by --hypothesis-seed; the usual one gives the same examples always."""

    def drawn(profile: str, seed: int) -> list[int]:
        found: list[int] = []

        @settings(settings.get_profile(profile), max_examples=20)
        @given(st.integers(0, 2**64))
        def collect(number: int) -> None:
            found.append(number)

        monkeypatch.setattr(hypothesis.core, "global_force_seed", seed)  # as --hypothesis-seed does
        collect()
        return found

    assert drawn("nightly", 20250131) == drawn("nightly", 20250131) != drawn("nightly", 20250201)
    assert drawn("same", 20250131) == drawn("same", 20250201)
