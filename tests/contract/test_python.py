"""The Python interface, by registration: functions, classes, names, arrays; and calls as other libraries write them."""

import inspect
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
from scripts import signatures
from torch import nn

import sigmazero as sz

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
FUNCTIONS = {
    **{
        name.replace("-", "_"): name for name in ("sigma-zero", "sigma-swap", "swap-search", "query-swap", "label-swap")
    },
    **{name.replace("-", "_"): name for name in ("corner", "saliency", "genetic", "fmn", "pdpgd", "ead", "pgd-l0")},
    **{name.replace("-", "_"): name for name in ("sparsefool", "vfga", "bb", "sparse-rs")},
    "spgd": "spgd-unprojected",
}
PRESETS = set(sz.ATTACKS) - set(FUNCTIONS.values())
CLASSES = {type(sz.ATTACKS[name]).__name__: name for name in FUNCTIONS.values()}
LINEAR = nn.Linear(12, 3, bias=False).requires_grad_(False)
LINEAR.weight.copy_(torch.randn(3, 12, generator=torch.Generator().manual_seed(1)))
NET = nn.Sequential(nn.Flatten(), LINEAR)
X = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
Y = NET(X).argmax(1)


SLOW = {"ead", "bb"}  # find nothing in three steps


def how(name: str) -> dict[str, Any]:
    return {"budget": 4} if sz.ATTACKS[name].kind == "budget" else {}


def returned(result: sz.Result) -> torch.Tensor:
    return torch.where(result.success[:, None, None, None], result.x_adv, X)


def test_every_attack_that_is_no_preset_has_a_function_and_a_class():
    assert set(FUNCTIONS) <= set(sz.__all__)
    assert set(CLASSES) <= set(sz.__all__)
    for name in PRESETS:  # a variant of a class, or of an attack within a budget
        assert any(issubclass(type(sz.ATTACKS[name]), getattr(sz, kind)) for kind in [*CLASSES, "MinimumNorm"])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_a_class_and_a_name_give_the_same(function):
    name = FUNCTIONS[function]
    attack = sz.get(name, steps=3)
    result = attack.run(NET, X, Y, seed=3, **how(name))
    assert torch.equal(getattr(sz, function)(NET, X, Y, steps=3, seed=3, **how(name)), returned(result))
    assert result.success.any() or name in SLOW
    made = getattr(sz, type(attack).__name__)(steps=3)
    assert made == attack
    assert torch.equal(made(NET, X, Y, seed=3, **how(name)).x_adv, result.x_adv)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_declares_every_parameter_with_its_default_and_type(function):
    made, attack = getattr(sz, function), sz.ATTACKS[FUNCTIONS[function]]
    shown = inspect.signature(made).parameters
    own, run = attack.parameters(), inspect.signature(sz.Attack.run).parameters
    assert list(shown)[:4] == ["model", "inputs", "labels", "steps"]
    options = {name: each.default for name, each in run.items() if name not in ("self", "model", "x", "y")}
    assert {name: each.default for name, each in shown.items()} == (
        dict.fromkeys(["model", "inputs", "labels"], inspect.Parameter.empty) | own | options
    )
    hints = get_type_hints(type(attack))
    for name in own:
        if not isinstance(own[name], sz.Attack) and name != "surrogate":
            assert shown[name].annotation == hints[name], name


@pytest.mark.parametrize("function", FUNCTIONS)
def test_help_explains_every_parameter(function):
    text = inspect.getdoc(getattr(sz, function)) or ""
    assert text.splitlines()[0].endswith(".")
    assert max(map(len, text.splitlines())) <= 120
    for name in sz.ATTACKS[FUNCTIONS[function]].parameters():
        assert re.search(rf"^  {name} +\w", text, re.MULTILINE), name


def test_the_options_of_types_are_those_of_a_run():
    run = list(inspect.signature(sz.Attack.run).parameters)
    (options,) = get_args(inspect.signature(sz.Attack.__call__).parameters["options"].annotation)
    assert list(options.__annotations__) == run[4:]
    expected = "self model x y targeted bounds unit mask space budget seed batch_size progress"
    assert run == [*expected.split(), "margin", "start", "pool", "ids", "hardware"]


@pytest.mark.parametrize("name", sz.ATTACKS)
def test_names_in_any_spelling(name):
    for written in (name.replace("-", "_"), name.upper(), name.title().replace("-", ""), name.replace("-", " ")):
        assert sz.get(written) is not None
        assert sz.get(written) == sz.ATTACKS[name]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("sigma-zer0", "sigma-zero"), ("SigmaSwp", "sigma-swap"), ("fnm", "fmn"), ("spars_rs", "sparse-rs")],
)
def test_a_wrong_name_gets_the_right_one(wrong, meant):
    with pytest.raises(KeyError, match=rf"'{wrong}'.*did you mean .*{meant}"):
        sz.get(wrong)
    for letters, name in (("sigma_zer0", "sigma_zero"), ("SigmaZer0", "SigmaZero")):
        with pytest.raises(AttributeError, match=f"'{letters}'.*'{name}'"):
            getattr(sz, letters)


@pytest.mark.parametrize("kind", ["float32", "float64", "list", "rows", "batch of tensors"])
def test_arrays_and_lists(kind):
    x: Any = {
        "float32": X.numpy(),
        "float64": X.double().numpy(),
        "list": X.tolist(),
        "rows": list(X.numpy()),
        "batch of tensors": list(X),
    }[kind]
    expected = sz.SigmaZero(steps=20).run(NET, X, Y, mask=X[0] > 0.2)
    assert expected.success.any()
    result = sz.SigmaZero(steps=20).run(NET, x, Y.tolist(), mask=(X[0] > 0.2).numpy())
    assert torch.equal(result.x_adv, expected.x_adv)
    assert result.x_adv.dtype == torch.float32
    assert torch.equal(sz.sigma_zero(NET, x, Y.numpy(), 20, mask=(X[0] > 0.2).tolist()), returned(expected))


def test_whole_numbers_are_inputs_and_pictures_of_8_bits_are_asked_about():
    net = nn.Linear(4, 2).double().requires_grad_(False)
    x = [[0, 1, 1, 0], [1, 1, 0, 0]]
    result = sz.SigmaZero(steps=5).run(net, x, [0, 1])
    assert result.x_adv.dtype == torch.float64
    assert result.x is not None
    assert result.x.tolist() == x
    with pytest.raises(TypeError, match=r"uint8.*255"):
        sz.SigmaZero().run(NET, np.zeros((2, 3, 2, 2), np.uint8), [0, 0])
    for wrong in ({1: 2}, "abc", None):
        with pytest.raises(TypeError, match=type(wrong).__name__):
            sz.SigmaZero().run(NET, wrong, [0])
    with pytest.raises(ValueError, match="differ in length"):
        sz.SigmaZero().run(net, [[1, 0], [1]], [0, 0])


def test_starts_and_pools_may_be_arrays():
    start = sz.SigmaZero(steps=20)(NET, X, Y).x_adv
    one = sz.LabelSwap(steps=20).run(NET, X, Y, start=start)
    assert torch.equal(sz.LabelSwap(steps=20).run(NET, X, Y, start=start.numpy()).x_adv, one.x_adv)
    assert torch.equal(sz.refine(NET, X.numpy(), Y.numpy(), start.numpy(), 60), sz.refine(NET, X, Y, start, 60))
    with pytest.raises(ValueError, match=r"sigma-zero does not use start="):
        sz.SigmaZero().run(NET, X, Y, start=start)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"step": 3}, TypeError, "'step'.*'steps'"),
        ({"budgett": 3}, TypeError, "'budgett'.*'budget'"),
        ({"num_steps": 3, "steps": 3}, TypeError, "'steps' twice.*'num_steps'"),
        ({"norm": 2}, ValueError, "norm=2"),
        ({"steps": 0}, ValueError, "steps=0"),
        ({"grad_norm": -1}, ValueError, "grad_norm=-1"),
        ({"layout": "NHWC"}, TypeError, "'layout'"),
    ],
)
def test_wrong_options_of_a_function(options, error, words):
    with pytest.raises(error, match=words):
        sz.sigma_zero(NET, X, Y, **options)
    with pytest.raises(TypeError, match="labels"):
        sz.sigma_zero(NET, X)
    with pytest.raises(TypeError, match="got 8"):
        sz.sigma_zero(NET, X, Y, 3, 1.0, 0.001, 0.3, 0.01)


def test_calls_of_the_authors_and_of_adv_lib():
    expected = sz.sigma_zero(NET, X, Y, steps=20, step_size=0.5, smoothing=0.01, threshold=0.2, threshold_rate=0.02)
    assert sz.check(NET, X, Y, expected).success.all()
    authors = {"steps": 20, "lr": 0.5, "sigma": 0.01, "threshold": 0.2, "t": 0.02, "verbose": False}
    adv_lib = {"num_steps": 20, "η_0": 0.5, "σ": 0.01, "τ_0": 0.2, "τ_factor": 0.02, "targeted": False}
    for options in (
        {**authors, "epsilon_budget": None, "grad_norm": torch.inf},
        {**adv_lib, "grad_norm": float("inf")},
    ):
        assert torch.equal(sz.sigma_zero(NET, inputs=X, labels=Y, **options), expected)
    assert torch.equal(sz.sigma_zero(NET, X, Y, 20, 0.5, 0.01, 0.2, t=0.02), expected)


# Calls as one writes them for other libraries, with another import and another class name. Those that run leave `adv`.
RUN_AS_THEY_ARE = {
    "the authors": """
        from sigmazero import sigma_zero
        adv = sigma_zero(model=model, inputs=x, labels=y, steps=20, lr=1.0, sigma=1e-3, threshold=0.3, verbose=False,
                         epsilon_budget=None, grad_norm=torch.inf, t=0.01)
    """,
    "adv-lib": """
        from sigmazero import sigma_zero, fmn, pdpgd, vfga
        adv = sigma_zero(model=model, inputs=x, labels=y, num_steps=20, grad_norm=float("inf"))
        adv = fmn(model=model, inputs=x, labels=y, norm=0, targeted=False, steps=20, α_init=1.0, γ_init=0.05)
        adv = pdpgd(model=model, inputs=x, labels=y, norm=0, num_steps=20, random_init=0, primal_lr=0.1, dual_lr=0.1,
                    dual_ema=0.9, dual_min_ratio=1e-6, ε_threshold=1e-2)
        adv = vfga(model=model, inputs=x, labels=y, targeted=False, max_iter=None, n_samples=5)
    """,
    "AutoAttack": """
        from sigmazero import SparseAutoAttack as AutoAttack
        adversary = AutoAttack(model, norm="L0", eps=3, version="quick", device="cpu", verbose=False)
        adv = adversary.run_standard_evaluation(x, y, bs=250)
        each = adversary.run_standard_evaluation_individual(x, y, bs=250)
    """,
    "AttackBench": """
        from functools import partial
        from sigmazero import sigma_zero
        attack = partial(sigma_zero, num_steps=20)
        adv = attack(model=model, inputs=x, labels=y, targets=None, targeted=False)
    """,
}
# The others are told what to write.
REFUSED = {
    "foolbox": (
        """
        from sigmazero import FMN
        attack = FMN(steps=20)
        raw, clipped, is_adv = attack(model, x, y, epsilons=None)
    """,
        r"epsilons=.*budget=k",
    ),
    "torchattacks": (
        """
        from sigmazero import SparseFool
        attack = SparseFool(model, steps=10, overshoot=0.02)
        adv = attack(x, y)
    """,
        r"SparseFool\(steps=\.\.\.\)\(model, x, y\).*sigmazero\.adapters\.torchattacks",
    ),
    "ART": (
        """
        from sigmazero import Saliency
        attack = Saliency(classifier=model, theta=1.0)
        adv = attack.generate(x=x.numpy())
    """,
        r"classifier=.*\(model, x, y\).*sigmazero\.adapters\.art",
    ),
    "RobustBench": (
        """
        from sigmazero import SparseAutoAttack as AutoAttack
        adversary = AutoAttack(model, norm="L0", eps=3, version="custom", attacks_to_run=["apgd-ce", "apgd-dlr"])
        adv = adversary.run_standard_evaluation(x, y)
    """,
        r"'apgd-ce'",
    ),
}


def run_snippet(text: str, name: str) -> dict[str, Any]:
    names: dict[str, Any] = {"model": NET, "x": X, "y": Y, "torch": torch}
    exec(compile(inspect.cleandoc(text), name, "exec"), names)
    return names


@pytest.mark.parametrize("library", RUN_AS_THEY_ARE)
def test_code_for_another_library_runs_with_another_import(library):
    assert sz.check(NET, X, Y, run_snippet(RUN_AS_THEY_ARE[library], library)["adv"]).success.any()


@pytest.mark.parametrize("library", REFUSED)
def test_code_that_cannot_run_is_told_what_to_write(library):
    text, words = REFUSED[library]
    with pytest.raises((TypeError, KeyError), match=words):
        run_snippet(text, library)


def test_targets_of_attackbench_are_the_classes_to_reach():
    targets = (Y + 1) % 3
    expected = sz.sigma_zero(NET, X, targets, 20, targeted=True)
    assert torch.equal(sz.sigma_zero(model=NET, inputs=X, labels=Y, targets=targets, targeted=True, steps=20), expected)
    assert not torch.equal(expected, sz.sigma_zero(NET, X, Y, 20, targets=targets))


def test_wrong_names_of_parameters_are_told_the_right_ones():
    for name in ("model", "estimator"):
        with pytest.raises(TypeError, match=rf"{name}=.*\(model, x, y\)"):
            sz.FMN(**{name: NET})
    for wrong, right in (("lr", "'step_size'"), ("stps", "'steps'")):
        with pytest.raises(TypeError, match=f"'{wrong}'.*{right}"):
            sz.SigmaZero(**{wrong: 3})


def test_grad_norm_divides_by_that_norm():
    """One step of descent without momentum moves by the step size along the gradient of that length."""
    for p in (1, 2, 3.5, "inf"):
        moved: list[torch.Tensor] = []

        def model(x: torch.Tensor, seen: list[torch.Tensor] = moved) -> Any:
            seen.append(x.detach())
            return NET(x)

        attack = sz.SigmaZero(steps=2, grad_norm=p, optimizer="sgd", step_size=0.01, projection=False, l0_term=False)
        attack.run(model, X[:1], Y[:1], bounds=(-9, 9), hardware=sz.Hardware(prepare="none"))
        steps = [(one - X[:1]).flatten() for one in moved if not torch.equal(one, X[:1])]
        size = steps[0].norm(p=float(p)) / 18  # the search runs in a box scaled to [0, 1]
        assert size == pytest.approx(0.01, rel=1e-3)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_of_a_run_ends_full(monkeypatch):
    """Also where an input is wrong from the start, of which nothing is searched."""
    terminal, labels = Terminal(), Y.clone()
    labels[0] = (labels[0] + 1) % 3
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    sz.SigmaZero(steps=3).run(NET, X, labels, progress=True)
    assert "100%" in terminal.getvalue()
    sz.SigmaZero(steps=3).run(NET, X, Y)
    assert terminal.getvalue().count("100%") == 1


def test_import_loads_neither_torch_nor_numpy():
    code = "import sys, sigmazero; print([m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_reference_page_runs_and_lists_every_option(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    assert "sigma-zero" in capsys.readouterr().out
    rows = re.findall(r"^- (`.*)$", text, re.MULTILINE)
    options = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert options >= set(list(inspect.signature(sz.Attack.run).parameters)[4:])
    assert set(re.findall(r"`(?:sz\.)?(\w+)`", text)) >= {*FUNCTIONS, *CLASSES}


@pytest.mark.parametrize(
    ("section", "kind"), [("What a result says", sz.Result), ("Several attacks, several models", sz.Evaluation)]
)
def test_the_reference_page_names_methods_that_exist(section, kind):
    text = PAGE.read_text(encoding="utf-8").split(f"## {section}\n")[1].split("\n## ")[0]
    named = re.findall(r"`(?:result\.)?(\w+)\(\)`", text)
    assert named
    assert [name for name in named if not callable(getattr(kind, name, None))] == []


def test_the_signatures_of_type_checkers_are_current():
    assert signatures.STUB.read_text(encoding="utf-8") == signatures.stub(), "write: python -m scripts.signatures"
