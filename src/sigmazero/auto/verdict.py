"""Hold the verdict of a gate: a record for machines, and texts made of it for people."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from sigmazero.auto.result import CascadeResult
from sigmazero.core.domain import Unit
from sigmazero.core.findings import Severity
from sigmazero.core.messages import visible
from sigmazero.report.formats import escape_markdown, markdown, number, percent
from sigmazero.report.notebook import with_samples

Share = Annotated[float, Field(ge=0, le=1)]
Natural = Annotated[int, Field(ge=0)]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Record(BaseModel):
    """A part of the record: its fields and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Question(Record):
    """The question. Bounds are numbers, or hashes of bounds that differ between features.

    needed     rows that must stay right
    lower_end  whether the lower end of the interval had to reach `at_least`, and not the figure alone
    """

    eps: Annotated[int, Field(ge=1)] | None
    unit: Unit
    seed: int
    precision: str
    bounds: tuple[float | str, float | str]
    mask: Hash | None
    space: Hash | None
    at_least: Share | None
    lower_end: bool
    needed: Natural | None
    allow: tuple[str, ...]


class Figure(Record):
    """The share of all rows that are right and that no attack fooled with k changes: an upper bound.

    tried      how many of them every attack has tried; fewer than `count` if the cascade ended early
    low, high  the ends of Wilson's 95 % interval: about the choice of the rows, not about stronger attacks
    proved     rows that are proved to stay right; None where no proofs were given
    """

    k: float
    value: Share
    count: Natural
    of: Natural
    tried: Natural
    low: Share
    high: Share
    proved: Natural | None


class Member(Record):
    """One attack: rows that it was run on, rows that it improved or fooled, rows that are right after it, queries."""

    name: str
    version: int
    parameters: dict[str, Any]
    attacked: Natural
    improved: Natural
    robust_after: Natural | None
    queries: Natural


class RecordedFinding(Record):
    """A finding; `allowed` says whether the caller accepted it."""

    code: Annotated[str, Field(pattern="^SZ[0-9]{3}$")]
    title: str
    detail: str
    fix: str
    severity: Severity
    allowed: bool


class ModelId(Record):
    """The model by its name and the hashes of its weights and code; None where there is nothing to hash."""

    name: str
    weights: Hash | None
    code: Hash | None


class DataId(Record):
    """The rows: how many, and the hashes of inputs and labels (`content`) and of the row numbers (`ids`)."""

    name: str
    rows: Natural
    content: Hash
    ids: Hash


class Times(Record):
    """Everything that depends on the clock."""

    began: str
    ended: str
    seconds: dict[str, float]


class Verdict(Record):
    """The outcome of a gate: a record, which is the same in a second run but for `times`.

    `result` has the points that were found. `Verdict.model_validate_json` reads a record that `to_json` wrote, and
    `Verdict.model_json_schema()` describes it.

    outcome   "below" wins over "findings"; "measured" if no least robust accuracy was asked for
    complete  whether every attack ran to its end; False if it was certain before that too few rows stay right
    figure    robust accuracy at eps changes; without eps, `curve` has it at several numbers of changes
    cascade   the list of attacks and its number; `left_out` are those that it went without
    """

    format: Literal["sigmazero gate"] = "sigmazero gate"
    version: Literal[1] = 1
    outcome: Literal["passed", "below", "findings", "measured"]
    exit_code: Literal[0, 1, 3]
    complete: bool
    question: Question
    figure: Figure | None
    curve: tuple[Figure, ...]
    median_l0: float | None
    clean_accuracy: Share | None
    cascade: str
    left_out: tuple[str, ...]
    members: tuple[Member, ...]
    findings: tuple[RecordedFinding, ...]
    model: ModelId
    data: DataId
    environment: dict[str, Any]
    times: Times
    _result: CascadeResult | None = PrivateAttr(None)

    @property
    def result(self) -> CascadeResult:
        """Return what the cascade found, with every point."""
        if self._result is None:
            raise ValueError("a verdict that was read from a record has no points; run the gate again")
        return self._result

    @property
    def passed(self) -> bool:
        """Return whether the exit code is 0."""
        return self.exit_code == 0

    @property
    def robust_accuracy(self) -> float | None:
        """Return the share of rows that stay right at eps changes, as far as the cascade ran; None without eps."""
        return None if self.figure is None else self.figure.value

    @property
    def blocking(self) -> list[RecordedFinding]:
        """Return the errors that were not accepted: with them a high figure means little."""
        return [each for each in self.findings if each.severity == "error" and not each.allowed]

    def to_json(self) -> str:
        """Return the record as text."""
        return self.model_dump_json(indent=2) + "\n"

    def __str__(self) -> str:
        """Return one line: the outcome, and the figures behind it."""
        codes = ", ".join(sorted({each.code for each in self.blocking}))
        words = {"below": "failed", "findings": f"inconclusive ({codes})"}
        question = self.question
        what = "lower end of at least" if question.lower_end else "at least"
        wanted = "" if question.at_least is None else f", {what} {percent(question.at_least)} wanted"
        return f"{words.get(self.outcome, self.outcome)}: {self._measured()}{wanted}"

    def _measured(self) -> str:
        """Return the figure in words, with its interval."""
        robust, question = self.figure, self.question
        if robust is None:
            return f"median l0 {number(self.median_l0, 1)} of {self.data.rows} rows"
        unit = question.unit if question.eps == 1 else f"{question.unit}s"
        known = f"{percent(robust.value)} of {robust.of} rows"
        if not self.complete:
            known = (
                f"between {percent(robust.tried / robust.of)} and {known}; stopped early, when the verdict was certain"
            )
        elif robust.proved is not None:
            exact = robust.proved == robust.count
            least = percent(robust.proved / robust.of)
            known = f"exactly {known}, which is proved" if exact else f"between {least} (proved) and {known}"
        ends = f"95 % interval {percent(robust.low)} to {percent(robust.high)}"
        return f"robust accuracy with at most {question.eps} changed {unit}: {known} ({ends})"

    def table(self) -> list[dict[str, str]]:
        """Return a row of texts for each attack: what it was run on, what it found, what is left, and its queries."""
        return [
            {
                "attack": each.name,
                "attacked": f"{each.attacked}",
                "improved" if self.question.eps is None else "fooled": f"{each.improved}",
                **(
                    {} if each.robust_after is None else {"right after it": percent(each.robust_after / self.data.rows)}
                ),
                "queries": f"{each.queries:,}",
            }
            for each in self.members
        ]

    def _repr_html_(self) -> str:
        """Show the verdict in a notebook; a verdict that was read from a record has no samples."""
        lines = [f"{each.code} ({each.severity}): {each.detail}" for each in self.findings]
        best = None if self._result is None else self._result.best
        return with_samples(str(self), self.table(), best, lines)

    def to_markdown(self) -> str:
        """Return a summary for a pull request."""
        mark = "✅" if self.passed else "❌"
        lines = [f"## {mark} {_plain(self.model.name)} on {_plain(self.data.name)}", "", _plain(str(self)), ""]
        lines += [markdown(self.table()), ""]
        for each in self.findings:
            lines.append(
                f"- **{each.code}** ({each.severity}{', accepted' if each.allowed else ''}): {_plain(each.detail)}"
            )
        lines += [""] if self.findings else []
        hashes = {"weights": self.model.weights, "model code": self.model.code, "data": self.data.content}
        known = ", ".join(f"{name} `{value[:12]}`" for name, value in hashes.items() if value)
        made = f"{self.cascade}, seed {self.question.seed}, sigmazero {self.environment['sigmazero']}"
        return "\n".join([*lines, f"{made}; {known}", ""])


def _plain(text: str) -> str:
    """Return a text from outside as one line without markup of its own."""
    return escape_markdown(" ".join(visible(text).split()))
