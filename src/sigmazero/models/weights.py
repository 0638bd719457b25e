"""Weight files: where they are looked for, how they are checked, and how they become a state dict.

Reading never runs code: see `checkpoint` and safetensors. Nor does it take more memory than `core.files` allows.
"""

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sigmazero.core.files import TooLarge, afford, disguise, search
from sigmazero.core.messages import one_line, shown
from sigmazero.models.architectures.external import convert
from sigmazero.models.checkpoint import Unsuitable, describe
from sigmazero.models.described import Described, Refused
from sigmazero.models.zoo import WeightFile, ZooEntry

CONTAINERS = ("state_dict", "model_state_dict", "model", "net", "network", "params")
PREFIXES = ("module.", "model.")
SHOWN = 5
DEPTH = 10


class MissingWeights(FileNotFoundError):
    """A weight file is in none of the folders; the message says where to get it and where to put it.

    `fetch` is what to give to `models.fetch`, None where the file must be downloaded by hand.
    """

    def __init__(self, message: str, fetch: str | None = None) -> None:
        super().__init__(message)
        self.fetch = fetch


class WeightsError(ValueError):
    """A weight file cannot be used; the message says why and what to do."""


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
    fetch = f', or download it with sigmazero.models.fetch("{entry.code}")' if weight.url else ""
    raise MissingWeights(
        f"the weights of {entry.code} ({entry.title}) are missing: no file {bare!r} in\n{searched}\n"
        f"Published at: {entry.source}\nSave the file as {places[0] / weight.file}{fetch}",
        entry.code if weight.url else None,
    )


def verify(path: Path, sha256: str | None) -> None:
    """Compare a file's sha256 with the known one, or with its known leading digits."""
    if sha256 is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not found.startswith(sha256):
        raise WeightsError(
            f"{path} is not the expected file: its sha256 is {found}, expected {sha256}; delete it and get it again"
        )


def read(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read a state dict (.pt, .pth, .th, .ckpt, .safetensors) onto the CPU in single precision."""
    path = Path(path)
    if path.is_dir():
        raise WeightsError(f"{path} is a folder; name the file of weights in it")
    if path.exists() and not path.is_file():  # a device or a pipe may never end
        raise WeightsError(f"{path} is no regular file; name a file of weights")
    with path.open("rb") as file:
        found = disguise(file.read(512))
    if found:
        raise WeightsError(f"{path} is {found}; download it again, in a browser if need be")
    return _safetensors(path) if path.suffix == ".safetensors" else _checkpoint(path)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Whatever a file brings about, in one line that names it."""
    try:
        yield
    except TooLarge as error:
        raise WeightsError(str(error)) from None
    except Unsuitable as error:
        raise WeightsError(f"{path} {error}") from None
    except Refused as error:
        raise WeightsError(
            f"{path} is refused: it holds Python objects besides tensors ({one_line(error)}), and loading them would "
            "run code from the file. Where you trust it, load it yourself and save model.state_dict() to a new file"
        ) from None
    except Exception as error:  # damaged files fail in as many ways as there are bytes
        raise WeightsError(
            f"{path} is damaged, incomplete, or not a checkpoint ({one_line(error)}); download it again"
        ) from error


def _safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    with _explained(path):
        afford(path.stat().st_size, str(path))
        state: dict[str, Tensor] = load_file(path, device="cpu")
        # What is narrower takes more room in single precision.
        afford(4 * sum(value.numel() for value in state.values()), str(path))
        single = {key: value.float() if value.is_floating_point() else value for key, value in state.items()}
    if not single:
        raise WeightsError(f"{path} holds no weights; save model.state_dict()")
    return single


def _checkpoint(path: Path) -> dict[str, Tensor]:
    with _explained(path):
        checkpoint = describe(path)
    wanted = _unwrap(path, checkpoint.contents)
    for key, value in wanted.items():
        if value.flaw:
            raise WeightsError(f"{path}: {shown(key)} {value.flaw}, then model.state_dict() to a new file")
    with _explained(path):
        return checkpoint.make(wanted)


def _unwrap(path: Path, data: Any) -> Mapping[str, Described]:
    """Descend into containers such as {"state_dict": ...} until all values are tensors."""
    for _ in range(DEPTH):  # a checkpoint may contain itself
        if not isinstance(data, Mapping) or not data or all(isinstance(value, Described) for value in data.values()):
            break
        inner = [data[name] for name in CONTAINERS if isinstance(data.get(name), Mapping)]
        if not inner:
            break
        data = inner[0]
    if isinstance(data, Mapping) and data and all(isinstance(value, Described) for value in data.values()):
        if wrong := [key for key in data if not isinstance(key, str)]:
            raise WeightsError(
                f"{path}: its weights are named {_some(wrong)}, not by texts such as conv1.weight; save "
                "model.state_dict()"
            )
        return data
    keys = f"a dictionary with {_some(data) or 'nothing'}" if isinstance(data, Mapping) else f"a {_word(data)}"
    raise WeightsError(
        f"{path} holds {keys}, not a state dict; save model.state_dict(), bare or under one of {', '.join(CONTAINERS)}"
    )


def _word(data: Any) -> str:
    return "Tensor" if isinstance(data, Described) else type(data).__name__.removeprefix("_")


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
    kept = {key for key in own if key in optional or key.endswith("num_batches_tracked")}
    missing = [key for key in own if key not in state and key not in kept]
    unexpected = [key for key in state if key not in own]
    shared = [(key, state[key], value) for key, value in own.items() if key in state]
    problems = {
        "missing": missing,
        "unexpected": unexpected,
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
        told = "; ".join(f"{len(keys)} {what}: {_some(keys)}" for what, keys in problems.items() if keys)
        raise WeightsError(f"{origin} does not fit the network {type(network).__name__}: {told}")
    network.load_state_dict({**{key: own[key] for key in kept}, **state}, strict=True)


def _some(keys: Collection[Any]) -> str:
    words = ", ".join(shown(key) for key in list(keys)[:SHOWN])
    return f"{words}, ..." if len(keys) > SHOWN else words


def load_file(network: nn.Module, path: str | os.PathLike[str], entry: ZooEntry | None = None) -> None:
    """Load one file with all the weights of a network, with an entry's key clean-ups where it is known."""
    _load(network, [(Path(path), "")], entry)


def load_entry(network: nn.Module, entry: ZooEntry, model_dir: str | os.PathLike[str] | None = None) -> None:
    """Find, verify and load the published files of an entry."""
    paths = locate(entry, model_dir)
    for path, weight in zip(paths, entry.weights, strict=False):
        verify(path, weight.sha256)
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
