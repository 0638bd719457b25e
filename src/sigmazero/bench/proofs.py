"""Proved lower bounds into a store, and out of it for rows at hand.

Rows are recognised by their content: what is proved of twenty of them stands beside every cell that has them among a
thousand, whoever stored it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sigmazero.bench import identity
from sigmazero.bench.constraints import Allowed
from sigmazero.bench.loader import ABSENT, Loader, clean_rows
from sigmazero.bench.plan import ModelSpec
from sigmazero.certifier.certificates import Certificates
from sigmazero.certifier.certify import certify
from sigmazero.core.messages import one_line
from sigmazero.data import Rows
from sigmazero.store.facts import Integers, same_answers
from sigmazero.store.proofs import Proof, ProofKey, row_digests
from sigmazero.store.store import Store

METHOD, VERSION = "certify", 1  # of what is proved here: raised when it proves otherwise, so that proofs tell their age
TOGETHER = 50  # inputs that are certified before they are stored
POINTS = 16  # inputs by whose logits a model is recognised


def certify_into(
    path: Path,
    key: ProofKey,
    network: nn.Module,
    rows: Rows,
    loader: Loader,
    *,
    up_to: int,
    resume: Path | None = None,
    **how: Any,
) -> tuple[Certificates, list[str]]:
    """Certify rows into a store, some at a time; of those that it has proofs of beyond `up_to` nothing is asked again.

    `how` is as for `sz.certify`. With `resume`, a file that keeps what is done of exactly these rows, all of them are
    certified together. Returns what is known of every row, and why cells cannot be told of it.
    """
    device = loader.device
    known = torch.from_numpy(recall_proofs(path, key, rows, network))
    whole = _known(rows, known, up_to, key.unit, device)
    lost: list[str] = keep_proofs(path, key, rows, np.zeros(len(rows), np.int64), np.zeros(len(rows)), loader=loader)
    with Store(path, write=True) as store:
        _keep_answers(store, key, network, rows)
    left = torch.arange(len(rows)) if resume is not None else (known <= up_to).nonzero()[:, 0]
    asked: Any = {"up_to": up_to, "unit": key.unit, "resume": resume, **how}
    together = TOGETHER if resume is None else max(len(rows), 1)
    for start in range(0, len(left), together):
        places = left[start : start + together]
        some = rows.select(places)
        found = certify(network, some.images.to(device), some.labels.to(device), **asked)
        keep_proofs(path, key, some, found.lower.cpu().numpy(), found.seconds.cpu().numpy(), loader=loader)
        for name in ("lower", "upper", "x_adv", "correct", "done", "boxes", "seconds"):
            getattr(whole, name)[places.to(device)] = getattr(found, name)
        whole.lower[places.to(device)] = torch.maximum(found.lower, known[places].to(device))
    return whole, lost


def _known(rows: Rows, least: torch.Tensor, up_to: int, unit: Any, device: torch.device) -> Certificates:
    """Return what proofs tell before anything is certified."""
    count = torch.zeros(len(rows), dtype=torch.float64, device=device)
    held = (least.to(device), torch.full_like(count, torch.inf), rows.images.to(device).clone(), least.to(device) > 0)
    return Certificates(*held, least.to(device) > up_to, count, count.clone(), up_to, unit)


def proof_key(network: nn.Module, unit: str, allowed: Allowed, rows: Rows, spec: ModelSpec | None = None) -> ProofKey:
    """Return the key of proofs about a network, loaded as `spec` says or handed in, and its constraints."""
    code = identity.describe_model(network, spec)
    said = allowed.identity(tuple(rows.images.shape[1:]))
    mask = None if said["mask"] is None else identity.hash_tensors({"mask": said["mask"]})
    bounds = [identity.plain_bound(bound) for bound in said["bounds"]]
    return ProofKey.of(identity.hash_weights(network), code, unit, bounds, mask, said["space"])


def recall_proofs(path: Path, key: ProofKey, rows: Rows, network: nn.Module | None = None) -> Integers:
    """Return how many changes a store has proved to be needed for each row; 0 where it has no proof.

    network   the present model: refused if it answers differently from the one that the proofs are about
    """
    if not path.exists():
        return np.zeros(len(rows), np.int64)
    with Store(path) as store:
        known = store.proofs(key)
        if known and network is not None:
            _check_answers(store, key, network)
    digests = row_digests(rows.images, rows.labels)
    return np.array([known[row].least if row in known else 0 for row in digests], np.int64)


def _answers(key: ProofKey) -> str:
    return f"answers {identity.digest(list(key))}"


def _keep_answers(store: Store, key: ProofKey, network: nn.Module, rows: Rows) -> None:
    """Keep some inputs and the model's answers, by which later runs recognise it."""
    if len(rows) and store.arrays(_answers(key)) is None:
        x = rows.images[torch.linspace(0, len(rows) - 1, min(len(rows), POINTS)).round().long()]
        logits = identity.probe(network, x.to(device_of(network)))
        store.keep_arrays(_answers(key), x=x.numpy(), logits=logits.numpy())


def _check_answers(store: Store, key: ProofKey, network: nn.Module) -> None:
    """Refuse proofs about a model that answered differently."""
    held = store.arrays(_answers(key))
    if held is None:
        return
    fresh = identity.probe(network, torch.from_numpy(held["x"]).to(device_of(network)))
    if not same_answers(torch.from_numpy(held["logits"]), fresh):
        raise ValueError(
            f"{store.path}: the model's outputs differ from those of the model that its proofs are about, although "
            "weights and source files are unchanged; use another store"
        )


def device_of(network: nn.Module) -> torch.device:
    """Return the device of a network's parameters; the processor if it has none."""
    return next((each.device for each in network.parameters()), torch.device("cpu"))


def keep_proofs(
    path: Path,
    key: ProofKey,
    rows: Rows,
    least: Sequence[int] | Integers,
    seconds: Sequence[float] | NDArray[np.float64],
    *,
    loader: Loader,
    method: str = METHOD,
    version: int = VERSION,
) -> list[str]:
    """Keep how many changes are proved to be needed for each row; 0 where nothing is.

    Returns why cells of the store could not be told which of these rows are theirs: a line each. A bound above what an
    attack in the store needs is refused, and nothing is kept.
    """
    digests = row_digests(rows.images, rows.labels)
    made = zip(digests, least, seconds, strict=True)
    with Store(path, write=True) as store, store.together():
        store.keep_digests(rows.content_hash, digests)
        lost = recognise_rows(store, loader, key)
        store.prove(key, {row: Proof(int(bound), method, version, float(took)) for row, bound, took in made if bound})
    return lost


def recognise_rows(store: Store, loader: Loader, key: ProofKey | None = None) -> list[str]:
    """Note the digests of the rows of cells that can have proofs (about `key`, or all), so that they find them.

    Returns a line for each cell whose rows cannot be loaded here.
    """
    lost: dict[str, str] = {}
    wanted = set(store.proof_keys()) if key is None else {key}
    for info in store.cells() if wanted else ():
        if ProofKey.of_cell(info) not in wanted or store.digests(info.data_hash) is not None or info.data_hash in lost:
            continue
        try:
            found = clean_rows(store, info, loader)
        except (*ABSENT, ValueError, LookupError) as error:
            lost[info.data_hash] = (
                f"{info.dataset}: its rows are not known here, so no proof is theirs: {one_line(error)}"
            )
            continue
        store.keep_digests(info.data_hash, row_digests(found.images, found.labels))
    return list(lost.values())
