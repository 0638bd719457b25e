from dataclasses import replace
from pathlib import Path

import pytest

from sigmazero.bench.plan_file import parse_plan
from sigmazero.core.toml import TomlError

ROOT = Path(__file__).parents[2]
GRID = '[[grid]]\nmodels = ["demo"]\ndata = ["digits-8x8"]\nattacks = ["sigma-zero"]\n'


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (f"bugdets = [3]\n{GRID}", 1, ["'bugdets'", "did you mean 'budgets'"]),
        (f"\nsteps = 0\n{GRID}", 2, ["steps = 0"]),
        (f"steps = 1.5\n{GRID}", 1, ["steps = 1.5"]),
        (f"unit = 'pixels'\n{GRID}", 1, ["'pixels'", "'feature' or 'pixel'"]),
        (f"precision = 'fp16'\n{GRID}", 1, ["'fp16'", "'fp32'"]),
        (f"budgets = [3, 3]\n{GRID}", 1, ["3 twice"]),
        (f"budgets = 3\n{GRID}", 1, ["budgets = 3", "list"]),
        (f"{GRID}seeds = 1", 5, ["'seeds'", "did you mean 'seed'"]),
        (f"{GRID}goal = 'targeted'", 5, ["target =", "next"]),
        (f"{GRID}goal = 'targeted'\ntarget = 'best'", 6, ["'best'", "random"]),
        (f"{GRID}batch_size = -1", 5, ["batch_size = -1"]),
        ("steps = 3", 1, ["grid"]),
        ("[[grid]]\ndata = ['digits-8x8']", 1, ["models"]),
        ("[[grid]]\nmodels = ['demo']", 1, ["data"]),
        ("[[grid]]\nmodels = ['dmeo']\ndata=['mnist']\nattacks=['fmn']", 2, ["'dmeo'", "did you mean 'demo'"]),
        ("[[grid]]\nmodels = ['demo']\ndata=['minst']\nattacks=['fmn']", 3, ["did you mean 'mnist'"]),
        ("[[grid]]\nmodels = ['demo']\ndata=['mnist']\nattacks=['sigmazero']", 4, ["did you mean 'sigma-zero'"]),
        ("[[grid]]\nmodels = ['demo']\ndata=['mnist']\nattacks=['sparse-rs']", 1, ["fixed budget", "budgets ="]),
        (f"{GRID}{GRID}", 5, ["asked twice", "line 1"]),
        (f"[attacks.x]\nattack = 'fmm'\n{GRID.replace('sigma-zero', 'x')}", 2, ["did you mean 'fmn'"]),
        ("[attacks.fmn]\nparameters = { stp = 3 }\n[[grid]]\nmodels='demo'\ndata='mnist'", 2, ["'stp'", "allowed:"]),
        (
            "[attacks.sigma-zero]\nparameters.threshold = 'a'\n[[grid]]\nmodels='demo'\ndata='mnist'",
            2,
            ["threshold='a'", "a finite number"],
        ),
        (
            "[attacks.sigma-zero]\n\nparameters = { smoothing = -1.0 }\n[[grid]]\nmodels='demo'\ndata='mnist'",
            3,
            ["smoothing=-1.0", "greater than 0"],
        ),
        (
            "[attacks.sigma-zero.sweep]\nthreshold = 0.3\n[[grid]]\nmodels='demo'\ndata='mnist'",
            2,
            ["threshold = 0.3", "list"],
        ),
        ("[data.a]\nsource = 'nothing'\n[[grid]]\nmodels='demo'\nattacks='fmn'", 2, ["no data set", "mnist"]),
        ("[data.a]\nlimit = 0\nsource='mnist'\n[[grid]]\nmodels='demo'\nattacks='fmn'", 2, ["limit = 0"]),
        (
            "[attacks.sparsefool]\ngoal='targeted'\ntarget='next'\n[[grid]]\nmodels='demo'\ndata='mnist'",
            2,
            ["no targeted"],
        ),
        (f"target = 3\n{GRID}", 1, ["target", 'goal = "targeted"']),
        (f"[data.digits-8x9]\nlimit = 4\n{GRID}", 1, ["[data.digits-8x9]", "no grid", "did you mean 'digits-8x8'"]),
        ("[models.x]\nspec = 'demo'\n" + GRID.replace("demo", 'demo", "x'), 3, ["asked twice"]),
    ],
)
def test_a_wrong_plan_is_named_with_its_line(text, line, words):
    with pytest.raises(TomlError) as caught:
        parse_plan(text, "my.toml")
    assert str(caught.value).startswith(f"my.toml:{line}: ")
    for word in words:
        assert word in str(caught.value)


def test_overrides():
    plan = parse_plan("[data.d]\nsource='mnist'\nlimit=50\n" + GRID.replace("digits-8x8", "d"))
    (q,) = plan.override(limit=64, precision="fp64").questions
    assert (q.data.limit, q.precision) == (50, "fp64")
    assert plan.override(limit=7).questions[0].data.limit == 7
    for wrong in ({"limit": 0}, {"precision": "fp8"}):
        with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
            plan.override(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"unit": "pixels"},
        {"goal": "aimed"},
        {"target": 3},
        {"goal": "targeted"},
        {"goal": "targeted", "target": -1},
        {"precision": "fp8"},
        {"batch_size": 0},
        {"margin": -1.0},
    ],
)
def test_a_question_refuses_what_makes_no_sense(wrong):
    (question,) = parse_plan(GRID).questions
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(question, **wrong)
