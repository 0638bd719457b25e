"""What may change is part of a question: in keys, plans, evaluate, stores, verify and merges."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.bench.cells import expand
from sigmazero.bench.constraints import space_key
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan_file import parse_plan
from sigmazero.bench.run import execute
from sigmazero.bench.verify import rerun, verify
from sigmazero.core.toml import TomlError
from sigmazero.store import Store
from sigmazero.store.merge import merge
from tests.helpers import loans
from tests.plans import trusting

PLAN = loans.PLAN


@pytest.fixture
def folder(tmp_path, monkeypatch):
    loans.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def given(folder):
    """The network, the rows and the space, in Python."""
    x, y = (torch.from_numpy(each) for each in loans.table())
    build: dict[str, Any] = {}
    exec(loans.NET, build)
    return build["build"](), (x, y), sz.Space.from_toml(folder / "loan.toml")


def cells(text):
    return [cell.info for cell in expand(parse_plan(text).questions, trusting())[0]]


def run(space, given, path, **more):
    model, data, _ = given
    return sz.evaluate(model, data, ["corner"], store=path, space=space, name="net", **more)


@pytest.mark.usefixtures("folder")
def test_a_plan_says_what_may_change_at_three_places():
    (usual,) = cells(PLAN)
    (whole,) = cells(f'{PLAN}\n[space]\nfile = "loan.toml"')
    inline = loans.SPACE.replace("[feature", "[space.feature").replace("[group", "[space.group")
    assert cells(PLAN + inline)[0].key == whole.key  # a file, or the same in the plan
    (data,) = cells(PLAN.replace('"loans.npz"', '"loans.npz"\n[data.loans.space]\nfile = "loan.toml"'))
    (grid,) = cells(f'{PLAN}[grid.space]\nfile = "loan.toml"\n[space]\nupper = 1000')
    assert whole.key == data.key == grid.key != usual.key
    assert (usual.space, usual.space_text, "space" in usual.identity) == ("–", None, False)
    assert whole.space_text == sz.Space.from_toml("loan.toml").to_toml()
    assert whole.about == {"shape": [6], "names": loans.NAMES, "classes": loans.CLASSES}
    Path("loans.space.toml").write_text(loans.SPACE)  # the data's own: it holds where nothing else is given
    (own,) = cells(PLAN)
    assert own.space_text == whole.space_text
    assert cells(f"{PLAN}\n[space]\nupper = 1000")[0].key not in (own.key, whole.key)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("space", "words"),
    [
        ('[space]\nfile = "gone.toml"', r"plan:8: gone.toml: no space can be read from it"),
        ('[space]\nfile = "loan.toml"\nkind = "real"', "plan:8: a space has either file"),
        ('[space]\nkind = "whole"\nknid = "x"', r"plan:10: unknown key 'knid'"),
        ("[space.feature.age]\ncost = -1", r"plan:8: cost=-1 of feature 'age'"),
        (
            '[space.group.job]\none_hot = ["jbo"]\n[space.feature.job]',
            r"plan:8: there is no feature 'jbo'; did you mean",
        ),
    ],
)
def test_a_wrong_space_in_a_plan_is_named_with_its_line(space, words):
    with pytest.raises(TomlError, match=words) as error:
        parse_plan(f"{PLAN}{space}")
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("space", "words"),
    [
        ("[space.feature.age]\n[space.feature.gain]", "loans: space: 2 names for 6 features"),
        ('[space]\nupper = 1000\ndirection = "up"\nlower = 20', "loans: space: feature .* is not between 20 and 1000"),
    ],
)
def test_a_space_for_other_inputs_is_refused_before_anything_runs(space, words):
    with pytest.raises(ValueError, match=words):
        cells(PLAN + space)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: replace(f, cost=f.cost + 1), "cost is not what the changes cost"),
        (lambda f: replace(f, l0=f.l0 + 1, l0_pixel=f.l0_pixel + 1), "l0 is not the number of changed features"),
        (lambda f: replace(f, value=f.value * 0.75), "the stored example is not legal in its space"),
        (lambda f: replace(f, cost=np.full_like(f.cost, np.nan)), "cost is not what the changes cost"),
    ],
)
def test_verify_judges_legality_and_cost_again(given, tmp_path, change, words):
    done = run(given[2], given, tmp_path / "s.db")
    with Store(tmp_path / "s.db") as store:
        info, facts = store.cell(done.keys[0]), store.facts(done.keys[0])
    with Store(tmp_path / "forged.db", write=True) as store:
        store.register([info])
        store.append(info.key, 0, change(facts), run=store.begin({}))
        store.keep_arrays(info.data_hash, **_inputs(tmp_path / "s.db", info.data_hash))
    forged = replace(done, store=tmp_path / "forged.db")
    assert words in {one.what for one in forged.verify().disagreements}


def _inputs(path, hashed):
    with Store(path) as store:
        return store.arrays(hashed)


def adults(points, clean):
    return points[:, 0] >= 18


def test_a_judge_of_ones_own_is_known_by_its_source_and_asked_again_in_python(given, tmp_path):
    space = replace(given[2], accept=adults)
    done = run(space, given, tmp_path / "s.db")
    assert done.keys != run(given[2], given, tmp_path / "t.db").keys
    verdict = done.verify()
    assert (verdict.disagreements, verdict.notes) == ([], [])
    done._loader.spaces.clear()  # as in another process
    verdict = done.verify()
    assert "accept of its space is not stored" in verdict.notes[0]
    done._loader.spaces.update(dict.fromkeys(_space_keys(done), replace(space, accept=lambda p, x: p[:, 0] > 1000)))
    assert {one.what for one in done.verify().disagreements} == {"accept of the space refuses the example"}


def _space_keys(done):
    with Store(done.store) as store:
        return [space_key(store.cell(key).identity["space"]) for key in done.keys]


def test_masks_and_tensor_bounds_are_kept(given, tmp_path):
    model, (x, y), _ = given
    mask = torch.tensor([True, False, True, False, False, False]).expand(len(x), 6).clone()
    mask[0] = False
    upper = torch.tensor([90.0, 1.0, 1000.0, 1.0, 1.0, 1.0])
    done = sz.evaluate(model, (x, y), ["corner"], store=tmp_path / "s.db", bounds=(0.0, upper), mask=mask)
    facts = done.facts(done.keys[0])
    assert not facts.success[0]
    assert set(facts.index.tolist()) <= {0, 2}
    assert done.verify().disagreements == []
    with pytest.raises(ValueError, match="bounds and space are both given"):
        run(given[2], given, tmp_path / "t.db", bounds=(0.0, 2.0))
    allowed: dict[str, Any] = {"bounds": (0.0, upper), "mask": mask}
    with pytest.raises(ValueError, match="do not go with one target class"):
        sz.evaluate(model, (x, y), ["corner"], store=tmp_path / "t.db", target=1, **allowed)
    ways = replace(given[2], direction=[["up"] * 3 + ["both"] * 3] * len(x))
    with pytest.raises(ValueError, match="directions per sample; give one per feature"):
        run(ways, given, tmp_path / "t.db")
    with pytest.raises(TypeError, match="space is a dict"):
        run({"kind": "real"}, given, tmp_path / "t.db")


def test_runs_again_and_merges_need_the_store_alone(folder):
    text = f'{PLAN}\n[space]\nfile = "loan.toml"'
    made, _ = expand(parse_plan(text).questions, trusting())
    for name in ("a.db", "b.db"):
        with Store(folder / name, write=True) as store:
            execute(made, store, trusting())
    (folder / "loan.toml").unlink()
    assert merge([folder / "a.db", folder / "b.db"], folder / "c.db").rows == 12
    with Store(folder / "c.db") as store:
        done = verify(store, trusting())
        assert rerun(store, trusting(), 1, done) == 12
        assert (done.disagreements, done.skipped) == ([], [])
        assert "UntrustedCode" not in str(verify(store, Loader()).skipped)


def doubled(points):
    return 2 * points[:, 0]


def test_rules_and_derived_features_are_judged_again(given, tmp_path):
    model, (x, y), _ = given
    x = torch.cat([x[:, :1], 2 * x[:, :1], x[:, 2:]], 1)  # the second follows from the first
    names = ["age", "twice", *loans.NAMES[2:]]
    rule = sz.Rule({"age": 1, "gain": 1}, "<=", 1000)
    ends: dict[str, Any] = {"names": names, "upper": 1000, "rules": [rule]}
    done = sz.evaluate(
        model, (x, y), ["corner"], store=tmp_path / "s.db", space=sz.Space(derived={"twice": {"age": 2}}, **ends)
    )
    facts, verdict = done.facts(done.keys[0]), done.verify()
    assert (verdict.rows, verdict.disagreements, verdict.skipped) == (12, [], [])
    moved = facts.rebuild(x) != x
    assert (moved[:, 1] == moved[:, 0]).all()
    assert moved[:, 1].any()
    assert (facts.l0 == moved[:, [0, 2, 3, 4, 5]].sum(1).numpy())[facts.success].all()
    coded = sz.evaluate(
        model, (x, y), ["corner"], store=tmp_path / "t.db", space=sz.Space(derived={"twice": doubled}, **ends)
    )
    assert coded.keys != done.keys
    assert coded.verify().disagreements == []
    assert coded._loader is not None
    coded._loader.spaces.clear()  # as in another process
    assert "its space has functions" in coded.verify().skipped[0].what
