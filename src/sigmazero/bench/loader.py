"""Load the models and rows of questions and stored cells; code that a plan or a store names runs only if it is trusted.

Tensors given in Python have no file, so the store keeps them, up to 64 MB.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from sigmazero import data, models
from sigmazero.bench.identity import describe_model
from sigmazero.bench.plan import DataSpec, ModelSpec, Question, is_code
from sigmazero.core.attack import Attack
from sigmazero.core.messages import shown
from sigmazero.core.model import logits_in
from sigmazero.core.parameters import NamedModel
from sigmazero.data import DataError, Rows
from sigmazero.models.wrapping import by_names, on_table
from sigmazero.spaces.space import Space
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import Store

# Errors for a missing folder, file or extra: such cells are left out, the others run.
ABSENT = (FileNotFoundError, ImportError)
GIVEN = "given in Python"  # the source of models and rows without a file
MAX_BYTES = 64 * 2**20  # of the inputs of one data set that a store keeps
# Our own code that plans name. Whole names: a pattern could also match a file in the current folder.
BUNDLED = frozenset(
    {
        "sigmazero.models.toys.nearest_mean:build",
        "sigmazero.models.toys.two_dimensions:build",
        "sigmazero.models.toys.two_dimensions:rows",
    }
)


class Everything(Container[str]):
    """Contain every name: all code is trusted."""

    def __contains__(self, _: object) -> bool:
        return True


EVERYTHING = Everything()


class UntrustedCode(ValueError):
    """Report code that a plan or a store names, and that is not trusted."""

    def __init__(self, specs: Sequence[ModelSpec | DataSpec]) -> None:
        what = ", ".join(dict.fromkeys(map(source_of, specs)))
        super().__init__(
            f"the plan or store refers to Python code ({what}); pass --trust-code to run it (in Python: "
            "Loader(trust=[...]))"
        )


def names_code(spec: ModelSpec | DataSpec) -> bool:
    """Return whether loading this may run code that is not ours.

    >>> names_code(ModelSpec("M1", "M1")), names_code(ModelSpec("mine", "net.py:build"))
    (False, True)
    """
    source = source_of(spec)
    if source in BUNDLED:
        return False
    if isinstance(spec, DataSpec):
        return is_code(source)
    if models.find(source) is not None or (":" not in source and source.lower().endswith(".onnx")):
        return False  # an .onnx file is read, and never run as code
    return ":" in source or "." in source  # anything else is an unknown name, which is refused when it is loaded


def refuse_untrusted(specs: Sequence[ModelSpec | DataSpec], trust: Container[str]) -> None:
    """Raise if one of these names code that is not trusted."""
    wrong = [spec for spec in specs if names_code(spec) and source_of(spec) not in trust]
    if wrong:
        raise UntrustedCode(wrong)


def source_of(spec: ModelSpec | DataSpec) -> str:
    """Return what a model or rows are loaded from."""
    return spec.spec if isinstance(spec, ModelSpec) else spec.source


def find_device(name: str | torch.device) -> torch.device:
    """Return a device that exists here; "auto" is CUDA where there is one.

    >>> find_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(name)
    except RuntimeError:
        raise ValueError(f"there is no device {name!r}; use cpu, cuda or auto") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r}: torch sees no CUDA device here; use cpu")
    return found


class Loader:
    """Load models and rows; keep one of each, since a plan may name more than memory holds.

    trust   names of code (file.py:build, module:function, programs) that may run; `EVERYTHING` for all. Other code
            raises `UntrustedCode`; known models, data sets and files of arrays need no trust
    """

    def __init__(self, device: str | torch.device = "cpu", trust: Container[str] = ()) -> None:
        self.device, self.trust = find_device(device), trust
        self.spaces: dict[str, Space] = {}  # with functions, which a store cannot keep; by `constraints.space_key`
        self._model: tuple[ModelSpec, nn.Module] | None = None
        self._double: tuple[nn.Module, nn.Module] | None = None
        self._rows: tuple[DataSpec, Rows] | None = None
        self._surrogates: dict[ModelSpec, nn.Module] = {}
        self._given: dict[ModelSpec | DataSpec, Any] = {}

    def give_model(self, spec: ModelSpec, network: nn.Module) -> None:
        """Use this module for that name instead of loading one."""
        self._given[spec] = network

    def give_rows(self, spec: DataSpec, rows: Rows) -> None:
        """Use these rows for that name."""
        self._given[spec] = rows

    def take_back(self) -> None:
        """Drop the modules and rows that were given."""
        self._given.clear()

    def has(self, spec: ModelSpec | DataSpec) -> bool:
        """Return whether a module or rows were given for that name."""
        return spec in self._given

    def release(self) -> None:
        """Unload models and rows; those that were given stay."""
        self._model, self._double, self._rows = None, None, None
        self._surrogates.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def model(self, spec: ModelSpec, double: bool = False) -> nn.Module:
        """Return the network, on the device, in evaluation mode; or its copy in double precision."""
        if double:
            network = self.model(spec)
            if self._double is None or self._double[0] is not network:
                self._double = network, copy.deepcopy(network).double()
            return self._double[1]
        if spec in self._given:
            return cast("nn.Module", self._given[spec])
        if self._model is None or self._model[0] != spec:
            self._model = self._double = None  # make room first
            self._model = spec, self._load(spec)
        return self._model[1]

    def _load(self, spec: ModelSpec) -> nn.Module:
        refuse_untrusted([spec], self.trust)
        more: dict[str, Any] = {"weights": spec.weights, "normalize": spec.normalize, "trust_code": True}
        network = models.load(spec.spec, device=self.device, **more)
        return network if spec.table is None else on_table(network, spec.table)

    def ready(self, attack: Attack) -> Attack:
        """Return an attack with the network that it names, on the device; one that names none as it is."""
        spec = surrogate_spec(attack)
        if spec is None:
            return attack
        if spec not in self._surrogates:
            network = self._given[spec] if spec in self._given else self._load(spec)
            self._surrogates[spec] = network.requires_grad_(False)
        changed: dict[str, Any] = {"surrogate": self._surrogates[spec]}
        return replace(attack, **changed)

    def rows(self, spec: DataSpec) -> Rows:
        """Return the rows, on the CPU."""
        if spec in self._given:
            return cast("Rows", self._given[spec])
        if self._rows is None or self._rows[0] != spec:
            refuse_untrusted([spec], self.trust)
            self._rows = None
            self._rows = spec, load_rows(spec)
        return self._rows[1]

    def code(self, spec: ModelSpec) -> dict[str, Any]:
        """Return what identifies the model besides its weights."""
        return describe_model(self.model(spec), None if spec in self._given else spec)

    def rows_and_targets(self, question: Question) -> tuple[Rows, Tensor | None]:
        """Return the rows of a question and the classes to reach; rows that are of a fixed target class stay out."""
        network, target = self.model(question.model), question.target
        rows = by_names(self.rows(question.data), network)
        if target is None:
            return rows, None
        with torch.no_grad():
            classes = logits_in(network(rows.images[:1].to(self.device))).shape[1]
        if isinstance(target, int) and target >= classes:
            names = f" ({', '.join(map(shown, rows.classes[:20]))})" if rows.classes else ""
            raise ValueError(f"target = {target}: {question.model.name} knows classes 0 to {classes - 1}{names}")
        rows = without_target(rows, target)
        return rows, targets(rows, target, classes, question.seed)


def surrogate_spec(attack: Attack) -> ModelSpec | None:
    """Return the network that an attack names as its surrogate."""
    named = attack.parameters().get("surrogate")
    return ModelSpec(named.name, named.name) if isinstance(named, NamedModel) else None


def load_rows(spec: DataSpec) -> Rows:
    """Return the rows that a plan names: of a data set, of an .npz file, or of a function that returns `Rows`."""
    chosen = list(spec.rows) if isinstance(spec.rows, tuple) else spec.rows
    if not is_code(spec.source):
        more: dict[str, Any] = {"limit": spec.limit, "seed": spec.seed, "bounds": spec.bounds}
        return data.load(spec.source, rows=chosen, **more)
    module, _, name = spec.source.rpartition(":")
    function = getattr(importlib.import_module(module), name, None)
    made = function() if callable(function) else None
    if not isinstance(made, Rows):
        raise ValueError(f"data {spec.source!r}: {module} needs a function {name} that returns sigmazero.data.Rows")
    rows = made if chosen is None else made.select(chosen)
    return rows if spec.limit is None else rows.limit(spec.limit, spec.seed)


def without_target(rows: Rows, target: str | int | None) -> Rows:
    """Leave out the rows whose label is the target class."""
    return rows.select((rows.labels != target).nonzero().squeeze(1)) if isinstance(target, int) else rows


def targets(rows: Rows, rule: str | int, classes: int, seed: int) -> Tensor:
    """Return the class to reach for each row; a drawn one depends on the seed and the row's number alone."""
    if isinstance(rule, int):
        return torch.full_like(rows.labels, rule)
    if rule == "next":
        return (rows.labels + 1) % classes

    def draw(row: int) -> int:
        return int.from_bytes(hashlib.sha256(f"target {seed} {row}".encode()).digest()[:8], "big") % (classes - 1)

    step = torch.tensor([1 + draw(row) for row in rows.ids.tolist()], dtype=torch.int64, device="cpu")
    return (rows.labels + step) % classes


class Origin(NamedTuple):
    """The source of the model and rows of a stored cell."""

    model: ModelSpec
    data: DataSpec
    target: str | int | None


_ORIGIN = TypeAdapter(Origin)


def origin(info: CellInfo) -> Origin:
    """Return the source of model and rows of a stored cell, as a `Loader` takes them."""
    try:
        return _ORIGIN.validate_python({name: info.origin.get(name) for name in Origin._fields})
    except ValidationError as error:  # whose text may show paths
        raise ValueError("the store does not say where model and rows of this cell came from") from error


def keep(store: Store, rows: Rows) -> bool:
    """Write rows given in Python to a store; return False if they take more than `MAX_BYTES`.

    8-bit images take one byte for each feature.
    """
    if store.arrays(rows.content_hash) is not None:
        return True
    if rows.images.dtype not in (torch.float32, torch.float64):
        return False
    images = rows.images.detach().cpu()
    levels = (images * 255).round().clamp(0, 255).to(torch.uint8)
    exact = torch.equal(levels.to(images.dtype) / 255, images) and not bool(images.signbit().any())
    stored = levels if exact else images
    if stored.nbytes > MAX_BYTES:
        return False
    arrays = {"images": stored.numpy(), "labels": rows.labels.cpu().numpy(), "ids": rows.ids.cpu().numpy()}
    store.keep_arrays(rows.content_hash, width=np.array(images.itemsize), **arrays)
    return True


def stored_rows(store: Store, info: CellInfo) -> Rows | None:
    """Return the rows of a cell that the store has; None if it has none."""
    arrays = store.arrays(info.data_hash)
    if arrays is None:
        return None
    images, labels, ids = (torch.from_numpy(arrays[name]) for name in ("images", "labels", "ids"))
    if images.dtype == torch.uint8:
        images = images.to(torch.float64 if int(arrays["width"]) == 8 else torch.float32) / 255
    return Rows(images, labels, ids, info.dataset)


def recall(store: Store, info: CellInfo, loader: Loader) -> DataSpec:
    """Return the name of a cell's rows; give the loader the rows if only the store has them."""
    spec = origin(info).data
    if spec.source != GIVEN:
        return spec
    rows = stored_rows(store, info)
    if rows is not None:
        loader.give_rows(spec, rows)
    elif not loader.has(spec):
        raise DataError(
            f"the inputs of {info.dataset} were tensors, and the store does not hold them: they took more than "
            f"{MAX_BYTES // 2**20} MB, or keep_inputs=False; save them as .npz and pass its name to sz.evaluate"
        )
    return spec


def clean_rows(store: Store, info: CellInfo, loader: Loader) -> Rows:
    """Return all rows of a cell, in its order; refuse other rows than those attacked."""
    spec = recall(store, info, loader)
    try:
        rows = without_target(by_names(loader.rows(spec), info.about.get("classes")), origin(info).target)
    except DataError as error:
        # of the same class, so that a missing file stays a FileNotFoundError
        raise type(error)(f"the inputs of {info.dataset} cannot be loaded again: {error}") from error
    if rows.content_hash != info.data_hash:
        raise DataError(
            f"{info.dataset} has other rows here than those attacked (sha256 {rows.content_hash[:12]}, stored "
            f"{info.data_hash[:12]}); let SIGMAZERO_HOME name the folder that has the same files"
        )
    return rows
