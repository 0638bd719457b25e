"""`sz.wrap`: make a model of any library one that attacks can call; the package of its type decides how."""

import inspect
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import nn

from sigmazero.core.extras import require
from sigmazero.core.inputs import hint
from sigmazero.core.messages import describe
from sigmazero.core.oracle import Model
from sigmazero.data import Rows, Table
from sigmazero.data.rows import class_places
from sigmazero.data.table import date_shares, is_table, notes_of
from sigmazero.models.normalize import Statistics, parse_normalize
from sigmazero.models.wrapping.base import Gives
from sigmazero.models.wrapping.libraries import KINDS, METHODS, SklearnModel, as_fitted, is_estimator
from sigmazero.models.wrapping.torch_models import exported, published_normalisation, torch_model

Kind = Literal["torch", "numpy", "jax", "tensorflow", "sklearn", "xgboost", "lightgbm", "keras", "onnxruntime"]
OPTIONS = {"kind": get_args(Kind), "gives": get_args(Gives), "channels": ("first", "last")}
# What a function takes, by how the annotation of its first parameter begins or ends.
ANNOTATIONS = {"ndarray": "numpy", "NDArray": "numpy", "Tensor": "torch", "jax": "jax", "tensorflow": "tensorflow"}


def wrap(
    model: Any,
    *,
    kind: Kind | None = None,
    gives: Gives | None = None,
    classes: int | Sequence[Any] | None = None,
    method: str | None = None,
    vjp: Callable[..., Any] | None = None,
    table: Table | None = None,
    normalize: str | Statistics | bool | None = None,
    channels: Literal["first", "last"] | None = None,
) -> nn.Module:
    """Return a module that attacks can call, made of a model from anywhere; printed, it says how the model is called.

    model      a network of torch, Hugging Face, timm or Keras; an estimator or pipeline of scikit-learn, XGBoost or
               LightGBM; a function; a session of ONNX Runtime; a name or a file as `models.load` takes it
    kind       how it is called, where its type does not tell: "numpy", "torch", "jax" or "tensorflow" for a function;
               "onnxruntime" for an .onnx file, which then has no gradients
    gives      what it answers, where that is not clear: "scores", "probabilities" or "labels"
    classes    how many classes, or their names in the order of the columns; needed where it answers with labels
    method     of an estimator: "decision_function", "predict_proba" or "predict"
    vjp        for a NumPy function with gradients: vjp(x, slope) is the gradient of the input
    table      the `Table` whose rows are asked about: an estimator gets them decoded, as a DataFrame
    normalize  (mean, std) or "MEAN,STD", put in front of a network; False for none where timm publishes one
    channels   "last" for a model that takes images as (N, H, W, C); attacks and you give it (N, C, H, W)

    >>> wrap(lambda x: np.stack([x.sum(1), 1 - x.sum(1)], 1), kind="numpy")
    NumpyModel(NumPy function <lambda>, its scores, ability='scores')
    """
    _check(kind=kind, gives=gives, channels=channels)
    if isinstance(model, str | os.PathLike):
        model = _session(Path(model)) if kind == "onnxruntime" else _loaded(model)
    elif isinstance(model, torch.export.ExportedProgram):
        model = exported(model)
    if isinstance(model, MethodType) and model.__name__ in METHODS and kind is None:
        model, method = model.__self__, method or model.__name__  # forest.predict_proba: the forest, by this method
    if isinstance(model, SklearnModel):
        model = model.model
    found = kind or ("numpy" if vjp is not None else owner(model) or annotated(model)) or "torch"
    given: dict[str, Any] = {"method": method, "vjp": vjp, "table": table}
    if found == "torch":
        if wrong := [name for name, value in given.items() if value is not None]:
            raise ValueError(f"{wrong[0]}= is not for a {type(model).__name__}; leave it out")
        if not callable(model):
            raise TypeError(f"sz.wrap knows no {type(model).__name__}; wrap a function that calls it")
        return torch_model(model, _statistics(model, normalize), channels, gives)
    if normalize:
        raise ValueError(f"a {type(model).__name__} is no network of torch: put the normalisation into it")
    names = range(classes) if isinstance(classes, int) else classes
    given |= {"gives": gives, "classes": names, "channels": channels}
    return KINDS[found](model, **{name: value for name, value in given.items() if value is not None})


def _check(**given: str | None) -> None:
    for name, value in given.items():
        if value is not None and value not in OPTIONS[name]:
            raise ValueError(f"{name}={value!r} is not allowed; {hint(str(value), OPTIONS[name])}")


def understood(model: Any, device: str | torch.device = "cpu") -> Model:
    """Return a model as attacks take it: a name is loaded onto the device, one of another library is wrapped.

    Networks and functions of torch stay as they are. All that take a model take it through this function.
    """
    if isinstance(model, str | os.PathLike):
        return _loaded(model, device)
    if hasattr(model, "ability"):
        return model  # type: ignore[no-any-return]
    found = owner(model)
    if found not in (None, "torch") or isinstance(model, torch.export.ExportedProgram):
        return wrap(model)
    if not callable(model):
        raise TypeError(f"the model is a {type(model).__name__}, which is none that sz.wrap knows, nor can be called")
    return model if found or annotated(model) in (None, "torch") else wrap(model)


def owner(model: Any) -> str | None:
    """Return the library that a model's type comes from; "sklearn" for what is built like an estimator."""
    packages = [kind.__module__.partition(".")[0].replace("jaxlib", "jax") for kind in type(model).__mro__]
    found = next((name for name in packages if name in KINDS and name != "numpy"), None)
    if found is None and isinstance(model, nn.Module):
        return "torch"
    return "sklearn" if found is None and is_estimator(model) and not callable(model) else found


def annotated(function: Any) -> str | None:
    """Return the kind of arrays that a function takes, by its first annotation; None where it has none."""
    call = function if inspect.isroutine(function) else getattr(function, "func", type(function).__call__)
    notes = {k: v for k, v in getattr(inspect.unwrap(call), "__annotations__", {}).items() if k != "return"}
    first = next(iter(notes.values()), "")
    text = (
        first if isinstance(first, str) else f"{getattr(first, '__module__', '')}.{getattr(first, '__name__', first)}"
    )
    text = text.partition("[")[0]
    return next((kind for word, kind in ANNOTATIONS.items() if text.startswith(word) or text.endswith(word)), None)


def for_data(model: Any, data: Any) -> tuple[Any, Any]:
    """Return a model and its data; an estimator and a table are fitted to each other.

    data  anything; a `Table`, its rows, or the name of its file makes a difference
    """
    inner = _estimator(model)
    if inner is None:
        return model, data
    is_file = isinstance(data, str | os.PathLike) and is_table(os.fspath(data))
    table = data.table if isinstance(data, Rows) else Table.read(data) if is_file else data
    if not isinstance(table, Table):
        return model, data
    if isinstance(data, Rows):
        return wrap(inner, table=table), data
    wrapped = wrap(inner, table=table)
    if _takes_gaps(wrapped, table):
        return wrapped, table
    table = table.without_missing()
    return wrap(inner, table=table), table


def on_table(model: nn.Module, path: str | Path) -> nn.Module:
    """Return an estimator wrapped for the rows of a table file; any other model as it is."""
    inner = _estimator(model)
    if inner is None:
        return model
    table = Table.read(path)
    wrapped = wrap(inner, table=table)
    if not _takes_gaps(wrapped, table):
        notes = notes_of(Path(path)).name
        raise ValueError(f"{path} has missing values, which its model refuses; write keep_missing = false in {notes}")
    return wrapped


def _takes_gaps(model: nn.Module, table: Table) -> bool:
    """Tell whether an estimator takes the missing values of a table; raise the error of one that takes no row of it."""
    gaps = table.frame.isna().any(axis=1).to_numpy()
    errors = [_refusal(model, table.frame.loc[some].head(8)) for some in (gaps, ~gaps) if some.any()]
    error = errors[-1]  # of rows without missing values, where there are some
    if error is None:
        return errors[0] is None
    dates = json.dumps(list(date_shares(table.frame)) or ["COLUMN"], ensure_ascii=False)
    raise ValueError(
        f"{table.name}: the model fails on its rows ({describe(error)}); it gets the columns as the table has them: "
        f"where it takes dates, write [read] parse_dates = {dates} in the notes of the CSV file"
    ) from error


def _refusal(model: nn.Module, rows: Any) -> Exception | None:
    """Return the error of an estimator that is asked about rows of a table; None where it answers."""
    try:
        if isinstance(model, SklearnModel):
            model.answer(as_fitted(model.model, rows))
    except Exception as error:  # steps of a pipeline are anybody's code
        return error
    return None


def _estimator(model: Any) -> Any:
    """Return the estimator in a model that was not yet fitted to a table; None for any other model."""
    inner = model.model if isinstance(model, SklearnModel) and model.table is None else model
    return inner if not isinstance(inner, nn.Module | str | os.PathLike) and is_estimator(inner) else None


def by_names(rows: Rows, model: Any) -> Rows:
    """Number the labels as a model does, or a list of its classes, where both name their classes.

    >>> rows = Rows(torch.zeros(2, 1), torch.tensor([0, 1]), torch.arange(2), "pets", classes=("cat", "dog"))
    >>> by_names(rows, ["dog", "cat"]).labels
    tensor([1, 0])
    """
    names = getattr(model, "classes", None) if isinstance(model, nn.Module) else model
    if rows.classes is None or not isinstance(names, list | tuple) or tuple(map(str, names)) == rows.classes:
        return rows
    places = class_places(names, rows.classes)
    if places is None:
        return rows
    labels = torch.tensor(places, dtype=torch.int64, device=rows.labels.device)[rows.labels]
    return replace(rows, labels=labels, classes=tuple(map(str, names)))


def _loaded(name: str | os.PathLike[str], device: str | torch.device = "cpu") -> nn.Module:
    from sigmazero.models.load import load  # which asks this module what a model is

    return load(name, device=device)


def _session(path: Path) -> Any:
    library = require("onnxruntime", "onnx", f"the ONNX file {path.name} asked through ONNX Runtime")
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    return library.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def _statistics(model: Any, normalize: Any) -> Statistics | None:
    if normalize is None or normalize is False:
        return published_normalisation(model) if normalize is None and isinstance(model, nn.Module) else None
    if isinstance(normalize, str):
        return parse_normalize(normalize)
    mean, std = (tuple(np.atleast_1d(np.asarray(part, float)).tolist()) for part in normalize)
    return mean, std
