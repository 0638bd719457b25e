"""Libraries that are not installed here, by stand-ins with their names and faces; the real ones were tried by hand."""

import json
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import sigmazero as sz

W = np.random.default_rng(2).normal(size=(6, 3)).astype(np.float32)
X = torch.rand(5, 6, generator=torch.Generator().manual_seed(0))


def from_library(module: str, called: str, /, **members: Any) -> Any:
    """A thing whose type says that it comes from a library."""
    return type(called, (), {"__module__": module, **members})()


class Session:
    """As ONNX Runtime has it, for a file that was made for two rows."""

    __module__ = "onnxruntime.capi.onnxruntime_inference_collection"

    def __init__(self, outputs=("label", "probabilities"), rows: Any = 2, kind="tensor(float)"):
        self.outputs, self.rows, self.kind = outputs, rows, kind
        self.calls: list[Any] = []
        self._model_path, self._model_bytes = None, b"the file"

    def get_inputs(self):
        return [SimpleNamespace(name="x", shape=[self.rows, 6], type=self.kind)]

    def get_outputs(self):
        return [SimpleNamespace(name=name) for name in self.outputs]

    def run(self, names, given):
        self.calls.append((names, given["x"].shape, given["x"].dtype))
        shares = torch.from_numpy(given["x"] @ W).softmax(1).tolist()
        return [[dict(enumerate(row)) for row in shares] if names == ["probabilities"] else np.array(shares)]


def test_a_session_of_onnx_runtime():
    session = Session()
    model = sz.wrap(session)
    assert torch.allclose(model(X).exp().float(), (X @ torch.from_numpy(W)).softmax(1), atol=1e-6)
    assert session.calls == [(["probabilities"], (2, 6), np.dtype(np.float32))] * 3  # the last one filled up
    assert "ONNX Runtime session, output 'probabilities', logarithms of its probabilities" in repr(model)
    assert "max_batch=2" in repr(model)
    other = Session(outputs=("out",), rows="n", kind="tensor(double)")
    assert sz.wrap(other)(X).shape == (5, 3)
    assert other.calls == [(["out"], (5, 6), np.dtype(np.float64))]
    assert sz.wrap(other).get_extra_state() == model.get_extra_state()


def booster(objective="multi:softprob", columns=3):
    def predict(self, data, output_margin):
        assert output_margin
        scores = data["rows"] @ W
        return scores if columns > 1 else scores[:, 0]

    return from_library(
        "xgboost.core",
        "Booster",
        feature_names=["a", "b"],
        save_config=lambda self: json.dumps({"learner": {"objective": {"name": objective}}}),
        save_raw=lambda self: bytearray(objective.encode()),
        predict=predict,
    )


def test_boosters_of_xgboost(monkeypatch):
    stand_in = SimpleNamespace(DMatrix=lambda rows, feature_names: {"rows": rows, "names": feature_names})
    monkeypatch.setitem(sys.modules, "xgboost", stand_in)
    scores = X.double() @ torch.from_numpy(W).double()
    assert torch.allclose(sz.wrap(booster())(X), scores)
    two = sz.wrap(booster("binary:logistic", columns=1))(X)
    assert torch.allclose(two, torch.stack([-scores[:, 0] / 2, scores[:, 0] / 2], 1))
    with pytest.raises(ValueError, match=r"the objective of this Booster is reg:squarederror, which names no classes"):
        sz.wrap(booster("reg:squarederror"))


def test_boosters_of_lightgbm():
    def predict(self, x, raw_score):
        return x @ W if raw_score else pytest.fail("it is asked for raw scores")

    model = from_library(
        "lightgbm.basic",
        "Booster",
        predict=predict,
        model_to_string=lambda self: "tree\nobjective=multiclass num_class:3\n",
    )
    wrapped = sz.wrap(model)
    assert torch.allclose(wrapped(X), X.double() @ torch.from_numpy(W).double())
    assert "Booster (multiclass)" in repr(wrapped)


def test_functions_of_jax(monkeypatch):
    """Its `vjp` gives the answer and the way back; arrays are NumPy's here."""

    def vjp(function, x):
        return function(x), lambda slope: ((slope @ W.T).astype(x.dtype),)

    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(vjp=vjp, numpy=SimpleNamespace(asarray=np.asarray)))
    compiled = from_library("jaxlib._jax", "PjitFunction", __call__=lambda self, x: x @ W)
    model = sz.wrap(compiled)
    assert model.ability == "gradients"
    _compare_with_torch(model)


def test_functions_of_tensorflow(monkeypatch):
    class GradientTape:
        def __init__(self, persistent):
            assert persistent  # several slopes may be asked for

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def watch(self, x):
            self.x = x

        def gradient(self, answer, x, output_gradients):
            assert x is self.x
            return output_gradients @ W.T

    stand_in = SimpleNamespace(convert_to_tensor=lambda x, dtype=None: np.asarray(x, dtype), GradientTape=GradientTape)
    monkeypatch.setitem(sys.modules, "tensorflow", stand_in)
    _compare_with_torch(sz.wrap(lambda x: x @ W, takes="tensorflow"))


def test_models_of_keras(monkeypatch):
    backend = SimpleNamespace(backend=lambda: "numpy")
    monkeypatch.setitem(sys.modules, "keras", SimpleNamespace(backend=backend))
    asked = []

    def call(self, x, training):
        assert not training
        asked.append(x.shape)
        return np.asarray(torch.from_numpy(x.reshape(len(x), -1) @ np.ones((12, 2), np.float32)).softmax(1))

    model = from_library(
        "keras.src.models.sequential",
        "Sequential",
        name="small",
        input_shape=(None, 2, 2, 3),
        get_weights=lambda self: [np.ones(3)],
        to_json=lambda self: "{}",
        __call__=call,
    )
    wrapped = sz.wrap(model)
    assert wrapped(torch.rand(4, 3, 2, 2)).shape == (4, 2)
    assert asked == [(4, 2, 2, 3)]
    assert "Keras model small (numpy), logarithms of its probabilities, ability='scores', takes NHWC" in repr(wrapped)


def test_a_table_for_an_estimator_that_was_fitted_with_one(monkeypatch):
    frames = []

    def frame(x, columns):
        frames.append(list(columns))
        return x

    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=frame))
    model = from_library(
        "sklearn.tree", "Tree", feature_names_in_=np.array(list("abcdef")), predict_proba=lambda self, x: x[:, :2]
    )
    assert sz.wrap(model)(X).shape == (5, 2)
    assert frames == [list("abcdef")]


def _compare_with_torch(model):
    own = torch.from_numpy(W)
    y = (X @ own).argmax(1)
    one = sz.get("sigma-zero", steps=15).run(lambda x: x @ own, X, y)
    other = sz.get("sigma-zero", steps=15).run(model, X, y)
    assert torch.equal(one.l0, other.l0)
    assert torch.equal(one.backwards, other.backwards)
    assert torch.allclose(one.x_adv, other.x_adv, atol=1e-5)
