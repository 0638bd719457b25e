"""What makes two cells the same question: hashes of everything that determines the answer, and of nothing else."""

import hashlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero import models
from sigmazero.bench.plan import ModelSpec
from sigmazero.core.attack import Attack
from sigmazero.data import Rows

FORMAT = 1  # of the key; another one makes every stored cell a different one


def canonical(value: Any) -> str:
    """JSON with one spelling for each value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(value: Any) -> str:
    """SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def hash_integers(values: Tensor) -> str:
    """SHA-256 of whole numbers in their order."""
    return hashlib.sha256(values.detach().cpu().numpy().astype("<i8").tobytes()).hexdigest()


def hash_weights(network: nn.Module) -> str:
    """SHA-256 of a network's state dict, whatever file it came from and wherever it is now."""
    found = hashlib.sha256(b"state 1\n")
    for name, value in sorted(network.state_dict().items()):
        tensor = value.detach().cpu().contiguous()
        found.update(f"{name} {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_code(spec: ModelSpec) -> dict[str, Any]:
    """What, besides its weights, decides what a model computes: a change of it makes another model.

    For a model of the zoo its architecture, for one built by code the file of that code (not what it imports), for an
    exported program the file.
    """
    entry = models.find(spec.spec)
    if entry is not None:
        return {
            "architecture": entry.architecture,
            "options": dict(entry.options),
            "mean": entry.mean,
            "std": entry.std,
        }
    place, _, function = spec.spec.rpartition(":")
    if not place:
        return {"file": hash_file(Path(spec.spec)), "normalize": spec.normalize}
    source = place
    if not place.endswith(".py"):
        found = importlib.util.find_spec(place)
        source = found.origin if found is not None and found.origin is not None else place
    return {"code": hash_file(Path(source)), "function": function, "normalize": spec.normalize}


def describe_module(network: nn.Module) -> dict[str, Any]:
    """The same for a module handed in: its class and the layers it shows, without addresses."""
    if not network.state_dict() and not list(network.children()):
        raise ValueError(
            f"the model {type(network).__name__} has neither weights nor layers to recognise it by; name it as "
            '"file.py:build", so that the file can be its identity'
        )
    shown = re.sub(r" at 0x[0-9a-f]+", "", repr(network))
    return {"class": f"{type(network).__module__}.{type(network).__qualname__}", "layers": shown}


def describe_attack(attack: Attack) -> dict[str, Any]:
    """Class, version and all parameters; the name is only what it is called."""
    return {"class": type(attack).__name__, "version": attack.version, "parameters": plain_parameters(attack)}


def plain_parameters(attack: Attack) -> dict[str, Any]:
    """An attack's parameters as JSON can hold them; an attack inside another as its description."""
    return {
        name: describe_attack(value)
        if isinstance(value, Attack)
        else list(value)
        if isinstance(value, tuple)
        else value
        for name, value in attack.parameters().items()
    }


def cell_key(
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
) -> str:
    """The key of a cell. Names, machine, device and batch size do not enter."""
    return digest(
        {
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
        }
    )
