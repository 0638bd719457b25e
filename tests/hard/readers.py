"""Each reader of files: good files to begin with, how a changed one is read, and what may be said about it."""

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from sigmazero.bench.plan import read_plan
from sigmazero.core.toml import TomlError
from sigmazero.data import DataError, load
from sigmazero.models import MissingExtra, WeightsError, weights
from sigmazero.models import load as load_model
from sigmazero.store.store import Store, StoreError
from tests import onnx_files
from tests.plans import PLAN
from tests.store.making import cell, made

Wrap = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Seed:
    """A good part of a file: its name, its bytes, and how the whole is made of a changed part."""

    name: str
    data: bytes
    wrap: Wrap = bytes


@dataclass(frozen=True)
class Reader:
    """How files of a kind are made and read; `beside` are files that stay as they are."""

    seeds: list[Seed]
    read: Callable[[Path], object]
    errors: tuple[type[Exception], ...]
    beside: Mapping[str, bytes]


RANDOM = np.random.default_rng(7)
PIXELS = RANDOM.integers(0, 256, (5, 28, 28), dtype=np.uint8)
COLOURS = RANDOM.integers(0, 256, (5, 3072), dtype=np.uint8)
LABELS = np.arange(5, dtype=np.uint8)


def zipped(entries: Mapping[str, bytes], packed: bool = False) -> bytes:
    """A zip archive with these entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz() -> Reader:
    parts = {"images.npy": npy(PIXELS / 255.0), "labels.npy": npy(LABELS), "layout.npy": npy(np.array("NCHW"))}
    seeds = [Seed("m.npz", zipped(parts, packed)) for packed in (False, True)]
    seeds += [
        Seed("m.npz", data[:300], lambda b, name=name: zipped({**parts, name: b + parts[name][300:]}, True))  # type: ignore[misc]
        for name, data in parts.items()
    ]
    return Reader(seeds, lambda path: load(path, limit=3), (DataError,), {})


def idx() -> Reader:
    images = bytes([0, 0, 8, 3]) + struct.pack(">3I", *PIXELS.shape) + PIXELS.tobytes()
    labels = bytes([0, 0, 8, 1]) + struct.pack(">I", 5) + LABELS.tobytes()
    first, second = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
    seeds = [
        Seed(first, images),
        Seed(second, labels),
        Seed(f"{first}.gz", gzip.compress(images)),
        Seed(f"{first}.gz", images[:100], lambda b: gzip.compress(b + images[100:])),
        Seed(f"{second}.gz", labels, gzip.compress),
    ]
    return Reader(seeds, _dataset("mnist"), (DataError,), {first: images, second: labels})


def cifar() -> Reader:
    batches = [pickle.dumps({b"data": COLOURS, b"labels": LABELS.tolist()}, protocol) for protocol in (2, 4)]
    binary = np.hstack([LABELS[:, None], COLOURS]).tobytes()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in (("x/readme.html", b"<html>"), ("x/test_batch.bin", binary)):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    tar = buffer.getvalue()
    seeds = [Seed("test_batch", data) for data in batches]
    seeds += [Seed("test_batch", data[:200], lambda b, data=data: b + data[200:]) for data in batches]  # type: ignore[misc]
    seeds += [
        Seed("test_batch.bin", binary),
        Seed("cifar-10-binary.tar", tar),
        Seed("cifar-10-binary.tar.gz", gzip.compress(tar)),
        Seed("cifar-10-binary.tar.gz", tar[:2048], lambda b: gzip.compress(b + tar[2048:])),
    ]
    return Reader(seeds, _dataset("cifar10"), (DataError,), {})


def _dataset(name: str) -> Callable[[Path], object]:
    return lambda path: load(name, data_dir=path.parent)


def _state() -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    state = {"conv.weight": torch.rand(4, 3, generator=g), "conv.bias": torch.rand(4, generator=g).half()}
    return {**state, "steps": torch.tensor(3), "view": torch.rand(8, 8, generator=g)[::2, 1:]}


def pth() -> Reader:
    modern, old = io.BytesIO(), io.BytesIO()
    torch.save({"epoch": 3, "state_dict": _state()}, modern)
    torch.save({"epoch": 3, "state_dict": _state()}, old, _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(modern) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    inner = Seed("m.pth", parts["archive/data.pkl"], lambda b: zipped({**parts, "archive/data.pkl": b}))
    seeds = [Seed("m.pth", modern.getvalue()), inner, inner, Seed("m.pth", old.getvalue())]
    return Reader(seeds, weights.read, (WeightsError,), {})


def safetensors() -> Reader:
    from safetensors.torch import save

    data = save({key: value.contiguous() for key, value in _state().items()})
    length = int.from_bytes(data[:8], "little")
    header, rest = data[8 : 8 + length], data[8 + length :]
    inner = Seed("m.safetensors", header, lambda b: len(b).to_bytes(8, "little") + b + rest)
    assert json.loads(header)
    return Reader([Seed("m.safetensors", data), inner], weights.read, (WeightsError,), {})


def onnx() -> Reader:
    """Networks of one layer and of several."""
    weight, bias = RANDOM.random((2, 3), dtype=np.float32), np.ones(2, np.float32)
    nodes = [
        onnx_files.node("Constant", [], "c", value=np.ones(1, np.float32)),
        onnx_files.node("Sub", ["x", "c"], "a"),
        onnx_files.node("Conv", ["a", "k"], "h", pads=[0, 1, 1, 0], strides=[1, 1]),
        onnx_files.node("LeakyRelu", ["h"], "r", alpha=0.25),
        onnx_files.node("Reshape", ["r", "s"], "f"),
        onnx_files.node("Gemm", ["f", "w", "b"], "y", transB=1),
    ]
    kernel, flat = RANDOM.random((2, 1, 2, 2), dtype=np.float32), np.array([0, -1], np.int64)
    constants = {"k": kernel, "s": flat, "w": RANDOM.random((2, 18), dtype=np.float32), "b": bias}
    several = onnx_files.model(nodes, constants, (1, 1, 3, 3))
    seeds = [Seed("m.onnx", content) for content in (onnx_files.linear(weight, bias), several)]
    return Reader(seeds, load_model, (ValueError, MissingExtra), {})  # an operator that is not known needs the extra


def toml() -> Reader:
    whole = """
name = "all"
budgets = [1, 2, 24]
[models.net]
spec = "net.py:build"
normalize = "0.5,0.25"
[data.mine]
source = "mine.npz"
rows = "0:10"
[attacks.z]
attack = "sigma-zero"
parameters = { step_size = 1 }
sweep = { threshold = [0.1, 0.3], smoothing = [1, 0.01] }
goal = "targeted"
target = "next"
[[grid]]
models = ["net", "demo"]
data = ["mine", "mnist"]
attacks = ["z"]
unit = "pixel"
"""
    return Reader([Seed("m.toml", text.encode()) for text in (whole, PLAN)], read_plan, (TomlError,), {})


def store() -> Reader:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "s.db"
        with Store(path, write=True) as made_store:
            made_store.register([cell("k", rows=16), cell("other", rows=4)])
            run = made_store.begin({"torch": "1"})
            for start in (0, 8):
                made_store.append("k", start, made(8, seed=start), run=run)
            made_store.fail("other", "it broke")
            made_store.keep_answers("k", torch.rand(3, 4))
            made_store.diagnose("k", [{"code": "c", "text": "t"}])
        data = path.read_bytes()
    return Reader([Seed("s.db", data)], _everything, (StoreError,), {})


def _everything(path: Path) -> None:
    """All that can be asked of a store."""
    with Store(path) as opened:
        for key in opened.cell_keys():
            opened.cell(key)
            opened.stored(key)
            opened.facts(key)
            opened.answers(key)
        opened.cells()
        opened.status()
        opened.findings()
        opened.damage()
        opened.writer()


READERS: dict[str, Callable[[], Reader]] = {
    "npz": npz,
    "onnx": onnx,
    "idx": idx,
    "cifar": cifar,
    "pth": pth,
    "toml": toml,
    "store": store,
}
if find_spec("safetensors"):
    READERS["safetensors"] = safetensors
