"""What `sigmazero auto` tells before, while and after it runs, and the files it leaves for a pipeline."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from sigmazero.auto import CascadeReport, GateVerdict, SparseAutoAttack
from sigmazero.auto.bounds import GateProofs
from sigmazero.auto.document import GateModel
from sigmazero.auto.estimate import MemberCost, estimate_cascade
from sigmazero.auto.gating import judge
from sigmazero.auto.terms import GateTerms
from sigmazero.cli import console, options
from sigmazero.cli.allowed import show_changes
from sigmazero.cli.results import show_findings, write_result
from sigmazero.core.files import replacing, same_file, writable
from sigmazero.core.findings import Finding
from sigmazero.core.metrics import median
from sigmazero.data import Rows
from sigmazero.report.status import duration
from sigmazero.report.tables.text import interval, number, rich_table

FailUnder = Annotated[
    float | None, typer.Option(metavar="P", help="Exit code 1 if robust accuracy is below P percent; needs --eps.")
]
Complete = Annotated[bool, typer.Option("--complete", help="Go on to the end although --fail-under is lost before.")]
CostOnly = Annotated[bool, typer.Option("--dry-run", help="Say what it would cost at most, and run nothing.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the record there as JSON.")]
JunitFile = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit report there (XML).")]
MarkdownFile = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Write a summary for a pull request there.")
]
ProofsStore = Annotated[
    Path | None,
    typer.Option("--proofs", metavar="STORE", help="Lower bounds that sigmazero certify --store proved, or will."),
]
CertifySeconds = Annotated[
    float | None,
    typer.Option("--certify", metavar="S", help="Try S seconds to prove each row that stays right; needs --eps."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the verdict alone, in one line.")]


@dataclass(frozen=True)
class GateFiles:
    """Where results go: the points found, the record, and its two other forms."""

    out: Path | None = None
    json: Path | None = None
    junit: Path | None = None
    markdown: Path | None = None

    def check(self, **read: str | Path | None) -> None:
        """Refuse a place that is read, or is named twice, or cannot be written to; before the run, not after it."""
        taken: dict[str, str | Path | None] = {**read, "out": self.out}
        for option, path in (("json", self.json), ("junit", self.junit), ("markdown", self.markdown)):
            for other, given in taken.items():
                if path is not None and given is not None and same_file(path, Path(given)):
                    raise ValueError(f"--{option} {path} is what --{other} names too; name another file")
            if path is not None:
                writable(path)
            taken[option] = path

    def write(self, verdict: GateVerdict, rows: Rows, title: str) -> list[Path]:
        """Write them all."""
        written = write_result(self.out, verdict.report.result, rows, None, title, verdict.json())
        texts = ((self.json, verdict.json), (self.junit, verdict.junit), (self.markdown, verdict.markdown))
        for path, text in texts:
            if path is not None:
                with replacing(path) as part:
                    part.write_text(text(), encoding="utf-8")
                written.append(path)
        return written


def files(
    out: Path | None, json: Path | None, junit: Path | None, markdown: Path | None, model: str, read: dict[str, Any]
) -> GateFiles:
    """Where results go; refused where that is read, as the model's code and these files are."""
    taken = {**read, "model": options.code_file(model)}
    found = GateFiles(options.destination(out, **taken), json, junit, markdown)
    found.check(**taken)
    return found


def terms(fail_under: float | None, allow: Sequence[str] | None, complete: bool) -> GateTerms:
    """What must hold, from percent.

    >>> terms(60.5, None, False).at_least
    0.605
    """
    if fail_under is not None and (not 0 <= fail_under <= 100 or 0 < fail_under < 1):
        raise ValueError(f"--fail-under {fail_under:g} must be in percent: 0, or 1 to 100, such as 60")
    share = None if fail_under is None else float(Fraction(str(fail_under)) / 100)
    return GateTerms(share, tuple(allow or ()), complete)


def show_estimate(cascade: SparseAutoAttack, rows: Rows, table: bool) -> None:
    """Say what the cascade costs at most: as the result of a dry run a table, else a line for people."""
    costs = estimate_cascade(cascade, rows)
    queries, seconds = sum(one.queries for one in costs), sum(one.seconds for one in costs)
    most = f"at most {queries:,} queries a row, {queries * len(rows):,} in all"
    line = f"{most}, about {duration(seconds)} here; less for every row that is fooled"
    if not table:
        console.tell(line)
        return
    console.out().print(rich_table(_estimate_rows(costs), left=["member"]))
    console.say(f"{line}; nothing was run")


def _estimate_rows(costs: Sequence[MemberCost]) -> list[dict[str, str]]:
    return [
        {
            "member": one.name,
            "queries a row": f"{one.queries:,}",
            "queries": f"{one.queries * one.rows:,}",
            "time": duration(one.seconds),
        }
        for one in costs
    ]


def check(cascade: SparseAutoAttack, rows: Rows, wanted: GateTerms, proofs: GateProofs) -> None:
    """Refuse at once what cannot be judged or proved, and an input outside its space."""
    proofs.check(cascade, rows)
    if wanted.at_least is not None and cascade.eps is None:
        raise ValueError("--fail-under needs a number of changes; add --eps K, such as --eps 24")
    if cascade.allowed.space is not None:
        cascade.allowed.pose(rows.images, rows.labels, unit=cascade.unit)


def run_gate(
    cascade: SparseAutoAttack,
    rows: Rows,
    name: str,
    wanted: GateTerms,
    findings: list[Finding],
    files: GateFiles,
    proofs: GateProofs,
    *,
    quiet: bool,
    batch_size: int,
    state: Path | None,
) -> None:
    """Run a cascade, write and show what it found, and end with the exit code of its verdict."""
    show_findings(wanted.blocking(findings) if quiet else findings)
    try:
        if not quiet:
            show_estimate(cascade, rows, table=False)
        # The lines of the members are not the result: they go where progress goes.
        with contextlib.redirect_stdout(console.Aside()):
            how: Any = {"batch_size": batch_size, "state_path": state, "progress": not quiet, "proofs": proofs}
            model = GateModel.of(cascade.model, name, proofs.spec)
            verdict = judge(cascade, rows, model, wanted, findings, **how)
    except KeyboardInterrupt:
        kept = "--state FILE would have kept it" if state is None else f"in {state}. To go on: {console.again()}"
        console.tell(f"stopped; what is finished: {kept}")
        raise
    title = f"SparseAutoAttack against {name} on {rows.name}"
    written = files.write(verdict, rows, title)
    if not quiet:
        _show(verdict.report, title)
        _show_proved(verdict)
        show_changes(verdict.report.result, rows, cascade.allowed.space)
    later = list(verdict.report.findings)
    show_findings(wanted.blocking(later) if quiet else later)
    for file in written if not quiet else ():
        console.show_path(file)
    if quiet or wanted.at_least is not None or not verdict.passed:
        console.say(str(verdict), style=None if verdict.passed else "red")
    if not verdict.passed:
        raise typer.Exit(verdict.exit_code)


def _show_proved(verdict: GateVerdict) -> None:
    """Where the truth lies, if something was proved."""
    robust = verdict.document["robust_accuracy"]
    known = [{"k": verdict.report.eps, **robust}] if robust is not None else verdict.document["curve"]
    for each in known:
        if each["proved"] is not None:
            ends = interval(each["proved"] / each["of"], each["value"])
            console.say(f"robust at {each['k']:g}: {ends}; the lower end is proved")


def _show(report: CascadeReport, title: str) -> None:
    console.say(title, style="bold")
    console.say(report.headline)
    console.out().print(rich_table(report.rows(), down=True))
    if report.eps is None:
        console.say(f"median l0 {number(report.result.median_l0, 1)}")
        if report.cost is not None:
            console.say(f"median cost {number(median(report.result.cost.double().numpy()), 2)}")
