"""Cells that are run again from their description: what was forged about the search itself is found."""

import json
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
import torch

from sigmazero import attacks
from sigmazero.bench import identity
from sigmazero.bench.cells import Loader
from sigmazero.bench.evaluate import evaluate
from sigmazero.bench.rerun import attack_of, rerun
from sigmazero.bench.verify import Verification, verify
from sigmazero.core.result import Outcome
from sigmazero.store.store import Store
from tests.bench.test_recheck import refresh, rewrite
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.helpers.networks import linear_problem
from tests.plans import PLAN, run, trusting

pytestmark = pytest.mark.slow

SHORT = PLAN.replace(', "fmn", "vfga"', "").replace(', "net.py:other"', "")
MANY = """
steps = 12
batch_size = 8
[data.mine]
source = "mine.npz"
[attacks.variant]
attack = "sigma-zero"
parameters = { threshold = 0.2, projection = false }
[[grid]]
models = ["net.py:build"]
data = ["mine"]
attacks = ["variant", "sigma-swap", "fmn", "vfga", "bb-dataset", "pdpgd", "ead", "sparsefool"]
[[grid]]
models = ["net.py:build"]
data = ["mine"]
attacks = ["pgd-l0", "sparse-rs", "spgd-unprojected"]
budgets = [5]
unit = "pixel"
[[grid]]
models = ["net.py:build"]
data = ["mine"]
attacks = ["sigma-zero", "pgd-l0-min"]
goal = "targeted"
target = 2
precision = "fp64"
seed = 3
"""


def again(path="s.db", share=1.0, seed=0, loader=None) -> tuple[int, Verification]:
    with Store(path) as store:
        done = verify(store, loader or trusting())
        return rerun(store, loader or trusting(), share, done, seed), done


def test_every_attack_gives_the_same_again(folder):
    run(MANY, "s.db")
    rows, done = again()
    assert rows >= 13 * 2
    assert [str(one) for one in (*done.disagreements, *done.skipped)] == []
    assert done.notes == []


@pytest.mark.parametrize("name", attacks.ATTACKS)
def test_an_attack_is_made_of_its_description(name):
    attack = replace(attacks.get(name), steps=7)
    described = json.loads(identity.canonical(identity.describe_attack(attack)))
    made = attack_of(described)
    assert type(made) is type(attack)
    assert identity.describe_attack(made) == identity.describe_attack(attack)


def _forwards(c):
    c["forwards"] += 1


def _step(c):
    c["step_found"][c["outcome"] == Outcome.FOUND] = 1


def _kind(c):
    c["outcome"][c["outcome"] == Outcome.NOT_FOUND] = Outcome.NO_START


def _hidden(c):
    """A success as a failure: no changes, and the model's true answer for the clean input."""
    (row, *_) = np.flatnonzero(np.diff(c["offsets"]))
    start, stop = c["offsets"][row : row + 2]
    c["index"], c["value"] = (np.delete(c[name], slice(start, stop)) for name in ("index", "value"))
    c["offsets"][row + 1 :] -= stop - start
    c["l0"][row] = c["l0_pixel"][row] = np.inf
    c["outcome"][row], c["prediction"][row] = Outcome.NOT_FOUND, c["clean_prediction"][row]
    images, weight = (
        torch.from_numpy(np.load("mine.npz")["images"]),
        torch.randn(4, 60, generator=torch.Generator().manual_seed(0)),
    )
    logits = (images.flatten(1)[c["row"][row]] * weight).sum(1)
    others = logits.clone()
    others[c["label"][row]] = -torch.inf
    c["margin"][row] = float(logits[c["label"][row]] - others.max())


@pytest.mark.parametrize(
    ("change", "word"), [(_forwards, "forwards"), (_step, "step_found"), (_hidden, "outcome"), (_hidden, "l0")]
)
def test_what_was_forged_about_the_search_is_found(folder, change, word):
    cells, _, _ = run(SHORT, "s.db", batch_size=24)
    rewrite(cells[0].info.key, change)
    rows, done = again()
    assert rows == 24
    assert any(f"run again, {word} is another" in str(one) for one in done.disagreements)
    assert all("run again" in str(one) for one in done.disagreements)  # nothing else tells


def test_a_failure_of_another_kind_is_found(folder):
    text = SHORT.replace('attacks = ["sigma-zero"]', 'attacks = ["sigma-zero"]\nbudgets = [0]').replace("30", "1")
    cells, _, _ = run(text, "s.db", batch_size=24)
    rewrite(cells[0].info.key, _kind)
    with Store("s.db") as store:
        changed = int((store.facts(cells[0].info.key).outcome == Outcome.NO_START).sum())
    _, done = again()
    assert changed
    assert sum("run again, outcome is another" in str(one) for one in done.disagreements) == changed


def test_elsewhere_differences_are_counted_and_no_disagreements(folder):
    cells, _, _ = run(SHORT, "s.db", batch_size=24)
    rewrite(cells[0].info.key, _forwards)
    with sqlite3.connect("s.db") as base:
        ((number, text),) = base.execute("SELECT id, provenance FROM runs").fetchall()
        other = json.dumps({**json.loads(text), "torch": "0.0"})
        base.execute("UPDATE runs SET provenance = ? WHERE id = ?", (other, number))
        refresh(base)
    base.close()
    rows, done = again()
    assert rows == 24
    assert done.disagreements == []
    (note,) = done.notes
    assert "of 24 rows differ: forwards of 24; mean changes of what was found" in note


def test_the_draw_is_seeded_and_never_empty(folder, sigmazero):  # noqa: F811
    run(PLAN, "s.db", batch_size=24)
    drawn = []
    for seed in (0, 0, 1, 2, 3, 4):
        done = Verification()
        with Store("s.db") as store:
            held: list[str] = []
            store.batches = lambda key, ask=store.batches, held=held: (held.append(key), ask(key))[1]  # type: ignore
            assert rerun(store, trusting(), 0.0001, done, seed) == 24
        drawn.append(held)
    assert drawn[0] == drawn[1]
    assert len({key for (key,) in drawn}) > 1
    said = sigmazero("verify", "s.db", "--trust-code", "--rerun", "50%", "--seed", 3)
    assert said.exit_code == 0, said.output
    assert "72 of them run again (seed 3)" in said.stdout
    assert "24 of them run again (seed 0)" in sigmazero("verify", "s.db", "--trust-code", "--rerun", 1).stdout
    for wrong in ("0", "-1", "0%", "101%", "half", "nan%", "1.5"):
        refused = sigmazero("verify", "s.db", "--rerun", wrong)
        assert refused.exit_code == 2
        assert f"--rerun {wrong}: give a share of the cells, such as 5%" in refused.stderr


class Mine(type(attacks.get("fmn"))):  # type: ignore[misc]
    """An attack that is not in the registry."""


def test_what_is_not_in_the_registry_is_refused_by_name(tmp_path):
    model, x, y = linear_problem((3, 4, 5), 6)
    done = evaluate(model.float(), (x.float(), y), [Mine(steps=3)], store=tmp_path / "s.db")
    _, found = again(tmp_path / "s.db", loader=done._loader)
    assert [one.what for one in found.skipped] == [
        "cannot be run again: its attack Mine is not in the registry of sigmazero"
    ]
    described = identity.describe_attack(attacks.get("fmn"))
    with pytest.raises(ValueError, match="is version 1 here, the facts are of version 99"):
        attack_of({**described, "version": 99})
    for parameters in ({"steps": "abc"}, {"no_such": 1}):
        with pytest.raises((ValueError, TypeError)):
            attack_of({**described, "parameters": {**described["parameters"], **parameters}})


def test_rows_given_in_python_run_again_with_their_model(tmp_path):
    model, x, y = linear_problem((3, 4, 5), 6)
    done = evaluate(model.float(), (x.float(), y), ["fmn"], store=tmp_path / "s.db", steps=5)
    rows, found = again(tmp_path / "s.db", loader=done._loader)
    assert rows == 6
    assert found.disagreements == found.skipped == []
    rows, found = again(tmp_path / "s.db", loader=Loader())
    assert rows == 0
    assert "no cell could be run again" in found.notes
