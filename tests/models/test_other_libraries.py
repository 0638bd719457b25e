"""Libraries that are large, by stand-ins with their names and faces; tests/adapters asks models of the smaller ones."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import sigmazero as sz

W = np.random.default_rng(2).normal(size=(6, 3)).astype(np.float32)
X = torch.rand(5, 6, generator=torch.Generator().manual_seed(0))


def from_library(module: str, called: str, /, **members: Any) -> Any:
    """A thing whose type says that it comes from a library."""
    return type(called, (), {"__module__": module, **members})()


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
    _compare_with_torch(sz.wrap(lambda x: x @ W, kind="tensorflow"))


def _compare_with_torch(model):
    own = torch.from_numpy(W)
    y = (X @ own).argmax(1)
    one = sz.get("sigma-zero", steps=15).run(lambda x: x @ own, X, y)
    other = sz.get("sigma-zero", steps=15).run(model, X, y)
    assert torch.equal(one.l0, other.l0)
    assert torch.equal(one.backwards, other.backwards)
    assert torch.allclose(one.x_adv, other.x_adv, atol=1e-5)
