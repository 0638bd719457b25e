"""Make the page of a store: the answer in a sentence, tables, curves, samples, details, and where it all comes from."""

import base64
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from sigmazero.core import metrics
from sigmazero.core.findings import CODES
from sigmazero.core.messages import class_name
from sigmazero.core.metrics import Outcome
from sigmazero.report import analysis, spaces
from sigmazero.report import table as tables
from sigmazero.report.figures.curves import BEST, PROVED
from sigmazero.report.findings import CellFindings, findings
from sigmazero.report.formats import CAVEAT, ends_text, figure, interval, number, percent, to_csv, to_markdown
from sigmazero.report.intervals import median_interval, wilson
from sigmazero.report.latex import to_latex
from sigmazero.report.pages import samples
from sigmazero.report.pages.curve import group_chart
from sigmazero.report.pages.render import Cell, Column, PageTable, lined_up, render
from sigmazero.report.runs import COST, Clean, Group, Run, by_cost, groups, load, proved_ks, table_ks
from sigmazero.report.status import duration
from sigmazero.store.store import CellStatus, Store

Compare = Callable[[tables.Table], tables.Table]

STRIP, RECORDS = 8, 3  # samples above the table: pictures, or records of a table
MAX_STRIPS = 3  # groups with samples above the table; with more of them the table comes first
MAX_FEATURES = 20  # lines of the table of features
MAX_STATES = 5  # incomplete runs that the top of the page lists
USUAL_KS = (1, 5, 10, 24, 50, 100, 250, 500, 1000)  # of the table under a chart, as far as the axis goes
SOFTWARE = {
    "sigmazero": "sigmazero",
    "commit": "Commit",
    "torch": "PyTorch",
    "numpy": "NumPy",
    "python": "Python",
    "device": "Device",
    "threads": "Threads",
    "began": "Began",
}


def make_page(
    store: Store,
    clean: Clean,
    *,
    ks: Sequence[float] | None = None,
    mix: bool = False,
    compare: Compare | None = None,
    limit: int | None = None,
) -> str:
    """Return the text of the page.

    clean    gives the inputs of a cell, to show what was changed
    ks       numbers of changes that tables give success rates at; by default the quartiles of the strongest attack
    compare  adds the paper's figures to a table
    limit    samples of each data set on the page; by default what 5 MB hold
    """
    runs, states = load(store), store.status()
    found = groups(runs, mix)
    priced = groups(costly, mix) if (costly := by_cost(runs)) else []
    packed = samples.build(found, clean, limit)
    made = [*_tables(found, priced, ks, compare or (lambda table: table))]
    charts = [
        {**group_chart(group, f"{name}-{at}"), "numbers": _numbers(group, f"{name}-{at}")}
        for name, some in (("curve", found), ("cost", priced))
        for at, group in enumerate(some)
    ]
    notes = list_findings(((group.title, run) for group in found for run in group.runs), findings(store, runs))
    maps: dict[str, Any] = {}
    return render(
        "report.html",
        title=store.path.stem,
        store=store.path.name,
        incomplete=_incomplete(states),
        answers=[answer(group, at, packed, strip=len(found) <= MAX_STRIPS) for at, group in enumerate(found)],
        tables=made,
        charts=charts,
        sample_notes=packed.notes,
        pictures=any("images" in each for each in packed.data["sets"]),
        transfer=[
            _grid(each, f"transfer-{at}", each.title, "model") for at, each in enumerate(analysis.transfer(store, runs))
        ],
        details=[_details(group, at, maps) for at, group in enumerate(found)],
        findings=notes,
        examined=bool(store.findings()),
        software=_software(runs),
        uncommitted=any(True in _listed(run.info.provenance.get("dirty")) for run in runs),
        runs=[_cells(states), _parameters(runs)],
        data={
            "charts": {chart["name"]: chart["data"] for chart in charts},
            "samples": packed.data,
            "outcomes": samples.OUTCOMES,
            "copies": {each.name: each.copies for each in made},
            "maps": maps,
        },
    )


def answer(group: Group, place: int, packed: samples.Samples, strip: bool = True) -> dict[str, Any]:
    """Return what the sentence about a group needs, and the samples shown below it."""
    changes, n, first = group.best.changes, len(group.best.rows), group.pool[0]
    made: dict[str, Any] = {
        "title": group.title,
        "unit": group.unit,
        "features": _sites(first),
        "n": n,
        "by": f"the best of {len(group.pool)} attacks on each sample" if len(group.pool) > 1 else f"by {first.name}",
        "clean": percent(metrics.clean_accuracy(first.samples)),
        "proved": _proved(group),
        **(_examples(group, place, packed) if strip else {"strip": [], "records": []}),
    }
    median = metrics.median(changes)
    if not group.free:
        k = float(first.budget or 0)  # the largest budget, and the best run there
        return made | {
            "kind": "rate",
            "k": number(k),
            "n": len(first),
            "by": f"by {first.name}",
            **_share(metrics.asr(first.changes, k), len(first)),
        }
    if math.isinf(median):
        return made | {"kind": "none", **_share(metrics.asr(changes), n)}
    low, high = median_interval(changes)
    return made | {"kind": "median", "median": number(median, 1), "ends": f"{number(low, 1)} to {number(high, 1)}"}


def _share(rate: float, n: int) -> dict[str, str]:
    low, high = wilson(round(rate * n), n)
    return {"rate": percent(rate), "ends": f"{percent(low)} to {percent(high)}"}


def _sites(run: Run) -> int:
    """Return how many things can change in an input, of a table its columns; 0 if that is not known."""
    shape = run.info.about.get("shape")
    if shape is None:
        return 0
    if spaces.columns(run.info) is not None:
        return sum(not (site.derived or site.missing) for site in spaces.named_sites(run.info))
    return math.prod(shape[1:] if run.unit == "pixel" and len(shape) > 1 else shape)


def _proved(group: Group) -> str:
    """Return what is known of the truth: the share that stays correct, from below by proofs and from above."""
    ks = proved_ks(group.pool)
    if group.lower is None or not ks:
        return ""
    lower, found = group.lower, group.best.changes
    shares = [f"at k = {k:g} {interval(metrics.robust(lower, k), metrics.robust(found, k))}" for k in ks]
    return f"Robust {', '.join(shares)}; the lower ends are proved."


def _examples(group: Group, place: int, packed: samples.Samples) -> dict[str, Any]:
    """Return some samples from the easiest to the hardest: pictures, or records of what changed."""
    best, drawn = group.best, packed.data["groups"][place]
    shown, pictures = (packed.data["sets"][drawn["set"]].get(name) for name in ("rows", "images"))
    usable = np.isfinite(best.changes) & (best.changes > 0) & np.isin(best.rows, shown)
    order = np.flatnonzero(usable)[np.argsort(best.changes[usable], kind="stable")]
    many = min(STRIP if pictures else RECORDS, len(order))
    strip, records = [], []
    for at in order[np.linspace(0, len(order) - 1, many).round().astype(int)] if many else ():
        row, run = int(best.rows[at]), group.pool[int(best.winner[at])]
        number_of = group.runs.index(run)
        one = example(run, row, f"#sample-{place}-{row}", f"{place} {row} {number_of}")
        its = drawn["runs"][number_of]
        if pictures:
            strip.append(one)
        elif "words" in its:
            records.append({**one, "fields": its["words"][its["rows"].index(row)]})
    return {"strip": strip, "records": records}


def example(run: Run, row: int, link: str, key: str) -> dict[str, Any]:
    """Return what stands below a picture: what the model takes a sample for, and how many changes that needed.

    key  the places of its group, row and run among the samples of the page
    """
    at, classes = int(run.places(np.array([row]))[0]), run.info.about.get("classes")
    before, after = (class_name(classes, int(each[at])) for each in (run.facts.clean_prediction, run.facts.prediction))
    return {"row": row, "before": before, "after": after, "changes": number(run.changes[at]), "link": link, "key": key}


def _tables(
    found: Sequence[Group], priced: Sequence[Group], ks: Sequence[float] | None, compare: Compare
) -> Iterator[PageTable]:
    """Yield the table of the runs without a budget, of those with, and one over costs, where there are such runs."""
    if free := [group for group in found if group.free]:
        yield _page_table("minimum-norm", compare(tables.minimum_norm(free, ks)))
    if fixed := [group for group in found if group.fixed]:
        yield _page_table("fixed-budget", compare(tables.fixed_budget(fixed)))
    if priced:
        yield _page_table("by-cost", tables.minimum_norm(priced))


def _page_table(name: str, table: tables.Table) -> PageTable:
    """Return a table whose first column has the attack, and below it the model where there are several."""
    words = [word for word in table.words if word not in ("attack", "model")]
    columns = [Column("attack"), *map(Column, words)]
    for column in table.columns:
        columns.append(Column(column.heading, True, tables.meaning(column, table.lines[0].run.unit == COST)))
        columns += [Column(f"{column.heading} paper", True)] if table.compared else []
    rows = []
    for line, rivals in ((line, block) for block in table.blocks for line in block):
        model = line.words["model"] if "model" in table.words else ""
        row: list[Cell | str] = [Cell(line.words["attack"], small=model), *(line.words[word] for word in words)]
        for column in table.columns:
            value = line.figures[column.name]
            best = value is not None and value == tables.best(rivals, column)
            row.append(Cell(figure(value, column), ends_text(line, column), best))
            row += [figure(line.paper.get(column.name), column)] if table.compared else []
        rows.append(row)
    copies = {"LaTeX": to_latex(table), "CSV": to_csv(table), "Markdown": to_markdown(table)}
    return PageTable(name, table.caption + (f". {CAVEAT}" if table.compared else ""), columns, rows, copies)


def _numbers(group: Group, name: str) -> PageTable:
    """Return the table under a chart: the rates of its curves at some k, with their intervals."""
    lines = {run.name: run.changes for run in group.free}
    lines |= {BEST: group.best.changes} if len(group.pool) > 1 and group.free else {}
    lines |= {PROVED: group.lower} if group.lower is not None else {}
    usual = () if group.unit == COST else USUAL_KS
    ks = [*sorted({0.0, *table_ks(group.runs), *(float(k) for k in usual if k < group.end)}), math.inf]
    rows: list[dict[str, Cell | str]] = []
    for label, changes in lines.items():
        row: dict[str, Cell | str] = {"attack": label}
        for k in ks:
            rate = metrics.asr(changes, k)
            low, high = wilson(round(rate * len(changes)), len(changes))
            row[number(k)] = Cell(f"{100 * rate:.1f}", f"({100 * low:.1f}–{100 * high:.1f})")
        rows.append(row)
    caption = f"Share fooled in % at {'cost' if group.unit == COST else 'k'}, with 95 % intervals"
    return lined_up(f"{name}-numbers", caption, rows, ["attack"])


def _details(group: Group, place: int, maps: dict[str, Any]) -> dict[str, Any]:
    """Return what the samples of a group have in common: classes, changed pixels or features, attack against attack."""
    run = group.strongest
    made: dict[str, Any] = {"title": group.title, "attack": run.name, "classes": _classes(run, place)}
    confusion = analysis.confusion(run)
    left = f"; {confusion.left_out} rarer classes are left out" if confusion.left_out else ""
    caption = f"Which class (across) the examples of each class (down) are taken for, in %, by {run.name}{left}"
    made["confusion"] = _grid(confusion, f"confusion-{place}", caption, "class") if len(confusion.rows) else None
    wins = analysis.wins(group)
    caption = "On which share of the samples the attack in the row needs fewer changes than the one in the column, in %"
    made["wins"] = _grid(wins, f"wins-{place}", caption, "attack") if len(wins.rows) > 1 else None
    made["maps"] = [*_maps(group, place, maps)]
    made["features"] = _features(group, place) if spaces.is_table(run.info) else None
    return made


def _classes(run: Run, place: int) -> PageTable:
    """Return a line per true class: how many of its samples are fooled, and what they are mostly taken for."""
    facts, names, rows = run.facts, run.info.about.get("classes"), []
    for label in np.unique(facts.label).tolist():
        mine = facts.label == label
        became, counts = np.unique(facts.prediction[mine & (facts.outcome == Outcome.FOUND)], return_counts=True)
        mostly = (class_name(names, int(became[counts.argmax()])), counts.max() / counts.sum()) if len(counts) else None
        rows.append(
            {
                "class": class_name(names, label),
                "samples": str(int(mine.sum())),
                "clean accuracy": percent(metrics.average(facts.clean_prediction[mine] == label)),
                "median changes": number(metrics.median(run.changes[mine]) if run.budget is None else None, 1),
                "fooled": percent(metrics.average(facts.success[mine])),
                "mostly taken for": f"{mostly[0]} ({percent(mostly[1])})" if mostly else "–",
            }
        )
    caption = f"True classes under {run.name}, the strongest attack"
    return lined_up(f"classes-{place}", caption, rows, ["class", "mostly taken for"])


def _grid(grid: analysis.Grid, name: str, caption: str, heading: str) -> PageTable:
    """Return shares as a table whose cells are as dark as they are large."""
    rows: list[list[Cell | str]] = [
        [label, *("–" if math.isnan(each) else Cell(f"{100 * each:.0f}", shade=each) for each in shares)]
        for label, shares in zip(grid.rows, grid.shares.tolist(), strict=True)
    ]
    return PageTable(name, caption, [Column(heading), *(Column(head, True) for head in grid.columns)], rows)


def _maps(group: Group, place: int, maps: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the maps of changed pixels, all on one scale; their values go to the script."""
    shares = {run: share for run in group.runs if (share := analysis.changed_pixels(run)) is not None}
    top = max([float(share.max()) for share in shares.values()], default=0.0)
    for at, (run, share) in enumerate(shares.items() if top else ()):
        name = f"map-{place}-{at}"
        eight = np.round(255 * share / top).astype(np.uint8)
        maps[name] = {"width": share.shape[1], "values": base64.b64encode(eight.tobytes()).decode()}
        yield {"name": name, "label": run.title, "most": percent(float(share.max())), "top": percent(top)}


def _features(group: Group, place: int) -> PageTable | None:
    """Return which features the attacks change most often."""
    shares = np.stack([analysis.changed_sites(run) for run in group.runs])
    sites = spaces.named_sites(group.info)
    order = np.argsort(-shares.mean(axis=0), kind="stable")
    shown = [k for k in order.tolist() if shares[:, k].max() > 0][:MAX_FEATURES]
    rows: list[list[Cell | str]] = [
        [sites[k].name, *(Cell(f"{100 * each:.1f}", shade=each) for each in shares[:, k].tolist())] for k in shown
    ]
    many = sum(not site.missing for site in sites)
    caption = f"In how many % of the examples found each feature is changed ({len(shown)} of {many} features)"
    columns = [Column("feature"), *(Column(run.title, True) for run in group.runs)]
    return PageTable(f"features-{place}", caption, columns, rows) if shown else None


def list_findings(runs: Iterable[tuple[str, Run]], by_cell: CellFindings) -> list[dict[str, str]]:
    """Return every finding once for each model, errors first; the runs come with what to call their model."""
    seen = {
        (where, finding.code, finding.detail): finding
        for where, run in runs
        for finding in by_cell.get(run.info.key, ())
    }
    order = sorted(seen.items(), key=lambda each: each[1].severity != "error")
    return [
        {**vars(finding), "title": CODES.get(finding.code, finding.title), "where": where}
        for (where, *_), finding in order
    ]


def _incomplete(states: Sequence[CellStatus]) -> list[str]:
    """Return what is missing or failed, a line for each run."""
    notes = []
    for one in states:
        if one.state != "done":
            done = f"{one.done} of {one.cell.rows} rows done"
            why = f"failed: {one.error.strip().splitlines()[-1]}" if one.error else done
            notes.append(f"{one.cell.attack} against {one.cell.model} on {one.cell.dataset} {why}.")
    more = [f"{len(notes) - MAX_STATES} more runs are not complete."] if len(notes) > MAX_STATES else []
    return notes[:MAX_STATES] + more


def _software(runs: Sequence[Run]) -> dict[str, str]:
    """Return what the runs were made with; several values where they differ."""
    made = {}
    for name, heading in SOFTWARE.items():
        values = [str(value) for run in runs for value in _listed(run.info.provenance.get(name))]
        short = [
            value[:12] if name == "commit" else value.replace("T", " ") if name == "began" else value
            for value in values
        ]
        if short:
            made[heading] = ", ".join(dict.fromkeys(short))
    return made


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _cells(states: Sequence[CellStatus]) -> PageTable:
    """Return every cell of the store: how far it is, and the hashes that identify what it is about."""
    rows: list[dict[str, Cell | str]] = [
        {
            "attack": one.cell.attack,
            "model": one.cell.model,
            "data": one.cell.dataset,
            "state": one.state,
            "budget": number(one.cell.budget),
            "seed": str(one.cell.seed),
            "samples": f"{one.done}" if one.done == one.cell.rows else f"{one.done} of {one.cell.rows}",
            "time": Cell(duration(one.seconds), sort=one.seconds),
            "weights": one.cell.model_sha256[:8],
            "rows": one.cell.data_hash[:8],
            "cell": one.cell.key[:12],
        }
        for one in states
    ]
    caption = "Each run is an attack against a model on some rows; the hashes are those of weights, rows and question"
    return lined_up("cells", caption, rows, ["attack", "model", "data", "state", "weights", "rows", "cell"])


def _parameters(runs: Sequence[Run]) -> PageTable:
    """Return every attack with all its parameters."""
    heads = ("attack", "version", "parameters")
    lines = {
        (run.info.attack, str(run.info.version), ", ".join(f"{k}={v}" for k, v in run.info.parameters.items()))
        for run in runs
    }
    rows = [dict(zip(heads, line, strict=True)) for line in sorted(lines)]
    return lined_up("parameters", "Parameters of the attacks", rows, heads)
