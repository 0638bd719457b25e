"""Functions and models of JAX, TensorFlow and Keras, with their gradients, and sessions of ONNX Runtime."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigmazero.models.any import prints
from sigmazero.models.any.bridge import Pull, WithPull
from sigmazero.models.any.module import Recognised

AnyFunction = Callable[..., Any]
_LOGITS, _PROBABILITIES = ("logits", "scores"), ("probabilities", "probability", "output_probability")


def numpy(function: AnyFunction, vjp: AnyFunction | None = None) -> Recognised:
    """A function from an array to an array; `vjp(x, slope)` is the slope of the input for one of the answer."""

    def with_pull(x: NDArray[Any]) -> tuple[NDArray[Any], Pull]:
        assert vjp is not None
        return np.asarray(function(x)), lambda slope: np.asarray(vjp(x, slope))

    return Recognised(
        what=f"NumPy function {_called(function)}",
        ask=function,
        print=lambda: prints.of_function(function),
        with_pull=None if vjp is None else with_pull,
    )


def jax(function: AnyFunction) -> Recognised:
    """A function of JAX, compiled or not."""
    library = importlib.import_module("jax")

    def with_pull(x: NDArray[Any]) -> tuple[NDArray[Any], Pull]:
        answer, back = library.vjp(function, library.numpy.asarray(x))
        return np.asarray(answer), lambda slope: np.asarray(back(library.numpy.asarray(slope, answer.dtype))[0])

    inner = getattr(function, "__wrapped__", function)
    return Recognised(
        what=f"JAX function {_called(function)}",
        ask=lambda x: function(library.numpy.asarray(x)),
        print=lambda: prints.of_function(inner),
        with_pull=with_pull,
    )


def tensorflow(function: AnyFunction) -> Recognised:
    """A function of TensorFlow, or a model of Keras that runs on it."""
    return Recognised(
        what=f"TensorFlow function {_called(function)}",
        ask=lambda x: np.asarray(function(_tf().convert_to_tensor(x))),
        print=lambda: prints.of_function(getattr(function, "python_function", function)),
        with_pull=_tape(function),
    )


def keras(model: Any) -> Recognised:
    """A model of Keras, whatever it computes with; its images have the channels last."""
    backend = str(importlib.import_module("keras").backend.backend())

    def ask(x: Any) -> Any:
        return model(x, training=False)

    with_pull = jax(ask).with_pull if backend == "jax" else _tape(ask) if backend == "tensorflow" else None
    weights = [np.asarray(value) for value in model.get_weights()]
    return Recognised(
        what=f"Keras model {model.name} ({backend})",
        ask=lambda x: np.asarray(ask(x)),
        print=lambda: f"{prints.of_object(weights)} {prints.of_bytes(model.to_json().encode())}",
        with_pull=with_pull,
        rows=np.float32,
        order="NHWC" if len(model.input_shape) > 3 else "NCHW",
    )


def onnx_session(session: Any) -> Recognised:
    """A session of ONNX Runtime, asked for the output that holds scores."""
    (given, *more), outputs = session.get_inputs(), [each.name for each in session.get_outputs()]
    if more:
        raise ValueError(f"the session has {1 + len(more)} inputs; wrap a function that fills in the others")
    wanted = next((name for name in outputs if name.lower() in (*_LOGITS, *_PROBABILITIES)), outputs[0])
    fixed = given.shape[0] if given.shape and isinstance(given.shape[0], int) else None

    def ask(x: NDArray[Any]) -> NDArray[Any]:
        # A session made for a certain number of rows takes no others: the last call is filled up.
        padded = x if fixed is None else np.concatenate([x, np.repeat(x[:1], fixed - len(x), 0)])
        (answer,) = session.run([wanted], {given.name: padded})
        return _columns(answer)[: len(x)]

    return Recognised(
        what=f"ONNX Runtime session, output {wanted!r}",
        ask=ask,
        print=lambda: prints.of_object(_file_of(session)),
        max_batch=fixed,
        gives="probabilities" if wanted.lower() in _PROBABILITIES else None,
        rows=np.float64 if given.type == "tensor(double)" else np.float32,
        flat=len(given.shape) == 2,
    )


def _columns(answer: Any) -> NDArray[Any]:
    """An answer as an array; converters of classifiers return a dictionary from class to probability for each row."""
    if isinstance(answer, list):
        names = sorted(answer[0])
        return np.array([[row[name] for name in names] for row in answer])
    return np.asarray(answer)


def _file_of(session: Any) -> Any:
    """What a session was made from, which it does not show otherwise."""
    path, content = getattr(session, "_model_path", None), getattr(session, "_model_bytes", None)
    if content is None and path:
        with open(path, "rb") as file:
            content = file.read()
    return content if content is not None else session


def _tf() -> Any:
    return importlib.import_module("tensorflow")


def _tape(function: AnyFunction) -> WithPull:
    def with_pull(x: NDArray[Any]) -> tuple[NDArray[Any], Pull]:
        point = _tf().convert_to_tensor(x)
        with _tf().GradientTape(persistent=True) as tape:
            tape.watch(point)
            answer = function(point)

        def pull(slope: NDArray[Any]) -> NDArray[Any]:
            back = tape.gradient(answer, point, output_gradients=_tf().convert_to_tensor(slope, answer.dtype))
            return np.asarray(back)

        return np.asarray(answer), pull

    return with_pull


def _called(function: AnyFunction) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
