"""Runs of a store, the groups they compete in, and the numbers of changes that tables show."""

from dataclasses import replace

import numpy as np
import pytest

from sigmazero.report import runs as module
from sigmazero.report.runs import MixtureError, Run, groups, load, names, records
from sigmazero.store import Store
from tests.helpers.stores import BOXES, write_store


@pytest.fixture(scope="module")
def boxes(tmp_path_factory) -> list[Run]:
    with Store(write_store(tmp_path_factory.mktemp("runs") / "s.db", BOXES)) as store:
        return load(store)


def change(run: Run, **fields) -> Run:
    return replace(run, info=replace(run.info, **fields))


def test_rows_in_another_order_are_joined_by_their_numbers(boxes):
    run, other = boxes[:2]
    turned = replace(other, facts=other.facts.take(np.arange(8)[::-1]))
    (group,) = groups([run, turned])
    (plain,) = groups([run, other])
    assert group.best.changes.tolist() == plain.best.changes.tolist()
    some = replace(other, facts=other.facts.take(np.array([6, 2])))
    assert groups([run, some])[0].best.rows.tolist() == [2, 6]


def test_models_of_one_name_with_other_code_or_weights_stay_apart(boxes):
    run = boxes[0]
    code = change(run, key="b", identity={"model": {"code": {"sources": "edited"}}})
    titles = [group.title for group in groups([run, code])]
    assert titles[1].endswith(f", code {code.code}")
    assert code.code != run.code == ""
    weights = change(run, key="c", model_sha256="another")
    with pytest.raises(MixtureError, match="model_sha256"):
        groups([run, weights])
    assert groups([run, weights], mix=True)[1].title == "first on digits, weights another"


def test_runs_of_one_attack_are_named_by_what_differs(boxes):
    run = boxes[0]
    longer = change(run, key="b", steps=300)
    assert names([run.info, longer.info]) == ["sigma-zero, steps 100", "sigma-zero, steps 300"]


@pytest.mark.parametrize("field", ["version", "precision", "unit", "data_hash", "model_sha256"])
def test_what_does_not_compare_is_refused_by_name(boxes, field):
    other = change(boxes[0], key="b", **{field: 7 if field == "version" else "other"})
    with pytest.raises(MixtureError, match=field):
        records([boxes[0], other])
    assert len(records([boxes[0], other], mix=True)) == 2


@pytest.mark.parametrize(("slow", "end"), [(60.0, 30.0), (25.0, 25.0)])
def test_one_slow_attack_does_not_stretch_the_axis(boxes, slow, end):
    fast = [replace(run, facts=replace(run.facts, l0=np.full(8, 10.0))) for run in (boxes[0], boxes[1])]
    last = change(boxes[1], key="b", attack="fmn")
    (group,) = groups([*fast, replace(last, facts=replace(last.facts, l0=np.full(8, slow)))])
    assert group.end == pytest.approx(1.05 * end)
    assert group.cut == ({"fmn": 60.0} if slow == 60 else {})


def test_superseded_and_transferred_cells_are_left_out_unless_named(tmp_path):
    path = write_store(tmp_path / "s.db", BOXES[:2])
    with Store(path, write=True) as store:
        first, second = store.cell_keys()
        store.supersede(first, second)
    with Store(path) as store:
        assert [run.info.key for run in load(store)] == [second]
        assert [run.info.key for run in load(store, [first])] == [first]
    assert module.TRANSFER == "transfer"
