"""One class for each library whose models can be wrapped; a library is imported when an object of it is."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from sigmazero.core.messages import digest
from sigmazero.data import Table
from sigmazero.models.wrapping.base import Array, ArrayModel, Back, Gives
from sigmazero.models.wrapping.identity import hash_model, hash_object

# Estimators

METHODS: dict[str, Gives] = {
    "decision_function": "scores",  # first: it does not saturate, and `predict` follows it
    "predict_proba": "probabilities",
    "predict": "labels",
}
MARGIN = "margin"  # of boosted trees: scores before the softmax
# Estimators of scikit-learn whose `predict` counts votes, asks several estimators or has a threshold of its own: a
# first batch may agree by luck.
VOTING = [
    *("SVC", "NuSVC", "OneVsOneClassifier", "BaggingClassifier"),
    *("FixedThresholdClassifier", "TunedThresholdClassifierCV"),
]
KNOWN = ("sklearn", "xgboost", "lightgbm")


def is_estimator(model: Any) -> bool:
    """Tell whether an object has what an estimator of scikit-learn has."""
    return not isinstance(model, type) and any(callable(getattr(model, name, None)) for name in METHODS)


def as_fitted(model: Any, frame: Any) -> Any:
    """Return the columns of a DataFrame that a model was fitted on, in its order; numbers where it was an array."""
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        return frame[list(names)] if set(names) <= set(frame.columns) else frame
    numbers = all(kind.kind in "biuf" for kind in frame.dtypes)
    return frame.to_numpy() if numbers and getattr(model, "n_features_in_", None) == frame.shape[1] else frame


def innermost(model: Any) -> Any:
    """Return what answers in the end: the last step of a pipeline, the best of a search."""
    inner = getattr(model, "best_estimator_", model)
    inner = inner.steps[-1][1] if hasattr(inner, "steps") else inner
    return inner if inner is model else innermost(inner)


class SklearnModel(ArrayModel):
    """An estimator or pipeline: called by `decision_function`, else `predict_proba`, else `predict`.

    With a table it gets the decoded rows, as a DataFrame with the columns that it was fitted on, and its
    scores are in the order of the table's classes.
    """

    flat = True
    form = np.float64
    methods: ClassVar[dict[str, Gives]] = METHODS

    def __init__(
        self,
        model: Any,
        *,
        method: str | None = None,
        table: Table | None = None,
        gives: Gives | None = None,
        classes: Any = None,
    ) -> None:
        self.check(model)
        having = [name for name in self.methods if name == MARGIN or callable(getattr(model, name, None))]
        pairs = getattr(innermost(model), "decision_function_shape", None) == "ovo"  # one column for each pair
        usual = [name for name in having if not (pairs and name == "decision_function")]
        self.method = method or (usual or ["predict"])[0]
        if self.method not in having:
            names = ", ".join(having) or "none"
            raise ValueError(f"method={self.method!r}: {type(model).__name__} has {names}; is it a fitted classifier?")
        own = getattr(model, "classes_", None)
        classes = np.asarray(own).tolist() if classes is None and own is not None else classes
        self.table, self.order = table, None if table is None or classes is None else table.places(classes)
        if table is not None:
            classes = table.classes if self.order is None else [classes[k] for k in self.order]
        title = f"{type(model).__name__}.{self.method}" + (f" on {table.name}" if table else "")
        super().__init__(model, title=title, classes=classes, gives=gives or self.methods[self.method])
        self.way, inner = (self.method, table is None), innermost(model)
        if type(inner).__name__ in VOTING or not type(inner).__module__.startswith(KNOWN):
            self.decide(True)  # the class of somebody else may do in `predict` as it likes

    def check(self, model: Any) -> None:
        """Refuse what predicts numbers."""
        base = sys.modules.get("sklearn.base")
        known = base is not None and isinstance(model, base.BaseEstimator) and base.is_regressor(model)
        if known or type(model).__name__.endswith("Regressor"):
            raise ValueError(f"{type(model).__name__} predicts numbers, not classes; wrap a function of classes")

    def ask(self, rows: Any) -> Any:
        """Return the answer of the method, in the order of the table's classes."""
        answer = np.asarray(self.answer(rows))
        if self.order is None or self.gives == "labels":
            return answer
        if answer.ndim == 1:  # halves of a score, or a probability and the rest
            answer = np.stack([-answer, answer] if self.gives == "scores" else [1 - answer, answer], 1)
            answer = answer / 2 if self.gives == "scores" else answer
        return answer[:, self.order] if answer.shape[1] == len(self.order) else answer

    def answer(self, rows: Any) -> Any:
        """Return the answer of the method."""
        return getattr(self.model, self.method)(rows)

    def predicted(self, rows: Any) -> Any:
        """Return what `predict` returns."""
        return self.model.predict(rows)

    def rows(self, x: Array) -> Any:
        """Return the rows with the columns that the estimator was fitted on."""
        if self.table is not None:
            return as_fitted(self.model, self.table.decode(x))
        values, names = super().rows(x), getattr(self.model, "feature_names_in_", None)
        if names is None:
            return values
        if values.shape[1] != len(names):
            fitted = f"{type(self.model).__name__} was fitted on {len(names)} columns"
            raise ValueError(f"{fitted}, not {values.shape[1]}; name their table: sz.wrap(model, table=table)")
        return importlib.import_module("pandas").DataFrame(values, columns=names)

    def content(self) -> str:
        """Return the method, the object and the table's columns."""
        schema = "" if self.table is None else digest([repr(column) for column in self.table.columns])
        return f"{self.method} {hash_object(self.model)} {schema}"


class BoostedModel(SklearnModel):
    """A classifier of boosted trees, or a Booster: asked for margins by its own `predict`."""

    methods: ClassVar[dict[str, Gives]] = {MARGIN: "scores", **METHODS}
    margins: ClassVar[dict[str, bool]]  # the arguments with which `predict` returns them
    _objective: Any
    _predict: Any
    _trees: Any

    def answer(self, rows: Any) -> Any:
        """Return margins."""
        return super().answer(rows) if self.method != MARGIN else self._predict(rows, **self.margins)

    def predicted(self, rows: Any) -> Any:
        """Return what `predict` returns; a Booster gives probabilities, or classes."""
        return self._predict(rows) if self._is_classifier else _largest(self._predict(rows))

    def content(self) -> str:
        """Return the trees."""
        return super().content() if self._is_classifier else hash_object(self._trees())

    def check(self, model: Any) -> None:
        """Refuse what predicts numbers."""
        super().check(model)
        objective: str = self._objective(model)
        if not objective.startswith(("binary", "multi", "cross_entropy", "unknown")):
            raise ValueError(f"the objective of this {type(model).__name__} is {objective}, which names no classes")

    @property
    def _is_classifier(self) -> bool:
        return hasattr(self.model, "fit")


class XGBoostModel(BoostedModel):
    """A classifier or Booster of XGBoost."""

    margins: ClassVar[dict[str, bool]] = {"output_margin": True}

    def _objective(self, model: Any) -> str:
        booster = model.get_booster() if hasattr(model, "get_booster") else model
        return str(json.loads(booster.save_config())["learner"]["objective"]["name"])

    def _predict(self, rows: Any, **options: Any) -> Any:
        if not self._is_classifier:
            names = None if hasattr(rows, "columns") else self.model.feature_names
            rows = importlib.import_module("xgboost").DMatrix(rows, feature_names=names)
        return self.model.predict(rows, **options)

    def _trees(self) -> bytes:
        return bytes(self.model.save_raw())


class LightGBMModel(BoostedModel):
    """A classifier or Booster of LightGBM."""

    margins: ClassVar[dict[str, bool]] = {"raw_score": True}

    def _objective(self, model: Any) -> str:
        booster = getattr(model, "_Booster", None) if hasattr(model, "fit") else model
        if booster is None:
            raise ValueError(f"{type(model).__name__} is not fitted yet; call fit first")
        lines = booster.model_to_string().splitlines()
        return next((line.partition("=")[2] for line in lines if line.startswith("objective=")), "unknown")

    def _predict(self, rows: Any, **options: Any) -> Any:
        return self.model.predict(rows, **options)

    def _trees(self) -> Any:
        return self.model.model_to_string()


def _largest(answer: Any, half: float = 0.5) -> Array:
    """Return the classes that probabilities name; of one column those above one half are class 1."""
    values: Array = np.asarray(answer)
    if values.ndim == 2 and values.shape[1] > 1:
        return np.asarray(values.argmax(1))
    flat = values.reshape(-1)
    named = bool((flat == np.rint(flat)).all()) and bool((flat > 1).any())  # classes, as multi:softmax gives
    return flat.astype(int) if named else (flat > half).astype(int)


# Functions


def _through_jax(function: Callable[..., Any], x: Array) -> tuple[Any, Back]:
    library = importlib.import_module("jax")
    answer, back = library.vjp(function, library.numpy.asarray(x))
    return answer, lambda slope: back(library.numpy.asarray(slope, answer.dtype))[0]


def _through_tensorflow(function: Callable[..., Any], x: Array) -> tuple[Any, Back]:
    library = importlib.import_module("tensorflow")
    point = library.convert_to_tensor(x)
    with library.GradientTape(persistent=True) as tape:
        tape.watch(point)
        answer = function(point)

    def back(slope: Array) -> Any:
        return tape.gradient(answer, point, output_gradients=library.convert_to_tensor(slope, answer.dtype))

    return answer, back


def _through_torch(function: Callable[..., Any], x: Array) -> tuple[Any, Back]:
    with torch.enable_grad():
        point = torch.from_numpy(x).requires_grad_()
        answer = function(point)

    def back(slope: Array) -> Any:
        return torch.autograd.grad(answer, point, torch.from_numpy(slope).to(answer), retain_graph=True)[0].cpu()

    return answer.detach().cpu(), back


THROUGH = {"jax": _through_jax, "tensorflow": _through_tensorflow, "torch": _through_torch}


class FunctionModel(ArrayModel):
    """A function of another library's arrays."""

    library: ClassVar[str]
    inside: ClassVar[str] = "__wrapped__"  # where a compiled function keeps the one it was made of

    def __init__(self, model: Callable[..., Any], **options: Any) -> None:
        name = getattr(model, "__name__", type(model).__name__)
        super().__init__(model, title=f"{self.library} function {name}", **options)

    def array(self, x: Array) -> Any:
        """Return rows as the library's own array."""
        return x

    def ask(self, rows: Any) -> Any:
        """Call the function."""
        return np.asarray(self.model(self.array(rows)))

    def ask_with_gradients(self, x: Array) -> tuple[Any, Back]:
        """Call the function so that its own library differentiates."""
        return THROUGH[self.library.lower()](self.model, x)

    def content(self) -> str:
        """Return the hash of the code."""
        return hash_model(getattr(self.model, self.inside, self.model))


class NumpyModel(FunctionModel):
    """A function of NumPy arrays; `vjp(x, slope)` is the gradient of the input for one of the answer."""

    library = "NumPy"

    def __init__(self, model: Callable[..., Any], *, vjp: Callable[..., Any] | None = None, **options: Any) -> None:
        self.differentiable = vjp is not None
        super().__init__(model, **options)
        self._vjp: Any = (vjp,)

    def ask_with_gradients(self, x: Array) -> tuple[Any, Back]:
        """Call the function; its gradients are the user's."""
        return self.model(x), lambda slope: self._vjp[0](x, slope)


class JaxModel(FunctionModel):
    """A function of JAX, compiled or not."""

    library, differentiable = "JAX", True

    def array(self, x: Array) -> Any:
        """Return rows as an array of JAX."""
        return importlib.import_module("jax").numpy.asarray(x)


class TensorFlowModel(FunctionModel):
    """A function of TensorFlow."""

    library, inside, differentiable = "TensorFlow", "python_function", True

    def array(self, x: Array) -> Any:
        """Return rows as a tensor of TensorFlow."""
        return importlib.import_module("tensorflow").convert_to_tensor(x)


# Networks


class KerasModel(ArrayModel):
    """A model of Keras, whatever it computes with. Its images usually have the channels last."""

    form = np.float32

    def __init__(self, model: Any, *, channels: str | None = None, **options: Any) -> None:
        library = importlib.import_module("keras")
        self.backend = str(library.backend.backend())
        shape = getattr(model, "input_shape", None)
        self.shape = shape[1:] if isinstance(shape, tuple) else ()
        last = len(self.shape) > 2 and library.config.image_data_format() == "channels_last"
        channels = channels or ("last" if last else "first")
        self.differentiable = self.backend in THROUGH
        title = f"Keras model {model.name} ({self.backend})"
        super().__init__(model, title=title, channels=channels, **options)

    def ask(self, rows: Any) -> Any:
        """Call the model as it answers, not as it is trained."""
        answer = self._call(rows)
        return answer.detach().cpu() if isinstance(answer, torch.Tensor) else answer

    def predicted(self, rows: Any) -> Any:
        """Return the class of the highest answer of `predict`; of one column the half that the answer means."""
        return _largest(self.model.predict(rows, verbose=0), 0.5 if self.gives == "probabilities" else 0.0)

    def ask_with_gradients(self, x: Array) -> tuple[Any, Back]:
        """Call the model so that its own library differentiates."""
        return THROUGH[self.backend](self._call, x)

    def rows(self, x: Array) -> Any:
        """Refuse rows of another shape, which a model that flattens them would take."""
        wanted, given = self.shape, x.shape[1:]
        if len(wanted) == len(given) and any(a not in (None, b) for a, b in zip(wanted, given, strict=True)):
            raise ValueError(f"the Keras model takes rows of shape {wanted}, not {given}; give x.permute(0, 3, 1, 2)")
        return super().rows(x)

    def content(self) -> str:
        """Return the weights and the layers."""
        return f"{hash_object([np.asarray(value) for value in self.model.get_weights()])} {self.model.to_json()}"

    def _call(self, x: Any) -> Any:
        return self.model(x, training=False)


class OnnxRuntimeModel(ArrayModel):
    """A session of ONNX Runtime: asked for its output called logits, scores or probabilities, else for the first."""

    shares = ("probabilities", "probability", "output_probability")
    labels = ("label", "output_label")

    def __init__(self, model: Any, *, gives: Gives | None = None, **options: Any) -> None:
        (given, *more), outputs = model.get_inputs(), [each.name for each in model.get_outputs()]
        if more:
            raise ValueError(f"the session has {1 + len(more)} inputs; wrap a function that fills in the others")
        known = ("logits", "scores", *self.shares)
        self.wanted = next((name for name in outputs if name.lower() in known), outputs[0])
        self.label = next((name for name in outputs if name.lower() in self.labels and name != self.wanted), None)
        self.given, rows = given.name, given.shape[0] if given.shape else None
        gives = gives or ("probabilities" if self.wanted.lower() in self.shares else None)
        super().__init__(model, title=f"ONNX Runtime session, output {self.wanted!r}", gives=gives, **options)
        self.at_once = rows if isinstance(rows, int) else None
        self.form, self.flat = np.float64 if given.type == "tensor(double)" else np.float32, len(given.shape) == 2
        self._follows = None if self.label else False

    def ask(self, rows: Any) -> Any:
        """Run the session; converted classifiers return a dictionary from class to probability for each row."""
        (answer,) = self.model.run([self.wanted], {self.given: rows})
        if not isinstance(answer, list):
            return answer
        names = sorted(answer[0])
        self.classes = self.classes or tuple(names)
        return np.array([[row[name] for name in names] for row in answer])

    def predicted(self, rows: Any) -> Any:
        """Return the labels that the session gives beside its scores."""
        return self.model.run([self.label], {self.given: rows})[0]

    def content(self) -> str:
        """Return what the session was made from."""
        path, held = getattr(self.model, "_model_path", None), getattr(self.model, "_model_bytes", None)
        held = Path(path).read_bytes() if held is None and path else held
        return hash_object(self.model if held is None else held)


KINDS: dict[str, type[ArrayModel]] = {
    "sklearn": SklearnModel,
    "xgboost": XGBoostModel,
    "lightgbm": LightGBMModel,
    "keras": KerasModel,
    "onnxruntime": OnnxRuntimeModel,
    "jax": JaxModel,
    "tensorflow": TensorFlowModel,
    "numpy": NumpyModel,
}
