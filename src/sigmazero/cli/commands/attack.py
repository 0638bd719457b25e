"""`sigmazero attack`: any model, any data set, any attack."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import sigmazero as sz
from sigmazero.cli import console, inputs, options, output

if TYPE_CHECKING:
    from sigmazero.store.store import Store

Attacks = Annotated[
    list[str] | None,
    options.about_attack(
        "--attack",
        metavar="NAME",
        help="By default by what the model allows; see: sigmazero list attacks; foolbox:NAME too (repeatable).",
    ),
]
Setting = Annotated[
    list[str] | None,
    options.about_attack("--set", metavar="KEY=VALUE", help="Another parameter of the attack (repeatable)."),
]
Budget = Annotated[
    int | None,
    options.about_attack(metavar="K", help="Succeed with at most K changes, and stop there."),
]
Target = Annotated[
    str | None,
    options.about_attack(metavar="CLASS", help="Reach this class: a number, a name, next or random."),
]
Out = Annotated[
    list[Path] | None,
    options.about_run(
        "--out",
        "-o",
        metavar="FILE",
        help="Also write a picture (.png, .pdf, .svg), a page (.html) or arrays (.npz); repeatable.",
    ),
]


def attack(
    model: options.ModelName,
    data: options.DataName,
    weights: options.Weights = None,
    normalize: options.Normalize = None,
    rows: options.RowNumbers = None,
    limit: options.Limit = None,
    shuffle: options.Shuffle = None,
    names: Attacks = None,
    steps: options.Steps = None,
    setting: Setting = None,
    budget: Budget = None,
    unit: options.UnitName = "feature",
    target: Target = None,
    seed: options.Seed = 0,
    space: options.SpaceFile = None,
    bounds: options.Bounds = None,
    mask: options.MaskFile = None,
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    precision: options.Precision = None,
    store: options.KeepIn = None,
    out: Out = None,
    allow: options.Allow = None,
    trust_code: options.TrustCode = False,
) -> None:
    """Find the fewest changes that fool a model.

    With --store, Ctrl-C keeps what is finished, the same command does the rest, and images get a picture beside the
    store. Exit code 3: the doctor found errors, so the numbers are not reliable.

    \b
    Example:
      sigmazero attack net.py:build mine.npz --weights net.pt -o mine.png
      sigmazero attack net.py:build adult.npz --space adult.toml --attack sigma-swap --store runs/adult.db
    """
    from sigmazero.bench.plan import BATCH_SIZE

    names = names or (["sigma-zero"] if setting else [])
    methods = [inputs.attack(name, steps, setting or []) for name in names]
    codes, where = inputs.allowed_codes(allow), inputs.device(device)
    files = list(out or [])
    read = [data, weights, space, mask, store, model.rpartition(":")[0] or model]
    output.check_files(files, read, (*output.ENDINGS, ".html"))
    if len(methods) > 1 and any(file.suffix == ".npz" for file in files):
        raise ValueError("an .npz file holds the arrays of one attack; give one --attack, or --store for all")
    spec = inputs.model_spec(model, weights, normalize, data, trust_code)
    chosen = inputs.load_rows(data, rows, limit, shuffle, bounds)
    if store is not None and not files and chosen.images.ndim == 4 and chosen.images.shape[1] in (1, 3):
        files = [store.with_suffix(".png")]
    how: dict[str, Any] = inputs.constraints(space, bounds, mask)
    before = _count(store)
    with console.warnings_as_lines(hide=r"^SZ\d|failed: "):  # which `show` says
        try:
            done = sz.evaluate(
                spec,
                inputs.data_spec(data, rows, limit, shuffle),
                methods or None,
                steps=None if methods else steps,
                store=store,
                budgets=None if budget is None else [budget],
                unit=unit,
                target=inputs.target(target, chosen),
                seed=seed,
                batch_size=BATCH_SIZE if batch_size is None else batch_size,
                device=where,
                hardware=sz.Hardware(precision=precision),
                progress=True,
                **how,
            )
        except KeyboardInterrupt:
            kept = "--store FILE would have kept what is finished" if store is None else f"run again: {console.again()}"
            console.warn(f"stopped; {kept}")
            raise
    if before and before == _count(store):
        console.warn(f"already done: {store} has every row")
    show(done, files, codes, how.get("space") or chosen.space)


def show(done: sz.Evaluation, files: list[Path], codes: list[str], space: sz.Space | None) -> None:
    """Print and write what an evaluation found; exit with 1 if rows were not answered, with 3 if it is unreliable."""
    from functools import partial

    from sigmazero.bench.loader import EVERYTHING, Loader, clean_rows
    from sigmazero.report import findings, runs
    from sigmazero.report.pages.page import make_page
    from sigmazero.report.pages.render import save_page
    from sigmazero.store.store import Store

    with Store(done.store) as opened:
        found = runs.load(opened, done.keys)
        unanswered = [_unanswered(opened, key, done.failed.get(key, "")) for key in done.keys]
        for line in filter(None, unanswered):
            console.warn(line, style="red")
        if not found:
            raise typer.Exit(2)
        doubts = list(dict.fromkeys(each for some in findings.findings(opened, found).values() for each in some))
        output.show_findings([each for each in doubts if each.severity == "warning"])
        output.show_attacks(found)
        result, labels = done[next(iter(done))], found[0].facts.label
        output.show_changes(result, space)
        about = found[0].info
        for file in files:
            if file.suffix == ".html":
                save_page(file, make_page(opened, partial(clean_rows, opened, loader=Loader(trust=EVERYTHING))))
            else:
                target = found[0].facts.target
                title = f"{about.attack} against {about.model} on {about.dataset}"
                output.write_result(file, result, labels, title, about.attack, target if (target >= 0).any() else None)
            console.wrote(file)
    if any(unanswered):
        raise typer.Exit(1)
    output.end(doubts, codes)


def _unanswered(store: Store, key: str, why: str) -> str:
    """Name the rows of a cell that have no result; nothing if there are none."""
    left = (~store.stored(key)).nonzero()[0].tolist()
    if not left:
        return ""
    info = store.cell(key)
    which = "no row was" if len(left) == info.rows else f"rows {output.spans(left)} were not"
    return f"error: {info.attack} against {info.model}: {which} answered: {why}"


def _count(store: Path | None) -> int:
    """Return how many rows a store has."""
    from sigmazero.store.store import Store

    if store is None or not store.is_file():
        return 0
    with Store(store) as opened:
        return sum(one.done for one in opened.status())
