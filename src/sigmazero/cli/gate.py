"""What `sigmazero auto` prints before, while and after it runs, and the files it writes."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from sigmazero.auto import CascadeResult, SparseAutoAttack, Verdict
from sigmazero.bench.forecast import ROWS, seconds_per_query
from sigmazero.cli import console, options
from sigmazero.cli.allowed import show_changes
from sigmazero.cli.results import show_findings, write_result
from sigmazero.core.files import replacing, same_file, writable
from sigmazero.core.findings import Finding, gating
from sigmazero.core.metrics import median
from sigmazero.data import Rows
from sigmazero.report.formats import interval, number, rich_table
from sigmazero.report.status import duration

FailUnder = Annotated[
    float | None, typer.Option(metavar="P", help="Exit code 1 if robust accuracy is below P percent; needs --eps.")
]
LowerEnd = Annotated[
    bool, typer.Option("--lower-end", help="Compare the lower end of the 95 % interval with --fail-under.")
]
Complete = Annotated[bool, typer.Option("--complete", help="Finish even when --fail-under can no longer be met.")]
CostOnly = Annotated[bool, typer.Option("--dry-run", help="Print what it would cost at most, and run nothing.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the record there as JSON.")]
MarkdownFile = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Write a summary for a pull request there.")
]
ProofsStore = Annotated[
    Path | None,
    typer.Option("--proofs", metavar="STORE", help="Lower bounds that sigmazero certify --store proved."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the verdict alone, in one line.")]


@dataclass(frozen=True)
class GateFiles:
    """Where results go: the points found, the record, and the summary."""

    out: Path | None = None
    json: Path | None = None
    markdown: Path | None = None

    def check(self, **read: str | Path | None) -> None:
        """Refuse a file that is read, or is given twice, or cannot be written to; before the run, not after it."""
        taken: dict[str, str | Path | None] = {**read, "out": self.out}
        for option, path in (("json", self.json), ("markdown", self.markdown)):
            for other, given in taken.items():
                if path is not None and given is not None and same_file(path, Path(given)):
                    raise ValueError(f"--{option} {path} is the file of --{other} too; name another file")
            if path is not None:
                writable(path)
            taken[option] = path

    def write(self, verdict: Verdict, rows: Rows, title: str) -> list[Path]:
        """Write them all."""
        written = write_result(self.out, verdict.result.best, rows, None, title, verdict.to_json())
        for path, text in ((self.json, verdict.to_json), (self.markdown, verdict.to_markdown)):
            if path is not None:
                with replacing(path) as part:
                    part.write_text(text(), encoding="utf-8")
                written.append(path)
        return written


def files(out: Path | None, json: Path | None, markdown: Path | None, model: str, read: dict[str, Any]) -> GateFiles:
    """Return where results go; refused where that is read, as the model's code and these files are."""
    taken = {**read, "model": options.code_file(model)}
    found = GateFiles(options.destination(out, **taken), json, markdown)
    found.check(**taken)
    return found


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


def show_estimate(auto: SparseAutoAttack, rows: Rows, table: bool) -> None:
    """Print what the cascade costs at most: a table for a dry run, else a line."""
    few = rows.images[:ROWS] if auto.device is None else rows.images[:ROWS].to(auto.device)
    most, each = auto.most(rows.images, rows.labels), seconds_per_query(auto.model, few)
    queries = sum(most.values())
    seconds = queries * len(rows) * each
    line = (
        f"at most {queries:,} queries a row, {queries * len(rows):,} in all, about {duration(seconds)} here; less for "
        "every row that is fooled"
    )
    if not table:
        console.tell(line)
        return
    lines = [
        {
            "member": name,
            "queries a row": f"{count:,}",
            "queries": f"{count * len(rows):,}",
            "time": duration(count * len(rows) * each),
        }
        for name, count in most.items()
    ]
    console.out().print(rich_table(lines, left=["member"]))
    console.say(f"{line}; nothing was run")


@contextlib.contextmanager
def keeping(store: Path | None) -> Any:
    """Say what is kept when the run is stopped by Ctrl-C; the lines of the attacks go where progress goes."""
    try:
        with contextlib.redirect_stdout(console.Aside()):
            yield
    except KeyboardInterrupt:
        kept = "--store FILE would have kept it" if store is None else f"in {store}. To go on: {console.again()}"
        console.tell(f"stopped; what is finished: {kept}")
        raise


def show_doctor(findings: Sequence[Finding], allow: Sequence[str], quiet: bool) -> None:
    """Print what the doctor found; only errors that were not accepted, if `quiet`."""
    show_findings(gating(findings, allow) if quiet else list(findings))


def end(verdict: Verdict, auto: SparseAutoAttack, rows: Rows, files: GateFiles, quiet: bool) -> None:
    """Write and print what was found, and end with the exit code of the verdict."""
    found, title = verdict.result, f"SparseAutoAttack against {verdict.model.name} on {rows.name}"
    written = files.write(verdict, rows, title)
    if not quiet:
        _show(found, title)
        for each in (verdict.figure, *verdict.curve):
            if each is not None and each.proved is not None:
                ends = interval(each.proved / each.of, each.value)
                console.say(f"robust at {each.k:g}: {ends}; the lower end is proved")
        show_changes(found.best, rows, auto.allowed.space)
    show_doctor([each for each in found.findings if each.code == "SZ014"], verdict.question.allow, quiet)
    for file in written if not quiet else ():
        console.show_path(file)
    if quiet or verdict.question.at_least is not None or not verdict.passed:
        console.say(str(verdict), style=None if verdict.passed else "red")
    if not verdict.passed:
        raise typer.Exit(verdict.exit_code)


def _show(found: CascadeResult, title: str) -> None:
    console.say(title, style="bold")
    console.say(found.headline)
    console.out().print(rich_table(found.table(), down=True))
    if found.exact:
        console.say(found.exact)
    if found.eps is None:
        console.say(f"median l0 {number(found.best.median_l0, 1)}")
        if found.costs:
            console.say(f"median cost {number(median(found.best.cost.double().numpy()), 2)}")
