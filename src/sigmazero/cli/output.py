"""Print what was found: a sentence, tables, changes by name, findings; and write files by their endings."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sigmazero.cli.console import echo, screen, warn
from sigmazero.core.messages import class_name, visible

if TYPE_CHECKING:
    from sigmazero.core.findings import Finding
    from sigmazero.core.result import Result
    from sigmazero.report.runs import Group, Run
    from sigmazero.report.table import Table

UNRELIABLE = 3  # exit code: there are numbers, and a finding says that they may mean nothing
ENDINGS = (".npz", ".png", ".pdf", ".svg")  # of files with a result
MAX_ROWS, MAX_CHANGES = 5, 6  # whose changes are printed, and how many of each


def sentence(group: Group) -> str:
    """Say what the strongest attack of a group did, and which row is weakest."""
    import numpy as np

    from sigmazero.core import metrics
    from sigmazero.report.formats import percent

    best, info = group.strongest, group.info
    shape = list(info.about.get("shape", ()))
    things = "images" if len(shape) == 3 else "samples"
    noun = "pixel" if info.unit == "pixel" else "value"
    of = f" of {math.prod(shape[1:] if info.unit == 'pixel' else shape)}" if shape and info.space in ("", "–") else ""
    by = f" ({best.name})" if len(group.runs) > 1 else ""
    changes, rows = best.changes, f"{len(best)} {things}"
    if best.budget is not None:
        share = percent(metrics.asr(changes, best.budget))
        return f"Changing at most {best.budget}{of} {noun}s fools {share} of {rows}{by}."
    median = metrics.median(changes)
    if math.isinf(median):
        said = f"Fewer than half of {rows} are fooled{by}: {percent(metrics.asr(changes))}"
    elif median == 0:
        said = f"Half of {rows} are misclassified as they are"
    else:
        said = f"Half of {rows} are fooled by changing {_counted(median, noun, of)}{by}"
    asked = np.flatnonzero((changes > 0) & np.isfinite(changes))
    if not len(asked):
        return said + "."
    weakest = asked[changes[asked].argmin()]
    return f"{said}; weakest: row {best.facts.row[weakest]}, {_counted(changes[weakest], noun)}."


def _counted(many: float, noun: str, of: str = "") -> str:
    from sigmazero.report.formats import number

    return f"one{of} {noun}{'s' if of else ''}" if many == 1 else f"{number(many, 1)}{of} {noun}s"


def show_runs(runs: Sequence[Run], ks: Sequence[float] | None = None, mix: bool = False) -> None:
    """Print a sentence for each model and question, and the tables."""
    from sigmazero.report import table
    from sigmazero.report.runs import groups

    if not runs:
        return
    found = groups(runs, mix)
    for group in found:
        title = f"{group.title}: " if len(found) > 1 else ""
        echo(title + sentence(group), style="bold")
    for name in table.kinds(runs):
        show_table(table.build(name, runs, ks, mix))


def show_attacks(runs: Sequence[Run]) -> None:
    """Print a sentence for each model, and all figures of its attacks side by side."""
    from sigmazero.core import metrics
    from sigmazero.report.formats import headings, number, percent, rich_table, sample_row
    from sigmazero.report.runs import by_cost, groups, table_ks

    found = groups(runs)
    for group in found:
        echo((f"{group.title}: " if len(found) > 1 else "") + sentence(group), style="bold")
        ks, lines = table_ks(group.free) if group.free else None, []
        for run in group.runs:
            line = {"attack": run.name, **sample_row(run.samples, run.budget, run.info.unit, ks)}
            priced = by_cost([run])
            for cost in table_ks(priced) if priced else ():
                line[f"ASR at cost {number(cost)}"] = percent(metrics.asr(priced[0].changes, cost))
            if priced:
                line["median cost"] = number(metrics.median(priced[0].changes))
            lines.append(line)
        names = headings(lines)
        screen().print(rich_table([{name: line.get(name, "–") for name in names} for line in lines], down=True))


def show_table(made: Table, to: Any = None) -> None:
    """Print a table with its caption; beside the paper, a line per figure and a column per run."""
    from sigmazero.report import formats

    to = screen() if to is None else to
    to.print(visible(made.caption), soft_wrap=True)
    if made.compared:
        to.print(formats.rich_table(formats.rows(replace(made, intervals=True)), down=True))
        for text in (formats.QUERIES.capitalize(), formats.caution(made)):
            if text:
                to.print(text, soft_wrap=True)
    else:
        to.print(formats.rich_table(formats.rows(made), left=made.words))


def show_changes(result: Result, space: Any = None) -> None:
    """Print by name what was changed in the first samples that were fooled, where the inputs are rows of a table."""
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
        echo(f"... and {len(found) - MAX_ROWS} rows more")


def show_findings(findings: Sequence[Finding]) -> None:
    """Print findings as warnings; nothing if there are none."""
    from sigmazero.core.findings import render

    if findings:
        warn(render(list(findings)), style="yellow")


def end(findings: Sequence[Finding], allow: Collection[str]) -> None:
    """Exit with code 3 if a finding makes the results unreliable."""
    from sigmazero.core.findings import gating

    errors = gating(findings, allow)
    for finding in errors:
        warn(f"error: {finding.code}: {finding.title}. {finding.detail}", style="red")
    if errors:
        codes = " ".join(f"--allow {code}" for code in sorted({finding.code for finding in errors}))
        warn(f"These results are unreliable. To accept them: {codes}")
        raise typer.Exit(UNRELIABLE)


def check_files(files: Sequence[Path], read: Sequence[Any], endings: Sequence[str] = ()) -> None:
    """Refuse files that cannot be written, are given twice, or are read: before the run, and not after it."""
    from sigmazero.core.files import same_file, writable

    known = [Path(each) for each in read if each is not None]
    for file in files:
        if endings and file.suffix.lower() not in endings:
            raise ValueError(f"-o {file}: end the name in one of {', '.join(endings)}")
        if same := next((each for each in known if same_file(file, each)), None):
            raise ValueError(f"{file} would be written over {same}, which this command needs too; name another file")
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
    """Write a text to a file, whole or not at all."""
    from sigmazero.core.files import replacing

    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def spans(places: Sequence[int]) -> str:
    """Return row numbers in few words.

    >>> spans([0, 1, 2, 7, 9, 10])
    '0 to 2, 7, 9 to 10'
    """
    found: list[list[int]] = []
    for place in places:
        if found and place == found[-1][1] + 1:
            found[-1][1] = place
        else:
            found.append([place, place])
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in found)
