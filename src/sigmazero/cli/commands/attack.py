"""`sigmazero attack`: attack a model and print what was found."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import sigmazero as sz
from sigmazero.cli import console, inputs, options, output

if TYPE_CHECKING:
    from sigmazero.store.store import Store


def attack(
    model: options.ModelName,
    data: options.DataName,
    weights: options.Weights = None,
    normalize: options.Normalize = None,
    rows: options.RowNumbers = None,
    limit: options.Limit = None,
    names: list[str] | None = options.about_attack(
        None,
        "--attack",
        metavar="NAME",
        help="An attack of sigmazero list attacks, or foolbox:NAME; by default one that fits the model (repeatable).",
    ),
    steps: int | None = options.about_attack(None, metavar="N", help="Steps of the attack; by default its own number."),
    setting: list[str] | None = options.about_attack(
        None, "--set", metavar="KEY=VALUE", help="A parameter of the attack (repeatable)."
    ),
    budget: int | None = options.about_attack(None, metavar="K", help="Look for at most K changes, and stop there."),
    unit: options.UnitName = "feature",
    target: str | None = options.about_attack(
        None, metavar="CLASS", help="Reach this class: a number, a name, next or random."
    ),
    seed: options.Seed = 0,
    space: options.SpaceFile = None,
    bounds: options.Bounds = None,
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    store: options.KeepIn = None,
    out: list[Path] | None = options.about_run(
        None, "--out", "-o", metavar="FILE", help="Also write a .png, .pdf, .svg, .html, .npz or .csv (repeatable)."
    ),
    allow: options.Allow = None,
    trust_code: options.TrustCode = False,
) -> None:
    """Find the fewest changes that fool a model.

    With --store, Ctrl-C keeps finished rows, the same command runs the rest, and images get a picture beside the store.
    Exit code 1: some rows were not answered (2: none was); 3: the doctor found errors, so the numbers are not reliable.

    \b
    Example:
      sigmazero attack net.py:build mine.npz --weights net.pt -o mine.png
      sigmazero attack net.py:build adult.npz --space adult.toml --attack sigma-swap --store runs/adult.db
    """
    from sigmazero.bench.plan import BATCH_SIZE, DataSpec

    methods = [inputs.attack(name, steps, setting) for name in names or (["sigma-zero"] if setting else [])]
    files = list(out or [])
    read = [data, weights, space, store, model.rpartition(":")[0] or model]
    output.check_files(files, read, (*output.ENDINGS, *output.SAMPLES, ".html"))
    if len(methods) > 1 and any(file.suffix == ".npz" for file in files):
        raise ValueError("an .npz file holds one attack; give one --attack, or --store for all")
    spec = inputs.model_spec(model, weights, normalize, data, trust_code)
    chosen = inputs.load_rows(data, rows, limit, bounds)
    if store is not None and not files and chosen.images.ndim == 4 and chosen.images.shape[1] in (1, 3):
        files = [store.with_suffix(".png")]
    allowed = inputs.constraints(space, bounds)
    with console.warnings_as_lines(hide=r"^SZ\d|failed: "), output.kept_in(store):  # `show` prints what is hidden
        done = sz.evaluate(
            spec,
            DataSpec(Path(data).name or data, data, rows, limit),
            methods or None,
            steps=None if methods else steps,
            store=store,
            budgets=None if budget is None else [budget],
            unit=unit,
            target=inputs.target(target, chosen),
            seed=seed,
            batch_size=BATCH_SIZE if batch_size is None else batch_size,
            device=device,
            progress=True,
            **allowed,
        )
    if store is not None and not done.fresh and not done.failed:
        console.warn(f"already done: {store} has every row")
    show(done, files, allow, allowed.get("space") or chosen.space, store)


def show(
    done: sz.Evaluation, files: list[Path], allow: list[str] | None, space: sz.Space | None, store: Path | None
) -> None:
    """Print and write an evaluation; exit with 1 if rows were not answered, with 3 if it is unreliable."""
    from sigmazero.bench.loader import EVERYTHING, Loader, clean_rows
    from sigmazero.report import findings, runs
    from sigmazero.report.pages.page import make_page
    from sigmazero.store.export import export
    from sigmazero.store.store import Store

    with Store(done.store) as opened:
        found = runs.load(opened, done.keys)
        unanswered = [line for key in done.keys if (line := _unanswered(opened, key, done.failed.get(key, "")))]
        for line in unanswered:
            console.warn(line, style="red")
        if not found:
            raise typer.Exit(2)
        doubts = list(dict.fromkeys(each for some in findings.findings(opened, found).values() for each in some))
        output.show_findings([each for each in doubts if each.severity == "warning"])
        output.show_attacks(found)
        result, about, facts = done[next(iter(done))], found[0].info, found[0].facts
        output.show_changes(result, space, store)
        for file in files:
            if file.suffix == ".html":
                clean = partial(clean_rows, opened, loader=Loader(trust=EVERYTHING))
                output.write_text(make_page(opened, clean), file)
            elif file.suffix in output.SAMPLES:
                export(opened, file, perturbations=True)
            else:
                title = f"{about.attack} against {about.model} on {about.dataset}"
                targets = facts.target if (facts.target >= 0).any() else None
                output.write_result(file, result, facts.label, title, about.attack, targets)
            console.wrote(file)
    if unanswered:
        raise typer.Exit(1)
    output.end(doubts, allow)


def _unanswered(store: Store, key: str, why: str) -> str:
    """Name the rows of a cell without a result; return nothing if all have one."""
    left = (~store.stored(key)).nonzero()[0].tolist()
    if not left:
        return ""
    info = store.cell(key)
    which = "no row was" if len(left) == info.rows else f"rows {output.spans(left)} were not"
    return f"error: {info.attack} against {info.model}: {which} answered: {why}"
