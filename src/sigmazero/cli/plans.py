"""What the commands about plans share: their options, where a plan's store is, and what is missing."""

from collections.abc import Container
from pathlib import Path
from typing import Annotated

import typer

from sigmazero.bench.cells import Missing, Shard
from sigmazero.bench.loader import refuse_untrusted
from sigmazero.bench.plan import Plan
from sigmazero.cli.app import hint
from sigmazero.cli.console import err, tell
from sigmazero.models import MissingWeights
from sigmazero.report.formats import rich_table

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan, such as experiments/small.toml.")]
PlanStore = Annotated[
    Path | None, typer.Option("--store", metavar="FILE", help="The store; runs/NAME.db by default, NAME the plan's.")
]
Trial = Annotated[int | None, typer.Option("--limit", metavar="N", help="A trial: at most N rows, in its own store.")]
PlanBatchSize = Annotated[
    int | None, typer.Option("--batch-size", metavar="N", help="Rows at a time, instead of the plan's.")
]
ShardNumber = Annotated[
    str | None,
    typer.Option("--shard", metavar="I/N", help="Only part I of N: some batches of each cell."),
]
PlanPrecision = Annotated[
    str | None, typer.Option("--precision", metavar="NAME", help="fp32, tf32, bf16 or fp64, instead of the plan's.")
]


def trusted(plan: Plan, trust: Container[str]) -> Container[str]:
    """The same trust, if all code that a plan names has it; refused at once, and not cell by cell."""
    refuse_untrusted([spec for question in plan.questions for spec in (question.model, question.data)], trust)
    return trust


def store_path(plan: Plan, store: Path | None, limit: int | None, shard: Shard | None = None) -> Path:
    """Where a plan's facts go; a trial's go elsewhere, since its rows are others, and each shard has its own."""
    trial = "" if limit is None else f"-limit-{limit}"
    part = "" if shard is None else f"-part-{shard.number}-of-{shard.count}"
    return store or Path("runs") / f"{plan.name}{trial}{part}.db"


def noted(plan: Plan, shard: Shard | None) -> dict[str, str]:
    """Return what the provenance of a run says of its plan."""
    return {"plan": plan.name} | ({} if shard is None else {"shard": str(shard)})


def show_missing(missing: list[Missing]) -> None:
    """Say what to fetch: one thing in words, several as a table."""
    if len(missing) == 1:
        one = missing[0]
        tell(f"missing: {one.what} ({one.questions} cells). {one.error}{hint(one.error)}")
    elif missing:
        rows = [{"missing": one.what, "cells": str(one.questions), "get it by": _way(one.error)} for one in missing]
        err().print(rich_table(rows, left=("missing", "get it by")))
        for text in dict.fromkeys(hint(one.error) for one in missing if not _fetched(one.error)):
            if text:
                tell(text.strip(" ()"))


def _way(error: Exception) -> str:
    """What to do, without the folders that were searched: `sigmazero fetch CODE` alone says those."""
    if code := _fetched(error):
        return f"sigmazero fetch {code}"
    lines = [" ".join(line.split()) for line in str(error).strip().splitlines()] or [""]
    return "; ".join([*(line for line in lines[:-1] if line.startswith("needed:")), lines[-1]])


def _fetched(error: Exception) -> str | None:
    """The code of a model whose weights a command fetches."""
    return error.fetch if isinstance(error, MissingWeights) else None
