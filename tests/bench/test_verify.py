"""A check of a store finds what was invented, and accuses no honest store."""

import json
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
import torch

from sigmazero import attacks
from sigmazero.bench import identity
from sigmazero.bench.evaluate import evaluate
from sigmazero.bench.loader import Loader
from sigmazero.bench.verify import Verification, attack_of, rerun, verify
from sigmazero.core.result import Outcome
from sigmazero.store.facts import Facts
from sigmazero.store.store import Store
from tests.helpers.networks import linear_problem
from tests.plans import NET, PLAN, run, trusting

SHORT = PLAN.replace(', "fmn", "vfga"', "").replace(', "net.py:other"', "")


def check(path="s.db", **more):
    with Store(path) as store:
        return verify(store, trusting(), **more)


def forge(change, path="s.db", **described):
    """Write a store with changed facts of its first cell, or another description, and checksums that fit."""
    with Store(path) as store:
        info = store.cells()[0]
        facts, positions, made = store.facts(info.key), store.positions(info.key), store.batches(info.key)[0][1]
    columns = {name: values.copy() for name, values in vars(facts).items()}
    change(columns)
    with Store("forged.db", write=True) as store:
        store.register([replace(info, provenance={}, **described)])
        store.append(info.key, positions, Facts(**columns), run=store.begin(made))
    return "forged.db"


def first_changed(c):
    return int(np.flatnonzero(np.diff(c["offsets"]))[0])


def take_back(c, count):
    """Take back some changes of the first changed row; return the row."""
    row = first_changed(c)
    gone = slice(c["offsets"][row], c["offsets"][row] + (count or c["offsets"][row + 1] - c["offsets"][row]))
    c["index"], c["value"] = (np.delete(c[name], gone) for name in ("index", "value"))
    c["offsets"][row + 1 :] -= gone.stop - gone.start
    return row


def fewer(c):
    c["l0"][take_back(c, 1)] -= 1


def unchanged(c):
    row = take_back(c, 0)
    c["l0"][row] = c["l0_pixel"][row] = 0


def put(name, value, where=slice(0, 1)):
    def change(c):
        c[name][where] = value

    return change


def add(name, value):
    def change(c):
        c[name][np.isfinite(c[name])] += value

    return change


def already(c):
    c["outcome"][c["outcome"] == Outcome.FOUND] = Outcome.ALREADY


@pytest.mark.parametrize("settings", ["precision = 'fp32'", "precision = 'fp64'", "goal = 'targeted'\ntarget = 2"])
def test_an_honest_store_has_nothing_to_say(folder, settings):
    run(PLAN.replace("steps = 30", f"steps = 30\n{settings}").replace(', "vfga"', ""), "s.db")
    done = check(export_8bit=True)
    assert done.rows > 48
    assert done.disagreements == done.skipped == []
    assert done.survive_8bit is not None
    assert 0 < done.survive_8bit <= done.found


def test_what_was_forged_is_found_by_asking_the_model(folder):
    run(SHORT, "s.db", batch_size=24)
    for change, word in [
        (put("value", 1.5), "box"),
        (put("value", 0.437), "margin"),
        (add("l0", 1), "l0 is not"),
        (add("l0_pixel", 1), "l0_pixel"),
        (fewer, "margin"),
        (unchanged, "nothing is changed"),
        (add("margin", 0.01), "margin"),
        (put("margin", np.nan), "margin"),
        (add("label", 1), "label"),
        (add("row", 100), "row of 24"),
        (add("prediction", 1), "prediction"),
        (add("clean_prediction", 1), "clean_prediction"),
        (put("index", 60, slice(-1, None)), "feature 60"),
        (already, "not that of the clean input"),
        (put("outcome", 77), "no such outcome"),
        (put("forwards", -1000), "forwards"),
        (put("backwards", -1), "backwards"),
        (put("step_found", 99_999), "step_found"),
        (put("seconds", -1.0), "seconds"),
    ]:
        path = folder / forge(change)
        found = check(path).disagreements
        assert any(word in str(one) for one in found), word
        path.unlink()


@pytest.mark.parametrize(("given", "other"), [("BEYOND_BUDGET", "FOUND"), ("FOUND", "BEYOND_BUDGET")])
def test_an_outcome_that_does_not_fit_the_budget_is_found(folder, given, other):
    run(SHORT.replace("data = [", "budgets = [3]\ndata = ["), "s.db", batch_size=24)

    def change(c):
        assert (c["outcome"] == Outcome[given]).any()
        c["outcome"][c["outcome"] == Outcome[given]] = Outcome[other]

    found = check(forge(change)).disagreements
    assert found
    assert all("within the budget" in str(one) for one in found)


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 1},
        {"steps": 31},
        {"identity": {"format": 2}},
        {"goal": "targeted"},
        {"bounds": (0.0, 255.0)},
        {"model_sha256": "0" * 64},
    ],
    ids=str,
)
def test_a_description_that_does_not_fit_its_key_is_found(folder, changed):
    run(SHORT, "s.db")
    found = check(forge(lambda c: None, **changed)).disagreements
    assert any(f"its {next(iter(changed))} does not fit its key" in str(one) for one in found)


def test_a_model_whose_code_was_edited_cannot_be_checked_and_accuses_nobody(folder):
    run(PLAN, "s.db")
    source, original = folder / "net.py", (folder / "net.py").read_text()
    source.write_text(original + "\n# a comment changes no answer\n")
    done = check()
    assert (done.rows, done.disagreements, done.skipped) == (6 * 24, [], [])
    for old, new, cells in (("sum(2)", "sum(2) * 1.01", 6), ("return Net(0)", "return Net(1)", 3)):
        source.write_text(original.replace(old, new))
        done = check()
        assert done.disagreements == []
        assert sum("its model have changed since" in str(one) for one in done.skipped) == cells


def test_superseded_cells_are_not_asked_again(folder):
    """Their model is no longer here."""
    evaluated = {"data": "mine.npz", "store": "s.db", "steps": 5}
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, 4))
    old = evaluate(model, **evaluated)
    model.register_forward_hook(lambda module, args, out: -out)
    new = evaluate(model, **evaluated, anew=True)
    with Store("s.db") as store:
        done = verify(store, new._loader)
        assert rerun(store, new._loader, 1.0, done) == 24
    assert (done.rows, done.disagreements, done.skipped) == (24, [], [])
    assert old.keys[0][:12] in done.notes[0]
    assert "superseded" in done.notes[0]


def test_other_answers_and_rows_are_found(folder):
    text = NET.replace("return (x", "import scale; return scale.factor() * (x")
    (folder / "net.py").write_text(text)
    scale = types.ModuleType("scale")
    scale.factor = lambda: 1.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "scale", scale)
        run(PLAN, "s.db")
        assert check().disagreements == []
        scale.factor = lambda: 1.01
        assert len({one.cell.key for one in check().disagreements}) == 6


def test_other_rows_are_found(folder):
    run(PLAN, "s.db")
    with np.load("mine.npz") as file:
        np.savez("mine.npz", images=file["images"][::-1], labels=file["labels"])
    assert sum("other content" in str(one) for one in check().disagreements) == 6
    (folder / "mine.npz").unlink()
    done = check()
    assert done.disagreements == []
    assert len(done.skipped) == 6
    assert "mine.npz" in str(done.skipped[0])


def test_of_a_damaged_file_only_the_damage_is_said(folder):
    run(SHORT, "s.db")
    with Store("s.db", write=True) as store:
        store.keep_arrays("mine", a=np.zeros(1))
        store._base.execute("UPDATE arrays SET npz = x'00ff' WHERE name = 'mine'")
    done = check()
    (found,) = done.disagreements
    assert "the arrays mine cannot be read" in str(found)
    assert done.rows == 0


def test_weights_that_never_end_are_refused(folder):
    """A store may name any path."""
    run(SHORT.replace('["net.py:build"]', '["demo"]').replace('"mine.npz"', '"mnist-5k-heldout"\nlimit = 2'), "s.db")
    with Store("s.db") as store:
        where = dict(store.cells()[0].origin)
    where["model"] = {**where["model"], "weights": "/dev/zero"}
    (skipped,) = check(forge(lambda c: None, origin=where)).skipped
    assert "/dev/zero is no regular file" in str(skipped)


def again(path="s.db", share=1.0, seed=0, loader=None) -> tuple[int, Verification]:
    with Store(path) as store:
        done = verify(store, loader or trusting())
        return rerun(store, loader or trusting(), share, done, seed), done


NORMED = """
import torch
def build():
    torch.manual_seed(0)
    first, last = torch.nn.Linear(60, 32), torch.nn.Linear(32, 4)
    net = torch.nn.Sequential(torch.nn.Flatten(), first, torch.nn.BatchNorm1d(32), torch.nn.ReLU(), last)
    net[2].running_mean.normal_(); net[2].running_var.uniform_(0.5, 2); net[2].weight.data.normal_()
    return net.eval()
"""


@pytest.mark.parametrize("prepare", ["none", "fold"])
@pytest.mark.parametrize("trace", ["", "[attacks.sigma-zero]\ntrace = true\n"])
def test_searches_that_are_run_again_accuse_nobody(folder, prepare, trace):
    (folder / "net.py").write_text(NORMED)
    text = SHORT.replace("[[grid]]", f"{trace}[[grid]]").replace(
        'source = "mine.npz"', 'source = "mine.npz"\nlimit = 6'
    )
    run(text, "s.db", prepare=prepare)
    rows, done = again()
    assert rows > 0
    assert done.disagreements == done.skipped == []


def test_differences_of_searches_are_figures(folder):
    run(SHORT, "s.db", batch_size=24)
    rows, done = again(forge(add("forwards", 500)))
    assert rows == 24
    assert done.disagreements == []
    (note,) = done.notes
    assert "of 24 rows differ: forwards of 24" in note


@pytest.mark.parametrize("name", attacks.ATTACKS)
def test_an_attack_is_made_of_its_description(name):
    attack = replace(attacks.get(name), steps=7)
    described = json.loads(identity.canonical(identity.describe_attack(attack)))
    made = attack_of(described)
    assert type(made) is type(attack)
    assert identity.describe_attack(made) == identity.describe_attack(attack)


class Mine(type(attacks.get("fmn"))):  # type: ignore[misc]
    """An attack that is not in the registry."""


def test_rows_given_in_python_run_again_with_their_model_and_known_attack(tmp_path):
    model, x, y = linear_problem((3, 4, 5), 6)
    done = evaluate(model.float(), (x.float(), y), ["fmn", Mine(steps=3)], store=tmp_path / "s.db", steps=5)
    rows, found = again(tmp_path / "s.db", loader=done._loader)
    assert rows == 6
    assert found.disagreements == []
    assert [str(one).partition("its attack ")[2] for one in found.skipped] == [
        "Mine is not in the registry of sigmazero"
    ]
    rows, found = again(tmp_path / "s.db", loader=Loader())
    assert rows == 0
    assert "no cell could be run again" in found.notes
    described = identity.describe_attack(attacks.get("fmn"))
    with pytest.raises(ValueError, match="99"):
        attack_of({**described, "version": 99})
