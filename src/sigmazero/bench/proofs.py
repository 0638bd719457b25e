"""Write proved lower bounds to a store, and look them up for given rows.

Rows are identified by their content, so a proof about a row applies to every cell that contains the row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sigmazero.bench import identity
from sigmazero.bench.constraints import Allowed
from sigmazero.bench.loader import ABSENT, Loader, clean_rows
from sigmazero.bench.plan import ModelSpec
from sigmazero.certifier.certify import Certificates, Certifier
from sigmazero.core.domain import Unit
from sigmazero.core.messages import one_line
from sigmazero.data import Rows
from sigmazero.run.progress import bar, to_stderr
from sigmazero.store.facts import Integers, same_answers
from sigmazero.store.proofs import Proof, ProofKey, row_digests
from sigmazero.store.store import Store

METHOD, VERSION = "certify", 1  # of the proofs made here; raise the number when the certifier changes
OVER_REALS = "certify over the reals"  # the method of a proof that ignores the model's rounding
SHARE = 0.05  # of the time that storing may take; a killed process loses what is not stored yet


def certify_into(
    path: Path,
    key: ProofKey,
    network: nn.Module,
    rows: Rows,
    loader: Loader,
    *,
    progress: bool = False,
    **options: Any,
) -> tuple[Certificates, list[str]]:
    """Certify rows into a store, and go on from the proofs and examples that it has.

    `options` are those of `sz.certify`. Return what is known about every row, and a line for each data set whose rows
    cannot be loaded here, so that its cells do not find the proofs.
    """
    before = recalled(path, key, rows, network)
    known = torch.tensor([0 if proof is None else proof.least for proof in before], dtype=torch.int64)
    digests = row_digests(rows.images, rows.labels)
    with Store(path, write=True) as store, store.together():
        store.keep_digests(rows.content_hash, digests)
        lost = recognise_rows(store, loader, key)
        _keep_answers(store, key, network, rows)
    images, labels = rows.images.to(loader.device), rows.labels.to(loader.device)
    examples = _recalled_examples(path, key, rows.images, digests)
    certifier = Certifier(network, images, labels, unit=cast(Unit, key.unit), known=known, examples=examples, **options)
    found = certifier.found
    found.over_reals.copy_(torch.tensor([proof is not None and proof.method == OVER_REALS for proof in before]))
    least, most = known.clone(), found.upper.cpu().clone()  # as they are in the store
    changed = torch.zeros(len(rows), dtype=torch.bool)

    def store_changes() -> None:
        proofs, points = {}, {}
        for position in changed.nonzero()[:, 0].tolist():
            if (bound := int(found.lower[position])) > least[position]:
                method = OVER_REALS if found.over_reals[position] else METHOD
                proofs[digests[position]] = Proof(bound, method, VERSION, float(found.seconds[position]))
                least[position] = bound
            if (upper := float(found.upper[position])) < most[position] and upper > 0:
                points[digests[position]] = _difference(found.x_adv[position], images[position])
                most[position] = upper
        with Store(path, write=True) as store, store.together():
            store.prove(key, proofs)
            store.keep_examples(key, points)
        changed.zero_()

    stored, took = time.perf_counter(), 0.0
    try:
        with bar("certify", len(rows), progress, "inputs", certifier.words, to_stderr) as advance:
            for block in certifier.run(advance):
                changed[block.cpu()] = True
                begin = time.perf_counter()
                if (begin - stored) * SHARE >= took:
                    store_changes()
                    stored = time.perf_counter()
                    took = stored - begin
    finally:
        if changed.any():
            store_changes()
    return found, lost


def _difference(point: torch.Tensor, x: torch.Tensor) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the positions and values of the features of a point that differ from the input."""
    places = (point != x).flatten().nonzero()[:, 0]
    return places.cpu().numpy(), point.flatten()[places].cpu().numpy()


def _recalled_examples(path: Path, key: ProofKey, images: torch.Tensor, digests: Sequence[str]) -> torch.Tensor:
    """Return the adversarial example of each row in the store; the row itself where there is none."""
    with Store(path) as store:
        known = store.examples(key)
    found = images.clone()
    for position, row in enumerate(digests):
        if row in known:
            places, values = (torch.from_numpy(each) for each in known[row])
            found[position].view(-1)[places] = values.to(found)
    return found


def proof_key(network: nn.Module, unit: str, allowed: Allowed, rows: Rows, spec: ModelSpec | None = None) -> ProofKey:
    """Return the key of proofs about a network, loaded as `spec` says or handed in, and its constraints."""
    code = identity.describe_model(network, spec)
    return ProofKey.of(identity.hash_weights(network), code, unit, **allowed.identity(tuple(rows.images.shape[1:])))


def recall_proofs(path: Path, key: ProofKey, rows: Rows, network: nn.Module | None = None) -> Integers:
    """Return how many changes each row is proved to need; 0 without a proof.

    network   the present model: refused if it answers differently from the model that the proofs are about
    """
    found = recalled(path, key, rows, network)
    return np.array([0 if proof is None else proof.least for proof in found], np.int64)


def recalled(path: Path, key: ProofKey, rows: Rows, network: nn.Module | None) -> list[Proof | None]:
    """Return the proof of each row, after checking that they are about this model."""
    if not path.exists():
        return [None] * len(rows)
    with Store(path) as store:
        known = store.proofs(key)
        if known and network is not None:
            _check_answers(store, key, network)
    return [known.get(row) for row in row_digests(rows.images, rows.labels)]


def _answers(key: ProofKey) -> str:
    return f"answers {identity.digest(list(key))}"


def _keep_answers(store: Store, key: ProofKey, network: nn.Module, rows: Rows) -> None:
    """Keep some inputs and the model's answers, which identify it later."""
    if len(rows) and store.arrays(_answers(key)) is None:
        x = rows.images[identity.probed(len(rows))]
        logits = identity.probe(network, x.to(device_of(network)))
        store.keep_arrays(_answers(key), x=x.numpy(), logits=logits.numpy())


def _check_answers(store: Store, key: ProofKey, network: nn.Module) -> None:
    """Refuse proofs about a model that answered differently."""
    stored = store.arrays(_answers(key))
    if stored is None:
        return
    fresh = identity.probe(network, torch.from_numpy(stored["x"]).to(device_of(network)))
    if not same_answers(torch.from_numpy(stored["logits"]), fresh):
        raise ValueError(
            f"{store.path}: the model's outputs differ from those of the model that its proofs are about, although "
            "weights and source files are unchanged; use another store"
        )


def device_of(network: nn.Module) -> torch.device:
    """Return the device of a network's parameters; the processor if it has none."""
    return next((each.device for each in network.parameters()), torch.device("cpu"))


def recognise_rows(store: Store, loader: Loader, key: ProofKey | None = None) -> list[str]:
    """Store the digests of the rows of cells, by which they find their proofs (those about `key`, or all).

    Return a line for each data set whose rows cannot be loaded here.
    """
    lost: dict[str, str] = {}
    wanted = set(store.proof_keys()) if key is None else {key}
    for info in store.cells() if wanted else ():
        if ProofKey.of_cell(info) not in wanted or store.digests(info.data_hash) is not None or info.data_hash in lost:
            continue
        try:
            found = clean_rows(store, info, loader)
        except (*ABSENT, ValueError, LookupError) as error:
            why = f"{info.dataset}: its rows are not known here, so no proof is theirs: {one_line(error)}"
            lost[info.data_hash] = why
            continue
        store.keep_digests(info.data_hash, row_digests(found.images, found.labels))
    return list(lost.values())
