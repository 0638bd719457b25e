"""A session: an attack on a model, and everything that outlives a batch.

    with Session(attack, model, hardware) as session:
        for rows, result in session.batches(problem):
            ...

Rows that have their answer leave, so the model only sees rows that are still searched. Nothing an attack computes for a
row depends on the other rows, so batch size and order do not change a result.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from sigmazero.core import faults
from sigmazero.core.answers import Answers
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.findings import Finding
from sigmazero.core.hardware import Hardware
from sigmazero.core.incumbents import Incumbents
from sigmazero.core.messages import warn_caller
from sigmazero.core.model import Stopped, ask, check_ability
from sigmazero.core.oracle import Model, widened
from sigmazero.core.problem import Problem, integer
from sigmazero.core.result import Outcome, Result
from sigmazero.run.diagnostics import Diagnostics, FirstLook
from sigmazero.run.memory import at_most, choose_batch_size, out_of_memory
from sigmazero.run.precision import Numbers, turn
from sigmazero.run.progress import bar
from sigmazero.run.search import Advance, ignore, search
from sigmazero.run.search_model import Prepared
from sigmazero.run.smallest import reserved, shrunk
from sigmazero.run.verify import GUARD, Verifier, check_logits

Part = TypeVar("Part")
Batch = tuple[Tensor, Result]  # places of rows in the problem, and their results


class Session:
    """An attack on a model; its lowered copy, its captured steps and its batch size are made once.

    batch_size  rows at a time; None chooses a number when the first problem comes. It is halved when memory runs out,
                and stays so
    prepared    what another session on the same model has made already, to be shared
    rows        rows of the whole question where problems are parts of it: they decide whether the model is compiled

    Sessions in several threads are safe: their batches take turns. One session belongs to one thread.
    """

    def __init__(
        self,
        attack: Attack,
        model: Model,
        hardware: Hardware | None = None,
        *,
        batch_size: int | None = None,
        prepared: Prepared | None = None,
        rows: int | None = None,
    ) -> None:
        if batch_size is not None and not (integer(batch_size) and batch_size >= 1):
            raise ValueError(f"batch_size={batch_size!r} must be a whole number, 1 or more (None picks one)")
        self.attack, self.model, self.size, self.rows = attack, model, batch_size, rows
        self._shares = prepared is not None
        self.prepared = Prepared(model, hardware or Hardware()) if prepared is None else prepared
        self._diagnostics = Diagnostics()
        self._strict: Prepared | None = None  # for a second search of what a coarse one misjudged

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the lowered model and of the captured steps, unless others share them."""
        if not self._shares:
            self.prepared.close()
        self._strict = None

    def run(self, problem: Problem, progress: bool = False) -> Result:
        """Attack every row of a problem; return the results in the order of its rows.

        Where the model stops answering, the other batches are returned, and the rows that are left have no answer.
        """
        with bar(self.attack.name, len(problem)) if progress else nullcontext(ignore) as advance:
            parts: list[Batch] = []
            try:
                parts.extend(self.batches(problem, advance))
            except Stopped as error:
                parts.append(self._unanswered(problem, parts, error))
        rows, result = _joined(parts)
        with torch.inference_mode(False):
            return replace(result.take(rows.argsort()), x=problem.x)

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings of this session's searches that make its results doubtful."""
        return self._diagnostics.findings()

    def _unanswered(self, problem: Problem, parts: list[Batch], error: Stopped) -> Batch:
        """Return the rows that no batch has brought, without answers; their queries are unknown, and so 0."""
        left = torch.ones(len(problem), dtype=torch.bool, device=problem.x.device)
        for rows, _ in parts:
            left[rows] = False
        places = left.nonzero().squeeze(1)
        warn_caller(f"{len(places)} of {len(problem)} rows are not done: {error}", RuntimeWarning)
        with torch.inference_mode(False):
            part = replace(problem.take(places), clean=0)
            logits = part.x.new_full((len(part), int(problem.y.max()) + 2), torch.nan)
            result = self._verifier.report(part, Incumbents.start(part), logits)
            unknown = torch.full_like(result.prediction, -1)
            result = replace(result, outcome=torch.full_like(result.outcome, Outcome.STOPPED), prediction=unknown)
            return places, replace(result, own=result) if self.attack.keeps_own else result

    def batches(self, problem: Problem, advance: Advance = ignore, known: Tensor | None = None) -> Iterator[Batch]:
        """Yield verified results, batch by batch, with the places of their rows in the problem; every row comes once.

        `known` marks rows whose results the caller has already. A batch of known rows alone is left out. The others are
        cut as if nothing were known. So a run that goes on makes the same batches as one that was never stopped.

        The caller's float32 settings are those of the moment when the first batch is asked for. The seconds of a result
        are those since the one before, without what the caller did in between. Between two batches the model and all
        settings are the caller's own.
        """
        began = time.perf_counter()
        problem = self._begin(problem)
        for rows, result in self._verified(problem, advance, known):
            faults.reach("batch.done")
            yield rows, replace(result, seconds=time.perf_counter() - began)
            began = time.perf_counter()

    def _begin(self, problem: Problem) -> Problem:
        """Read the caller's float32 settings, and count what the checks will ask."""
        self._numbers = Numbers.around(problem.x)
        self.prepared.compute_in(self._numbers)
        self._verifier = Verifier(self.model, self._numbers)
        checks = self._verifier.checks
        searched = checks + self.prepared.computes_otherwise
        closing = reserved(self.attack) if problem.domain.shrinks else 0
        return replace(problem, clean=searched, checks=checks, closing=closing)

    def _verified(self, problem: Problem, advance: Advance, known: Tensor | None) -> Iterator[Batch]:
        """Check the clean inputs, search the rows that need it, and search again in fp32 what a coarse search lost."""
        logits = self._clean(problem)
        answers, clean = logits[:, : problem.checks], logits[:, 0]
        asks, finite = _asking(problem, answers)
        settled, asking = (~asks).nonzero().squeeze(1), asks.nonzero().squeeze(1)
        ended = self._settle(problem, settled, clean, finite)
        lost: list[Batch] = []
        aimed = self._aimed(problem, logits)
        for rows, result in self._search(self.prepared, problem, aimed, asking, clean, advance, known):
            again = self._lost(result)
            lost.append((rows[again], result.take(again)))
            # What has come so far is always the first rows, so that figures of a part are not those of easy rows.
            before = settled < rows[-1]
            advance(int(before.sum()))
            parts = [(rows[~again], result.take(~again)), (settled[before], ended.take(before))]
            settled, ended = settled[~before], ended.take(~before)
            yield _joined(parts)
        if any(len(rows) for rows, _ in lost):
            rows, first = _joined(lost)
            yield rows, self._search_again(problem, self._aimed(problem, answers), rows, first, clean)
        if len(settled) or not len(problem):
            advance(len(settled))
            yield settled, ended

    def _clean(self, problem: Problem) -> Tensor:
        """Return the logits of every clean input (N, formats, classes): as verified, and as searched if otherwise."""
        self.attack.check(problem)
        self.prepared.hardware.check(problem)
        check_ability(self.attack.name, self.attack.needs, self.model)
        _check_model(self.model, problem, self.attack.needs == "gradients")

        def answers(rows: Tensor) -> Tensor:
            part = problem.take(rows)
            try:
                logits = [check_logits(each, part) for each in self._verifier.ask(part.x)]
            except RuntimeError as error:
                _refuse_other_numbers(self.model, problem.x, error)
                raise
            if problem.clean > problem.checks:
                with self.prepared.search.flags():
                    logits.append(widened(ask(self.prepared.copy(problem), part.x), part.x))
            return torch.stack(logits, 1)

        every = torch.arange(len(problem), device=problem.x.device)
        parts = [logits for _, logits in self._cut(problem, every, answers)]
        return torch.cat(parts) if parts else problem.x.new_zeros(0, problem.clean, 2)

    @torch.inference_mode(False)
    def _settle(self, problem: Problem, rows: Tensor, clean: Tensor, finite: Tensor) -> Result:
        """Report the rows that end with the clean check: already at the goal, or without finite logits."""
        part = problem.take(rows)
        incumbents = Incumbents.start(part)
        incumbents.broken = ~finite[rows]
        incumbents.counts = torch.where(incumbents.broken[:, None], incumbents.counts, 0)
        incumbents.own = part.x if self.attack.keeps_own else None
        return self._verifier.report(part, incumbents, clean[rows], settled=True)

    def _search(
        self,
        prepared: Prepared,
        problem: Problem,
        aimed: Problem,
        asking: Tensor,
        clean: Tensor,
        advance: Advance = ignore,
        known: Tensor | None = None,
    ) -> Iterator[Batch]:
        """Search some rows for the goal of `aimed`, and verify them, batch by batch."""

        def attack(rows: Tensor) -> Result:
            assert self.size is not None  # `_cut` has chosen one
            part, size = aimed.take(rows), _even(len(asking), self.size, problem)
            phases = prepared.phases(self.attack, aimed, size, self.rows or len(aimed))
            oracle = prepared.oracle(part, size, self.attack.needs)
            oracle.look = look = FirstLook()
            explores = part.domain.needs_exploring and self.attack.spaces
            remembers = not part.x.is_cuda and (self.attack.remembers or explores)
            oracle.answers = answers = Answers(len(part)) if remembers else None
            if answers is not None:
                answers.remember(*answers.find(part.domain.x[:, None]), clean[rows])
                oracle.gradients = Answers(len(part)) if explores and self.attack.needs == "gradients" else None
            with prepared.search.flags():
                found = search(phases, oracle, advance)
                if part.domain.shrinks:
                    whole = prepared.oracle(part, size, "labels")
                    whole.answers = answers
                    found = shrunk(found, whole, self.attack.limit)
            if self.attack.borrowed and found.own is not None:
                self._diagnostics.see_returned((found.own != part.domain.x).flatten(1).any(1))
            exact = self._verifier.checks == 1 and prepared.searches_strictly
            self._diagnostics.see(look, part.ids, clean[rows], exact)
            # Gradients show in passing whether a model answers at random; other attacks ask a second time.
            again = 0 if self.attack.needs == "gradients" else self.attack.limit or float("inf")
            result = self._verifier.report(problem.take(rows), _to_user(part.domain, found), clean[rows], again=again)
            self._diagnostics.see_again(self._verifier.differences, self._verifier.missed, exact)
            return result

        step = 2 if self.attack.needs == "gradients" else 1
        most = self.attack.limit or problem.overhead + step * self.attack.iterations
        return self._cut(problem, asking, attack, known, most)

    def _aimed(self, problem: Problem, logits: Tensor) -> Problem:
        """Let a search aim beyond the goal by what formats may disagree, by the logits of the clean inputs.

        So what it finds mostly holds in every format, and nothing is confirmed on the way. The margin is twice the
        disagreement there and twice the guard, since formats may disagree more at the point that is found. A clean
        input that only one format calls wrong is searched too: without the margin a search would not move from it.
        """
        if logits.shape[1] == 1:
            return problem
        every = self._verifier.disagreement(logits)
        checked = self._verifier.disagreement(logits[:, : problem.checks])
        return replace(problem, goal=replace(problem.goal, least=problem.goal.least + 2 * every + 2 * GUARD * checked))

    def _lost(self, result: Result) -> Tensor:
        """Return the rows to search again: a coarse search found something for them, and no success was confirmed.

        Without a budget, rows where bf16 found nothing at all are searched again too: its numbers may be why.
        Skipped if the attack has a query limit, or if the first search already ran in strict fp32 on the model itself.
        """
        if self.prepared.searches_strictly or self.attack.limit is not None:
            return torch.zeros_like(result.success)
        lost: Tensor = result.outcome == Outcome.UNVERIFIED
        in_bf16 = self.prepared.hardware.precision == "bf16" and result.budget is None
        return lost | (result.outcome == Outcome.NOT_FOUND) if in_bf16 else lost

    def _search_again(self, problem: Problem, aimed: Problem, rows: Tensor, first: Result, clean: Tensor) -> Result:
        """Search once more in strict fp32, and count the queries of both searches."""
        if self._strict is None:
            self._strict = Prepared(self.model, replace(self.prepared.hardware, precision="fp32", prepare="none"))
        self._strict.compute_in(self._numbers)
        second = Result.join([result for _, result in self._search(self._strict, problem, aimed, rows, clean)])
        spent: dict[str, Any] = {
            "forwards": second.forwards + first.forwards - problem.clean,  # the clean check was made once
            "backwards": second.backwards + first.backwards,
            "given_up": second.given_up + first.given_up,
        }
        own = None if second.own is None else replace(second.own, **spent)
        return replace(second, **spent | {"own": own})

    def _cut(
        self,
        problem: Problem,
        rows: Tensor,
        work: Callable[[Tensor], Part],
        known: Tensor | None = None,
        queries: int = 0,
    ) -> Iterator[tuple[Tensor, Part]]:
        """Do `work` on consecutive batches of the rows, but for known ones; try what does not fit again in halves.

        Where the model has a limit, a batch is small enough for it if each row takes `queries` queries.
        """
        start = 0
        while start < len(rows):
            failure = None
            with turn(self.model, problem.x.device, self._numbers):
                if self.size is None:
                    hardware = self.prepared.hardware
                    # Only a device is measured; elsewhere no copy is made before the model is known better.
                    model = self.prepared.copy(problem) if problem.x.is_cuda else self.model
                    chosen = choose_batch_size(model, problem, hardware.precision, self.model)
                    self.size = at_most(self.model, chosen)
                self._verifier.rows = self.size
                size = at_most(self.model, self.size, queries)
                part = rows[start : start + _even(len(rows), size, problem)]
                if known is not None and bool(known[part].all()):
                    start += len(part)
                    continue
                try:
                    done = work(part)
                except (RuntimeError, MemoryError) as error:
                    if not out_of_memory(error):
                        raise
                    failure = str(error)  # not the error: it holds the frames of the failed batch, and their tensors
            if failure is None:
                yield part, done
                start += len(part)
            else:
                self._halve(len(part), failure, problem)

    def _halve(self, rows: int, failure: str, problem: Problem) -> None:
        if rows == 1:
            raise MemoryError(f"out of memory with one input at a time; use a smaller model or device ({failure})")
        self.size = rows // 2
        for prepared in filter(None, (self.prepared, self._strict)):
            prepared.drop_captures()
        if problem.x.is_cuda:
            torch.cuda.empty_cache()
        warn_caller(f"out of memory with {rows} inputs at a time, going on with {self.size}")


def _even(rows: int, most: int, problem: Problem) -> int:
    """Return the rows of a batch: at most `most`, and on a device about equally many in each, as captures are padded.

    Multiples of 16 suit a device's kernels.
    """
    if not problem.x.is_cuda or rows == 0:
        return most
    batches = -(-rows // most)
    return min(most, -(-rows // batches // 16) * 16)


def _to_user(domain: Domain, found: Incumbents) -> Incumbents:
    """Return what a search found in the user's own units."""
    own = None if found.own is None else domain.to_user(found.own)
    return replace(found, points=domain.to_user(found.points), own=own)


@torch.inference_mode(False)
def _joined(parts: list[tuple[Tensor, Result]]) -> tuple[Tensor, Result]:
    """Join the results of several batches."""
    return torch.cat([rows for rows, _ in parts]), Result.join([result for _, result in parts])


def _asking(problem: Problem, answers: Tensor) -> tuple[Tensor, Tensor]:
    """Return which rows need a search, and which have finite answers (N, formats, classes)."""
    finite = answers.isfinite().flatten(1).all(1)
    if len(problem) and not bool(finite.any()):
        raise ValueError("the model returned NaN or Inf for every clean input; check weights and normalisation")
    already = torch.stack([problem.goal.reached(logits) for logits in answers.unbind(1)]).all(0)
    return finite & ~already, finite


def _refuse_other_numbers(model: Model, x: Tensor, error: RuntimeError) -> None:
    """Say in a line that inputs and weights have different number formats, where that is why a model failed."""
    weights = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    if weights is not None and weights.is_floating_point() and weights.dtype != x.dtype and "type" in str(error):
        own, given = (str(each.dtype).removeprefix("torch.") for each in (weights, x))
        fix = "give x.float()" if x.dtype == torch.float64 else "give x.double()"
        if weights.dtype.itemsize < 4:  # in such inputs changes could not be counted
            fix = f"attack model.float(), or sz.wrap(lambda x: model(x.to(torch.{own})))"
        raise TypeError(f"the inputs are {given} and the model's weights {own}; {fix}") from error


def _check_model(model: Model, problem: Problem, gradients: bool) -> None:
    """Refuse a model whose weights cannot be used with these inputs."""
    if not isinstance(model, nn.Module):
        return
    tensors = (*model.parameters(), *model.buffers())
    if any(map(is_lazy, tensors)):
        raise ValueError("the model has lazy layers that do not know their sizes; call it once on some inputs first")
    if gradients and any(tensor.is_inference() for tensor in tensors):
        raise ValueError("the model was made under torch.inference_mode, where gradients end; make it outside")
    parameter = next(model.parameters(), None)
    if parameter is not None and parameter.device != problem.x.device:
        raise ValueError(f"the model is on {parameter.device}, the inputs are on {problem.x.device}; move one of them")
