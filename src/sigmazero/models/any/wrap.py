"""`sz.wrap`: any model as a callable from tensors to scores."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any, Literal, get_args

import torch
from torch import nn

from sigmazero.core.extras import require
from sigmazero.core.inputs import hint
from sigmazero.core.model import ABILITIES, Order
from sigmazero.core.oracle import Model
from sigmazero.data import Rows, Table
from sigmazero.data.table import is_table
from sigmazero.models.any import estimators, frameworks, recognise
from sigmazero.models.any.asking import Terms
from sigmazero.models.any.module import Recognised, WrappedModel
from sigmazero.models.any.scores import Gives
from sigmazero.models.any.torch_models import TorchFunction, black_box, normalisation, torch_model
from sigmazero.models.normalize import Statistics, parse_normalize

FUNCTIONS: dict[str, Callable[..., Recognised]] = {
    "numpy": frameworks.numpy,
    "jax": frameworks.jax,
    "tensorflow": frameworks.tensorflow,
}
OWNED: dict[str, Callable[..., Recognised]] = {
    "sklearn": estimators.sklearn,
    "xgboost": estimators.xgboost,
    "lightgbm": estimators.lightgbm,
    "onnxruntime": frameworks.onnx_session,
    "keras": frameworks.keras,
    "jax": frameworks.jax,
    "tensorflow": frameworks.tensorflow,
}


def wrap(
    model: Any,
    *,
    takes: str | None = None,
    gives: Gives | None = None,
    classes: int | Sequence[Any] | None = None,
    method: str | None = None,
    vjp: Callable[..., Any] | None = None,
    ability: str | None = None,
    normalize: str | Statistics | bool | None = None,
    processor: Any = None,
    channels: Literal["first", "last"] | None = None,
    table: Table | None = None,
    runtime: bool = False,
    max_batch: int | None = None,
    max_queries: int | None = None,
    rate: float | None = None,
    retries: int = 0,
    wait: float = 1.0,
    cache: bool = False,
    deterministic: bool = True,
) -> nn.Module:
    """A module that attacks can ask, of a model from anywhere; printed, it says what was understood.

    model        a network of torch, Hugging Face or timm; a NumPy, JAX or TensorFlow function; an estimator of
                 scikit-learn, XGBoost or LightGBM; a model of Keras; a session of ONNX Runtime; a name or a file as
                 `models.load` takes it
    takes        what a function takes, where its code does not tell: "numpy", "torch", "jax" or "tensorflow"
    gives        what it answers, where that cannot be told: "scores", "probabilities" or "labels"
    classes      how many classes, or their names in the order of the columns; needed where it answers with labels
    method       how an estimator is asked: "decision_function", "predict_proba" or "predict"
    vjp          for a NumPy function with gradients: vjp(x, slope) is the slope of the input
    ability      pretend that less can be had: "scores" or "labels"
    normalize    "MEAN,STD" in front of a network; False for none, where timm's configuration names one
    processor    a Hugging Face processor, whose normalisation goes in front
    channels     "last" for a model that takes images as (N, H, W, C); attacks and you give it (N, C, H, W)
    table        the `Table` whose rows are asked about: an estimator or pipeline gets them decoded, as a DataFrame
    runtime      ask an .onnx file through ONNX Runtime (scores) instead of converting it (gradients)
    max_batch    the most rows in one call
    max_queries  the most rows in all; then `OutOfQueries` ends a run, which keeps the rows that are done
    rate         the most calls a second
    retries      how often a failed call is made again, after `wait` seconds, then twice as many, and so on
    cache        answer rows that were asked before from memory; `queries` says how many
    deterministic  False for a model that may answer the same question differently

    >>> import numpy as np
    >>> wrap(lambda x: np.stack([x.sum(1), 1 - x.sum(1)], 1))
    WrappedModel(NumPy function <lambda>, its scores, ability='scores')
    """
    _check(takes=(takes, ("torch", *FUNCTIONS)), gives=(gives, get_args(Gives)), ability=(ability, ABILITIES))
    _check(channels=(channels, ("first", "last")))
    layout: Order | None = None if channels is None else "NHWC" if channels == "last" else "NCHW"
    terms = Terms(max_batch, max_queries, rate, retries, wait, cache)
    made = _found(model, takes, method, vjp, runtime) if table is None else _on_table(model, table, method)
    if isinstance(made, Recognised):
        kind = _told(_unscaled(made, normalize, processor), gives, classes, layout)
    else:
        network = _torch(made, normalize, processor, layout or "NCHW")
        if (terms, gives, deterministic) == (Terms(), None, True) and ability in (None, "gradients"):
            return network
        kind = _told(black_box(network, f"torch {_called(made)}", ability or "gradients"), gives, classes, None)
    return _foreign(kind, terms, ability, deterministic)


def understood(model: Any, device: str | torch.device = "cpu") -> Model:
    """Return a model as attacks take it: a name is loaded onto the device, one of another library is wrapped.

    Networks and functions of torch stay as they are. All that take a model take it through this function.
    """
    if isinstance(model, nn.Module) or hasattr(model, "ability"):
        return model  # type: ignore[no-any-return]
    if isinstance(model, str | os.PathLike):
        return _named(model, device)
    if recognise.owner(model) is not None:
        return wrap(model)
    if not callable(model):
        raise TypeError(f"the model is a {type(model).__name__}, which is none that sz.wrap knows, nor can be called")
    return wrap(model) if recognise.takes(model) in FUNCTIONS else model


def _found(
    model: Any, takes: str | None, method: str | None, vjp: Callable[..., Any] | None, runtime: bool
) -> Recognised | Model:
    """What a model is: a kind of another library's, or a network or function of torch."""
    if isinstance(model, str | os.PathLike):
        return _file(Path(model), runtime)
    if isinstance(model, MethodType) and model.__name__ in estimators.METHODS and takes is None:
        model, method = model.__self__, method or model.__name__  # forest.predict_proba: the forest, asked so
    owner = recognise.owner(model) if takes is None else None
    if method is not None and owner != "sklearn":
        raise ValueError(f"method={method!r} is for estimators, not for a {type(model).__name__}")
    if owner == "torch" or isinstance(model, nn.Module):
        return model  # type: ignore[no-any-return]
    if owner is not None:
        return OWNED[owner](model, method) if owner == "sklearn" else OWNED[owner](model)
    if not callable(model):
        raise TypeError(
            f"sz.wrap knows no {type(model).__name__}; wrap a function that asks it: sz.wrap(lambda x: ...)"
        )
    takes = takes or ("numpy" if vjp is not None else recognise.takes(model))
    if takes is None:
        raise ValueError('the function does not tell what it takes; say sz.wrap(model, takes="numpy") or takes="torch"')
    if takes == "torch":
        return model  # type: ignore[no-any-return]
    return FUNCTIONS[takes](model, vjp) if takes == "numpy" else FUNCTIONS[takes](model)


def _named(name: str | os.PathLike[str], device: str | torch.device = "cpu") -> nn.Module:
    from sigmazero.models.load import load  # which asks this module what a model is

    return load(name, device=device)


def on_table(model: Any, data: Any) -> tuple[Any, Any]:
    """A model and the data it is asked about: an estimator and a table as the two that fit each other.

    data   anything; a `Table`, its rows, or the name of its file makes a difference
    """
    if isinstance(model, nn.Module | str | os.PathLike) or not estimators.like_sklearn(model):
        return model, data
    table = data.table if isinstance(data, Rows) else Table.read(data) if _is_table(data) else data
    if not isinstance(table, Table):
        return model, data
    if isinstance(data, Rows):
        return wrap(model, table=table), data
    table = table.for_model(lambda frame: model.predict(estimators.as_fitted(model, frame)))
    return wrap(model, table=table), table


def _is_table(data: Any) -> bool:
    return isinstance(data, str | os.PathLike) and is_table(os.fspath(data))


def _on_table(model: Any, table: Table, method: str | None) -> Recognised | Model:
    """An estimator asked with rows of a table; a network or function of torch as it is, in its own number format."""
    inner = model.kind.model if isinstance(model, WrappedModel) else model
    if isinstance(inner, nn.Module) or not estimators.like_sklearn(inner):
        return _found(model, None, method, None, False)
    return estimators.on_table(inner, table, method)


def _file(path: Path, runtime: bool) -> Recognised | nn.Module:
    if not runtime:
        return _named(path)
    if path.suffix.lower() != ".onnx":
        raise ValueError(f"runtime=True asks .onnx files through ONNX Runtime, and {path} is none; leave it out")
    library = require("onnxruntime", "onnx", f"the ONNX file {path.name} asked through ONNX Runtime")
    return frameworks.onnx_session(library.InferenceSession(str(path), providers=["CPUExecutionProvider"]))


def _torch(model: Model, normalize: Any, processor: Any, order: Order) -> nn.Module:
    network = model if isinstance(model, nn.Module) else TorchFunction(model)
    if isinstance(normalize, str):
        normalize = parse_normalize(normalize)
    elif normalize is None:
        normalize = normalisation(network, processor)
    return torch_model(network, normalize or None, order)


def _told(
    kind: Recognised, gives: Gives | None, classes: int | Sequence[Any] | None, layout: Order | None
) -> Recognised:
    """What was understood, with what the user says of it."""
    named = tuple(range(classes)) if isinstance(classes, int) else None if classes is None else tuple(classes)
    told = replace(
        kind,
        gives=gives or kind.gives,
        classes=kind.classes if named is None else named,
        order=layout or kind.order,
    )
    if told.gives == "labels" and told.classes is None:
        raise ValueError(f"{kind.what} answers with labels: say how many classes there are, sz.wrap(model, classes=10)")
    return told


def _foreign(kind: Recognised, terms: Terms, ability: str | None, deterministic: bool) -> WrappedModel:
    if ability is not None and kind.gives != "labels":
        kind = _pretending(kind, ability)
    return WrappedModel(kind, terms, deterministic)


def _unscaled(kind: Recognised, normalize: Any, processor: Any) -> Recognised:
    if normalize or processor is not None:
        raise ValueError(f"{kind.what} is no network of torch: put the normalisation into it, or scale the inputs")
    return kind


def _called(model: Any) -> str:
    return str(getattr(model, "__name__", type(model).__name__))


def _pretending(kind: Recognised, ability: str) -> Recognised:
    """A model of which less is taken than could be had."""
    if ability == "gradients" and kind.with_pull is None:
        raise ValueError(f"{kind.what} has no gradients; leave ability out, or give a vjp")
    if ability == "labels":
        raise ValueError(
            f"{kind.what} answers with scores; for its labels alone say method='predict', or wrap a function"
        )
    return kind if ability == "gradients" else replace(kind, with_pull=None)


def _check(**given: tuple[Any, Sequence[str]]) -> None:
    for name, (value, allowed) in given.items():
        if value is not None and value not in allowed:
            raise ValueError(f"{name}={value!r} is not allowed; {hint(str(value), allowed)}")
