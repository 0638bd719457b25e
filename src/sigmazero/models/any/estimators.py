"""Estimators: scikit-learn and what is built like it, XGBoost and LightGBM.

None of these packages is imported here but by who hands in an object of theirs.
"""

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigmazero.core.messages import digest
from sigmazero.data import Table
from sigmazero.models.any import prints
from sigmazero.models.any.asking import ArrayRows
from sigmazero.models.any.module import Recognised
from sigmazero.models.any.scores import Gives, one_hot

METHODS: dict[str, Gives] = {
    "decision_function": "scores",  # first: it does not saturate, and `predict` follows it
    "predict_proba": "probabilities",
    "predict": "labels",
}
# Whose `predict` does not always name the class of the highest score: it counts votes of pairs of more than two
# classes, asks several estimators otherwise, or has a threshold of its own.
VOTING = ("SVC", "NuSVC", "OneVsOneClassifier")
DIFFERING = ("BaggingClassifier", "FixedThresholdClassifier", "TunedThresholdClassifierCV")


def like_sklearn(model: Any) -> bool:
    """Whether an object has what an estimator of scikit-learn has."""
    return not isinstance(model, type) and any(callable(getattr(model, name, None)) for name in METHODS)


def sklearn(model: Any, method: str | None = None) -> Recognised:
    """An estimator or a pipeline: asked by `decision_function`, else `predict_proba`, else `predict`."""
    method = method or _first_method(model)
    if method not in METHODS or not callable(getattr(model, method, None)):
        having = [name for name in METHODS if callable(getattr(model, name, None))]
        raise ValueError(
            f"method={method!r}: {type(model).__name__} can be asked by {', '.join(having) or 'nothing here'}"
        )
    _refuse_regression(model)
    named, classes = _names(model), _classes(model)
    ask: Callable[[Any], Any] = getattr(model, method)
    if method != "predict" and classes is not None and _differs(model, method, len(classes)):
        own, pairs = ask, getattr(_innermost(model), "decision_function_shape", None) == "ovo" and len(classes) > 2

        def ask(x: Any) -> Any:
            scores = np.array(own(x), dtype=np.float64)
            scores = _won(scores, len(classes)) if pairs and method == "decision_function" else scores
            return _following(scores, model.predict(x), classes)

    return Recognised(
        what=f"{type(model).__name__}.{method}",
        ask=lambda x: ask(named(x)),
        print=lambda: f"{method} {prints.of_object(model)}",
        gives=METHODS[method],
        classes=classes,
        flat=True,
        rows=np.float64,
        model=model,
    )


def as_fitted(model: Any, frame: Any) -> Any:
    """The columns of a DataFrame that a model was fitted on, in its order."""
    names = getattr(model, "feature_names_in_", None)
    return frame[list(names)] if names is not None and set(names) <= set(frame.columns) else frame


def on_table(model: Any, table: Table, method: str | None = None) -> Recognised:
    """An estimator or pipeline that was fitted on a DataFrame: asked with the decoded rows of a table.

    Its own methods are called, so its trees, thresholds and missing values are as in the user's own call. Scores are in
    the order of the table's classes.
    """
    method = method or _first_method(model)
    if method not in METHODS or not callable(getattr(model, method, None)):
        raise ValueError(f"method={method!r}: a {type(model).__name__} cannot be asked so about a table")
    _refuse_regression(model)
    known = _classes(model)
    order = list(range(len(table.classes))) if known is None else table.places(known)
    names = table.classes if known is None else tuple(known[k] for k in order)
    ask = getattr(model, method)
    follow = known is not None and _differs(model, method, len(names))
    compared = known is None or follow

    def answer(x: ArrayRows) -> Any:
        nonlocal compared, follow
        frame = as_fitted(model, table.decode(x, strict=False))
        if method == "predict":
            return ask(frame)
        found = np.array(ask(frame), dtype=np.float64)
        if found.ndim == 1:
            half = found / 2 if method == "decision_function" else found
            found = np.stack([-half if method == "decision_function" else 1 - half, half], 1)
        if found.shape[1] != len(order):
            raise ValueError(f"{type(model).__name__}.{method} gives {found.shape[1]} columns for {len(order)} classes")
        found = found[:, order]
        if not compared:  # on the first batch; from then on `predict` is followed where it names another class
            compared, follow = True, bool((one_hot(model.predict(frame), names).argmax(1) != found.argmax(1)).any())
        return _following(found, model.predict(frame), names) if follow else found

    schema = digest([column.to_json() for column in table.columns])
    return Recognised(
        what=f"{type(model).__name__}.{method} on {table.name}",
        ask=answer,
        print=lambda: f"{method} {prints.of_object(model)} {schema}",
        gives=METHODS[method],
        classes=names,
        flat=True,
        model=model,
    )


def xgboost(model: Any) -> Recognised:
    """A classifier of XGBoost, or a Booster: asked for its margins, before the softmax."""
    if not hasattr(model, "get_booster"):
        return _booster(model, _xgboost_objective(model), _xgboost_margins(model), model.save_raw)
    _refuse_regression(model)
    booster = model.get_booster()
    kind = _booster(model, _xgboost_objective(booster), _xgboost_margins(booster), booster.save_raw)
    return Recognised(**vars(kind) | {"classes": _classes(model), "model": model})


def lightgbm(model: Any) -> Recognised:
    """A classifier of LightGBM, or a Booster: asked for its raw scores."""
    booster = getattr(model, "booster_", None) if hasattr(model, "fit") else model
    if booster is None:
        raise ValueError(f"{type(model).__name__} is not fitted yet; call fit first")
    _refuse_regression(model)
    text = booster.model_to_string()
    objective = next((line for line in text.splitlines() if line.startswith("objective=")), "objective=unknown")
    kind = _booster(
        model,
        objective.partition("=")[2],
        lambda x: booster.predict(x, raw_score=True),
        lambda: text.encode(),
    )
    return Recognised(**vars(kind) | {"classes": _classes(model), "model": model})


def _booster(
    model: Any, objective: str, margins: Callable[[NDArray[Any]], Any], content: Callable[[], bytes | bytearray]
) -> Recognised:
    if not objective.startswith(("binary", "multi", "cross_entropy", "unknown")):
        raise ValueError(f"the objective of this {type(model).__name__} is {objective}, which names no classes")
    return Recognised(
        what=f"{type(model).__name__} ({objective.split()[0]})",
        ask=margins,
        print=lambda: prints.of_bytes(bytes(content())),
        gives="scores",
        flat=True,
        rows=np.float64,
    )


def _xgboost_objective(booster: Any) -> str:
    return str(json.loads(booster.save_config())["learner"]["objective"]["name"])


def _xgboost_margins(booster: Any) -> Callable[[NDArray[Any]], Any]:
    library = importlib.import_module("xgboost")  # which the object comes from
    return lambda x: booster.predict(library.DMatrix(x, feature_names=booster.feature_names), output_margin=True)


def _first_method(model: Any) -> str:
    found = next((name for name in METHODS if callable(getattr(model, name, None))), None)
    if found is None:
        raise ValueError(f"{type(model).__name__} has neither {', '.join(METHODS)}: is it fitted, and a classifier?")
    return found


def _innermost(model: Any) -> Any:
    """What answers in the end: the last step of a pipeline, the best of a search."""
    inner = getattr(model, "best_estimator_", model)
    inner = inner.steps[-1][1] if hasattr(inner, "steps") else inner
    return inner if inner is model else _innermost(inner)


def _differs(model: Any, method: str, classes: int) -> bool:
    """Whether `predict` does not always name the highest score; that of a user's subclass may do as it likes."""
    inner = _innermost(model)
    told, asked = _home(inner, "predict"), _home(inner, method)
    own = told is not asked and asked.__module__.startswith("sklearn.") and not told.__module__.startswith("sklearn.")
    return own or type(inner).__name__ in DIFFERING or (type(inner).__name__ in VOTING and classes > 2)


def _home(thing: Any, name: str) -> type:
    """The class that a method is written in."""
    return next((kind for kind in type(thing).__mro__ if name in vars(kind)), type(thing))


def _won(pairs: NDArray[np.float64], classes: int) -> NDArray[np.float64]:
    """How many of its pairs each class wins; how clearly, as less than half a pair."""
    wins, clear = np.zeros((2, len(pairs), classes))
    first, second = np.triu_indices(classes, 1)
    for one, other, score in zip(first, second, pairs.T, strict=True):
        wins[:, one] += score > 0
        wins[:, other] += score <= 0
        clear[:, one] += score
        clear[:, other] -= score
    return wins + clear / (2 + 2 * np.abs(clear))  # type: ignore[no-any-return]


def _following(scores: NDArray[np.float64], named: Any, classes: tuple[Any, ...]) -> Any:
    """Scores in which the class that `predict` names is the highest, if only by a hair."""
    scores = np.stack([-scores / 2, scores / 2], 1) if scores.ndim == 1 else scores
    top, every = one_hot(named, classes).argmax(1), np.arange(len(scores))
    highest = scores.max(1)
    other = scores.argmax(1) != top
    scores[every[other], top[other]] = np.nextafter(highest[other], np.inf)
    return scores


def _refuse_regression(model: Any) -> None:
    base = sys.modules.get("sklearn.base")
    known = base is not None and isinstance(model, base.BaseEstimator) and base.is_regressor(model)
    if known or type(model).__name__.endswith("Regressor"):
        raise ValueError(f"{type(model).__name__} predicts numbers, not classes; wrap a function that makes classes")


def _classes(model: Any) -> tuple[Any, ...] | None:
    found = getattr(model, "classes_", None)
    return None if found is None else tuple(np.asarray(found).tolist())


def _names(model: Any) -> Callable[[NDArray[Any]], Any]:
    """ArrayRows as the estimator was fitted with them: a table with named columns, or the array itself."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return lambda x: x
    frame = importlib.import_module("pandas").DataFrame  # as whoever fitted it had it

    def named(x: NDArray[Any]) -> Any:
        if x.shape[1] != len(names):
            raise ValueError(
                f"the {type(model).__name__} was fitted on {len(names)} columns ({', '.join(map(str, names[:5]))}, …) "
                f"and is asked with {x.shape[1]} features; say which table they are of: sz.wrap(model, table=table)"
            )
        return frame(x, columns=names)

    return named
