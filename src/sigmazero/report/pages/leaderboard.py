"""Make a leaderboard from stores: for each model and sample the sparsest point that any of its cells has.

Two doors lead here: the entries of a folder (`sigmazero board site`) and the stores of a benchmark (`sigmazero report
--bundle`). Each hands over stores, what is known of their models, and a way to their inputs. Cells that ask the same
question make a board, those of one model an entry of it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sigmazero.core import metrics
from sigmazero.core.messages import class_name
from sigmazero.core.metrics import Floats
from sigmazero.core.model import ABILITIES
from sigmazero.report.figures import style
from sigmazero.report.findings import CellFindings, findings
from sigmazero.report.formats import number, percent
from sigmazero.report.intervals import wilson
from sigmazero.report.pages import samples
from sigmazero.report.pages.curve import Series, chart, on_both
from sigmazero.report.pages.page import answer, example, list_findings
from sigmazero.report.pages.render import Cell, Column, PageTable, lined_up, render, save_page
from sigmazero.report.runs import (
    Clean,
    Group,
    Run,
    choose_ks,
    goal_suffix,
    load,
    merge,
    not_finite_is_wrong,
    places_of,
    refuse_mixture,
    tell_apart,
)
from sigmazero.store.facts import CellInfo, Facts, Integers
from sigmazero.store.proofs import ProofKey
from sigmazero.store.store import Store

TITLE = "Robustness to sparse changes"
UNCHECKED = "not checked"  # how the method of a proof ends that was taken over and not made again
PROVED, OVER_REALS, CLAIMED = BOUNDS = ("proved", "proved over the reals", "claimed, proofs not checked")
MAX_CURVES = 8  # curves in a chart
MAX_MODELS, MAX_PICTURES = 6, 8  # models and samples with pictures on the first page
MAX_SAMPLES = 48  # samples with pictures on the page of a model
MAX_LISTED = 2000  # samples in the table there


@dataclass(frozen=True)
class Card:
    """The description of a model: texts by their headings, and addresses by name."""

    about: Mapping[str, str]
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """A store, what is known of the models of its cells, and a way to their inputs."""

    store: Store
    describe: Callable[[CellInfo], Card]
    clean: Clean


@dataclass(frozen=True, eq=False)
class Entry:
    """A model on a board; arrays have one entry per sample.

    runs      in the order in which they came: of equally good points the first counts
    findings  what makes its figures doubtful, as a page lists it
    bounds    how far its lower bounds are proved, one of `BOUNDS`
    best      a run that has the best point of each sample, and what is proved of it
    changes   the fewest found: 0 if the sample is wrong already, infinite if it was not fooled
    lower     the changes that it needs at least
    finders   the run that found the best point; None where there is none, or none is needed
    """

    name: str
    slug: str
    card: Card
    runs: tuple[Run, ...]
    findings: Sequence[Mapping[str, str]]
    bounds: str
    best: Run
    changes: Floats
    lower: Floats
    finders: Sequence[Run | None]

    @property
    def proved(self) -> bool:
        """Return whether anything is proved beyond that a sample classified correctly needs one change."""
        return bool((self.lower > 1).any())

    @property
    def missing(self) -> int:
        """Return how many rows the least complete run still lacks; submissions have the rows that they lower."""
        lacks: dict[str, int] = {}
        for run in self.runs:
            if not submitted(run.info):
                lacks[run.info.key] = min(lacks.get(run.info.key, run.info.rows), run.info.rows - len(run))
        return max(lacks.values(), default=0)

    def robust(self, k: float) -> float:
        """Return the share that was not fooled with at most k changes: an upper bound of the robust accuracy."""
        return metrics.robust(self.changes, k)

    @property
    def median(self) -> float:
        """Return the median of the fewest changes found."""
        return metrics.median(self.changes)


@dataclass(frozen=True, eq=False)
class Board:
    """Entries that answer the same question: the same rows, unit, goal and space."""

    title: str
    name: str
    about: str
    ks: Sequence[float]
    entries: Sequence[Entry]
    clean: Clean

    @property
    def info(self) -> CellInfo:
        """Return a cell, for what all of them share."""
        return self.entries[0].runs[0].info

    @cached_property
    def ranked(self) -> list[tuple[int | None, Entry]]:
        """Return the entries from the most to the least robust: by the median, then by the shares at each k.

        Equals share a rank; an entry that is not finished has none and comes last.
        """

        def worth(entry: Entry) -> tuple[float, ...]:
            return (float(entry.missing > 0), -entry.median, *(-entry.robust(k) for k in self.ks))

        order = sorted(self.entries, key=lambda entry: (worth(entry), entry.name))
        worths = [worth(entry) for entry in order]
        ranks = [None if entry.missing else 1 + worths.index(each) for entry, each in zip(order, worths, strict=True)]
        return list(zip(ranks, order, strict=True))

    @cached_property
    def pictured(self) -> Integers:
        """Return the samples whose pictures stand side by side for the first models, from easy to hard."""
        top = [entry for _, entry in self.ranked[:MAX_MODELS]]
        rows: Integers = np.unique(np.concatenate([entry.best.facts.row for entry in top]))
        fooled = np.full((len(top), len(rows)), np.nan)
        for at, entry in enumerate(top):
            usable = np.isfinite(entry.changes) & (entry.changes > 0)
            fooled[at, np.searchsorted(rows, entry.best.facts.row[usable])] = entry.changes[usable]
        many = (~np.isnan(fooled)).sum(axis=0)
        enough = np.sort(many)[-min(MAX_PICTURES, len(many))]
        chosen = np.flatnonzero(many >= max(enough, 1))  # those that fool most models
        chosen = chosen[np.argsort(np.nanmean(fooled[:, chosen], axis=0), kind="stable")]
        return samples.spread(rows[chosen], MAX_PICTURES)


def submitted(info: CellInfo) -> bool:
    """Return whether a cell holds points submitted to a leaderboard, and not a run of an attack."""
    return bool(info.identity.get("attack", {}).get("class") == "Submission")


def boards(
    sources: Iterable[Source], ks: Callable[[str], Sequence[float] | None] = lambda _: None, mix: bool = False
) -> list[Board]:
    """Return the boards of all cells in these stores, in the order of first appearance.

    ks   gives the numbers of changes of the columns by a data set's name; None: the quartiles of the best points
    mix  allow attacks of different versions side by side
    """
    found: dict[tuple[str, ...], dict[tuple[str, ...], list[tuple[Run, Source]]]] = {}
    notes: CellFindings = {}
    for source in sources:
        runs = load(source.store)
        for key, some in findings(source.store, runs).items():
            notes.setdefault(key, []).extend(some)
        for run in runs:
            model = run.info.model, run.info.model_sha256, run.code
            found.setdefault(_question(run.info), {}).setdefault(model, []).append((run, source))
    if not found:
        raise ValueError("the stores have no samples yet; run a plan into one first")
    known = list(dict.fromkeys(model for models in found.values() for model in models))
    names = tell_apart([name for name, *_ in known], [{"weights": sha[:8], "code": code} for _, sha, code in known])
    called = {model: (name, slug) for model, name, slug in zip(known, names, _slugs(names), strict=True)}
    firsts = [next(iter(models.values()))[0][0].info for models in found.values()]
    titles = tell_apart(*zip(*map(_title, firsts), strict=True))
    made = []
    for title, anchor, models in zip(titles, _slugs(titles), found.values(), strict=True):
        if not mix:  # models of one name stand apart here
            every = [run.info for parts in models.values() for run, _ in parts]
            refuse_mixture(replace(info, model=f"{info.model} {info.model_sha256}") for info in every)
        entries = [_entry(*called[model], parts, notes) for model, parts in models.items()]
        run, source = next(iter(models.values()))[-1]
        columns = ks(run.info.dataset) or choose_ks(entry.changes for entry in entries)
        made.append(Board(title, anchor, _about(run.info, entries), sorted(columns), entries, source.clean))
    return made


def _entry(name: str, slug: str, parts: Sequence[tuple[Run, Source]], notes: CellFindings) -> Entry:
    """Return a model by its runs, each with the source it came from."""
    last, source = parts[-1]
    bounds = max((_bounds(each.store, run.info) for run, each in parts), key=BOUNDS.index)
    runs = sorted((run for run, _ in parts), key=lambda run: int(run.info.parameters.get("turn", 0)))
    whole = [not_finite_is_wrong(replace(run, facts=run.perturbed)) for run in runs]
    found = merge(whole)
    rows = found.rows
    has = np.stack([np.isin(rows, run.facts.row) for run in whole])
    winner = np.where(found.winner < 0, has.argmax(axis=0), found.winner)  # not fooled: the first run that has it
    facts = Facts.join([run.facts.take(run.places(rows[winner == at])) for at, run in enumerate(whole)])
    best = replace(
        runs[0],
        info=replace(runs[0].info, budget=None),
        facts=facts.take(places_of(rows, facts.row)),
        least=np.where(found.lower > 1, found.lower, 0).astype(np.int64),  # a need of 1 is no proof
        name="the best point known",
        store=None,
    )
    return Entry(
        name=name,
        slug=slug,
        card=source.describe(last.info),
        runs=tuple(runs),
        findings=list_findings(((name, run) for run in runs), notes),
        bounds=bounds,
        best=best,
        changes=found.changes,
        lower=found.lower,
        finders=[runs[at] if 0 < k < np.inf else None for at, k in zip(winner, found.changes, strict=True)],
    )


def _question(info: CellInfo) -> tuple[str, ...]:
    """Return what must be the same for models to compare."""
    parts = (info.dataset, info.data_hash, info.unit, info.goal, info.origin.get("target"), info.precision, info.space)
    return (*map(str, parts), _track(info))


def _track(info: CellInfo) -> str:
    """Return the ability of a model as a submission states it: fewer attacks apply without gradients."""
    return str(info.parameters.get("ability", ABILITIES[0])) if submitted(info) else ABILITIES[0]


def _title(info: CellInfo) -> tuple[str, dict[str, str]]:
    track = "" if _track(info) == ABILITIES[0] else f", {_track(info)} only"
    parts = {"unit": info.unit, "space": info.space, "rows": info.data_hash[:8], "precision": info.precision}
    return info.dataset + goal_suffix(info) + track, parts


def _about(info: CellInfo, entries: Sequence[Entry]) -> str:
    parts = [f"{max(len(entry.changes) for entry in entries)} samples", f"changes are counted in {info.unit}s"]
    parts += ["changes stay within the space of the data"] if info.space != "–" else []
    parts += [f"models that give {_track(info)} only"] if _track(info) != ABILITIES[0] else []
    return f"{', '.join(parts)}. SHA-256 of the rows: {info.data_hash[:12]}."


def _bounds(store: Store, info: CellInfo) -> str:
    """Return how far the lower bounds of a cell are proved, by the weakest of its proofs."""
    key = ProofKey.of_cell(info)
    methods = [proof.method for proof in (store.proofs(key).values() if key else ()) if proof.least > 1]
    if any(method.endswith(UNCHECKED) for method in methods):
        return CLAIMED
    return OVER_REALS if any(method.endswith("over the reals") for method in methods) else PROVED


def slug_of(name: str) -> str:
    """Return a name that is safe in addresses and files.

    >>> slug_of("../ResNet 20 (mine)")
    'resnet-20-mine'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:60].strip("-") or "model"


def _slugs(names: Iterable[str]) -> list[str]:
    """Return safe names; those that would be the same get a number.

    >>> _slugs(["../<b>M1", "B m1"])
    ['b-m1', 'b-m1-2']
    """
    made: list[str] = []
    for name in names:
        slug, times = slug_of(name), 1
        while slug in made:
            times += 1
            slug = f"{slug_of(name)}-{times}"
        made.append(slug)
    return made


# Pages ----------------------------------------------------------------------------------------------------------------


def write_site(folder: Path, title: str, lead: str, found: Sequence[Board]) -> int:
    """Write the first page and a page for each model into a folder, and return the number of models."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())) and not _ours(folder / "index.html"):
        raise ValueError(f"{folder} has files that are no site made by sigmazero; name another folder")
    slugs = dict.fromkeys(entry.slug for board in found for entry in board.entries)
    pages = {f"models/{slug}.html": _model_page(found, slug) for slug in slugs}
    for name, text in {**pages, "index.html": _first_page(title, lead, found)}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        save_page(folder / name, text)
    for old in (folder / "models").glob("*.html"):
        if f"models/{old.name}" not in pages and _ours(old):
            old.unlink()
    return len(pages)


def _ours(path: Path) -> bool:
    return path.is_file() and '<meta name="generator" content="sigmazero ' in path.read_text("utf-8", "replace")


def _first_page(title: str, lead: str, found: Sequence[Board]) -> str:
    shown = [(board, entry) for board in found for _, entry in board.ranked[:MAX_MODELS]]
    packed = _pack(shown, {board: board.pictured for board in found})
    parts = [
        {
            "name": board.name,
            "title": board.title,
            "about": board.about,
            "table": _table(board),
            "notes": _notes(board),
            "chart": _chart(board, [entry for _, entry in board.ranked[:MAX_CURVES]], board.name),
            "pictures": [
                _pictures(found, board, entry, packed, at) for at, (on, entry) in enumerate(shown) if on is board
            ],
        }
        for board in found
    ]
    return render("leaderboard.html", title=title, lead=lead, boards=parts, data=_data(parts, packed))


def _data(parts: Sequence[dict[str, Any]], packed: samples.Samples) -> dict[str, Any]:
    """Return what the script of a page reads."""
    charts = {part["chart"]["name"]: part["chart"]["data"] for part in parts}
    return {"charts": charts, "samples": packed.data}


def _model_page(found: Sequence[Board], slug: str) -> str:
    on = [(board, entry) for board in found for entry in board.entries if entry.slug == slug]
    packed = _pack(on, {board: _gallery(board, entry) for board, entry in on})
    parts = []
    for at, (board, entry) in enumerate(on):
        (run,) = packed.data["groups"][at]["runs"]
        who = dict(zip(entry.best.facts.row.tolist(), map(_whose, entry.finders), strict=True))
        run["by"] = [who[row] for row in run["rows"]]
        lead = answer(_group(board, entry), at, packed) | {"by": "the best point of each sample counts"}
        if entry.bounds == CLAIMED:  # a page states no claim as a fact
            del run["least"]
            lead["proved"] = "Lower bounds are claimed; their proofs were not checked."
        rank = next(rank for rank, each in board.ranked if each is entry)
        parts.append(
            {
                "name": board.name,
                "title": board.title,
                "rank": f"rank {rank} of {len(board.entries)}" if rank else "not finished, so without a rank",
                "answer": lead,
                "shares": {
                    f"robust accuracy at k = {k:g}": f"{percent(entry.robust(k))} {_ends(entry, k)}" for k in board.ks
                },
                "chart": _chart(board, [entry], f"{board.name}-own"),
                "finders": _finders(board, entry),
                "samples": _samples(board, entry),
            }
        )
    entry = on[0][1]
    return render(
        "model.html",
        title=entry.name,
        about=entry.card.about,
        links={name: link for name, link in entry.card.links.items() if link.startswith(("https://", "http://"))},
        findings=entry.findings,
        boards=parts,
        notes=packed.notes,
        data={**_data(parts, packed), "outcomes": samples.OUTCOMES},
    )


def _group(board: Board, entry: Entry) -> Group:
    return Group(f"{entry.name} on {board.title}", (entry.best,))


def _pack(shown: Sequence[tuple[Board, Entry]], rows: Mapping[Board, Integers]) -> samples.Samples:
    """Pack the samples of some entries; boards over the same inputs show all that any of them wants."""
    wanted: dict[str, Integers] = {}
    for board, _ in shown:
        old = wanted.get(board.info.data_hash, np.zeros(0, np.int64))
        wanted[board.info.data_hash] = np.union1d(old, rows[board])
    clean = {board.info.data_hash: board.clean for board, _ in shown}
    groups = [_group(board, entry) for board, entry in shown]
    return samples.build(groups, lambda info: clean[info.data_hash](info), rows=wanted)


def _gallery(board: Board, entry: Entry) -> Integers:
    """Return the samples on the page of a model: some evenly spread, and those that the first page links to."""
    linked = np.intersect1d(board.pictured, entry.best.facts.row)
    return np.union1d(samples.spread(np.sort(entry.best.facts.row), MAX_SAMPLES), linked)


def _pictures(found: Sequence[Board], board: Board, entry: Entry, packed: samples.Samples, at: int) -> dict[str, Any]:
    """Return the strip of an entry on the first page; empty where there are no pictures."""
    made: dict[str, Any] = {"name": entry.name, "href": f"models/{entry.slug}.html", "strip": []}
    if "images" not in packed.data["sets"][packed.data["groups"][at]["set"]]:
        return made
    place = [each for each in found if entry.slug in {one.slug for one in each.entries}].index(board)
    for row in board.pictured.tolist():
        if row in entry.best.facts.row:
            made["strip"].append(example(entry.best, row, f"{made['href']}#sample-{place}-{row}", f"{at} {row} 0"))
    return made


def _chart(board: Board, entries: Sequence[Entry], name: str) -> dict[str, Any]:
    """Return robust accuracy over k, falling, as the table has it; of one entry also what is proved."""
    series = []
    for place, entry in enumerate(entries):
        colour = on_both(style.OTHERS[place % len(style.OTHERS)])
        series.append(Series(entry.name, colour, entry.changes, shaded=place == 0))
    first, alone = entries[0], len(entries) == 1
    gap = (first.changes, first.lower) if alone and first.proved and first.bounds != CLAIMED else None
    return chart(
        name,
        f"Robust accuracy: the share that was not fooled with at most k changed {board.info.unit}s",
        series,
        end=max(_group(board, entry).end for entry in entries),
        unit=board.info.unit,
        gap=gap,
        falling=True,
        note=f"The first {MAX_CURVES} models." if len(board.entries) > MAX_CURVES and not alone else "",
    )


# Tables ---------------------------------------------------------------------------------------------------------------


def _table(board: Board) -> PageTable:
    unit = board.info.unit
    columns = [
        Column("model", help="The most robust first: by the median, then by the shares. Equals share a rank."),
        Column("median", True, f"Median of the fewest changed {unit}s that fool a sample; ∞ if half were not fooled."),
        Column("clean", True, "Share classified correctly without any change, in %."),
        *(
            Column(f"k = {k:g}", True, f"Share that was not fooled with at most {k:g} changed {unit}s, in %.")
            for k in board.ks
        ),
        Column("mostly found by"),
    ]
    rows: list[list[Cell | str]] = []
    for rank, entry in board.ranked:
        codes = [each["code"] for each in entry.findings if each["severity"] == "error"]
        missing = f"{entry.missing} rows missing" if entry.missing else ""
        small = ", ".join(each for each in (f"rank {rank}" if rank else "", missing, *dict.fromkeys(codes)) if each)
        names = [_whose(run) for run in entry.finders if run is not None]
        rows.append(
            [
                Cell(entry.name, small, href=f"models/{entry.slug}.html", sort=float(rank or len(board.entries) + 1)),
                number(entry.median, 1),
                f"{100 * (metrics.clean_accuracy(entry.best.samples) or 0):.1f}",
                *(Cell(f"{100 * entry.robust(k):.1f}", _ends(entry, k)) for k in board.ks),
                max(names, key=names.count) if names else "–",
            ]
        )
    proved = ", and the share that is proved to stay correct" if any(entry.proved for entry in board.entries) else ""
    return PageTable(f"{board.name}-table", f"Robust accuracy in %; small: its 95 % interval{proved}", columns, rows)


def _ends(entry: Entry, k: float) -> str:
    low, high = wilson(round(entry.robust(k) * len(entry.changes)), len(entry.changes))
    proved = metrics.robust(entry.lower, k) if entry.proved else 0.0
    return f"({100 * low:.1f}–{100 * high:.1f})" + (f" ≥ {100 * proved:.1f} {entry.bounds}" if proved else "")


def _notes(board: Board) -> list[str]:
    """Return cautions about the order: other samples may change it, and some models met fewer attacks."""
    notes = ["Models whose intervals overlap may change places on other samples."] * (len(board.entries) > 1)
    met = {entry.name: {run.info.attack for run in entry.runs if not submitted(run.info)} for _, entry in board.ranked}
    every = list(dict.fromkeys(attack for attacks in met.values() for attack in sorted(attacks)))
    for name, attacks in met.items():
        if missed := [attack for attack in every if attack not in attacks]:
            notes.append(f"{name} was not attacked by {', '.join(missed)}, and may look better for it.")
    return notes


def _whose(run: Run | None) -> str:
    """Return who found a point and by what."""
    who = run.info.parameters.get("by") if run is not None and submitted(run.info) else ""
    return "" if run is None else f"{run.info.attack}, {who}" if who else run.name


def _finders(board: Board, entry: Entry) -> PageTable:
    names = [_whose(run) for run in entry.finders if run is not None]
    order = sorted(set(names), key=lambda name: (-names.count(name), name))
    rows = [{"found by": name, "samples": str(names.count(name))} for name in order]
    return lined_up(f"{board.name}-finders", "Best points, by attack and finder", rows, ["found by"])


def _samples(board: Board, entry: Entry) -> PageTable:
    facts, classes, rows = entry.best.facts, entry.best.info.about.get("classes"), []
    for i, finder in enumerate(entry.finders[:MAX_LISTED]):
        began = finder.info.provenance.get("began", "") if finder is not None else ""
        rows.append(
            {
                "row": str(facts.row[i]),
                "class": class_name(classes, int(facts.label[i])),
                "at least": number(entry.lower[i]),
                "found": number(entry.changes[i]),
                "found by": _whose(finder) or ("wrong already" if entry.changes[i] == 0 else "not fooled"),
                "on": str(began[0] if isinstance(began, list) and began else began or "–")[:10],
            }
        )
    more = f", the first {MAX_LISTED:,} of {len(facts):,}" if len(facts) > MAX_LISTED else ""
    caption = f"Every sample{more}: the changes that it needs at least, and the fewest that fool the model"
    return lined_up(f"{board.name}-samples", caption, rows, ["class", "found by", "on"])
