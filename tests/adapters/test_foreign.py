"""Attacks of other libraries, and functions, as attacks of ours: queries are counted, what comes back is verified."""

import functools
import pickle
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import sigmazero as sz
from sigmazero import data, models
from sigmazero.adapters import _callers
from sigmazero.adapters.foreign import Foreign
from sigmazero.bench.identity import describe_attack
from sigmazero.bench.plan_file import parse_plan
from sigmazero.cli import app
from sigmazero.core.domain import count_features
from sigmazero.core.toml import TomlError

pytestmark = pytest.mark.slow

ROWS = 3


def counted(attack, model, x, y, **how):
    """A result whose counts are those of torch's own hooks, and whose points are what it says."""
    seen = {"forwards": 0, "backwards": 0}

    def forward(module, given, output):
        seen["forwards"] += len(given[0])

    def backward(module, slopes_in, slopes_out):
        seen["backwards"] += len(slopes_out[0])

    hooks = [model.register_forward_hook(forward), model.register_full_backward_hook(backward)]
    try:
        result = attack.run(model, x, y, **how)
    finally:
        for hook in hooks:
            hook.remove()
    assert {"forwards": int(result.forwards.sum()), "backwards": int(result.backwards.sum())} == seen
    assert torch.equal(model(result.x_adv).argmax(1) != y, result.success)
    for one in (result, result.own):
        assert torch.equal(count_features(one.x_adv, x)[one.success].float(), one.l0[one.success])
    return result


def steepest(model, x, y, changes=3, targeted=False):
    """Set the features with the steepest gradients to an end of the box; ask in chunks of two, and the last padded."""
    x = x.clone().requires_grad_()
    logits = torch.cat([model(part) for part in x.split(2)])
    sign = 1 if targeted else -1
    (grad,) = torch.autograd.grad(sign * logits.gather(1, y[:, None]).sum(), x)
    found = x.detach().clone()
    for _ in range(changes):
        room = torch.where(grad > 0, 1 - found, found)
        at = (grad.abs() * room).flatten(1).argmax(1)
        flat = found.flatten(1)
        flat[torch.arange(len(x)), at] = (grad.flatten(1)[torch.arange(len(x)), at] > 0).float()
        found = flat.view_as(x)
        model(torch.cat([found, found[:1]]))
    return found


@pytest.fixture
def easy():
    """A linear model that a few changes fool, and rows that it has right."""
    torch.manual_seed(0)
    model = torch.nn.Linear(12, 3)
    x = torch.rand(6, 12, generator=torch.Generator().manual_seed(1))
    return model, x, model(x).argmax(1)


def test_rows_together(easy):
    """Handed all rows at once, in chunks and with padding, totals are the hook's and points go to the nearest input."""
    model, x, y = easy
    one, all_ = (counted(sz.foreign(steepest, rows=rows, changes=9), model, x, y) for rows in (1, len(x)))
    assert torch.equal(one.x_adv, all_.x_adv)
    assert torch.equal(one.own.x_adv, all_.own.x_adv)


def test_bounds_mask_targets_margin(easy):
    model, x, y = easy
    mask = torch.ones(12, dtype=torch.bool)
    mask[:4] = False
    attack = sz.foreign(steepest, changes=8)
    result = counted(attack, model, x, y, mask=mask)
    assert torch.equal(result.x_adv[:, :4], x[:, :4])
    assert torch.equal(result.own.x_adv[:, :4], x[:, :4])
    wide = torch.nn.Linear(12, 3)
    wide.load_state_dict({"weight": model.weight / 10, "bias": model.bias + model.weight.sum(1) / 2})
    scaled = counted(attack, wide, 10 * x - 5, y, bounds=(-5.0, 5.0))
    assert torch.equal(scaled.success, attack.run(model, x, y).success)
    goal = (y + 1) % 3
    reached = attack.run(model, x, goal, targeted=True)
    assert torch.equal(model(reached.x_adv).argmax(1) == goal, reached.success)
    strict = attack.run(model, x, y, margin=1.0)
    assert (strict.margin[strict.success] <= -1).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: sz.foreign(3), "a int is no attack; give a function"),
        (lambda x: sz.foreign("sigma-zero"), "is no attack of another library; write library:name"),
        (lambda x: sz.foreign(steepest, change=3), "steepest has no option 'change'; did you mean 'changes'"),
        (lambda x: sz.foreign(x, steps=3), "points take no options, got steps"),
        (lambda x: sz.foreign(x, ids=[1] * len(x)), "give 6 row numbers, each once"),
        (lambda x: sz.foreign(x[:4]), "points has no point for row 4"),
        (
            lambda x: sz.foreign(lambda model, x, y: x[:, :2], name="f"),
            r"f returned inputs of shape \(1, 2\), expected \(1, 12\)",
        ),
        (lambda x: sz.foreign(lambda model, x, y: [x]), "returned a list, not inputs"),
        (lambda x: sz.foreign(lambda model, x, y: model(x[0])), "asked about inputs of shape"),
    ],
)
def test_what_is_refused(easy, make, words):
    model, x, y = easy
    with pytest.raises((TypeError, ValueError), match=words):
        make(x).run(model, x, y)
    with pytest.raises(ValueError, match="g has no targeted form"):
        sz.foreign(lambda model, x, y: x, name="g").run(model, x, y, targeted=True)


def test_a_model_without_gradients(easy):
    """What asks for none runs; what does is refused in one line."""
    model, x, y = easy
    weight = model.weight.detach().numpy(), model.bias.detach().numpy()
    scores = lambda x: torch.from_numpy(x.detach().numpy() @ weight[0].T + weight[1])  # noqa: E731
    blind = sz.foreign(lambda model, x, y: 1 - x, name="blind")
    assert blind.run(scores, x, y).own is not None
    with pytest.raises(TypeError, match=r"steepest needs gradients, and this model has none; use .*query-swap"):
        sz.foreign(steepest).run(scores, x, y)


PLAN = """
[data.mine]
source = "mine.npz"
[attacks.theirs]
attack = "foolbox:{name}"
parameters = {{ {options} }}
[[grid]]
models = ["net.py:build"]
data = ["mine"]
attacks = ["theirs", "foolbox:L0FMNAttack"]
steps = 7
"""


def test_plans_of_a_library_that_is_not_there(monkeypatch):
    from importlib import metadata

    def absent(name):
        raise metadata.PackageNotFoundError(name)

    _callers.find.cache_clear()  # another test may have found it already
    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(TomlError, match=r"foolbox is not installed; install it with: pip install 'foolbox>=3.3'"):
        parse_plan(PLAN.format(name="L0FMNAttack", options=""))


@pytest.mark.filterwarnings("ignore")
def test_plans(peer):
    peer("foolbox")
    theirs: Any
    plain: Any
    theirs, plain = (q.attack for q in parse_plan(PLAN.format(name="L0FMNAttack", options="gamma = 0.1")).questions)
    assert isinstance(theirs, Foreign)
    assert (theirs.name, theirs.steps, theirs.options, plain.options) == ("theirs", 7, (("gamma", 0.1),), ())
    known = describe_attack(theirs)["parameters"]
    assert (known["peer"], known["method"], known["release"]) == ("foolbox", "L0FMNAttack", peer("foolbox").__version__)
    for name, options, said in (
        ("L0FNMAttack", "", "has no attack 'L0FNMAttack'; did you mean 'L0FMNAttack'"),
        ("L0FMNAttack", "gama = 1", "has no option 'gama'; did you mean 'gamma'"),
    ):
        with pytest.raises(TomlError, match=said):
            parse_plan(PLAN.format(name=name, options=options))


def test_a_cascade_and_another_process_run_the_same_attack(easy):
    model, x, y = easy
    attack: Any = sz.foreign(steepest, changes=9)
    expected = attack.run(model, x, y)
    assert torch.equal(pickle.loads(pickle.dumps(attack)).run(model, x, y).x_adv, expected.x_adv)
    cascade = sz.SparseAutoAttack(
        model, eps=12, version="custom", attacks_to_run=[functools.partial(steepest, changes=9)], verbose=False
    )
    assert torch.equal(cascade.run_standard_evaluation(x, y), expected.x_adv)
    with pytest.raises(KeyError, match=r"made by sz.foreign\('foolbox:L0FMNAttack'\), or named in a plan"):
        sz.get("foolbox:L0FMNAttack")


THEIRS = [
    ("foolbox", "L0FMNAttack", {"steps": 10}),
    ("foolbox", "SaltAndPepperNoiseAttack", {"steps": 20}),
    ("foolbox", "LinfPGD", {"steps": 5, "epsilons": 0.2}),
    ("torchattacks", "JSMA", {"theta": 1.0, "gamma": 0.02}),
    ("torchattacks", "SparseFool", {"steps": 2}),
    ("torchattacks", "Pixle", {"restarts": 2, "max_iterations": 5}),
    ("art", "SaliencyMapMethod", {"theta": 1.0, "gamma": 0.02}),
    ("art", "PixelAttack", {"th": 5, "es": 1, "max_iter": 2}),
    ("art", "ElasticNet", {"max_iter": 3, "binary_search_steps": 2}),
    ("adv-lib", "fmn", {"norm": 0, "steps": 10}),
    ("adv-lib", "vfga", {"max_iter": 5}),
    ("adv-lib", "sigma_zero", {"num_steps": 10}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("library", "name", "options"), THEIRS, ids=lambda v: v if isinstance(v, str) else "")
def test_counts_are_those_of_hooks(peer, subject, library, name, options):
    peer(library, "attacks" if library == "adv-lib" else "")
    x, y = subject.x[:ROWS], subject.y[:ROWS]
    result = counted(sz.foreign(f"{library}:{name}", **options), subject.model, x, y)
    assert (result.l0 <= result.own.l0).all()


def test_an_attack_that_would_take_targets_for_true_classes(peer, subject):
    peer("art")
    with pytest.raises(ValueError, match="art:SquareAttack has no targeted form"):
        sz.foreign("art:SquareAttack").run(subject.model, subject.x[:1], subject.y[:1], targeted=True)


@pytest.mark.filterwarnings("ignore")
def test_attack_objects(peer, subject):
    """One that was made already gives what its name gives."""
    x, y = subject.x[:ROWS], subject.y[:ROWS]
    saliency = {"theta": 1.0, "gamma": 0.02}
    made: list[Any] = [
        (peer("foolbox").attacks.L0FMNAttack(steps=10), "foolbox:L0FMNAttack", {"steps": 10}),
        (peer("torchattacks").JSMA(subject.model, **saliency), "torchattacks:JSMA", saliency),
        (peer("adv-lib", "attacks").fmn, "adv-lib:fmn", {"norm": 0, "steps": 10}),
    ]
    for thing, name, options in made:
        taken = options if callable(thing) and name.startswith("adv-lib") else {}
        attack = sz.foreign(thing, **taken)
        found, expected = attack.run(subject.model, x, y), sz.foreign(name, **options).run(subject.model, x, y)
        assert attack.name == name
        assert torch.equal(found.x_adv, expected.x_adv)
        assert torch.equal(found.forwards, expected.forwards)
    with pytest.raises(TypeError, match="was made already; give steps when you make it"):
        sz.foreign(made[0][0], steps=3)


def test_on_the_command_line(peer, subject, tmp_path):
    peer("foolbox")
    out = tmp_path / "res.npz"
    asked = ["attack", "demo", "mnist-5k-heldout", "--limit", "2", "--out", str(out)]
    asked += ["--attack", "foolbox:L0FMNAttack", "--steps", "20", "--set", "gamma=0.1"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "foolbox:L0FMNAttack" in done.stdout
    rows = data.load("mnist-5k-heldout", limit=2)
    attack = sz.foreign("foolbox:L0FMNAttack", steps=20, gamma=0.1)
    expected = attack.run(models.load("demo"), rows.images, rows.labels, ids=rows.ids)
    assert torch.equal(sz.load_result(out).l0, expected.l0)
    wrong = CliRunner().invoke(app, [*asked[:-1], "gama=1"])
    assert "has no option 'gama'" in wrong.stderr
