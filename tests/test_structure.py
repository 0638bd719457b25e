"""Rules of the house that a machine can check; import-linter checks who imports whom (pyproject.toml)."""

from pathlib import Path

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sigmazero as sz

PACKAGE = Path(__file__).parents[1] / "src" / "sigmazero"


def test_attacks_round_alike_everywhere():
    """exp2 rounds differently at the end of a vector on a CPU: a result would depend on the place in the batch."""
    for path in (PACKAGE / "attacks").glob("*.py"):
        assert "torch.exp2(" not in path.read_text(encoding="utf-8"), f"{path.name} uses exp2; write it with exp"


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
