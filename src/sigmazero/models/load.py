"""Load a model by name or file: known ones, those of other libraries, Python code, programs, ONNX files, pickles."""

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sigmazero.core.extras import MissingExtra, require
from sigmazero.core.inputs import hint
from sigmazero.core.messages import one_line
from sigmazero.core.oracle import Model
from sigmazero.models import weights as files
from sigmazero.models import zoo
from sigmazero.models.normalize import Normalize, Statistics, parse_normalize
from sigmazero.models.onnx import load_onnx
from sigmazero.models.wrapping.choose import owner, understood
from sigmazero.models.wrapping.torch_models import TorchFunction, exported, published_normalisation

PICKLES = (".joblib", ".pkl", ".pickle", ".keras")  # loading one may run code


def is_pickle(name: str) -> bool:
    """Tell whether a name is that of a pickle or a saved Keras model, by its ending."""
    return name.lower().endswith(PICKLES)


KINDS = (
    "a model is a name (M1, C5, robustbench:Carmon2019Unlabeled, torchvision:resnet50, timm:vit_tiny_patch16_224), "
    "file.py:build, package.module:build, an exported program (.pt2), an ONNX file (.onnx), a pickle (.joblib, .pkl) "
    "or a Keras model (.keras)"
)


def load(
    spec: str | os.PathLike[str] | nn.Module | Model,
    *,
    weights: str | os.PathLike[str] | None = None,
    model_dir: str | os.PathLike[str] | None = None,
    normalize: str | Statistics | None = None,
    device: str | torch.device = "cpu",
    trust_code: bool = False,
) -> nn.Module:
    """Load a model, in evaluation mode, that maps inputs in [0, 1] to logits.

    ``spec`` is one of

    - the name of a known model: its code ("M1") or its RobustBench name ("Carmon2019Unlabeled")
    - "robustbench:NAME", "robustbench:DATASET/NAME" or "robustbench:DATASET/THREAT/NAME" (by default cifar10, Linf)
    - "torchvision:NAME" and "timm:NAME", with the weights and the normalisation that these libraries publish
    - "path/to/file.py:build" or "package.module:build": a function without arguments that returns a model, or a model
    - a program of ``torch.export`` (.pt2), an ONNX file (.onnx), a pickled estimator (.joblib, .pkl), a Keras model
    - a module or another model itself

    ``weights`` is a state dict for it. ``normalize`` ("0.5,0.25", see `parse_normalize`) goes in front of networks that
    expect normalised inputs; named models bring both.

    State dicts and ONNX files never run code. A code file does, and so may an exported program. A pickle or a Keras
    model runs what its maker put into it, so it needs ``trust_code=True``.
    """
    if not isinstance(spec, str | os.PathLike):
        return _finished(_module(spec, repr(spec)), weights, normalize).to(device).eval()
    name = os.fspath(spec)
    entry, (library, _, inner) = zoo.find(name), name.partition(":")
    if entry:
        model = _known(entry, weights, model_dir, normalize)
    elif library in LIBRARIES and inner:
        if library == "robustbench" and (weights is not None or normalize is not None):
            raise ValueError(f"{name} brings its own weights and normalisation: leave yours out")
        made, published = LIBRARIES[library](inner, weights is None, model_dir)
        model = _finished(made, weights, published if normalize is None else normalize)
    else:
        model = _finished(_other(name, device, trust_code), weights, normalize)
    return model.requires_grad_(False).to(device).eval()  # attacks differentiate inputs only


def _known(entry: zoo.ZooEntry, weights: Any, model_dir: Any, normalize: Any) -> nn.Module:
    if normalize is not None:
        raise ValueError(f"{entry.code} brings its own normalisation: leave normalize={normalize!r} out")
    if weights is None:
        files.locate(entry, model_dir)  # a missing file is reported before a large network is built
    with torch.device("cpu"):  # whatever torch's default device is; `load` moves it afterwards
        network = entry.build()
        files.fill(network, entry, weights, model_dir)
        return entry.normalized(network)


def _finished(model: nn.Module, weights: Any, normalize: str | Statistics | None) -> nn.Module:
    """Fill a model with weights, and put its normalisation in front."""
    if weights is not None:
        if isinstance(model, TorchFunction):
            raise ValueError(f"weights={os.fspath(weights)!r} need a torch module to go into, not {model}")
        files.fill(model, path=weights)
    if normalize is None:
        return model
    mean, std = parse_normalize(normalize) if isinstance(normalize, str) else normalize
    with torch.device("cpu"):
        return nn.Sequential(Normalize(mean, std), model)


def _module(model: Any, name: str) -> nn.Module:
    found = understood(model)
    return found if isinstance(found, nn.Module) else TorchFunction(found, name)


# Other libraries: each returns a network and the normalisation that it is published with


def _robustbench(name: str, pretrained: bool, model_dir: Any) -> tuple[nn.Module, Statistics | None]:
    *place, last = name.split("/")
    if len(place) > 2:
        raise ValueError(f"robustbench:{name} is no name of RobustBench: write robustbench:cifar10/Linf/NAME")
    library = require("robustbench.utils", "robustbench", f"the model 'robustbench:{name}'")
    dataset, threat = [*place, *("cifar10", "Linf")[len(place) :]]
    folder = {} if model_dir is None else {"model_dir": os.fspath(model_dir)}
    try:
        return library.load_model(last, dataset=dataset, threat_model=threat, **folder), None
    except KeyError as error:
        raise zoo.UnknownModel(f"RobustBench has no {last!r} for {dataset}/{threat}: DATASET/THREAT/NAME") from error


def _torchvision(name: str, pretrained: bool, model_dir: Any) -> tuple[nn.Module, Statistics | None]:
    try:
        library = importlib.import_module("torchvision.models")
    except Exception as error:  # a broken installation fails in many ways besides ImportError
        raise MissingExtra(f"torchvision:{name}: {one_line(error)}; pip install torchvision") from error
    if name not in (known := library.list_models(module=library)):
        raise zoo.UnknownModel(f"torchvision has no classifier {name!r}; {hint(name, known)}")
    published = library.get_model_weights(name).DEFAULT
    scale = published.transforms()
    return library.get_model(name, weights=published if pretrained else None), (tuple(scale.mean), tuple(scale.std))


def _timm(name: str, pretrained: bool, model_dir: Any) -> tuple[nn.Module, Statistics | None]:
    library = require("timm", "timm", f"the model 'timm:{name}'")
    if not library.is_model(name):
        raise zoo.UnknownModel(f"timm has no model {name!r}; {hint(name, library.list_models())}")
    model: nn.Module = library.create_model(name, pretrained=pretrained)
    return model, published_normalisation(model)


LIBRARIES = {"robustbench": _robustbench, "torchvision": _torchvision, "timm": _timm}


# Files and code


def _other(name: str, device: str | torch.device, trust_code: bool) -> nn.Module:
    path, suffix = Path(name), Path(name).suffix.lower()
    if suffix in (".pt2", ".onnx", *PICKLES) and not path.is_file():
        raise FileNotFoundError(f"no file {path}; {KINDS}")
    if suffix == ".pt2":
        return _exported(path, device)
    if suffix == ".onnx":
        return load_onnx(path)
    if suffix in PICKLES:
        return _module(_unpickled(path, trust_code), f"what {path} holds")
    if suffix in files.SUFFIXES and path.is_file():
        raise ValueError(f"{path} holds weights without a network: give it as weights, beside a model; {KINDS}")
    if suffix == ".py":
        raise ValueError(f"{name!r} names a file but no function in it: write {name}:build; {KINDS}")
    if ":" not in name:
        raise zoo.UnknownModel(f"{zoo.unknown(name)}\n{KINDS}")
    return _built(name)


def _exported(path: Path, device: str | torch.device) -> nn.Module:
    try:
        program = torch.export.load(path)
    except Exception as error:
        raise ValueError(f"{path} is no program saved by torch.export ({one_line(error)})") from error
    if torch.device(device).type != "cpu":
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, str(device))
    return exported(program, f"exported program {path.name}")


def _unpickled(path: Path, trust_code: bool) -> Any:
    if not trust_code:
        raise ValueError(f"loading {path} may run code of its maker; if you trust it, say trust_code=True")
    if path.suffix.lower() == ".keras":
        read = importlib.import_module("keras").models.load_model
    else:
        read = require("joblib", "data", f"the pickle {path.name}").load
    folder = path.resolve().parent
    _make_importable(folder)
    try:
        with _no_bytecode():
            return read(path)
    except ModuleNotFoundError as error:
        package, _, inner = str(error.name).partition(".")
        own = f"put {package}.py into {folder}, or install it"
        fix = f"install the {package} that it was saved with" if inner else own
        raise ModuleNotFoundError(f"{path} needs the module {error.name!r}; {fix}", name=error.name) from error
    except Exception as error:
        raise ValueError(f"{path} cannot be loaded ({type(error).__name__}: {one_line(error)})") from error


def _built(spec: str) -> nn.Module:
    """Import a file or a module, and call the function that it names."""
    place, _, name = spec.rpartition(":")
    source = _file(Path(place)) if place.endswith(".py") else _package(place)
    build = getattr(source, name, None)
    if isinstance(build, nn.Module) or (not callable(build) and owner(build) is not None):
        return _module(build, spec)
    if not callable(build):
        known = [key for key, value in vars(source).items() if callable(value) and not key.startswith("_")]
        raise ValueError(f"{place} has no function {name!r}; it has: {', '.join(known) or 'none'}")
    with _user_code(spec, getattr(source, "__file__", None), "it is called without arguments"):
        made = build()
    return _module(made, f"what {spec} returned")


def _file(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path} (from the model {path}:...); {KINDS}")
    name = f"sigmazero_user_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ValueError(f"{path} cannot be imported as Python code")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    _make_importable(path.resolve().parent)
    try:
        with _user_code(str(path), module.__file__, "correct it and try again"):
            found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _package(name: str) -> Any:
    _make_importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists; something it imports does not
        raise ValueError(f"there is no module {error.name!r} (from the model {name}:...); {KINDS}") from error


def _make_importable(folder: Path) -> None:
    """Let a user's code import its neighbours from now on, inside `forward` too, as Python does for a script."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@contextmanager
def _user_code(place: str, file: str | None, fix: str) -> Iterator[None]:
    """Run a user's code; report any error with its file and line."""
    try:
        with _no_bytecode():
            yield
    except ImportError:
        raise  # it names what is missing
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        where = f" (line {lines[-1]})" if lines else ""
        raise ValueError(f"{place} failed: {type(error).__name__}: {error}{where}; {fix}") from error


@contextmanager
def _no_bytecode() -> Iterator[None]:
    """Write no compiled files beside a user's code."""
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = written
