"""Decide when two cells are the same question: hash everything that decides the answer, and nothing else.

A model is identified by its weights, its layers and the source files of its code with their local imports. That misses
attributes, hooks and values set in memory. So before stored facts are reused, the present model is queried at some
stored points (`bench.reuse`).

An attack of sigmazero is identified by its class, version and parameters: golden results fail if it changes
without a new version. Any other attack is also identified by its source files and its code in memory, since no stored
point can show that a search has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sigmazero import models
from sigmazero.core import losses
from sigmazero.core.attack import Attack
from sigmazero.core.messages import canonical as canonical
from sigmazero.core.messages import digest as digest
from sigmazero.core.model import logits_in
from sigmazero.core.oracle import Model
from sigmazero.core.parameters import NamedModel
from sigmazero.core.source import code_hash, hash_sources, module_file, without_addresses
from sigmazero.data import Rows
from sigmazero.run.precision import strictly
from sigmazero.store.facts import CellInfo

if TYPE_CHECKING:
    from sigmazero.bench.plan import ModelSpec, Question

ROWS = 16  # clean inputs whose logits identify a model
RANDOM = "SZ003"  # the finding of a model that answers the same question differently
FORMAT = 1  # of the key: a new number makes every cell a new one
ANEW = "anew"  # in a model's code: how often its facts were superseded
PROGRAMS = (torch.fx.GraphModule, torch.jit.ScriptModule)  # modules that contain their code


def hash_integers(values: Tensor) -> str:
    """Return the SHA-256 of whole numbers in their order."""
    return hashlib.sha256(values.detach().cpu().numpy().astype("<i8").tobytes()).hexdigest()


def hash_tensors(tensors: Mapping[str, Any]) -> str:
    """Return the SHA-256 of named tensors, wherever they are."""
    found = hashlib.sha256(b"state 1\n")
    for name, value in sorted(tensors.items()):
        if not isinstance(value, Tensor):  # layers may save more than tensors
            found.update(f"{name} {without_addresses(repr(value))}\n".encode())
            continue
        tensor = value.detach().cpu().contiguous()
        found.update(f"{name} {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def hash_weights(network: nn.Module) -> str:
    """Return the SHA-256 of a network's state dict, whatever file it came from and wherever it is now."""
    return hash_tensors(network.state_dict())


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_model(network: nn.Module, spec: ModelSpec | None = None) -> dict[str, Any]:
    """Return what identifies a model besides its weights; `spec` is the name that it was loaded by, if it was.

    A zoo model is known by its architecture, an exported program or an ONNX file by that file, other code by the
    layers that it shows and by its source files.
    """
    entry = None if spec is None else models.find(spec.spec)
    if entry is not None:
        return {
            "architecture": entry.architecture,
            "options": dict(entry.options),
            "mean": entry.mean,
            "std": entry.std,
        }
    code: list[Any] = [type(module) for module in network.modules()]
    if spec is None:
        known: dict[str, Any] = {"class": f"{type(network).__module__}.{type(network).__qualname__}"}
    else:
        source, _, function = spec.spec.rpartition(":")
        known = {"function": function, "normalize": spec.normalize}
        file = Path(spec.spec) if not source else Path(source) if source.endswith(".py") else module_file(source)
        known |= {} if file is None else {"file": hash_file(file)}
        code += [] if file is None else [file]
    programs = [str(getattr(module, "code", "")) for module in network.modules() if isinstance(module, PROGRAMS)]
    layers = without_addresses(repr(network))
    return {**known, "layers": digest([layers, *programs]), "sources": hash_sources(code)}


def probed(count: int) -> Tensor:
    """Return the positions of up to 16 of `count` inputs, evenly spread."""
    return torch.linspace(0, count - 1, min(count, ROWS), device="cpu").round().long()


def probe(network: Model, x: Tensor) -> Tensor:
    """Return the network's logits for the probed inputs, in double precision on the CPU."""
    rows = probed(len(x)).to(x.device)
    # This must not change the random numbers that a network draws later.
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []), strictly(network, x.device):
        # A copy: some models return the same memory each time.
        return logits_in(network(x[rows])).to("cpu", torch.float64, copy=True)


def is_random(findings: Iterable[Mapping[str, str]]) -> bool:
    """Return whether the doctor found a model's outputs to be random: then no two answers can be compared."""
    return any(finding["code"] == RANDOM for finding in findings)


def describe_attack(attack: Attack) -> dict[str, Any]:
    """Return an attack's class, version and parameters; of one that is not ours, or was patched, also its code."""
    kind = type(attack)
    parameters = plain_parameters(attack)
    known = {"class": kind.__name__, "version": attack.version, "parameters": parameters}
    code: list[type | Callable[..., Any]] = [*getattr(attack, "code", ())]  # functions that `sz.foreign` made an attack
    code += [kind] if not _ours(kind) else _patches(kind)
    loss = losses.LOSSES.get(str(parameters.get("loss")))
    code += [loss] if loss is not None and not _ours(loss) else []
    if not code:
        return known
    names = sorted(f"{name_of(thing)} {code_hash(thing)}" for thing in code)
    return {**known, "code": names, "sources": hash_sources(code)}


def _ours(thing: Any) -> bool:
    """Return whether a class or a function is of this package."""
    return str(thing.__module__).partition(".")[0] == "sigmazero"


def name_of(thing: Any) -> str:
    """Return the module and the name of a class, a function or an object's class."""
    return f"{thing.__module__}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"


def _patches(kind: type) -> list[Callable[..., Any]]:
    """Return functions that were put into a class of ours from outside."""
    methods = [value for base in kind.__mro__ for value in vars(base).values() if isinstance(value, FunctionType)]
    return [
        each for each in methods if not _ours(each) and each.__module__ not in ("dataclasses", "typing", "abc", None)
    ]


def plain_parameters(attack: Attack) -> dict[str, Any]:
    """Return an attack's parameters as JSON holds them: an attack by its description, a network by name or hash."""
    return {name: _plain(value) for name, value in attack.parameters().items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Attack):
        return describe_attack(value)
    if isinstance(value, NamedModel):
        return value.name
    if isinstance(value, nn.Module):
        return hash_weights(value)
    return list(value) if isinstance(value, tuple) else value


def describe_cell(
    question: Question,
    model: dict[str, Any],
    rows: Rows,
    targets: Tensor | None,
    precision: str,
    surrogate: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return all that decides the answer to a question, as JSON holds it; its digest is the key of the cell.

    Names, machine, device and batch size are left out, and so are a margin and a surrogate if there is none.

    model, surrogate   weights and code
    """
    return {
        **({"margin": question.margin} if question.margin else {}),
        **({"surrogate": surrogate} if surrogate else {}),
        "format": FORMAT,
        "attack": describe_attack(question.attack),
        "model": model,
        "data": rows.content_hash,
        "ids": hash_integers(rows.ids),
        "targets": None if targets is None else hash_integers(targets),
        "unit": question.unit,
        "budget": question.budget,
        "seed": question.seed,
        "precision": precision,
        **question.allowed.identity(tuple(rows.images.shape[1:])),
    }


def contradictions(info: CellInfo) -> list[str]:
    """Return which parts of a cell's description do not fit its identity."""
    if not info.identity:
        return []
    try:
        expected = CellInfo.of(info.identity, **{name: getattr(info, name) for name in CellInfo.NAMES})
    except (LookupError, TypeError):
        return ["identity"]
    return [each.name for each in fields(CellInfo) if getattr(expected, each.name) != getattr(info, each.name)]
