"""What makes two cells the same question: hashes of everything that determines the answer, and of nothing else.

An attack of the registry is known by its class and version: golden results of the tests notice when it changes
without a new version. All other code that runs, of attacks and of models, is known by its source.
"""

import hashlib
import os
import re
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero import attacks
from sigmazero.core import losses
from sigmazero.core.attack import Attack
from sigmazero.core.inputs import Bound, Bounds
from sigmazero.core.parameters import NamedModel
from sigmazero.core.source import code_hash
from sigmazero.core.text import canonical as canonical
from sigmazero.core.text import digest as digest
from sigmazero.data import Rows
from sigmazero.store.facts import CellInfo

FORMAT = 1  # of the key; another one makes every stored cell a different one
_process = [secrets.token_hex(16)]
_unknown: dict[str, list[Any]] = {}  # code without a source, by name: two of one name are two


def this_process() -> str:
    """Stands for code that has no source: nothing of another process can be the same, not even of a fork of this."""
    return _process[0]


def _forked() -> None:
    _process[0] = secrets.token_hex(16)


if hasattr(os, "register_at_fork"):  # where there is no fork, every process imports this anew
    os.register_at_fork(after_in_child=_forked)


def hash_integers(values: Tensor) -> str:
    """SHA-256 of whole numbers in their order."""
    return hashlib.sha256(values.detach().cpu().numpy().astype("<i8").tobytes()).hexdigest()


def hash_tensors(tensors: Mapping[str, Any]) -> str:
    """SHA-256 of named tensors, wherever they are."""
    found = hashlib.sha256(b"state 1\n")
    for name, value in sorted(tensors.items()):
        if not isinstance(value, Tensor):  # what a layer saves besides tensors
            found.update(f"{name} {without_addresses(repr(value))}\n".encode())
            continue
        tensor = value.detach().cpu().contiguous()
        found.update(f"{name} {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def hash_weights(network: nn.Module) -> str:
    """SHA-256 of a network's state dict, whatever file it came from and wherever it is now.

    100 MB take a tenth of a second, so it can be taken again after a run to see whether something wrote to them.
    """
    return hash_tensors(network.state_dict())


def hash_file(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def patches(kind: type) -> Iterator[FunctionType]:
    """Functions that were put into a class from outside: its source does not show them."""
    for base in kind.__mro__:
        for value in vars(base).values():
            if isinstance(value, FunctionType) and not is_torch(value.__module__):
                inside = value.__module__ == base.__module__ and value.__qualname__.startswith(f"{base.__qualname__}.")
                if not inside:
                    yield value


def is_torch(module: str | None) -> bool:
    """Whether a module of that name is a part of torch."""
    return (module or "").partition(".")[0] == "torch"


def without_addresses(text: str) -> str:
    """A text without the places in memory that Python shows for things without a better name."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def known_code(thing: type | Callable[..., Any]) -> str:
    """Name and hash of some code; where it has no source, one that holds for this very thing in this process alone."""
    name = f"{thing.__module__}.{thing.__qualname__}"
    found = code_hash(thing)
    if found is None:
        met = _unknown.setdefault(name, [])
        if not met:
            warnings.warn(
                f"the source of {name} cannot be read, so nothing tells whether it is the same tomorrow: what is "
                "stored for it now is used again in this process alone; define it in a file",
                stacklevel=2,
            )
        if not any(thing is one for one in met):
            met.append(thing)
        found = f"{this_process()} {next(place for place, one in enumerate(met) if one is thing)}"
    return f"{name} {found}"


def describe_attack(attack: Attack) -> dict[str, Any]:
    """Class, version, all parameters and the code that is not ours, of the attack and of its loss; not its name."""
    kind = type(attack)
    parameters = plain_parameters(attack)
    known = {"class": kind.__name__, "version": attack.version, "parameters": parameters}
    ours = kind.__module__.startswith(f"{attacks.__name__}.")
    registered = ours and kind in {type(each) for each in attacks.ATTACKS.values()}
    code: list[type | Callable[..., Any]] = [] if registered else [kind, *patches(kind)]
    loss = losses.LOSSES.get(str(parameters.get("loss")))
    code += getattr(attack, "code", ())  # of a function that a user made an attack
    code += [loss] if loss is not None and loss.__module__ != losses.__name__ else []
    return {**known, "code": sorted({known_code(thing) for thing in code})} if code else known


def plain_parameters(attack: Attack) -> dict[str, Any]:
    """An attack's parameters as JSON can hold them: an attack inside as its description, a network by name or hash."""
    return {
        name: describe_attack(value)
        if isinstance(value, Attack)
        else list(value)
        if isinstance(value, tuple)
        else value.name
        if isinstance(value, NamedModel)
        else hash_weights(value)
        if isinstance(value, nn.Module)
        else value
        for name, value in attack.parameters().items()
    }


def plain_bound(bound: Bound) -> float | str:
    """One side of a box as JSON can hold it: a number, or the hash of one that differs from feature to feature."""
    return hash_tensors({"bound": bound}) if isinstance(bound, Tensor) and bound.ndim else float(bound)


def describe_cell(
    attack: Attack,
    *,
    weights: str,
    code: dict[str, Any],
    rows: Rows,
    targets: Tensor | None,
    unit: str,
    budget: int | None,
    seed: int,
    precision: str,
    margin: float = 0.0,
    bounds: Bounds = (0.0, 1.0),
    mask: Tensor | None = None,
    space: dict[str, Any] | None = None,
    surrogate: nn.Module | None = None,
) -> dict[str, Any]:
    """All that determines the answer, as JSON can hold it; its digest is the key of the cell.

    Names, machine, device and batch size do not enter. A margin, a space and the weights of a surrogate enter where
    there is one; the space is given as `allowed.described` makes it.
    """
    return {
        **({"margin": margin} if margin else {}),
        **({"space": space} if space else {}),
        **({} if surrogate is None else {"surrogate": hash_weights(surrogate)}),
        "format": FORMAT,
        "attack": describe_attack(attack),
        "model": {"weights": weights, "code": code},
        "data": rows.content_hash,
        "ids": hash_integers(rows.ids),
        "targets": None if targets is None else hash_integers(targets),
        "unit": unit,
        "budget": budget,
        "seed": seed,
        "precision": precision,
        "bounds": [plain_bound(bound) for bound in bounds],
        "mask": None if mask is None else hash_tensors({"mask": mask}),
    }


def contradictions(info: CellInfo) -> list[str]:
    """What in a cell's description does not fit its key; nothing can be said of a cell without an identity."""
    if not info.identity:
        return []
    wrong = [] if digest(info.identity) == info.key else ["key"]
    try:
        return wrong + _differing(info, info.identity)
    except (LookupError, TypeError):
        return [*wrong, "identity"]


def _differing(info: CellInfo, asked: dict[str, Any]) -> list[str]:
    """The fields of a description that are not those of what was asked."""
    described: dict[str, tuple[Any, Any]] = {
        "parameters": (info.parameters, asked["attack"]["parameters"]),
        "version": (info.version, asked["attack"]["version"]),
        "steps": (info.steps, asked["attack"]["parameters"]["steps"]),
        "model_sha256": (info.model_sha256, asked["model"]["weights"]),
        "data_hash": (info.data_hash, asked["data"]),
        "goal": (info.goal == "targeted", asked["targets"] is not None),
        "bounds": (list(info.bounds), asked["bounds"]),
        "margin": (info.margin, asked.get("margin", 0.0)),
        **{name: (getattr(info, name), asked[name]) for name in ("unit", "budget", "seed", "precision")},
    }
    return [name for name, (here, there) in described.items() if here != there]
