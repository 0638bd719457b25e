"""`sigmazero auto`: measure robust accuracy with a cascade of attacks; a gate for pipelines."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

import sigmazero as sz
from sigmazero.cli import console, inputs, options, output

if TYPE_CHECKING:
    from sigmazero.auto import Verdict
    from sigmazero.data import Rows


def auto(
    model: options.ModelName,
    data: options.DataName,
    weights: options.Weights = None,
    normalize: options.Normalize = None,
    rows: options.RowNumbers = None,
    limit: options.Limit = None,
    eps: int | None = options.about_attack(
        None, metavar="K", help="Number of changes allowed; by default as few as possible."
    ),
    cascade: Literal["standard", "quick", "rand"] = options.about_attack(
        "standard", help="List of attacks; rand is for models with random outputs."
    ),
    unit: options.UnitName = "feature",
    seed: options.Seed = 0,
    space: options.SpaceFile = None,
    bounds: options.Bounds = None,
    fail_under: float | None = options.about_gate(
        None, metavar="P", max=100, min=0, help="Exit with 1 if robust accuracy is below P percent; needs --eps."
    ),
    lower_end: bool = options.about_gate(
        False, "--lower-end", help="Compare the lower end of the 95 % interval with --fail-under."
    ),
    complete: bool = options.about_gate(
        False, "--complete", help="Finish even when --fail-under can no longer be met."
    ),
    json: Path | None = options.about_gate(None, metavar="FILE", help="Write the record as JSON."),
    markdown: Path | None = options.about_gate(None, metavar="FILE", help="Write a summary for a pull request."),
    quiet: bool = options.about_gate(False, "--quiet", help="Print only the verdict, in one line."),
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    store: options.KeepIn = None,
    proofs: Path | None = options.about_run(
        None, metavar="STORE", help="Use the proofs in this store, made by sigmazero certify."
    ),
    out: list[Path] | None = options.about_run(
        None, "--out", "-o", metavar="FILE", help="Write the examples: arrays (.npz) or a picture (repeatable)."
    ),
    dry_run: bool = options.about_run(False, "--dry-run", help="Print the most it can cost, and run nothing."),
    allow: options.Allow = None,
    trust_code: options.TrustCode = False,
) -> None:
    """Measure robust accuracy with SparseAutoAttack; can fail a CI job.

    Several strong attacks run one after the other, each on the samples that the others could not fool. Exit code 1:
    below --fail-under; 3: the doctor found errors, so the number is not reliable.

    \b
    Example:
      sigmazero auto net.py:build mine.npz --weights net.pt --eps 24
      sigmazero auto M1 mnist --limit 1000 --eps 24 --fail-under 60 --json gate.json --quiet
    """
    from sigmazero.auto.cascade import BATCH_SIZE
    from sigmazero.core.findings import gating
    from sigmazero.models.zoo import known_accuracy

    if fail_under is not None and 0 < fail_under < 1:
        raise ValueError(f"--fail-under {fail_under:g} must be in percent, such as 60")
    if fail_under is not None and eps is None:
        raise ValueError("--fail-under needs a number of changes; add --eps K, such as --eps 24")
    files, written = list(out or []), [each for each in (json, markdown) if each is not None]
    read = [data, weights, store, space, model.rpartition(":")[0] or model]
    output.check_files(files, read, output.ENDINGS)
    output.check_files(written, [*read, *files])
    spec = inputs.model_spec(model, weights, normalize, data, trust_code)
    chosen = inputs.load_rows(data, rows, limit, bounds)
    allowed = inputs.constraints(space, bounds)
    if dry_run:
        network = inputs.load_model(spec, device)
        _show_cost(sz.SparseAutoAttack(network, "L0", eps, version=cascade, unit=unit, **allowed), chosen)
        return
    with output.kept_in(store):
        verdict = sz.gate(
            spec,
            chosen,
            eps,
            None if fail_under is None else float(Fraction(str(fail_under)) / 100),
            lower_end=lower_end,
            allow=allow or (),
            complete=complete,
            version=cascade,
            seed=seed,
            unit=unit,
            device=device,
            batch_size=BATCH_SIZE if batch_size is None else batch_size,
            store=store,
            claimed=known_accuracy(model),
            proofs=proofs,
            progress=not quiet,
            **allowed,
        )
    for path, text in ((json, verdict.to_json), (markdown, verdict.to_markdown)):
        if path is not None:
            output.write_text(text(), path)
    title = f"SparseAutoAttack against {verdict.model.name} on {verdict.data.name}"
    result = replace(verdict.result.best, x=chosen.images, classes=chosen.classes, names=chosen.names)
    for file in files:
        output.write_result(file, result, chosen.labels, title, "SparseAutoAttack", record=verdict.to_json())
    if not quiet:
        console.echo(title, style="bold")
        show(verdict)
        output.show_changes(result, allowed.get("space") or chosen.space, store)
        console.wrote(*written, *files)
    output.show_findings(gating(verdict.result.findings, allow or ()) if quiet else verdict.result.findings)
    if quiet or fail_under is not None or not verdict.passed:
        console.echo(str(verdict), style=None if verdict.passed else "red")
    if not verdict.passed:
        raise typer.Exit(verdict.exit_code)


def show(verdict: Verdict) -> None:
    """Print the results of a cascade."""
    from sigmazero.core.metrics import median
    from sigmazero.report.formats import interval, number

    found = verdict.result
    console.echo(found.headline)
    console.show(found.table(), down=True)
    if found.exact:
        console.echo(found.exact)
    if found.eps is None:
        console.echo(f"median l0 {number(found.best.median_l0, 1)}")
        if found.costs:
            console.echo(f"median cost {number(median(found.best.cost.double().numpy()), 2)}")
    for each in (verdict.figure, *verdict.curve):
        if each is not None and each.proved is not None:
            ends = interval(each.proved / each.of, each.value)
            console.echo(f"robust at {each.k:g}: {ends}; the lower end is proved")


def _show_cost(cascade: sz.SparseAutoAttack, rows: Rows) -> None:
    """Print the most that each attack of a cascade can cost."""
    from sigmazero.bench.forecast import ROWS, seconds_per_query
    from sigmazero.report.status import duration

    each = seconds_per_query(cascade.model, rows.images[:ROWS].to(cascade.device or "cpu"))
    most, n = cascade.most(rows.images, rows.labels), len(rows)
    total = sum(most.values())
    lines = [
        {"attack": name, "queries a row": f"{one:,}", "queries": f"{one * n:,}", "time": duration(one * n * each)}
        for name, one in {**most, "all": total}.items()
    ]
    console.show(lines, left=["attack"])
    console.echo(
        f"at most {total:,} queries a row, {total * n:,} in all; the model alone takes about "
        f"{duration(total * n * each)} for them here; less for every row that is fooled; nothing was run"
    )
