"""A run that is stopped keeps what it has finished in the file of its result; the same command goes on from there."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from sigmazero.bench.constraints import Allowed
from sigmazero.bench.identity import describe_cell, describe_model, digest, hash_weights
from sigmazero.bench.plan import ModelSpec
from sigmazero.bench.run import interruptible
from sigmazero.bench.verify import contradicted
from sigmazero.cli.console import again, tell
from sigmazero.core.problem import Problem
from sigmazero.core.result import Result
from sigmazero.data import Rows
from sigmazero.run import Session
from sigmazero.run.precision import Numbers, strictly
from sigmazero.run.progress import bar
from sigmazero.store.facts import Facts
from sigmazero.store.results import arrays, load_result, names, save_result

MARK = "unfinished"  # the array that an unfinished result has: the hash of its question
BATCH_SIZE = 64  # on a processor, where a batch takes long: no more than this is waited for, or lost

Placed = tuple[Tensor, Result]


class Keeper:
    """The file of a result, and what it is about."""

    def __init__(
        self, path: Path, model: ModelSpec, rows: Rows, targets: Tensor | None, allowed: Allowed | None = None
    ) -> None:
        self.path, self.model, self.rows, self.targets = path, model, rows, targets
        self.allowed = allowed or Allowed()

    def run(self, session: Session, problem: Problem) -> Result | None:
        """The whole result; None if Ctrl-C stopped the run after a batch, and what there is was kept."""
        asked = self._question(session, problem)  # now: a model that counts its calls is another one afterwards
        parts = self._recall(session, problem, asked)
        known = torch.zeros(len(problem), dtype=torch.bool, device=problem.x.device)
        for places, _ in parts:
            known[places] = True
        try:
            with interruptible(tell) as stop, bar(session.attack.name, len(problem)) as advance:
                advance(int(known.sum()))
                for places, result in session.batches(problem, advance, known):
                    new = ~known[places]
                    share = float(new.sum()) / max(len(new), 1)
                    parts.append((places[new], replace(result.take(new), own=None, seconds=share * result.seconds)))
                    if stop.is_set():
                        break
        except BaseException:  # a second Ctrl-C, or an error in a later batch
            self._keep(asked, len(problem), parts)
            raise
        if sum(len(places) for places, _ in parts) < len(problem):
            self._keep(asked, len(problem), parts)
            return None
        return _ordered(parts)[1]

    def _keep(self, asked: Tensor, count: int, parts: list[Placed]) -> None:
        """Write what is finished, if anything is, and say how to go on."""
        if not parts:
            return
        places, result = _ordered(parts)
        here = places.cpu()
        save_result(
            self.path,
            result,
            labels=self.rows.labels[here],
            targets=None if self.targets is None else self.targets.cpu()[here],
            places=here,
            unfinished=asked,
        )
        tell(f"stopped; {len(places)} of {count} rows are kept in {self.path}. To go on: {again()}")

    def _recall(self, session: Session, problem: Problem, asked: Tensor) -> list[Placed]:
        """What an earlier run of the same question kept, after the model has confirmed it."""
        if MARK not in names(self.path):
            return []
        held = arrays(self.path)
        if not torch.equal(held[MARK], asked):
            raise ValueError(
                f"{self.path} is the unfinished result of another run: model, data, attack or options differ; "
                "name another file, or remove it"
            )
        device = problem.x.device
        result = load_result(self.path, device)
        places = held["places"].to(device)
        labels, targets = self.rows.labels.to(device), None if self.targets is None else self.targets.to(device)
        coarse = not Numbers.current(device).strictly
        with strictly(session.model, device):
            for start in range(0, len(places), BATCH_SIZE):
                some = torch.arange(start, min(start + BATCH_SIZE, len(places)), device=device)
                at = places[some]
                goals = None if targets is None else targets[at]
                priced = problem.domain.priced
                facts = Facts.from_result(result.take(some), labels[at], goals, problem.x[at], priced=priced)
                if wrong := contradicted(session.model, problem.take(at), facts, coarse):
                    raise ValueError(f"{self.path}: row {wrong[0][0]}: {wrong[0][1]}; name another file, or remove it")
        tell(f"going on: {len(places)} of {len(problem)} rows are in {self.path} already")
        return [(places, result)]

    def _question(self, session: Session, problem: Problem) -> Tensor:
        """The hash of everything that decides the answer."""
        assert isinstance(session.model, nn.Module)  # as `models.load` makes them
        asked = describe_cell(
            session.attack,
            weights=hash_weights(session.model),
            code=describe_model(session.model, self.model),
            rows=self.rows,
            targets=self.targets,
            unit=problem.unit,
            budget=problem.budget,
            seed=problem.seed,
            precision=session.prepared.hardware.precision or Numbers.current(problem.x.device).name,
            margin=float(problem.goal.least),
            **self.allowed.identity(tuple(self.rows.images.shape[1:])),
        )
        return torch.tensor(list(bytes.fromhex(digest(asked))), dtype=torch.uint8, device="cpu")


def _ordered(parts: list[Placed]) -> Placed:
    places, result = torch.cat([places for places, _ in parts]), Result.join([result for _, result in parts])
    order = places.argsort()
    return places[order], result.take(order)
