"""Load a model by name or file: a known one, Python code, an exported program or an ONNX file."""

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.core.extras import MissingExtra, require
from sigmazero.core.files import afford
from sigmazero.core.inputs import hint
from sigmazero.core.messages import one_line
from sigmazero.core.oracle import Model
from sigmazero.models import weights as files
from sigmazero.models import zoo
from sigmazero.models.any import recognise, understood
from sigmazero.models.any.torch_models import normalisation
from sigmazero.models.normalize import Normalize, Statistics, parse_normalize
from sigmazero.models.onnx import UnknownOperator, load_onnx
from sigmazero.models.zoo import ZooEntry

CHECKPOINTS = (".pt", ".pth", ".th", ".ckpt", ".safetensors")
KINDS = (
    "a model is a name (M1, C5, robustbench:Carmon2019Unlabeled, torchvision:resnet50, timm:vit_tiny_patch16_224), "
    "file.py:build, package.module:build, an exported program (.pt2) or an ONNX file (.onnx)"
)


class Opaque(nn.Module):
    """A module around a callable, or around a program whose mode must not be set.

    What is inside is hidden from torch: exported programs raise when `eval()` or `train()` reaches them.
    """

    def __init__(self, function: Model, name: str) -> None:
        super().__init__()
        self._function = (function,)
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        """Call it."""
        return self._function[0](x)

    def extra_repr(self) -> str:
        """Show what is inside."""
        return self._name


def load(
    spec: str | os.PathLike[str] | nn.Module | Model,
    *,
    weights: str | os.PathLike[str] | None = None,
    model_dir: str | os.PathLike[str] | None = None,
    normalize: str | Statistics | None = None,
    device: str | torch.device = "cpu",
) -> nn.Module:
    """Load a model, in evaluation mode, that maps inputs in [0, 1] to logits.

    ``spec`` is one of

    - the name of a known model: its code ("M1") or its RobustBench name ("Carmon2019Unlabeled")
    - "robustbench:NAME", "robustbench:DATASET/NAME" or "robustbench:DATASET/THREAT/NAME" (by default cifar10, Linf)
    - "torchvision:NAME" and "timm:NAME", with the weights and the normalisation that these libraries publish
    - "path/to/file.py:build" or "package.module:build": a function without arguments that returns a module, a
      function, or a model of another library as `wrap` takes it
    - a program saved by ``torch.export`` (.pt2) or an ONNX file (.onnx)
    - a module or another model itself

    ``weights`` is a state dict for it, in place of the published one. ``normalize`` ("0.5,0.25", see
    `parse_normalize`) goes in front of networks that expect normalised inputs; named models bring theirs.

    A code file runs, by its nature, and so may what an exported program contains: open those of people you
    trust. State dicts and ONNX files never run anything.
    """
    if isinstance(spec, str | os.PathLike):
        entry = zoo.find(os.fspath(spec))
        library, _, name = os.fspath(spec).partition(":")
        if entry:
            model = _known(entry, weights, model_dir, normalize)
        elif library in LIBRARIES and name:
            model = LIBRARIES[library](name, weights, model_dir, normalize)
        else:
            model = _normalized(_other(os.fspath(spec), weights, device), normalize)
        model.requires_grad_(False)  # attacks differentiate inputs only
    else:
        given = _module(spec, repr(spec))
        if weights is not None:
            _fill(given, weights)
        model = _normalized(given, normalize)
    return model.to(device).eval()


def _known(
    entry: ZooEntry,
    weights: str | os.PathLike[str] | None,
    model_dir: str | os.PathLike[str] | None,
    normalize: str | Statistics | None,
) -> nn.Module:
    if normalize is not None:
        raise ValueError(f"{entry.code} brings its own normalisation: leave normalize={normalize!r} out")
    if weights is None:
        files.locate(entry, model_dir)  # a missing file is reported before a large network is built
    with torch.device("cpu"):  # whatever torch's default device is; `load` moves it afterwards
        network = entry.build()
        if weights is None:
            files.load_entry(network, entry, model_dir)
        else:
            files.load_file(network, weights, entry)
        return entry.normalized(network)


def _robustbench(
    name: str,
    weights: str | os.PathLike[str] | None,
    model_dir: str | os.PathLike[str] | None,
    normalize: str | Statistics | None,
) -> nn.Module:
    """Load a model of RobustBench by its own loader; its networks normalise by themselves."""
    if weights is not None or normalize is not None:
        raise ValueError(f"robustbench:{name} brings its own weights and normalisation: leave yours out")
    *place, last = name.split("/")
    if len(place) > 2:
        raise ValueError(f"robustbench:{name} is no name of RobustBench: write robustbench:cifar10/Linf/NAME")
    library = require("robustbench.utils", "robustbench", f"the model 'robustbench:{name}'")
    dataset, threat = [*place, *("cifar10", "Linf")[len(place) :]]
    folder = {} if model_dir is None else {"model_dir": os.fspath(model_dir)}
    try:
        found: nn.Module = library.load_model(last, dataset=dataset, threat_model=threat, **folder)
    except KeyError as error:
        raise zoo.UnknownModel(
            f"RobustBench has no model {last!r} for the data set {dataset} and the threat model {threat} "
            f"(no {error}); write robustbench:DATASET/THREAT/NAME"
        ) from error
    return found


def _torchvision(
    name: str,
    weights: str | os.PathLike[str] | None,
    model_dir: str | os.PathLike[str] | None,
    normalize: str | Statistics | None,
) -> nn.Module:
    """Build a classifier of torchvision, by default with its best weights and their normalisation."""
    del model_dir  # torch.hub decides where files are kept
    try:
        library = importlib.import_module("torchvision.models")
    except Exception as error:  # a broken installation fails in many ways besides ImportError
        raise MissingExtra(
            f"the model 'torchvision:{name}' needs the package 'torchvision', which cannot be imported "
            f"({type(error).__name__}: {error}); install it with: pip install torchvision"
        ) from error
    if name not in (known := library.list_models(module=library)):
        raise zoo.UnknownModel(f"torchvision has no classifier {name!r}; {hint(name, known)}")
    published = library.get_model_weights(name).DEFAULT
    model: nn.Module = library.get_model(name, weights=published if weights is None else None)
    if weights is not None:
        _fill(model, weights)
    scale = published.transforms()
    return _normalized(model, (tuple(scale.mean), tuple(scale.std)) if normalize is None else normalize)


def _timm(
    name: str,
    weights: str | os.PathLike[str] | None,
    model_dir: str | os.PathLike[str] | None,
    normalize: str | Statistics | None,
) -> nn.Module:
    """Build a network of timm, by default with its published weights and their normalisation."""
    del model_dir  # timm decides where files are kept
    library = require("timm", "timm", f"the model 'timm:{name}'")
    if not library.is_model(name):
        raise zoo.UnknownModel(f"timm has no model {name!r}; {hint(name, library.list_models())}")
    model: nn.Module = library.create_model(name, pretrained=weights is None)
    if weights is not None:
        _fill(model, weights)
    return _normalized(model, normalisation(model) if normalize is None else normalize)


# Loaders of other libraries, by what stands before the colon.
LIBRARIES = {"robustbench": _robustbench, "torchvision": _torchvision, "timm": _timm}


def _other(spec: str, weights: str | os.PathLike[str] | None, device: str | torch.device) -> nn.Module:
    suffix = Path(spec).suffix.lower()
    if suffix == ".pt2":
        model: nn.Module = _exported(spec, device)
    elif suffix == ".onnx":
        model = _onnx(spec)
    elif suffix in CHECKPOINTS and Path(spec).is_file():
        raise ValueError(f"{spec} holds weights without a network: give it as weights, beside a model; {KINDS}")
    elif ":" in spec and suffix != ".py":
        model = _built(spec)
    elif suffix == ".py":
        raise ValueError(f"{spec!r} names a file but no function in it: write {spec}:build; {KINDS}")
    else:
        raise zoo.UnknownModel(f"{zoo.unknown(spec)}\n{KINDS}")
    if weights is not None:
        _fill(model, weights)
    return model


def _fill(model: nn.Module, weights: str | os.PathLike[str]) -> None:
    if isinstance(model, Opaque):
        raise ValueError(f"weights={os.fspath(weights)!r} need a torch module to go into, not {model}")
    files.load_file(model, weights)


def _normalized(model: nn.Module, normalize: str | Statistics | None) -> nn.Module:
    if normalize is None:
        return model
    mean, std = parse_normalize(normalize) if isinstance(normalize, str) else normalize
    with torch.device("cpu"):
        return nn.Sequential(Normalize(mean, std), model)


def _module(model: Any, name: str) -> nn.Module:
    if isinstance(model, nn.Module):
        return model
    if not callable(model) and recognise.owner(model) is None:
        raise TypeError(f"{name} is a {type(model).__name__}, neither a torch module nor a callable; {KINDS}")
    found = understood(model)
    return found if isinstance(found, nn.Module) else Opaque(found, name)


def _built(spec: str) -> nn.Module:
    """Import a file or a module and call the function it names."""
    place, _, name = spec.rpartition(":")
    source = _file(Path(place)) if place.endswith(".py") else _package(place)
    build = getattr(source, name, None)
    if isinstance(build, nn.Module):
        return build
    if not callable(build):
        known = [key for key, value in vars(source).items() if callable(value) and not key.startswith("_")]
        raise ValueError(f"{place} has no function {name!r}; it has: {', '.join(known) or 'none'}")
    with _named(spec, getattr(source, "__file__", None), "it is called without arguments"):
        made = build()
    return _module(made, f"what {spec} returned")


def _file(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path} (from the model {path}:...); {KINDS}")
    name = f"sigmazero_user_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or not isinstance(found.loader, SourceFileLoader):
        raise ValueError(f"{path} cannot be imported as Python code")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    try:
        file = module.__file__ or str(path)
        with _importable(path.resolve().parent), _named(str(path), file, "mend it first"):
            # From the source and no compiled file: that may be of an edit before, or of somebody else.
            exec(found.loader.source_to_code(path.read_bytes(), file), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _package(name: str) -> Any:
    with _importable(Path.cwd()):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # the module exists; something it imports does not
            raise ValueError(f"there is no module {error.name!r} (from the model {name}:...); {KINDS}") from error


@contextmanager
def _named(place: str, file: str | None, hint: str) -> Iterator[None]:
    """Report an error in a user's code, which may raise anything, with its file and line."""
    try:
        yield
    except ImportError:
        raise  # it names what is missing
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        where = f" (line {lines[-1]})" if lines else ""
        raise ValueError(f"{place} failed: {type(error).__name__}: {error}{where}; {hint}") from error


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let a user's code import its neighbours while it is being imported; nothing is written beside them."""
    sys.path.insert(0, str(folder))
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = before


def _exists(spec: str) -> Path:
    path = Path(spec)
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; {KINDS}")
    return path


def _exported(spec: str, device: str | torch.device) -> Opaque:
    path = _exists(spec)
    try:
        program = torch.export.load(path)
    except Exception as error:
        raise ValueError(f"{path} is no program saved by torch.export ({one_line(error)})") from error
    if torch.device(device).type != "cpu":
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, str(device))
    return Opaque(program.module().requires_grad_(False), f"exported program {path.name}")


def _onnx(spec: str) -> nn.Module:
    """By our own converter; by onnx2torch what that one does not know."""
    path = _exists(spec)
    try:
        return load_onnx(path)
    except UnknownOperator as error:
        library = require("onnx2torch", "onnx", f"the ONNX file {path.name} ({one_line(error)})")
    afford(path.stat().st_size, str(path))
    try:
        importlib.import_module("onnx.checker").check_model(str(path))  # a damaged node may ask for any memory
        model: nn.Module = library.convert(str(path))
    except Exception as error:  # damaged files fail in as many ways as there are bytes
        raise ValueError(f"{path} is no ONNX network that can be converted ({one_line(error)})") from error
    return model
