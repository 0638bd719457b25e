"""Weight files: find them, download them, check them, and read them as state dicts.

Reading a file never runs code: checkpoints of torch are read with `weights_only=True`, others are safetensors. A file
that was made to do harm may waste memory.
"""

import hashlib
import http.client
import os
import pickle
import re
import sys
import urllib.error
import warnings
import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.core.files import disguise, replacing, search
from sigmazero.core.messages import one_line, shown
from sigmazero.models import zoo
from sigmazero.models.architectures.external import convert
from sigmazero.models.zoo import WeightFile, ZooEntry

CONTAINERS = ("state_dict", "model_state_dict", "model", "net", "network", "params")
PREFIXES = ("module.", "model.")
SUFFIXES = (".pt", ".pth", ".th", ".ckpt", ".safetensors")
MAX_NAMES = 5  # in a message
MAX_DEPTH = 10  # of containers inside containers: a checkpoint may hold itself
BLOCK = 1 << 20


class MissingWeights(FileNotFoundError):
    """A weight file is in none of the folders; the message says where to get it and where to put it.

    `fetch` is what to give to `models.fetch`, None where the file must be downloaded by hand.
    """

    def __init__(self, message: str, fetch: str | None = None) -> None:
        super().__init__(message)
        self.fetch = fetch


class WeightsError(ValueError):
    """A weight file cannot be used; the message says why and what to do."""


class DownloadError(OSError):
    """A download failed or is not possible; the message says what to do."""


class UncheckedDownload(UserWarning):
    """A file was downloaded whose hash is not known; only that it can be read was checked."""


# Find


def locate(entry: ZooEntry, model_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """Find an entry's files, by their path in RobustBench's folder layout or by their bare name."""
    if entry.bundled:
        return [Path(__file__).with_name("weights") / entry.bundled]
    return [_locate(entry, weight, search("models", model_dir)) for weight in entry.weights]


def _locate(entry: ZooEntry, weight: WeightFile, places: list[Path]) -> Path:
    bare = weight.file.rpartition("/")[2]
    for place in places:
        for path in (place / weight.file, place / bare):
            if path.is_file():
                return path
    searched = "\n".join(f"  {place}" for place in places)
    fetched = f', or download it with sigmazero.models.fetch("{entry.code}")' if weight.url else ""
    raise MissingWeights(
        f"the weights of {entry.code} ({entry.title}) are missing: no file {bare!r} in\n{searched}\n"
        f"Published at: {entry.source}\nSave the file as {places[0] / weight.file}{fetched}",
        entry.code if weight.url else None,
    )


def verify(path: Path, weight: WeightFile) -> None:
    """Compare a file with the hash that is known of it: its SHA-256 or the first digits of it, or its id in git."""
    if weight.sha256:
        with path.open("rb") as file:
            name, found, wanted = "sha256", hashlib.file_digest(file, "sha256").hexdigest(), weight.sha256
    elif weight.blob:
        name, found, wanted = "git blob id", _blob_id(path), weight.blob
    else:
        return
    if not found.startswith(wanted):
        raise WeightsError(
            f"{path} is not the expected file: its {name} is {found}, expected {wanted}; delete it and get it again"
        )


def _blob_id(path: Path) -> str:
    """Return the id that git gives to a file: the SHA-1 of its size and its bytes."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


# Download


def fetch(code: str, directory: str | os.PathLike[str] | None = None, progress: bool | None = None) -> Path:
    """Download the weights of a known model and return the path of the (first) file.

    progress  show a bar; by default on a terminal

    A file takes its place only when it is complete and has the known hash. Where no hash is known it must be readable,
    and a warning gives its SHA-256.
    """
    entry = zoo.get(code)
    if entry.bundled:
        return locate(entry)[0]
    place, bar = search("models", directory)[0], sys.stderr.isatty() if progress is None else progress
    paths = [_fetch(entry, weight, place / weight.file, bar) for weight in entry.weights]
    return paths[0]


def _fetch(entry: ZooEntry, weight: WeightFile, target: Path, bar: bool) -> Path:
    if target.is_file() and _is_right(target, weight):
        return target
    if weight.url is None:
        raise DownloadError(
            f"{entry.code} cannot be downloaded automatically. Published at: {entry.source}\n"
            f"Download it there and save it as {target}"
        )
    try:
        with replacing(target) as part:
            torch.hub.download_url_to_file(weight.url, str(part), progress=bar)
            _check(entry, weight, part)
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise DownloadError(
            f"downloading {entry.code} from {weight.url} failed ({one_line(error)}); try again, or get the file by "
            f"hand from {entry.source} and save it as {target}"
        ) from error
    except WeightsError as error:
        why = str(error).partition("; ")[0]
        raise DownloadError(
            f"{weight.url} sent a wrong file ({why}); get it by hand from {entry.source} and save it as {target}"
        ) from error
    return target


def _is_right(path: Path, weight: WeightFile) -> bool:
    try:
        verify(path, weight)
    except WeightsError:
        return False
    return True


def _check(entry: ZooEntry, weight: WeightFile, part: Path) -> None:
    with part.open("rb") as file:
        if found := disguise(file.read(512)):
            raise WeightsError(f"{part} is {found}")
        file.seek(0)
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    verify(part, weight)
    if not (weight.sha256 or weight.blob):
        read(part)
        warnings.warn(
            f"no hash is known for {weight.file}: it can be read, and its sha256 is {sha256}; compare it with what "
            f"{entry.source} says",
            UncheckedDownload,
            stacklevel=5,
        )


# Read


def read(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read a state dict (.pt, .pth, .th, .ckpt, .safetensors) onto the CPU, real numbers in single precision."""
    path = Path(path)
    if path.exists() and not path.is_file():  # a device or a pipe may never end
        raise WeightsError(f"{path} is no regular file; name a file of weights")
    with path.open("rb") as file:
        if found := disguise(file.read(512)):
            raise WeightsError(f"{path} is {found}; download it again, in a browser if need be")
    state = _state_dict(path, _safetensors(path) if path.suffix == ".safetensors" else _checkpoint(path))
    for key, value in state.items():
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise WeightsError(f"{path}: {shown(key)} is sparse, quantised or without values; save a plain state dict")
    return {key: value.float() if value.is_floating_point() else value for key, value in state.items()}


def _safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    try:
        return load_file(path, device="cpu")
    except Exception as error:  # damaged files fail in as many ways as there are bytes
        raise _damaged(path, error) from error


def _checkpoint(path: Path) -> Any:
    try:
        _check_sums(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of formats that torch no longer writes
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        if named is None:
            raise _damaged(path, "not a checkpoint of torch") from error
        raise WeightsError(
            f"{path} is refused: it holds Python objects besides tensors ({shown(named[1])}), and loading them would "
            "run code from the file. If you trust it, load it yourself and save model.state_dict() to a new file"
        ) from None
    except Exception as error:
        raise _damaged(path, error) from error


def _check_sums(path: Path) -> None:
    """Read every entry of an archive, since torch does not compare checksums; it can be told to write none."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.CRC:
                    with archive.open(info) as entry:
                        while entry.read(BLOCK):
                            pass


def _damaged(path: Path, error: object) -> WeightsError:
    why = one_line(error) if isinstance(error, Exception) else error
    return WeightsError(
        f"{path} is damaged, incomplete, or not a checkpoint ({why}); download it again, or save model.state_dict()"
    )


def _state_dict(path: Path, data: Any) -> dict[str, Tensor]:
    """Descend into containers such as {"state_dict": ...} until all values are tensors."""
    for _ in range(MAX_DEPTH):
        inner = [data[name] for name in CONTAINERS if name in data] if isinstance(data, Mapping) else []
        inner = [each for each in inner if isinstance(each, Mapping)]
        if not inner:
            break
        data = inner[0]
    if isinstance(data, Mapping) and data and all(isinstance(value, Tensor) for value in data.values()):
        if wrong := [key for key in data if not isinstance(key, str)]:
            raise WeightsError(f"{path}: its weights are named {_some(wrong)}, not by texts; save model.state_dict()")
        return dict(data)
    some = (_some(data) or "nothing") if isinstance(data, Mapping) else ""
    keys = f"a dictionary with {some}" if isinstance(data, Mapping) else f"a {type(data).__name__}"
    raise WeightsError(
        f"{path} holds {keys}, not a state dict; save model.state_dict(), bare or under one of {', '.join(CONTAINERS)}"
    )


# Fit into a network


def tidy(
    state: Mapping[str, Tensor], expected: Collection[str], *, cut: int = 0, drop: tuple[str, ...] = ()
) -> dict[str, Tensor]:
    """Bring published keys to the network's own: cut characters, strip wrappers' prefixes, drop leftovers.

    Prefixes that the network itself uses stay, and so does every entry that already fits.
    """
    if cut and not set(expected) <= set(state):
        state = _rename(state, lambda key: key[cut:])
    for prefix in PREFIXES:
        if not any(key.startswith(prefix) for key in expected):
            state = _rename(state, lambda key, prefix=prefix: key.removeprefix(prefix))  # type: ignore[misc]
        state = {key: value for key, value in state.items() if key in expected or not key.startswith(drop)}
    return dict(state)


def _rename(state: Mapping[str, Tensor], rule: Callable[[str], str]) -> dict[str, Tensor]:
    renamed = {rule(key): value for key, value in state.items()}
    if len(renamed) < len(state):
        raise WeightsError("two entries of the checkpoint have the same name once their prefixes are removed")
    return renamed


def install(network: nn.Module, state: Mapping[str, Tensor], origin: str, *, optional: Collection[str] = ()) -> None:
    """Load a state dict strictly; what a file may omit is kept from the network.

    Batch counters are always optional: old checkpoints have none, and evaluation does not use them.
    """
    own = network.state_dict()
    optional_keys = {key for key in own if key in optional or key.endswith("num_batches_tracked")}
    shared = [(key, state[key], value) for key, value in own.items() if key in state]
    problems = {
        "missing": [key for key in own if key not in state and key not in optional_keys],
        "unexpected": [key for key in state if key not in own],
        "of another shape": [
            f"{key} {tuple(new.shape)} for {tuple(old.shape)}" for key, new, old in shared if new.shape != old.shape
        ],
        "of another type (save real weights in floating point)": [
            f"{key} {new.dtype} for {old.dtype}"
            for key, new, old in shared
            if old.is_floating_point() and not new.is_floating_point()
        ],
    }
    if any(problems.values()):
        why = "; ".join(f"{len(keys)} {what}: {_some(keys)}" for what, keys in problems.items() if keys)
        raise WeightsError(f"{origin} does not fit the network {type(network).__name__}: {why}")
    network.load_state_dict({**{key: own[key] for key in optional_keys}, **state}, strict=True)


def _some(keys: Collection[Any]) -> str:
    words = ", ".join(shown(key) for key in list(keys)[:MAX_NAMES])
    return f"{words}, ..." if len(keys) > MAX_NAMES else words


def load_file(network: nn.Module, path: str | os.PathLike[str], entry: ZooEntry | None = None) -> None:
    """Load one file with all the weights of a network, with an entry's key clean-ups where it is known."""
    _load(network, [(Path(path), "")], entry)


def load_entry(network: nn.Module, entry: ZooEntry, model_dir: str | os.PathLike[str] | None = None) -> None:
    """Find, verify and load the published files of an entry."""
    paths = locate(entry, model_dir)
    for path, weight in zip(paths, entry.weights, strict=False):
        verify(path, weight)
    parts = [weight.into for weight in entry.weights] or [""]
    _load(network, list(zip(paths, parts, strict=True)), entry)


def _load(network: nn.Module, files: list[tuple[Path, str]], entry: ZooEntry | None) -> None:
    own = set(network.state_dict())
    cut, drop, optional = (entry.strip_characters, entry.drop, entry.optional) if entry else (0, (), ())
    state: dict[str, Tensor] = {}
    for path, into in files:
        expected = {key.removeprefix(into) for key in own if key.startswith(into)}
        part = tidy(read(path), expected, cut=cut, drop=drop)
        state |= {into + key: value for key, value in part.items()}
    if entry and entry.architecture == "timm":
        state = convert(network, state)
    install(network, state, ", ".join(str(path) for path, _ in files), optional=optional)
