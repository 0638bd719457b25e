"""What a run may not do to its caller, and what it says to bad input."""

from typing import Any

import pytest
import torch
from torch import nn

import sigmazero as sz
from tests.helpers.networks import linear_problem

QUICK = sz.get("sigma-zero", steps=5)


def question() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.Dropout(0.9), nn.Linear(8, 3)).eval()
    x = torch.rand(4, 2, 3)
    return model, x, model(x).argmax(1)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_works_without_gradients_around(context):
    model, x, y = question()
    wanted = QUICK.run(model, x, y)
    with context():
        inputs = x.clone()  # an inference tensor, inside inference mode
        result = QUICK.run(model, inputs, y.clone())
    assert torch.equal(result.x_adv, wanted.x_adv)


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "integer image": (lambda x, y: ((x * 255).to(torch.uint8), y, {}), TypeError, r"uint8.*255"),
    "half": (lambda x, y: (x.half(), y, {}), TypeError, "float16"),
    "not a tensor": (lambda x, y: ("x", y, {}), TypeError, "str"),
    "vector": (lambda x, y: (x[:, 0, 0], y, {}), ValueError, r"\(N, \.\.\.\)"),
    "nan": (lambda x, y: (x.masked_fill(x == x.max(), torch.nan), y, {}), ValueError, "NaN or Inf"),
    "outside": (lambda x, y: (x + 1, y, {}), ValueError, r"outside the bounds \[0, 1\]"),
    "label too large": (lambda x, y: (x, y + 3, {}), ValueError, "does not exist"),
    "negative label": (lambda x, y: (x, y - 3, {}), ValueError, "negative"),
    "float labels": (lambda x, y: (x, y.float(), {}), TypeError, "float32"),
    "one-hot labels": (lambda x, y: (x, torch.eye(3).long()[y], {}), ValueError, "one class index per input"),
    "labels too few": (lambda x, y: (x, y[:2], {}), ValueError, r"\(2,\), expected \(4,\)"),
    "bounds": (lambda x, y: (x, y, {"bounds": 1.0}), ValueError, "pair"),
    "bounds shape": (lambda x, y: (x, y, {"bounds": (torch.zeros(7), 1)}), ValueError, "lower bound of shape"),
    "bounds swapped": (lambda x, y: (x, y, {"bounds": (1, 0)}), ValueError, "swap"),
    "mask shape": (lambda x, y: (x, y, {"mask": torch.ones(5, dtype=torch.bool)}), ValueError, "mask of shape"),
    "mask dtype": (lambda x, y: (x, y, {"mask": torch.ones(2, 3)}), TypeError, "booleans"),
    "unit": (lambda x, y: (x, y, {"unit": "channel"}), ValueError, "'feature', 'pixel'"),
    "budget": (lambda x, y: (x, y, {"budget": -1}), ValueError, "budget=-1"),
    "fraction": (lambda x, y: (x, y, {"budget": 1.5}), ValueError, "budget=1.5"),
    "batch size": (lambda x, y: (x, y, {"batch_size": 0}), ValueError, "batch_size=0"),
    "ids": (lambda x, y: (x, y, {"ids": [1, 2]}), ValueError, "ids have shape"),
    "start": (lambda x, y: (x, y, {"start": x[:1]}), ValueError, "start has shape"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    model, x, y = question()
    change, error, message = BAD[case]
    x, y, options = change(x, y)
    with pytest.raises(error, match=message):
        (sz.get("swap-search", steps=5) if "start" in options else QUICK).run(model, x, y, **options)


MODELS: dict[str, tuple[Any, type[Exception], str]] = {
    "not a tensor": (lambda x: [1], TypeError, "list"),
    "flat output": (lambda x: x.sum((1, 2)), ValueError, r"\(4,\) for 4 inputs"),
    "one class": (lambda x: x.sum((1, 2))[:, None], ValueError, "gives='scores'"),
    "integer logits": (lambda x: (x[:, 0] * 9).long(), TypeError, "int64"),
    "nan logits": (lambda x: x[:, 0] * torch.nan, ValueError, "NaN or Inf"),
    "no gradient": (lambda x: x[:, 0].detach().clone(), TypeError, "no gradient"),
}


@pytest.mark.parametrize("case", MODELS)
def test_bad_models_are_named(case):
    model, error, message = MODELS[case]
    x = torch.rand(4, 2, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(error, match=message):
        QUICK.run(model, x, x[:, 0].argmax(1))


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [(1, MemoryError(), "one input at a time"), (4, RuntimeError("the model's own error"), "the model's own error")],
)
def test_no_room_for_a_single_input_is_said_and_other_errors_are_not_swallowed(rows, error, words):
    _, x, y = linear_problem((6,), rows)

    def broken(inputs):
        raise error

    with pytest.raises(type(error), match=words):
        QUICK.run(broken, x, y)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"precision": "fp8"}, "precision='fp8' is not one of 'fp32', 'tf32', 'bf16', or None"),
        ({"prepare": "fuse"}, "prepare='fuse' is not one of 'auto', 'none', 'fold', 'compile'"),
        ({"capture": "yes"}, "capture='yes' must be True or False, or None"),
    ],
)
def test_unknown_choices_of_the_hardware_are_named(choice, words):
    with pytest.raises(ValueError, match=words):
        sz.Hardware(**choice)


def made_under_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return nn.Linear(6, 3)


X = torch.rand(4, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("model", "x", "words"),
    [
        (nn.LazyLinear(3), X, "lazy layers .*; call it once on some inputs first"),
        (made_under_inference_mode(), X, "made under torch.inference_mode, .*; make it outside"),
        (nn.Linear(6, 3).to("meta"), X, "the model is on meta, the inputs are on cpu; move one of them"),
        (nn.Linear(6, 3), X.to("meta"), "inputs are on the meta device, which holds no values"),
    ],
    ids=["lazy", "inference", "meta", "meta inputs"],
)
def test_a_model_that_cannot_be_asked_is_refused_in_one_line(model, x, words):
    with pytest.raises(ValueError, match=f"^.*{words}[^\n]*$"):
        QUICK.run(model, x, torch.zeros(len(x), dtype=torch.int64))
