"""Estimators: scikit-learn and what is built like it, XGBoost and LightGBM.

None of these packages is imported here but by who hands in an object of theirs.
"""

import importlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigmazero.models.any import prints
from sigmazero.models.any.module import Recognised
from sigmazero.models.any.scores import Gives, one_hot

METHODS: dict[str, Gives] = {
    "decision_function": "scores",  # first: it does not saturate, and `predict` follows it
    "predict_proba": "probabilities",
    "predict": "labels",
}
VOTING = ("SVC", "NuSVC", "OneVsOneClassifier")


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
    if method == "decision_function" and _votes(model) and classes is not None and len(classes) > 2:
        own = ask

        def ask(x: Any) -> Any:
            return _following(own(x), model.predict(x), classes)

    return Recognised(
        what=f"{type(model).__name__}.{method}",
        ask=lambda x: ask(named(x)),
        print=lambda: f"{method} {prints.of_object(model)}",
        gives=METHODS[method],
        classes=classes,
        flat=True,
        rows=np.float64,
    )


def xgboost(model: Any) -> Recognised:
    """A classifier of XGBoost, or a Booster: asked for its margins, before the softmax."""
    if not hasattr(model, "get_booster"):
        return _booster(model, _xgboost_objective(model), _xgboost_margins(model), model.save_raw)
    _refuse_regression(model)
    booster = model.get_booster()
    kind = _booster(model, _xgboost_objective(booster), _xgboost_margins(booster), booster.save_raw)
    return Recognised(**vars(kind) | {"classes": _classes(model)})


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
    return Recognised(**vars(kind) | {"classes": _classes(model)})


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


def _votes(model: Any) -> bool:
    """Whether `predict` counts votes of pairs of classes, so that it does not always name the highest score."""
    inner = getattr(model, "best_estimator_", model)
    inner = inner.steps[-1][1] if hasattr(inner, "steps") else inner
    return type(inner).__name__ in VOTING


def _following(scores: Any, named: Any, classes: tuple[Any, ...]) -> Any:
    """Scores in which the class that `predict` names is the highest, if only by a hair."""
    scores = np.array(scores, dtype=np.float64)
    top, every = one_hot(named, classes).argmax(1), np.arange(len(scores))
    highest = scores.max(1)
    other = scores.argmax(1) != top
    scores[every[other], top[other]] = np.nextafter(highest[other], np.inf)
    return scores


def _refuse_regression(model: Any) -> None:
    if getattr(model, "_estimator_type", None) == "regressor" or type(model).__name__.endswith("Regressor"):
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
    return lambda x: frame(x, columns=names)
