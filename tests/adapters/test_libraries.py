"""Models of other libraries, by these libraries: a success is one for the user's own call."""

import importlib
import os
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sigmazero as sz

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _on_torch(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")


def library(name: str) -> Any:
    """Import a library; `make peers` installs it, elsewhere the test is skipped."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if os.environ.get("SIGMAZERO_PEERS"):
            raise
        pytest.skip(f"{error} (`make peers` runs this test)")


def noisy(classes: int = 3) -> tuple[Any, Any]:
    """Rows that no model learns well, so that early stopping stops early."""
    make = importlib.import_module("sklearn.datasets").make_classification
    x, y = make(600, 12, n_informative=4, n_classes=classes, flip_y=0.4, random_state=0)
    return x, y


def asked_as_by_the_user(model: Any, x: Any, predict: Any = None) -> None:
    """The answer of the wrapped model, and each success of an attack on it, is that of `predict`."""
    predict = predict or model.predict
    named = np.asarray(predict(x)).astype(int)
    assert (sz.wrap(model)(torch.from_numpy(x)).argmax(1).numpy() == named).all()
    rows, y = torch.from_numpy(x[:12]), torch.from_numpy(named[:12])
    result = sz.get("query-swap", steps=60).run(model, rows, y, bounds=(float(x.min()), float(x.max())))
    assert result.success.any()
    assert ((predict(result.x_adv.numpy()) != named[:12]) == result.success.numpy()).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_xgboost_that_stopped_early_or_has_another_missing_value(classes):
    kind = library("xgboost").XGBClassifier
    x, y = noisy(classes)
    stopped = kind(n_estimators=200, early_stopping_rounds=5, learning_rate=0.5, n_jobs=1)
    stopped.fit(x[:300], y[:300], eval_set=[(x[300:450], y[300:450])], verbose=False)
    assert stopped.best_iteration + 1 < stopped.get_booster().num_boosted_rounds()
    asked_as_by_the_user(stopped, x[450:])
    holes = np.where(np.abs(x) < 0.5, 0, x)
    asked_as_by_the_user(kind(n_estimators=20, missing=0.0, n_jobs=1).fit(holes, y), holes[450:])
    assert "XGBClassifier.margin, its scores" in repr(sz.wrap(stopped))


def test_boosters_and_other_boosted_trees():
    x, y = noisy()
    xgboost, lightgbm = library("xgboost"), library("lightgbm")
    own = xgboost.train({"objective": "multi:softprob", "num_class": 3}, xgboost.DMatrix(x[:300], y[:300]), 9)
    asked_as_by_the_user(own, x[450:], lambda rows: own.predict(xgboost.DMatrix(rows)).argmax(1))
    early = lightgbm.LGBMClassifier(n_estimators=200, learning_rate=0.5, verbose=-1, n_jobs=1)
    stop = lightgbm.early_stopping(5, verbose=False)
    early.fit(x[:300], y[:300], eval_set=[(x[300:450], y[300:450])], callbacks=[stop])
    assert early.best_iteration_ < 200
    asked_as_by_the_user(early, x[450:])
    asked_as_by_the_user(early.booster_, x[450:], lambda rows: early.booster_.predict(rows).argmax(1))
    with pytest.raises(ValueError, match="reg:squarederror"):
        sz.wrap(xgboost.train({}, xgboost.DMatrix(x, y), 2))
    with pytest.raises(ValueError, match="numbers, not classes"):
        sz.wrap(lightgbm.LGBMRegressor(n_estimators=2, verbose=-1).fit(x, y))


def test_boosted_trees_on_a_table_with_missing_values():
    pandas, xgboost = library("pandas"), library("xgboost")
    frame = pandas.DataFrame({name: RNG.random(80).round(2) for name in "abc"})
    frame.loc[::7, "b"] = np.nan
    frame["job"] = pandas.Categorical(RNG.choice(["clerk", "nurse"], 80))
    y = (frame["a"].to_numpy() > 0.5) ^ (frame["job"] == "nurse").to_numpy()
    inputs = frame.copy()
    model = xgboost.XGBClassifier(n_estimators=20, enable_categorical=True, n_jobs=1).fit(inputs, y.astype(int))
    table = sz.data.Table.from_frame(frame.assign(y=y.astype(int)), "y")
    rows, wrapped = table.rows(), sz.wrap(model, table=table)
    named = torch.from_numpy(model.predict(inputs))
    assert torch.equal(wrapped(rows.images).argmax(1), named)
    result = sz.get("query-swap", steps=60).run(wrapped, rows.images, named, space=rows.space)
    assert result.success.any()
    assert torch.equal(torch.from_numpy(model.predict(table.decode(result.x_adv))) != named, result.success)
    assert table.decode(result.x_adv)["b"].isna().equals(frame["b"].isna())  # a gap stays one unless it may go


def test_keras_with_channels_last():
    keras = library("keras")
    keras.utils.set_random_seed(0)
    layers = keras.layers
    conv = [layers.Input((8, 8, 3)), layers.Conv2D(6, 3, activation="relu"), layers.GlobalAveragePooling2D()]
    model = keras.Sequential([*conv, layers.Dense(4, activation="softmax")])
    flat = keras.Sequential([layers.Input((8, 6, 3)), layers.Flatten(), layers.Dense(4)])
    for network, shape in ((model, (8, 3, 8, 8)), (flat, (8, 3, 8, 6))):
        x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        y = torch.from_numpy(network.predict(x.permute(0, 2, 3, 1).numpy(), verbose=0).argmax(1))
        result = sz.get("sigma-zero", steps=60).run(network, x, y)
        after = network.predict(result.x_adv.permute(0, 2, 3, 1).numpy(), verbose=0).argmax(1)
        assert result.success.any()
        assert torch.equal(torch.from_numpy(after) != y, result.success)
        with pytest.raises(ValueError, match=r"permute\(0, 3, 1, 2\)"):
            sz.get("sigma-zero", steps=2).run(network, x.permute(0, 2, 3, 1).contiguous(), y)
    assert "takes channels last" in repr(sz.wrap(model))


class Attention(nn.Module):
    """A small transformer with a class token: shapes of its export name the number of rows in many places."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.zeros(1, 1, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.inner, self.head = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.patch(x).flatten(2).transpose(1, 2)
        z = self.inner(torch.cat([self.token.expand(len(z), -1, -1), z], 1))
        logits: torch.Tensor = self.head(z[:, 0])
        return logits


def convolutions() -> nn.Module:
    conv = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*conv, nn.Linear(8, 5))


@pytest.mark.parametrize("make", [convolutions, Attention])
@pytest.mark.parametrize("rows", [1, 2])
def test_default_exports_to_onnx(make, rows, tmp_path):
    """The weights lie beside the file, and it is made for the number of rows of the example."""
    library("onnxscript")
    torch.manual_seed(0)
    net, path = make().eval(), tmp_path / "net.onnx"
    torch.onnx.export(net, (torch.rand(rows, 3, 12, 12),), path, verbose=False)
    model, x = sz.models.load(path), torch.rand(7, 3, 12, 12)
    assert torch.allclose(model(x), net(x), atol=1e-5)
    assert sz.get("sigma-zero", steps=60).run(model, x, net(x).argmax(1)).success.any()
    assert (path.parent / "net.onnx.data").exists()


def test_a_session_of_onnx_runtime(tmp_path):
    library("onnxruntime"), library("onnxscript")
    torch.manual_seed(0)
    net, path, x = convolutions().eval(), tmp_path / "net.onnx", torch.rand(5, 3, 12, 12)
    torch.onnx.export(net, (x[:2],), path, verbose=False)
    model = sz.wrap(path, kind="onnxruntime")
    assert model.ability == "scores"
    assert torch.allclose(model(x), net(x), atol=1e-5)  # five rows of a file for two
    y = net(x).argmax(1)
    result = sz.get("query-swap", steps=80).run(model, x, y)
    assert torch.equal(net(result.x_adv).argmax(1) != y, result.success)
    assert sz.wrap(path, kind="onnxruntime").get_extra_state() == model.get_extra_state()


def test_the_photographs_of_foolbox():
    library("foolbox")
    rows = sz.data.load("imagenet-20")
    assert rows.images.shape == (20, 3, 224, 224)
    assert len(set(rows.labels.tolist())) > 10
    assert rows.labels.min() >= 0
    assert rows.labels.max() < 1000
    assert rows.images.std((1, 2, 3)).min() > 0.1
