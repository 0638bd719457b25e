"""Options that several commands share, and how their texts become values."""

import ast
from collections.abc import Callable, Container
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import torch
import typer

import sigmazero as sz
from sigmazero import models
from sigmazero.adapters.foreign import is_foreign
from sigmazero.bench.loader import EVERYTHING
from sigmazero.core.domain import Unit
from sigmazero.core.files import same_file, writable
from sigmazero.core.hardware import Precision, Prepare
from sigmazero.core.parameters import NamedModel, takes_model
from sigmazero.run import Hardware
from sigmazero.store.results import NAMES, names

ModelName = Annotated[
    str,
    typer.Option(
        metavar="SPEC", help="M1, C5, ..., file.py:build (any kind of model), package.module:build, .pt2 or .onnx."
    ),
]
DataName = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="NAME",
        help="A data set's name, an .npz file of images and labels, a table (docs/tables.md), a folder of pictures.",
    ),
]
WeightsFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="State dict for the model, also as safetensors.")
]
ModelDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder with weight files.")]
DataDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder with data files.")]
SpaceFile = Annotated[
    Path | None,
    typer.Option("--space", metavar="FILE", help="What may change, to which values, at what cost: a TOML file."),
]
BoxEnds = Annotated[
    tuple[float, float] | None,
    typer.Option("--bounds", metavar="LOW HIGH", help="The ends of every input value; 0 and 1 by default."),
]
MaskFile = Annotated[
    Path | None, typer.Option("--mask", metavar="FILE", help="Booleans as .npy: true where a value may change.")
]
MeanAndStd = Annotated[
    str | None,
    typer.Option(metavar="MEAN,STD", help="Normalise inputs before the network: 0.5,0.25 or mnist, cifar10, imagenet."),
]
AttackName = Annotated[
    str, typer.Option("--attack", metavar="NAME", help="See: sigmazero list attacks; or of another: foolbox:NAME.")
]
Steps = Annotated[int | None, typer.Option(metavar="N", help="Steps; the attack's own number by default.")]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Another parameter of the attack; may be repeated."),
]
Budget = Annotated[
    int | None, typer.Option(metavar="K", help="End a sample's search once K changes or fewer are enough.")
]
UnitName = Annotated[str, typer.Option("--unit", metavar="UNIT", help="What counts as one change: feature or pixel.")]
Targeted = Annotated[bool, typer.Option("--targeted", help="Reach a class; needs --target-class or --targets.")]
TargetClass = Annotated[
    str | None, typer.Option(metavar="C", help="Reach class C, a number or a name, from all other classes.")
]
TargetsFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Reach these classes: one per row, text or .npy.")
]
Limit = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="At most N rows: a sample with each class in its share, or with --seed random ones."
    ),
]
RowNumbers = Annotated[
    str | None, typer.Option(metavar="ROWS", help="Rows of the data set: 0:100, or 5,7,9, or 0:100,250.")
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="For the choice of rows and for random attacks.")]
BatchSize = Annotated[int | None, typer.Option(metavar="N", help="Rows at a time; chosen for you by default.")]
DeviceName = Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, or auto: cuda where there is one.")]
PrecisionName = Annotated[
    str | None,
    typer.Option("--precision", metavar="NAME", help="Search in fp32, tf32 or bf16; by default as torch computes."),
]
Margin = Annotated[
    float, typer.Option("--margin", metavar="M", help="The least by which a success must hold in the logits.")
]
PrepareName = Annotated[
    str,
    typer.Option(
        "--prepare",
        metavar="NAME",
        help="The copy that is searched: none, fold (batch norms folded), compile, or auto: compiled on long runs.",
    ),
]
OutPath = Annotated[
    Path | None, typer.Option("--out", metavar="PATH", help="Folder or .npz file for the result and its picture.")
]
NoDoctor = Annotated[bool, typer.Option("--no-doctor", help="Do not examine the model first.")]
TrustCode = Annotated[
    bool, typer.Option("--trust-code", help="Run the code that it names: Python files and modules, .pt2, .onnx.")
]
EngineName = Annotated[
    str, typer.Option("--engine", metavar="NAME", help="Where to compute: local (here), processes or ray.")
]
Workers = Annotated[
    int | None, typer.Option(metavar="N", help="How many workers; by default one for each core, or each GPU.")
]
Address = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Of a Ray cluster: auto, or HOST:PORT; by default Ray is started here."),
]
GpusPerWorker = Annotated[float | None, typer.Option(metavar="X", help="Of a Ray worker: 0.25 puts four on one GPU.")]
StoreFile = Annotated[Path, typer.Argument(metavar="STORE", help="A store, such as runs/small.db.")]

WORDS = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}


def device(name: str, here: bool = True) -> str:
    """A device that exists, or might elsewhere if it need not be `here`.

    >>> device("cpu")
    'cpu'
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise ValueError(f"there is no device called {name!r}; use cpu, cuda or auto") from None
    if here and kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("torch sees no CUDA device here; use --device cpu")
    return name


def trust(everything: bool) -> Container[str]:
    """Return which code of plans and stores may run: all or none."""
    return EVERYTHING if everything else ()


def attack(name: str, steps: int | None, pairs: list[str]) -> sz.Attack:
    """An attack by name, ours or another library's, with the parameters that --steps and --set change.

    >>> attack("sigma-zero", 100, ["threshold=0.2"]).parameters()["threshold"]
    0.2
    """
    if not is_foreign(name):
        return sz.get(name, **settings(name, steps, pairs))
    made = sz.foreign(name, **_pairs(pairs, lambda key, text: value(key, text, None)))
    return made if steps is None else replace(made, steps=steps)


def settings(name: str, steps: int | None, pairs: list[str]) -> dict[str, Any]:
    """The parameters of an attack that --steps and --set change.

    >>> settings("sigma-zero", 100, ["threshold=0.2", "projection=off"])
    {'steps': 100, 'threshold': 0.2, 'projection': False}
    """
    known = sz.get(name).parameters()

    def read(key: str, text: str) -> Any:
        model = key in known and takes_model(type(sz.get(name)), key)
        return NamedModel(text) if model else value(key, text, known.get(key))

    chosen = _pairs(pairs, read)
    if steps is not None and "steps" in chosen:
        raise ValueError("steps is given twice")
    return chosen if steps is None else {"steps": steps, **chosen}


def _pairs(pairs: list[str], read: Callable[[str, str], Any]) -> dict[str, Any]:
    """What some --set KEY=VALUE say, by name."""
    chosen: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise ValueError(f"--set {pair} has no value; write --set {key}=VALUE")
        if key == "name":
            raise ValueError(f"--set {pair}: the name of an attack is no parameter of it")
        if key in chosen:
            raise ValueError(f"{key} is given twice")
        chosen[key] = read(key, text.strip())
    return chosen


def with_surrogate(attack: sz.Attack, model_dir: Path | None, device: str) -> sz.Attack:
    """An attack with the network that `--set surrogate=NAME` names."""
    named = attack.parameters().get("surrogate")
    if not isinstance(named, NamedModel):
        return attack
    loaded = models.load(named.name, model_dir=model_dir, device=device).requires_grad_(False)
    changed: dict[str, Any] = {"surrogate": loaded}
    return replace(attack, **changed)


def value(key: str, text: str, like: object) -> Any:
    """Read a text as the kind of value that a parameter has by default; an attack inside another goes by its name."""
    if isinstance(like, bool):
        if text.lower() not in WORDS:
            raise ValueError(f"{key}={text} must be true or false")
        return WORDS[text.lower()]
    if isinstance(like, int | float):
        try:
            return type(like)(text)
        except ValueError:
            kind = "a whole number" if isinstance(like, int) else "a number"
            raise ValueError(f"{key}={text} must be {kind}") from None
    if isinstance(like, str):
        return text
    if isinstance(like, sz.Attack):
        return sz.get(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # the attack says what it needs


def unit(name: str) -> Unit:
    """A counting unit by name."""
    if name not in get_args(Unit):
        raise ValueError(f"--unit {name} is not one of {', '.join(get_args(Unit))}")
    return cast(Unit, name)


def prepare(name: str) -> Prepare:
    """What is done to the copy that a search asks."""
    if name not in get_args(Prepare):
        raise ValueError(f"--prepare {name} is not one of {', '.join(get_args(Prepare))}")
    return cast(Prepare, name)


def hardware(numbers: str | None, copied: str) -> Hardware:
    """How a run uses the hardware."""
    return Hardware(precision(numbers), prepare(copied))


def precision(name: str | None) -> Precision | None:
    """A number format by name; None for the numbers of the process."""
    if name is None:
        return None
    if name not in get_args(Precision):
        raise ValueError(f"--precision {name} is not one of {', '.join(get_args(Precision))}")
    return cast(Precision, name)


def destination(path: Path | None, **read: str | Path | None) -> Path | None:
    """The .npz file that --out names, or result.npz in the folder it names; tried before the run, not after it.

    `read` has what other options name: no file that is read is written over, nor any other that is no result.
    """
    if path is None:
        return None
    if path.suffix != ".npz" and path.exists() and not path.is_dir():
        raise ValueError(f"--out {path} is a file; name a folder, or a file that ends in .npz")
    file = path if path.suffix == ".npz" else path / "result.npz"
    for option, given in read.items():
        if given is not None and same_file(file, Path(given)):
            raise ValueError(f"--out {path} would write over what --{option} names, {given}; name another file")
    if file.is_file() and file.stat().st_size and not names(file) >= NAMES:
        raise ValueError(f"--out {path} would write over {file}, which is no result; name another file, or remove it")
    for each in (file, file.with_suffix(".png")):
        writable(each)
    return file


def code_file(spec: str) -> str:
    """The file that a model's SPEC names; for models without one a name that no file has.

    >>> code_file("nets/mine.py:build"), code_file("net.onnx")
    ('nets/mine.py', 'net.onnx')
    """
    place, colon, _ = spec.rpartition(":")
    return place if colon else spec
