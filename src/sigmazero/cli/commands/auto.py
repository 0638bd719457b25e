"""`sigmazero auto`: a cascade of attacks, for a number one can rely on, and a gate for pipelines."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import sigmazero as sz
from sigmazero.cli import console, inputs, options, output

if TYPE_CHECKING:
    from sigmazero.auto import Verdict
    from sigmazero.data import Rows

Eps = Annotated[
    int | None,
    options.about_attack(metavar="K", help="Changes allowed; without it, as few as possible."),
]
CascadeName = Annotated[
    Literal["standard", "quick", "rand"],
    options.about_attack("--cascade", help="The list of attacks; rand is for models with random outputs."),
]
FailUnder = Annotated[
    float | None,
    options.about_gate(metavar="P", help="Exit with 1 if robust accuracy is below P percent; needs --eps."),
]
LowerEnd = Annotated[
    bool,
    options.about_gate("--lower-end", help="Compare the lower end of the 95 % interval with --fail-under."),
]
Complete = Annotated[bool, options.about_gate("--complete", help="Finish even when --fail-under can no longer be met.")]
JsonFile = Annotated[Path | None, options.about_gate("--json", metavar="FILE", help="Write the record there as JSON.")]
MarkdownFile = Annotated[
    Path | None,
    options.about_gate("--markdown", metavar="FILE", help="Write a summary for a pull request there."),
]
Quiet = Annotated[bool, options.about_gate("--quiet", help="Print the verdict alone, in one line.")]
ProofsStore = Annotated[
    Path | None,
    options.about_run("--proofs", metavar="STORE", help="A store with proofs of sigmazero certify."),
]
Out = Annotated[
    list[Path] | None,
    options.about_run("--out", "-o", metavar="FILE", help="Write the points: arrays (.npz) or a picture; repeatable."),
]
DryRun = Annotated[
    bool,
    options.about_run("--dry-run", help="Print what it would cost at most, and run nothing."),
]
NoDoctor = Annotated[bool, options.about_run("--no-doctor", help="Do not examine the model first.")]


def auto(
    model: options.ModelName,
    data: options.DataName,
    weights: options.Weights = None,
    normalize: options.Normalize = None,
    rows: options.RowNumbers = None,
    limit: options.Limit = None,
    shuffle: options.Shuffle = None,
    eps: Eps = None,
    cascade: CascadeName = "standard",
    unit: options.UnitName = "feature",
    seed: options.Seed = 0,
    space: options.SpaceFile = None,
    bounds: options.Bounds = None,
    mask: options.MaskFile = None,
    fail_under: FailUnder = None,
    lower_end: LowerEnd = False,
    complete: Complete = False,
    json: JsonFile = None,
    markdown: MarkdownFile = None,
    quiet: Quiet = False,
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    precision: options.Precision = None,
    store: options.KeepIn = None,
    proofs: ProofsStore = None,
    out: Out = None,
    dry_run: DryRun = False,
    no_doctor: NoDoctor = False,
    allow: options.Allow = None,
    trust_code: options.TrustCode = False,
) -> None:
    """Measure robust accuracy with SparseAutoAttack; can fail a CI job.

    Several strong attacks run one after the other, each on what the ones before it could not fool. Exit code 1: below
    --fail-under; 3: the doctor found errors, so the number is not reliable.

    \b
    Example:
      sigmazero auto net.py:build mine.npz --weights net.pt --eps 24
      sigmazero auto M1 mnist --limit 1000 --eps 24 --fail-under 60 --json gate.json --quiet
    """
    from sigmazero.auto.cascade import BATCH_SIZE

    at_least, codes, where = share(fail_under, eps, lower_end), inputs.allowed_codes(allow), inputs.device(device)
    written = [each for each in (json, markdown) if each is not None]
    output.check_files(written, [data, weights, store, space, mask, model.rpartition(":")[0] or model, *(out or [])])
    output.check_files(out or [], [data, weights, store, space, mask], output.ENDINGS)
    spec = inputs.model_spec(model, weights, normalize, data, trust_code)
    chosen = inputs.load_rows(data, rows, limit, shuffle, bounds)
    how: dict[str, Any] = {
        **inputs.constraints(space, bounds, mask),
        "unit": unit,
        "precision": precision,
        "device": where,
    }
    if dry_run:
        network = inputs.load_model(spec, where)
        _show_cost(network, chosen, eps, seed, cascade, how)
        return
    size = BATCH_SIZE if batch_size is None else batch_size
    how |= {"version": cascade, "seed": seed, "batch_size": size, "store": store, "proofs": proofs}
    how |= {"lower_end": lower_end, "complete": complete, "allow": codes, "progress": not quiet}
    how |= {"doctor": not no_doctor, "claimed": inputs.accuracy(model)}
    try:
        verdict = sz.gate(spec, chosen, eps, at_least, **how)
    except KeyboardInterrupt:
        kept = "--store FILE would have kept what is finished" if store is None else f"run again: {console.again()}"
        console.warn(f"stopped; {kept}")
        raise
    for path, text in ((json, verdict.to_json), (markdown, verdict.to_markdown)):
        if path is not None:
            output.write_text(text(), path)
    title = f"SparseAutoAttack against {verdict.model.name} on {verdict.data.name}"
    result = replace(verdict.result.best, x=chosen.images, classes=chosen.classes, names=chosen.names)
    for file in out or []:
        output.write_result(file, result, chosen.labels, title, "SparseAutoAttack", record=verdict.to_json())
    if not quiet:
        console.echo(title, style="bold")
        show(verdict)
        output.show_changes(result, how.get("space") or chosen.space)
        console.wrote(*written, *(out or []))
    errors = [each for each in verdict.result.findings if each.severity == "error" and each.code not in codes]
    output.show_findings(errors if quiet else verdict.result.findings)
    if quiet or at_least is not None or not verdict.passed:
        console.echo(str(verdict), style=None if verdict.passed else "red")
    if not verdict.passed:
        raise typer.Exit(verdict.exit_code)


def share(fail_under: float | None, eps: int | None, lower_end: bool) -> float | None:
    """Return the least share of rows that must stay right, from percent.

    >>> share(60.5, 24, False)
    0.605
    """
    if fail_under is None:
        if lower_end:
            raise ValueError("--lower-end needs --fail-under P, the percentage that the lower end must reach")
        return None
    if not 0 <= fail_under <= 100 or 0 < fail_under < 1:
        raise ValueError(f"--fail-under {fail_under:g} must be in percent: 0, or 1 to 100, such as 60")
    if eps is None:
        raise ValueError("--fail-under needs a number of changes; add --eps K, such as --eps 24")
    return float(Fraction(str(fail_under)) / 100)


def show(verdict: Verdict) -> None:
    """Print what the cascade found."""
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


def _show_cost(network: Any, rows: Rows, eps: int | None, seed: int, cascade: str, how: dict[str, Any]) -> None:
    """Print what a cascade costs at most, attack by attack."""
    from sigmazero.bench.forecast import ROWS, seconds_per_query
    from sigmazero.report.status import duration

    made = sz.SparseAutoAttack(network, "L0", eps, seed, version=cascade, **how)
    each = seconds_per_query(made.model, rows.images[:ROWS].to(how["device"]))
    most, n = made.most(rows.images, rows.labels), len(rows)
    lines = {**most, "all": sum(most.values())}

    def cost(one: int) -> str:
        return duration(one * n * each)

    console.show(
        [
            {"attack": name, "queries a row": f"{one:,}", "queries": f"{one * n:,}", "time": cost(one)}
            for name, one in lines.items()
        ],
        left=["attack"],
    )
    console.echo(
        f"at most {lines['all']:,} queries a row, {lines['all'] * n:,} in all, about {cost(lines['all'])} here; "
        "less for every row that is fooled; nothing was run"
    )
