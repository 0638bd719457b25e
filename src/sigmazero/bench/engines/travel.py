"""Models and rows on their way to a machine that does not have them.

A model travels as the text of the file that builds it, if it has one, and its weights; rows as arrays. Whoever takes
them out compares their hashes with those of the cell before use (`Worker`, `Hand`), so a parcel need not be trusted to
be the right one. The code in it runs only under the same trust as the file itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sigmazero import models
from sigmazero.bench.cells import Loader
from sigmazero.bench.model_identity import describe_code
from sigmazero.bench.plan import DataSpec, ModelSpec
from sigmazero.bench.trust import refuse_untrusted
from sigmazero.data import Rows


@dataclass(frozen=True)
class ModelParcel:
    """The file that a model is made from, by name and content, if there is one, and its weights."""

    file: tuple[str, bytes] | None
    weights: dict[str, Any]


@dataclass(frozen=True)
class RowsParcel:
    """Rows as arrays."""

    images: NDArray[Any]
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    name: str


Parcel = ModelParcel | RowsParcel


def pack_spec(loader: Loader, spec: ModelSpec | DataSpec) -> Parcel:
    """What a worker needs in order to have that model, or those rows."""
    if isinstance(spec, DataSpec):
        rows = loader.rows(spec)
        return RowsParcel(rows.images.numpy(), rows.labels.numpy(), rows.ids.numpy(), rows.name)
    weights = {
        name: value.cpu() if isinstance(value, torch.Tensor) else value
        for name, value in loader.model(spec).state_dict().items()
    }
    path = _file(spec)
    return ModelParcel(None if path is None else (path.name, path.read_bytes()), weights)


def _file(spec: ModelSpec) -> Path | None:
    """The file that a model is made from; None for one that comes with an installed package."""
    place = spec.spec.rpartition(":")[0] or spec.spec
    return (
        None
        if models.find(spec.spec) is not None or not Path(place).suffix or not Path(place).is_file()
        else Path(place)
    )


class Receiver(Loader):
    """Loads models and rows from parcels; `fetch` brings one, and is asked once for each that comes to be used."""

    fetch: Callable[[ModelSpec | DataSpec], Parcel]

    def model(self, spec: ModelSpec) -> nn.Module:
        """The network, on the device, in evaluation mode."""
        if self._model is None or self._model[0] != spec:
            refuse_untrusted([spec], self.trust)
            self._model = None  # make room first
            parcel = self.fetch(spec)
            assert isinstance(parcel, ModelParcel)
            self._model = spec, self._built(spec, parcel)
        return self._model[1]

    def _built(self, spec: ModelSpec, parcel: ModelParcel) -> nn.Module:
        entry = models.find(spec.spec)
        if entry is not None:
            network = entry.normalized(entry.build()).requires_grad_(False)
        else:
            here = self._unpacked(spec, parcel)
            network = models.load(here.spec, normalize=spec.normalize, device=self.device)
        network.load_state_dict(parcel.weights)
        return network.to(self.device).eval()

    def _unpacked(self, spec: ModelSpec, parcel: ModelParcel) -> ModelSpec:
        """The same model by a file that is here; its name is a part of what identifies it."""
        if parcel.file is None:
            self._here = spec
            return spec
        self._folder = tempfile.TemporaryDirectory(prefix="sigmazero-")
        name, content = parcel.file
        path = Path(self._folder.name) / Path(name).name
        path.write_bytes(content)
        _, colon, function = spec.spec.rpartition(":")
        self._here = replace(spec, spec=f"{path}{colon}{function}" if colon else str(path))
        return self._here

    def code(self, spec: ModelSpec) -> dict[str, Any]:
        """What identifies the model besides its weights."""
        network = self.model(spec)
        return describe_code(spec if models.find(spec.spec) is not None else self._here, network)

    def rows(self, spec: DataSpec) -> Rows:
        """The rows, on the processor."""
        if self._rows is None or self._rows[0] != spec:
            self._rows = None
            parcel = self.fetch(spec)
            assert isinstance(parcel, RowsParcel)
            # Copies: what comes out of an object store must not be written to.
            images, labels, ids = (
                torch.from_numpy(array.copy()) for array in (parcel.images, parcel.labels, parcel.ids)
            )
            self._rows = spec, Rows(images, labels, ids, parcel.name)
        return self._rows[1]
