"""Facts about each sample of a cell, and the description of a cell: every report is made from these."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.core.domain import Unit
from sigmazero.core.messages import digest, visible
from sigmazero.core.result import Outcome, Result

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

ROUNDING = 1e-4  # of the spread of the logits: two machines differ by less, two models by more
SIDE = 101  # points along each side of a landscape
LAST_DIGITS = 1e-6  # of the largest logit: what float32 loses where a large number was added to all classes


def rounding_of(logits: Tensor) -> Tensor:
    """Return by how much rounding may change each row's logits, (N,): a share of their spread.

    Ignore classes with the same logit in every row, such as masked ones, and a number that is added to all classes:
    they say nothing about the model.
    """
    known = logits.double().nan_to_num(0.0, 0.0, 0.0)
    varies = (known != known[:1]).any(0)
    if int(varies.sum()) > 1:
        known = known[:, varies]
    spread = (known - known.mean(1, keepdim=True)).abs().amax(1)
    usual = spread.median() if len(spread) else spread.sum()
    return ROUNDING * spread.maximum(usual).clamp(min=1.0) + LAST_DIGITS * known.abs().amax(1)


def other_answers(stored: Tensor, fresh: Tensor) -> Tensor:
    """Return the positions of the rows whose logits differ by more than rounding; all of them if the shapes differ."""
    if stored.shape != fresh.shape:
        return torch.arange(len(fresh), device="cpu")
    finite = fresh.isfinite() & stored.isfinite()
    apart = torch.where(finite, (stored.double() - fresh.double()).abs(), 0.0)
    odd = ~finite & ~torch.isclose(stored.double(), fresh.double(), rtol=0, atol=0, equal_nan=True)
    return (odd.any(1) | (apart > rounding_of(fresh)[:, None]).any(1)).nonzero().squeeze(1)


def same_answers(stored: Tensor, fresh: Tensor) -> bool:
    """Return whether logits are those of the same model, up to rounding."""
    return stored.shape == fresh.shape and not len(other_answers(stored, fresh))


@dataclass(frozen=True)
class Facts:
    """Hold one entry per sample in each column; sample i changed the features index[offsets[i]:offsets[i + 1]].

    row            number of the row in its data set
    target         class to reach; −1 in an untargeted run
    l0, l0_pixel   numbers of changes; infinite where nothing was found
    seconds        time of the batch, divided by its samples
    given_up       points that were confirmed in the search and not afterwards
    cost           cost of all changes in a space with costs, infinite where nothing was found; NaN in other spaces
    returned       changes of the point that the method returns by its own rule, in the unit of the cell: infinite if
                   that point does not hold, NaN for a method that always returns the sparsest point it found
    value          new value of a changed feature, so that the adversarial input is rebuilt exactly (only the sign of
                   a zero may differ)
    """

    row: Integers
    label: Integers
    target: Integers
    clean_prediction: Integers
    prediction: Integers
    outcome: NDArray[np.int8]
    l0: Floats
    l0_pixel: Floats
    step_found: Integers
    forwards: Integers
    backwards: Integers
    margin: Floats
    seconds: Floats
    given_up: Integers
    cost: Floats
    returned: Floats
    offsets: Integers
    index: Integers
    value: NDArray[Any]

    def __post_init__(self) -> None:
        """Refuse columns of different lengths."""
        n = len(self.row)
        wrong = [name for name in COLUMNS if getattr(self, name).shape != (n,)]
        if wrong or self.offsets.shape != (n + 1,) or not len(self.index) == len(self.value) == self.offsets[-1]:
            raise ValueError(f"facts of {n} samples have columns of other lengths: {', '.join(wrong) or 'the changes'}")

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.row)

    @property
    def success(self) -> NDArray[np.bool_]:
        """Return whether the goal is reached within the budget: by the clean input already, or by a verified point."""
        return np.isin(self.outcome, (Outcome.ALREADY, Outcome.FOUND))

    @property
    def found(self) -> NDArray[np.bool_]:
        """Return whether there is a verified adversarial point: each success, and each point beyond the budget."""
        return np.isin(self.outcome, (Outcome.ALREADY, Outcome.FOUND, Outcome.BEYOND_BUDGET))

    @staticmethod
    def from_result(
        result: Result, labels: Tensor, targets: Tensor | None, x: Tensor, *, priced: bool = False
    ) -> Facts:
        """Return the facts of a run on inputs x with these true classes (and, if targeted, classes to reach).

        priced   whether changes have costs of their own, so that `cost` is a fact
        """
        changed = (result.x_adv != x).flatten(1).cpu()
        count = changed.sum(1).numpy()
        found = [name for name in COLUMNS if isinstance(getattr(result, name, None), Tensor)]
        column = {name: _array(getattr(result, name), KINDS[name]) for name in found}
        column |= {
            "row": _array(result.ids, np.int64),
            "label": _array(labels, np.int64),
            "target": np.full(len(result), -1, np.int64) if targets is None else _array(targets, np.int64),
            "seconds": np.full(len(result), result.seconds / max(len(result), 1)),
            "returned": np.full(len(result), np.nan) if result.own is None else _array(result.own.changes, np.float64),
        }
        column |= {} if priced else {"cost": np.full(len(result), np.nan)}
        return Facts(
            **column,
            offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(count)]),
            index=changed.nonzero()[:, 1].numpy(),
            value=result.x_adv.flatten(1).cpu()[changed].numpy(),
        )

    def to_result(self, x: Tensor, info: CellInfo) -> Result:
        """Return the result that these facts were made from; x are the clean inputs of these samples."""
        unknown = {"seconds"} if np.isfinite(self.cost).any() else {"seconds", "cost"}
        names = [name for name in COLUMNS if name in {f.name for f in fields(Result)} - unknown]
        columns: dict[str, Any] = {name: torch.from_numpy(getattr(self, name).copy()) for name in names}
        return Result(
            **columns,
            x_adv=self.rebuild(x),
            success=torch.from_numpy(self.success),
            ids=torch.from_numpy(self.row.copy()),
            unit=cast(Unit, info.unit),
            budget=info.budget,
            seconds=float(self.seconds.sum()),
        )

    @staticmethod
    def empty() -> Facts:
        """Return the facts of no samples."""
        columns: dict[str, Any] = {name: np.zeros(0, kind) for name, kind in KINDS.items()}
        return Facts(
            **columns, offsets=np.zeros(1, np.int64), index=np.zeros(0, np.int64), value=np.zeros(0, np.float32)
        )

    @staticmethod
    def join(parts: Sequence[Facts]) -> Facts:
        """Return the facts of several batches, one after the other."""
        if not parts:
            return Facts.empty()
        names = [f.name for f in fields(Facts) if f.name != "offsets"]
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        counts = np.concatenate([np.diff(part.offsets) for part in parts])
        return Facts(**joined, offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]))

    def take(self, samples: NDArray[Any] | slice) -> Facts:
        """Return the facts of some samples, by position or by a mask."""
        chosen = np.arange(len(self))[samples]
        counts = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        # Where each chosen change is: its row's old start plus its place within the row.
        where = np.repeat(self.offsets[:-1][chosen] - offsets[:-1], counts) + np.arange(offsets[-1])
        columns = {name: getattr(self, name)[chosen] for name in COLUMNS}
        return replace(self, **columns, offsets=offsets, index=self.index[where], value=self.value[where])

    def impossible(self, steps: int) -> list[tuple[NDArray[np.bool_], str]]:
        """Return counts that no attack with this many steps can have: pairs of a mask over the samples and a text.

        Asking the model again cannot show these.
        """
        late = np.maximum(self.forwards, steps)  # a step asks at least once, and some attacks count steps of restarts
        return [
            (self.forwards < 0, "forwards is below 0"),
            (self.backwards < 0, "backwards is below 0"),
            (self.given_up < 0, "given_up is below 0"),
            (~(np.isfinite(self.seconds) & (self.seconds >= 0)), "seconds is no time"),
            (self.step_found < -1, "step_found is below -1"),
            (self.step_found > late, "step_found is later than the last step"),
            (~(self.l0 >= 0) | ~(self.l0_pixel >= 0), "l0 or l0_pixel is below 0, or no number"),
            (self.returned < 0, "returned is below 0"),
        ]

    def rebuild(self, x: Tensor) -> Tensor:
        """Return the adversarial inputs, given the clean inputs of these samples in this order."""
        if len(x) != len(self):
            raise ValueError(
                f"{len(x)} inputs were given for the facts of {len(self)} samples; give one each, in order"
            )
        flat = x.detach().flatten(1).clone()
        sample = torch.from_numpy(np.repeat(np.arange(len(self)), np.diff(self.offsets))).to(x.device)
        flat[sample, torch.from_numpy(self.index).to(x.device)] = torch.from_numpy(self.value).to(flat)
        return flat.view(x.shape)


def _array(values: Tensor, kind: Any) -> NDArray[Any]:
    return values.detach().cpu().numpy().astype(kind)


TYPES: dict[str, Any] = {"Integers": np.int64, "Floats": np.float64, "NDArray[np.int8]": np.int8}
CHANGES = ("offsets", "index", "value")  # of all samples together
KINDS = {each.name: TYPES[str(each.type)] for each in fields(Facts) if each.name not in CHANGES}
COLUMNS = tuple(KINDS)


@dataclass(frozen=True)
class CellInfo:
    """Describe one cell: the question and its names.

    key          hash of `identity`
    identity     all that determines the answer
    parameters   all parameters of the attack, `steps` among them
    precision    number format of the search
    bounds       the box
    margin       least margin in the logits by which a success must hold
    origin       how to load model and data again
    about        names for reports, where the data has them: `shape` of an input, `names` of features, `classes`
    provenance   filled when a store is read: versions, device and commit of the runs that made the facts (a list
                 where they differ), seconds, and peak memory over all batches
    """

    key: str
    model: str
    dataset: str
    attack: str
    parameters: dict[str, Any]
    version: int
    steps: int
    unit: str
    goal: str
    budget: int | None
    seed: int
    precision: str
    rows: int
    model_sha256: str
    data_hash: str
    bounds: tuple[float | str, float | str] = (0.0, 1.0)
    margin: float = 0.0
    identity: dict[str, Any] = field(default_factory=dict)
    origin: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    NAMES: ClassVar = ("model", "dataset", "attack", "rows", "origin", "about", "provenance")  # not of the identity

    @staticmethod
    def of(identity: dict[str, Any], **names: Any) -> CellInfo:
        """Return the cell of an identity (`bench.identity.describe_cell`); `names` are those in `NAMES`."""
        attack = identity["attack"]
        return CellInfo(
            key=digest(identity),
            parameters=attack["parameters"],
            version=attack["version"],
            steps=attack["parameters"]["steps"],
            goal="untargeted" if identity["targets"] is None else "targeted",
            model_sha256=identity["model"]["weights"],
            data_hash=identity["data"],
            bounds=tuple(identity["bounds"]),
            margin=identity.get("margin", 0.0),
            identity=identity,
            **{name: identity[name] for name in ("unit", "budget", "seed", "precision")},
            **names,
        )

    @property
    def space_text(self) -> str | None:
        """Return the space of the question as the text of its file; None where there is none."""
        space = self.identity.get("space")
        return None if space is None else str(space["text"])

    @property
    def space(self) -> str:
        """Return a short name for what may change; a dash where everything may, from 0 to 1."""
        allowed = [list(self.bounds), self.identity.get("mask"), self.identity.get("space")]
        if allowed == [[0.0, 1.0], None, None]:
            return "–"
        return hashlib.sha256(json.dumps(allowed, sort_keys=True).encode()).hexdigest()[:8]

    @property
    def arrays(self) -> list[str]:
        """Return the names under which a store may keep arrays of this cell: rows, mask, bounds, answers, digests."""
        hashes = [self.data_hash, self.identity.get("mask"), *self.identity.get("bounds", ())]
        return [
            *(each for each in hashes if isinstance(each, str)),
            f"answers {self.key}",
            f"digests {self.data_hash}",
        ]

    def text(self) -> str:
        """Return the JSON text that a store keeps."""
        return json.dumps({name: value for name, value in asdict(self).items() if name != "provenance"}, sort_keys=True)

    @staticmethod
    def parse(text: str) -> CellInfo:
        """Read the text that a store keeps."""
        known = json.loads(text)
        known["bounds"] = tuple(known["bounds"])
        # A forged name must not start a new line where it is printed.
        known |= {name: visible(known[name]).replace("\n", "\\n") for name in ("model", "dataset", "attack")}
        return CellInfo(**known)


@dataclass(frozen=True)
class Trace:
    """The queries about one sample in their order: the clean check first, the verification of the result at the end.

    A point is stored as its differences from the clean input, which is stored too: a picture needs nothing else.
    Query i changed the features index[offsets[i]:offsets[i + 1]] to `value`. `margin` is below 0 where the goal
    is reached; `adversarial` marks points that reach it inside the box, which some searches leave. `landscape` has
    the margins over the box if there are two features, the second one down.
    """

    clean: NDArray[Any]
    margin: NDArray[np.float64]
    prediction: NDArray[np.int64]
    adversarial: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    index: NDArray[np.int64]
    value: NDArray[Any]
    landscape: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.margin)

    @property
    def l0(self) -> NDArray[np.int64]:
        """Return the number of changed features in each query."""
        return np.diff(self.offsets)

    def point(self, query: int) -> NDArray[Any]:
        """Return the input of a query, in its shape."""
        flat = self.clean.flatten()  # a copy
        span = slice(self.offsets[query], self.offsets[query + 1])
        flat[self.index[span]] = self.value[span]
        return flat.reshape(self.clean.shape)

    @property
    def records(self) -> list[int]:
        """Return the queries with an adversarial point of fewer changes than any before."""
        found: list[int] = []
        for query in np.flatnonzero(self.adversarial).tolist():
            if not found or self.l0[query] < self.l0[found[-1]]:
                found.append(query)
        return found
