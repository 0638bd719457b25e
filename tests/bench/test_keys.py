import dataclasses

import pytest
import torch

from sigmazero.bench import identity
from sigmazero.bench.constraints import Allowed
from sigmazero.bench.loader import targets
from sigmazero.bench.plan_file import parse_plan
from sigmazero.data import Rows
from tests.plans import ONE_CELL as BASE
from tests.plans import key


@pytest.mark.usefixtures("folder")
def test_what_does_not_determine_the_result_does_not_enter():
    base = key(BASE)
    assert key(BASE, batch_size=5) == base
    assert key(BASE.replace("steps = 9\nseed = 3", "seed = 3\nsteps = 9\nname = 'other'\nbatch_size = 2")) == base
    assert key(BASE.replace("threshold = 0.2, smoothing = 0.01", "smoothing = 1e-2, threshold = 0.20")) == base
    assert key(BASE.replace("[attacks.z]", "[attacks.called-so]").replace('["z"]', '["called-so"]')) == base
    assert key(BASE.replace("[data.mine]", "[data.so]").replace('["mine"]', '["so"]')) == base


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("steps = 9", "steps = 10"),
        ("seed = 3", "seed = 4"),
        ("threshold = 0.2", "threshold = 0.25"),
        ("threshold = 0.2", "projection = false"),
        ('"sigma-zero"\nparameters', '"sigma-zero-star"\nparameters'),
        ("0:10", "0:11"),
        ("0:10", "1:11"),
        ("net.py:build", "net.py:other"),
        ("seed = 3", "seed = 3\nunit = 'pixel'"),
        ("seed = 3", "seed = 3\nbudgets = [5]"),
        ("seed = 3", "seed = 3\nprecision = 'bf16'"),
        ("seed = 3", "seed = 3\nprecision = 'fp64'"),
        ("seed = 3", "seed = 3\ngoal = 'targeted'\ntarget = 'next'"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_determines_the_result_enters(old, new):
    assert old in BASE
    assert key(BASE.replace(old, new)) != key(BASE)


def test_row_ids_enter_and_names_do_not():
    x, y = torch.rand(3, 4), torch.zeros(3, dtype=torch.int64)
    (question,) = parse_plan(BASE.replace("mine.npz", "mnist")).questions

    def of(ids, name="a", **more):
        rows, asked = Rows(x, y, torch.tensor(ids), name), dataclasses.replace(question, allowed=Allowed(**more))
        return identity.digest(identity.describe_cell(asked, {}, rows, None, "fp32"))

    assert of([0, 1, 2]) == of([0, 1, 2], "b") != of([0, 1, 3])
    box = torch.full((4,), 0.5)
    keys = [of([0, 1, 2], **more) for more in ({}, {"bounds": (0, 255)}, {"bounds": (0, box)}, {"mask": box > 0})]
    assert len(set(keys)) == 4
    assert of([0, 1, 2], bounds=(0, 1)) == keys[0]
    renamed = dataclasses.replace(question.attack, name="other")
    assert identity.describe_attack(renamed) == identity.describe_attack(question.attack)


def test_targets():
    rows = Rows(torch.rand(50, 2), torch.arange(50) % 4, torch.arange(100, 150), "a")
    assert targets(rows, "next", 4, 0).tolist() == [(i + 1) % 4 for i in range(50)]
    drawn = targets(rows, "random", 4, 0)
    assert (drawn != rows.labels).all()
    assert len(set(((drawn - rows.labels) % 4).tolist())) == 3
    assert (targets(rows, "random", 4, 1) != drawn).any()
    # A row's target depends on its own number alone.
    assert targets(rows.select([7, 3]), "random", 4, 0).tolist() == drawn[[7, 3]].tolist()
    assert targets(rows, 2, 4, 0).tolist() == [2] * 50


def test_the_weights_of_a_surrogate_are_part_of_the_question(folder):
    text = BASE.replace(
        '"sigma-zero"\nparameters = { threshold = 0.2, smoothing = 0.01 }',
        '"query-swap"\nparameters = { surrogate = "net.py:other" }',
    )
    first = key(text)
    assert first == key(text)
    (folder / "net.py").write_text((folder / "net.py").read_text().replace("Net(5)", "Net(6)"))
    assert first != key(text)
