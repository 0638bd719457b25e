"""Print results as sentences and tables, print findings, and write result files."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sigmazero.cli.console import again, echo, screen, warn
from sigmazero.core.messages import class_name, visible

if TYPE_CHECKING:
    from sigmazero.core.findings import Finding
    from sigmazero.core.result import Result
    from sigmazero.report.runs import Run
    from sigmazero.report.table import Table
    from sigmazero.store.store import Store

UNRELIABLE = 3  # exit code: a finding says that the numbers may mean nothing
ENDINGS = (".npz", ".png", ".pdf", ".svg")  # of result files
SAMPLES = (".csv", ".jsonl", ".parquet")  # of files with a line for each sample
MAX_ROWS, MAX_CHANGES = 5, 6  # rows whose changes are printed, and changes of each row


def show_runs(runs: Sequence[Run]) -> None:
    """Print a sentence for each model and question, and the tables."""
    from sigmazero.report import table
    from sigmazero.report.sentence import sentences

    for line in sentences(runs):
        echo(line, style="bold")
    for name in table.kinds(runs):
        show_table(table.build(name, runs))


def show_attacks(runs: Sequence[Run]) -> None:
    """Print a sentence for each model, and all figures of its attacks side by side."""
    from sigmazero.core import metrics
    from sigmazero.report.formats import headings, number, percent, rich_table, sample_row
    from sigmazero.report.runs import by_cost, groups, table_ks
    from sigmazero.report.sentence import sentences

    for group, line in zip(groups(runs), sentences(runs), strict=True):
        echo(line, style="bold")
        ks, lines = table_ks(group.free) if group.free else None, []
        for run in group.runs:
            row = {"attack": run.name, **sample_row(run.samples, run.budget, run.info.unit, ks)}
            for priced in by_cost([run]):
                for cost in table_ks([priced]):
                    row[f"ASR at cost {number(cost)}"] = percent(metrics.asr(priced.changes, cost))
                row["median cost"] = number(metrics.median(priced.changes))
            lines.append(row)
        names = headings(lines)
        screen().print(rich_table([{name: row.get(name, "–") for name in names} for row in lines], down=True))


def show_table(made: Table) -> None:
    """Print a table with its caption; a comparison with the paper has a line for each figure."""
    from sigmazero.report import formats

    to = screen()
    to.print(visible(made.caption), soft_wrap=True)
    if made.compared:
        to.print(formats.rich_table(formats.rows(replace(made, intervals=True)), down=True))
        for text in (formats.QUERIES.capitalize(), formats.caution(made)):
            if text:
                to.print(text, soft_wrap=True)
    else:
        to.print(formats.rich_table(formats.rows(made), left=made.words))


def show_changes(result: Result, space: Any = None, store: Path | None = None) -> None:
    """Print the changes of the first fooled samples by name, if the inputs are rows of a table.

    store   where the results are kept; None if they are not
    """
    from sigmazero.core.result import Outcome
    from sigmazero.report.spaces import changes_of, sites_of

    shape, names = tuple(result.x_adv.shape[1:]), result.names or (None if space is None else space.names)
    if result.x is None or (len(shape) > 1 and names is None):
        return
    columns = None if space is None else space.columns(shape)
    sites = sites_of(names or [f"feature {k}" for k in range(math.prod(shape))], columns)
    found = (result.outcome.cpu() == Outcome.FOUND).nonzero().squeeze(1).tolist()
    for place in found[:MAX_ROWS]:
        before, after = result.x[place].flatten().tolist(), result.x_adv[place].flatten().cpu().tolist()
        changes = [str(change) for change in changes_of(sites, before, after)]
        more = f", and {len(changes) - MAX_CHANGES} more" if len(changes) > MAX_CHANGES else ""
        old, new = (
            class_name(result.classes, int(each[place]), "class ")
            for each in (result.clean_prediction, result.prediction)
        )
        echo(f"row {int(result.ids[place])}, {old} → {new}: {', '.join(changes[:MAX_CHANGES])}{more}")
    if len(found) > MAX_ROWS:
        how = "--store FILE keeps them" if store is None else f"sigmazero export {store} --perturbations -o FILE.csv"
        echo(f"... and {len(found) - MAX_ROWS} more rows; to see them: {how}")


def show_findings(findings: Sequence[Finding]) -> None:
    """Print findings as warnings; nothing if there are none."""
    from sigmazero.core.findings import render

    if findings:
        warn(render(list(findings)), style="yellow")


def show_errors(findings: Sequence[Finding]) -> None:
    """Print a line for each finding that makes the results unreliable."""
    for each in findings:
        warn(f"error: {each.code}: {each.title}. {each.detail}", style="red")


def end(findings: Sequence[Finding], allow: Collection[str] | None) -> None:
    """Exit with code 3 if a finding that is not allowed makes the results unreliable."""
    from sigmazero.core.findings import gating

    errors = gating(findings, allow or ())
    show_errors(errors)
    if errors:
        codes = " ".join(f"--allow {code}" for code in sorted({each.code for each in errors}))
        warn(f"These results are unreliable. To accept them: {codes}")
        raise typer.Exit(UNRELIABLE)


def stored_runs(store: Store) -> list[Run]:
    """Return the runs of a store; refuse one with proofs alone, and name the command that adds an attack."""
    from sigmazero.report.runs import load

    found = load(store)
    if not found and (proved := sum(len(store.proofs(key)) for key in store.proof_keys())):
        command = shlex.join(["sigmazero", "attack", "MODEL", "DATA", "--store", str(store.path)])
        raise ValueError(
            f"{store.path} holds proofs about {proved} rows, and a table needs an attack on them too: {command} "
            "(with MODEL, DATA and --rows or --limit as in certify)"
        )
    return found


@contextmanager
def kept_in(store: Path | None) -> Iterator[None]:
    """After Ctrl-C, say whether finished results were kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        kept = "--store FILE would have kept the finished rows" if store is None else f"run again: {again()}"
        warn(f"stopped; {kept}")
        raise


def check_files(files: Sequence[Path], read: Sequence[Any], endings: Sequence[str] = ()) -> None:
    """Before the run, refuse output files that cannot be written, are named twice, or are also read."""
    from sigmazero.core.files import same_file, writable

    known = [Path(each) for each in read if each is not None]
    for file in files:
        if endings and file.suffix.lower() not in endings:
            raise ValueError(f"-o {file}: end the name in one of {', '.join(endings)}")
        if same := next((each for each in known if same_file(file, each)), None):
            raise ValueError(f"{file} would overwrite {same}, which this command also uses; name another file")
        writable(file)
        known.append(file)


def write_result(
    file: Path, result: Result, labels: Any, title: str, attack: str, targets: Any = None, record: str | None = None
) -> None:
    """Write a result as arrays or as a picture, by the ending of the file."""
    import torch

    from sigmazero.report.figures import pictures, style
    from sigmazero.store.results import save_result

    truth = torch.as_tensor(labels)
    if file.suffix.lower() == ".npz":
        goals = None if targets is None else torch.as_tensor(targets)
        save_result(file, result, labels=truth, targets=goals, record=record)
    else:
        assert result.x is not None
        drawn = pictures.draw(result, result.x, truth, title=title, attack=attack, classes=result.classes)
        style.save(drawn, file)


def write_text(text: str, path: Path) -> None:
    """Write a text file, whole or not at all."""
    from sigmazero.core.files import replacing

    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def spans(places: Sequence[int]) -> str:
    """Return row numbers as ranges.

    >>> spans([0, 1, 2, 7, 9, 10])
    '0 to 2, 7, 9 to 10'
    """
    # In a range, a number less its place in the list is always the same.
    runs = [[place for _, place in run] for _, run in groupby(enumerate(places), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
