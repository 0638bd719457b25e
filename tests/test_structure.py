"""Rules of the house that a machine can check; import-linter checks who imports whom (pyproject.toml)."""

import ast
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sigmazero as sz

PACKAGE = Path(__file__).parents[1] / "src" / "sigmazero"
# Words that several modules may use for a thing of their own: a state is an attack's, the others are local shorthands.
LOCAL = {"State", "Array", "Floats", "DataDir", "Compare"}


def test_attacks_round_alike_everywhere():
    """exp2 rounds differently at the end of a vector on a CPU: a result would depend on the place in the batch."""
    for path in (PACKAGE / "attacks").glob("*.py"):
        assert "torch.exp2(" not in path.read_text(encoding="utf-8"), f"{path.name} uses exp2; write it with exp"


def test_one_word_for_one_thing():
    """No name of a class or of a type stands for two things."""
    owners: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            found = node.name if isinstance(node, ast.ClassDef) else ""
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found = node.targets[0].id
            if found[:1].isupper() and not found.isupper() and found not in LOCAL:
                owners.setdefault(found, []).append(path.name)
    assert not {word: places for word, places in owners.items() if len(places) > 1}


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
