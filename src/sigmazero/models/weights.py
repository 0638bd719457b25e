"""Weight files: find them, download them, check them, and read them as state dicts. Reading one never runs code."""

import hashlib
import http.client
import os
import pickle
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.core.files import disguise, replacing, search
from sigmazero.core.messages import one_line, shown
from sigmazero.models import zoo
from sigmazero.models.architectures import convert
from sigmazero.models.zoo import WeightFile, ZooEntry

CONTAINERS = ("state_dict", "model_state_dict", "model", "net", "network", "params")
PREFIXES = ("module.", "model.")
SUFFIXES = (".pt", ".pth", ".th", ".ckpt", ".safetensors")
MAX_NAMES = 5  # in a message
MAX_TEXT = 800  # characters of torch's list of entries that do not fit


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
    places, found = search("models", model_dir), []
    for weight in entry.weights:
        bare = Path(weight.file).name
        path = next((path for place in places for path in (place / weight.file, place / bare) if path.is_file()), None)
        if path is None:
            searched = "\n".join(f"  {place}" for place in places)
            fetched = f', or download it with sigmazero.models.fetch("{entry.code}")' if weight.url else ""
            raise MissingWeights(
                f"the weights of {entry.code} ({entry.title}) are missing: no file {bare!r} in\n{searched}\n"
                f"Published at: {entry.source}\nSave the file as {places[0] / weight.file}{fetched}",
                entry.code if weight.url else None,
            )
        found.append(path)
    return found


def verify(path: Path, weight: WeightFile) -> None:
    """Compare a file with the hash that is known of it: its SHA-256 or the first digits of it, or its id in git."""
    if weight.sha256:
        name, wanted, found = "sha256", weight.sha256, _sha256(path)
    elif weight.blob:
        data = path.read_bytes()
        name, wanted = "git blob id", weight.blob
        found = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    else:
        return
    if not found.startswith(wanted):
        raise WeightsError(f"{path}: its {name} is {found}, expected {wanted}; delete it and get it again")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    for weight in entry.weights:
        target = place / weight.file
        if target.is_file():
            with suppress(WeightsError):
                verify(target, weight)
                continue
        if weight.url is None:
            raise DownloadError(f"{entry.code} must be downloaded by hand, from {entry.source}; save it as {target}")
        try:
            with replacing(target) as part:
                torch.hub.download_url_to_file(weight.url, str(part), progress=bar)
                verify(part, weight)
                if not (weight.sha256 or weight.blob):
                    read(part)
                    warnings.warn(
                        f"no hash is known for {weight.file}: it can be read, and its sha256 is {_sha256(part)}; "
                        f"compare it with what {entry.source} says",
                        UncheckedDownload,
                        stacklevel=2,
                    )
        except (OSError, http.client.HTTPException, WeightsError) as error:
            raise DownloadError(
                f"downloading {entry.code} from {weight.url} failed ({one_line(error)}); try again, or get the file by "
                f"hand from {entry.source} and save it as {target}"
            ) from error
    return place / entry.weights[0].file


# Read


def read(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read a state dict (.pt, .pth, .th, .ckpt, .safetensors) onto the CPU, real numbers in single precision.

    Reading never runs code, but a file that was made to do harm may waste memory.
    """
    path = Path(path)
    if not path.exists():
        raise MissingWeights(f"{path}: no such file of weights; check the path, or leave the weights out")
    if not path.is_file():  # a store may name a device, which never ends
        raise WeightsError(f"{path} is no regular file; name a file of weights")
    from safetensors.torch import load_file as load_safetensors  # later: it takes a while

    with path.open("rb") as file:
        if found := disguise(file.read(512)):
            raise WeightsError(f"{path} is {found}; download it again, in a browser if need be")
    try:
        data = load_safetensors(path) if path.suffix == ".safetensors" else _checkpoint(path)
    except Exception as error:  # damaged files fail in as many ways as there are bytes
        named = re.search(r"GLOBAL (\S+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
        if named is not None:
            raise WeightsError(
                f"{path} is refused: it holds Python objects ({shown(named[1])}), which run code when they are loaded; "
                "if you trust it, load it yourself and save model.state_dict()"
            ) from None
        why = one_line(error)
        raise WeightsError(f"{path} is damaged, incomplete, or not a checkpoint ({why}); get it again") from error
    return {key: value.float() if value.is_floating_point() else value for key, value in _state_dict(path, data)}


def _checkpoint(path: Path) -> Any:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if entry.CRC:  # which torch does not compare, and can be set not to write
                    archive.read(entry)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of formats that torch no longer writes
        return torch.load(path, map_location="cpu", weights_only=True)


def _state_dict(path: Path, data: Any) -> Collection[tuple[str, Tensor]]:
    """Descend into containers such as {"state_dict": ...} until all values are tensors."""
    for _ in CONTAINERS:  # no deeper: a checkpoint may hold itself
        inner = [data[name] for name in CONTAINERS if name in data] if isinstance(data, Mapping) else []
        data = next((each for each in inner if isinstance(each, Mapping)), data)
    seen = f"a {type(data).__name__}"
    if isinstance(data, Mapping):
        if data and all(isinstance(key, str) and isinstance(value, Tensor) for key, value in data.items()):
            return data.items()
        keys = [*map(shown, data)]
        seen = f"a dictionary with {', '.join(keys[:MAX_NAMES]) or 'nothing'}{', ...' if len(keys) > MAX_NAMES else ''}"
    raise WeightsError(f"{path} holds {seen}, not a state dict; save model.state_dict()")


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


def fill(
    network: nn.Module,
    entry: ZooEntry | None = None,
    path: str | os.PathLike[str] | None = None,
    model_dir: str | os.PathLike[str] | None = None,
) -> None:
    """Fill a network with weights: with one file of all of them, or with an entry's own files, which are verified."""
    files = [(Path(path), "")] if path is not None else []
    if entry is not None and path is None:
        weights = entry.weights or (WeightFile(entry.bundled or ""),)
        files = [(file, weight.into) for file, weight in zip(locate(entry, model_dir), weights, strict=True)]
        for (file, _), weight in zip(files, weights, strict=True):
            verify(file, weight)
    own = network.state_dict()
    cut, drop, optional = (entry.strip_characters, entry.drop, entry.optional) if entry else (0, (), ())
    state: dict[str, Tensor] = {}
    for file, into in files:
        expected = {key.removeprefix(into) for key in own if key.startswith(into)}
        part = tidy(read(file), expected, cut=cut, drop=drop)
        state |= {into + key: value for key, value in part.items()}
    if entry and entry.architecture == "timm":
        state = convert(network, state)
    # Batch counters are always optional: old checkpoints have none, and evaluation does not use them.
    omitted = {key: own[key] for key in own if key in optional or key.endswith("num_batches_tracked")}
    try:
        network.load_state_dict({**omitted, **state})
    except RuntimeError as error:  # which names every entry that is missing, unexpected or of another shape
        why = " ".join(str(error).split()).partition(": ")[2]
        names = ", ".join(str(file) for file, _ in files)
        raise WeightsError(f"{names} does not fit the network {type(network).__name__}: {why[:MAX_TEXT]}") from None
