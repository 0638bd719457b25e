"""No registered attack changes unnoticed: its results are kept under its version."""

import ast
import json
from contextlib import nullcontext

import pytest

import sigmazero as sz
from tests.attacks import sources

KEPT = json.loads(sources.FILE.read_text(encoding="utf-8"))
TAKE = "`python -m tests.attacks.sources` takes the new hashes"


@pytest.mark.parametrize("name", sorted(sz.ATTACKS))
def test_an_edit_is_noticed(name):
    attack = sz.ATTACKS[name]
    edited = sorted(m for m in sources.modules(attack) if KEPT["modules"].get(m) != sources.hashed(m))
    kept = KEPT["versions"].get(name)
    assert not edited or attack.version != kept, (
        f"{name} is made of edited code ({', '.join(edited)}) and still has version {kept}: if results change, "
        f"raise `version` in {type(attack).__name__}; then {TAKE}"
    )
    assert kept == attack.version, f"{name} has a new version, {attack.version}; {TAKE}"
    assert not edited, f"{name} has a new version and edited code; {TAKE}"


@pytest.mark.parametrize(
    ("old", "new", "noticed"), [("s.ε + 1", "s.ε + 2", True), ("Start at the clean", "At a", False)]
)
def test_an_edit_of_code_fails_and_one_of_words_does_not(monkeypatch, old, new, noticed):
    tree, text = sources.tree, sources.WATCHED["sigmazero.attacks.fmn"].read_text(encoding="utf-8")
    assert old in text
    edited = ast.parse(text.replace(old, new))
    monkeypatch.setattr(sources, "tree", lambda module: edited if module == "sigmazero.attacks.fmn" else tree(module))
    with pytest.raises(AssertionError, match=r"fmn .*sigmazero\.attacks\.fmn\)") if noticed else nullcontext():
        test_an_edit_is_noticed("fmn")
    test_an_edit_is_noticed("vfga")


def test_all_of_an_attack_is_looked_at():
    def of(name: str) -> set[str]:
        return {module.removeprefix("sigmazero.") for module in sources.modules(sz.ATTACKS[name])}

    assert of("fmn") == {"attacks.fmn", "core.losses", "core.ops"}
    assert of("bb") == {
        "core.noise",
        "core.ops",
        *(f"attacks.{m}" for m in ("bb", "_bb_start", "_bb_solver", "_bb_kernel")),
    }
    assert {"attacks._swap", "attacks._opening", "attacks._sites", "attacks._budget"} < of("sigma-swap")
    assert "attacks.sigma_zero" in of("sigma-swap")  # by its parameters
    assert "attacks.spgd" in of("spgd-projected-min")


def test_nothing_is_kept_of_what_is_gone():
    assert KEPT.keys() == sources.now().keys()
    for part, values in sources.now().items():
        assert KEPT[part].keys() == values.keys()
