from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import sigmazero as sz
from sigmazero.bench.evaluate import evaluate
from sigmazero.core.hardware import Hardware
from tests.helpers.networks import linear_problem


@pytest.mark.parametrize(
    ("values", "messages"),
    [
        (lambda x: (x - 0.5) / 0.25, r"they look normalised: .*sigmazero\.models\.Normalize"),
        (lambda x: (255 * x).round(), "they look like 8-bit pictures: divide them by 255"),
        (lambda x: 40 * x - 20, r"scale the inputs or pass bounds"),
        (lambda x: 1.5 * x, r"scale the inputs or pass bounds"),
    ],
)
def test_what_pictures_outside_the_box_are_is_suspected_aloud(values, messages):
    model, x, y = linear_problem((3, 4, 4), 4)
    with pytest.raises(ValueError, match=f"outside the bounds .*{messages}") as refused:
        sz.get("sigma-zero").run(model, values(x), y)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("given", ["pair", "set", "loader"])
def test_a_warning_points_at_the_line_of_the_user(given, tmp_path):
    model, x, y = linear_problem((6,), 4)
    whole = (255 * x).byte()
    pairs: list[Any] = list(zip(whole, y, strict=True))
    data = {"pair": (whole, y), "set": pairs, "loader": DataLoader(pairs, batch_size=2)}[given]
    with pytest.warns(UserWarning, match="divided by 255") as messages:
        evaluate(model, data, store=tmp_path / "s.db", steps=2)
    assert {each.filename for each in messages} == {__file__}


def test_a_loader_given_to_run_is_sent_here():
    model, x, y = linear_problem((6,), 4)
    with pytest.raises(TypeError, match=r"DataLoader.*sz\.evaluate"):
        sz.get("sigma-zero").run(model, DataLoader(TensorDataset(x, y)), y)


def test_wrong_values_are_named(tmp_path):
    model, x, y = linear_problem((6,), 4)
    path = tmp_path / "s.db"
    with pytest.raises(ValueError, match="fp32"):
        evaluate(model, (x, y), store=path, hardware=Hardware(precision="fp16"))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"target": True}, "target=True"),
        ({"double": True, "hardware": Hardware(precision="bf16")}, "double=True.*'bf16'"),
        ({"hardware": Hardware(capture=True)}, "capture=True"),
        ({"attacks": []}, "attacks="),
        ({"attacks": ()}, "attacks="),
    ]
    for options, messages in wrong:
        with pytest.raises(ValueError, match=messages):
            evaluate(model, (x, y), store=path, **options)
    with pytest.raises(TypeError, match="labels have dtype"):
        evaluate(model, (x, y + 0.7), store=path)
    with pytest.raises(TypeError, match=r"the model is a int, which is none that sz\.wrap knows"):
        evaluate(3, (x, y), store=path)
    with pytest.raises(FileNotFoundError, match=r"none\.npz"):
        evaluate(model, "none.npz", store=path)
    assert not path.exists()


def test_a_model_without_gradients_gets_an_attack_that_needs_none(tmp_path):
    model, x, y = linear_problem((6,), 4)
    black_box = sz.limit(model, ability="scores")
    done = evaluate(black_box, (x, y), store=tmp_path / "s.db", steps=30)
    assert [row["attack"] for row in done.records()] == ["query-swap"]
    label = sz.wrap(
        lambda rows: model(torch.from_numpy(rows)).argmax(1).numpy(), kind="numpy", gives="labels", classes=4
    )
    done = evaluate(label, (x, y), store=tmp_path / "t.db", steps=30)
    assert [row["attack"] for row in done.records()] == ["label-swap"]


def test_numbers_that_do_not_fit_are_named():
    model, x, y = torch.nn.Linear(6, 4), torch.rand(4, 6), torch.arange(4)
    with pytest.raises(TypeError, match=r"inputs are float64 and the model's weights float32; give x.float\(\)"):
        sz.get("sigma-zero", steps=3).run(model, x.double(), y)
