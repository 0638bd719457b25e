"""Read the figures back from whatever sigmazero shows: one small reader for each rendering.

A reader knows the layout that a user sees and nothing of the code behind it. It returns the figures under the names
of `tests.helpers.judge`, and raises `Unread` at a heading or a line that it does not know, so that no new figure
escapes the judge. `Shown` is a number that knows how far it was rounded.

Names: asr@K, samples, success, median_l0, ...; robust@K; cost_asr@C, median_cost; returned_asr, returned_median_l0
for the points that a method returns by its own rule; NAME.low and NAME.high for the ends of an interval; in_pixels.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

Figures = dict[str, float]
DASH = "–"


class Unread(AssertionError):
    """Something is shown that no reader knows."""


class Shown(float):
    """A number as it is shown; `half` is half of its last digit, which the true number may be off."""

    half: float

    def __new__(cls, value: float, half: float = 0.0) -> "Shown":
        made = super().__new__(cls, value)
        made.half = half
        return made

    def agrees(self, true: float) -> bool:
        """Whether the true number, rounded, is the one shown."""
        if math.isinf(self) or math.isinf(true) or math.isnan(true):
            return self == true or (math.isnan(self) and math.isnan(true))
        return abs(self - true) <= self.half * (1 + 1e-6) + 1e-9 * max(1.0, abs(true))


def number(text: str, decimals: int | None = None, scale: float = 1.0) -> Shown | None:
    """Read one number: None for a dash or nothing. `decimals` are those kept where trailing zeros are cut off."""
    plain = text.strip().replace(",", "").replace("−", "-").removesuffix("%").strip()
    if plain in ("", DASH):
        return None
    scale = scale / 100 if text.strip().endswith("%") else scale
    if plain in ("∞", "inf"):
        return Shown(math.inf)
    mantissa = plain.partition("e")[0]
    after = len(mantissa.partition(".")[2]) if decimals is None else decimals
    exact = decimals is None and "." in mantissa and len(mantissa) > 12  # all digits of a float
    return Shown(float(plain) * scale, 0.0 if exact else 0.5 * 10**-after * scale)


# Headings of tables --------------------------------------------------------------------------------------------------

WORDS = {
    *("model", "network", "attack", "data", "dataset", "steps", "goal", "unit", "seed", "precision", "version"),
    *("weights", "code", "rows", "space", "budget", "cell", "member"),
}
# heading: figure, decimals where zeros at the end are cut off, factor
HEADINGS: dict[str, tuple[str, int | None, float]] = {
    "samples": ("samples", None, 1),
    "clean": ("clean_accuracy", None, 0.01),
    "clean accuracy": ("clean_accuracy", None, 0.01),
    "already wrong": ("already_wrong", None, 0.01),
    "median": ("median_l0", 1, 1),
    "median l0": ("median_l0", 1, 1),
    "mean": ("mean_l0", 2, 1),
    "mean l0": ("mean_l0", 2, 1),
    "median cost": ("median_cost", 2, 1),
    "ASR returned": ("returned_asr", None, 0.01),
    "median returned": ("returned_median_l0", 1, 1),
    "median ≥": ("median_least", 1, 1),
    "s": ("seconds_per_sample", None, 1),
    "s/sample": ("seconds_per_sample", 4, 1),
    "seconds per sample": ("seconds_per_sample", 4, 1),
    "queries per sample": ("queries", 1, 1),
    "kqueries": ("queries", None, 1000),
    "attacked": ("attacked", None, 1),
    "queries": ("queries_in_all", None, 1),
    "right after it": ("robust_after", None, 0.01),
    "seconds": ("seconds", None, 1),
}
PATTERNS = {
    r"ASR (?:at )?([\d.]+|∞)": "asr",
    r"ASR at cost ([\d.]+)": "cost_asr",
    r"proved ([\d.]+)": "proved",
    r"robust accuracy at (?:k = )?([\d.]+)": "robust",
    r"robust accuracy at cost ([\d.]+)": "cost_robust",
    r"k = ([\d.]+)": "robust",
}


Extra = Mapping[str, tuple[str, int | None, float]]
NONE: Extra = {}


def _heading(text: str, extra: Extra = NONE) -> tuple[str, int | None, float]:
    bare = text.removesuffix(" (pixels)")
    if bare in (known := {**HEADINGS, **extra}):
        return known[bare]
    for pattern, name in PATTERNS.items():
        if found := re.fullmatch(pattern, bare):
            return f"{name}@{'inf' if found[1] == '∞' else found[1]}", None, 0.01
    raise Unread(f"no reader knows the heading {text!r}")


def _cell(heading: str, text: str, extra: Extra = NONE) -> Figures:
    """Read one cell of a table, and the interval in it, under its heading."""
    if heading in ("fooled", "improved"):
        return _told(_match(r"(?P<fooled>\d+)(?: of (?P<attacked_right>\d+))?", text))
    name, decimals, factor = _heading(heading, extra)
    plain = re.sub(r"^\*\*(.*)\*\*$|^\\textbf\{(.*)\}$", lambda found: found[1] or found[2] or "", text.strip())
    matched = re.fullmatch(r"([^()]*?)(?:\s*\(([^()–]*)–([^()–]*)\))?", plain)
    if matched is None:
        raise Unread(f"no reader knows the cell {text!r} under {heading!r}")
    parts = {name: matched[1], f"{name}.low": matched[2], f"{name}.high": matched[3]}
    found: Figures = {}
    for part, words in parts.items():
        given = words or ""
        read = number(given, decimals, 1.0 if "%" in given else factor)
        if read is not None:
            found[part] = read
    if heading.endswith(" (pixels)"):
        found["in_pixels"] = Shown(1.0)
    return found


def _rows(headings: Sequence[str], rows: Iterable[Sequence[str]], key: Sequence[str]) -> dict[str, Figures]:
    """Read the rows of a table; each is known by its words under the headings `key`, which may stand above it."""
    found: dict[str, Figures] = {}
    above: dict[str, str] = {}
    for row in rows:
        if len(row) != len(headings):
            raise Unread(f"{len(row)} cells under {len(headings)} headings: {row}")
        words = {name: text.strip() for name, text in zip(headings, row, strict=True) if name in WORDS}
        above |= {name: text for name, text in words.items() if text}
        label = " ".join(above[name] for name in key if name in above and above[name] != DASH)
        if label in found:
            raise Unread(f"two rows are called {label!r}")
        found[label] = {}
        for name, text in zip(headings, row, strict=True):
            if name not in WORDS:
                whole = text.partition(" of ")[0] if name == "samples" else text
                found[label] |= _cell(name, whole, WHOLE if "member" in headings else NONE)
    return found


def _named(name: str, value: Any) -> Figures:
    """Read a figure by the name that files and dictionaries have for it; all its digits are there."""
    if value is None or value == "":
        return {}
    bare, end = (
        (name[: -len(tail)], f".{tail[1:]}") if (tail := name[name.rfind("_") :]) in ("_low", "_high") else (name, "")
    )
    at = re.fullmatch(r"(asr|proved)_([\d.]+|inf)", bare)
    plain = {
        "asr": "asr@inf",
        "seconds": "seconds_per_sample",
        "kqueries": "queries",
        **{
            each: each for each in ("samples", "missing", "clean_accuracy", "already_wrong", "beyond_budget", "success")
        },
        **{each: each for each in ("median_l0", "mean_l0", "mean_l0_found", "returned_asr", "returned_median_l0")},
        **{each: each for each in ("median_least", "forwards", "backwards", "queries", "seconds_per_sample")},
        **{each: each for each in ("non_finite", "unverified", "no_start", "stopped")},
    }
    if at is None and bare not in plain:
        raise Unread(f"no reader knows the figure {name!r}")
    known = f"{at[1]}@{at[2]}" if at else plain[bare]
    return {known + end: Shown(float(value) * (1000 if bare == "kqueries" else 1))}


# A result ------------------------------------------------------------------------------------------------------------


def _match(pattern: str, text: str) -> dict[str, str]:
    found = re.fullmatch(pattern, text)
    if found is None:
        raise Unread(f"no reader knows {text!r}")
    return {name: words for name, words in found.groupdict().items() if words is not None}


def _told(found: Mapping[str, str], **decimals: int) -> Figures:
    """Read the groups of a pattern: `rate` with `k` is a success rate, `unit` says what is counted."""
    figures: Figures = {}
    for name, text in found.items():
        if name == "unit":
            figures["in_pixels"] = Shown(float(text.startswith("pixel")))
        elif name == "rate":
            figures[f"asr@{found.get('k', 'inf')}"] = number(text) or Shown(0.0)
        elif name != "k" and (read := number(text, decimals.get(name))) is not None:
            figures[name] = read
    return figures


def read_repr(text: str) -> Figures:
    """Read `repr(result)`."""
    if text == "<Result of 0 samples>":
        return {"samples": Shown(0)}
    found = _match(
        r"<Result of (?P<samples>\d+) samples: (?P<rate>[\d.]+%) fooled"
        r"(?: within (?P<k>\d+) |, median l0 (?P<median_l0>\S+), mean (?P<mean_l0>\S+) )(?P<unit>features|pixels)"
        r"(?:, (?P<beyond_samples>\d+) samples? only beyond it)?, (?P<queries>\d+) queries each(?:; SZ\d+: doubtful)*>",
        text,
    )
    figures = _told(found, median_l0=1)
    if (mean := found.get("mean_l0", "∞")) != "∞":  # four digits, of which zeros at the end are cut off
        figures["mean_l0"] = Shown(float(mean), 0.5 * 10 ** (math.floor(math.log10(float(mean) or 1)) - 3))
    return figures


ALL = r"(?: of (?:one|\d+))? (?P<unit>value|pixel)s?"
SENTENCES = (
    rf"(?:Half of (?P<samples>\d+) samples are|The sample is) fooled by changing (?P<median_l0>one|[\d.]+){ALL}",
    r"(?:Half of (?P<samples>\d+) samples are|The sample is) wrong without a change",
    rf"(?P<fooled>\d+) of (?P<samples>\d+) samples? (?:is|are) fooled(?: by changing at most (?P<k>one|\d+){ALL}"
    r"(?:, (?P<beyond_samples>\d+) samples? only beyond it)?)?",
)
REMARKS = (
    r"(?P<stopped_samples>\d+) samples are not done, since the model stopped answering: they count as not fooled",
    r"\d+ points of \d+ samples are given up: fresh answers did not confirm them",
    r"SZ\d+: .*",
)
COLUMNS = {
    "samples": "samples",
    "already wrong": "already_wrong",
    "median l0": "median_l0",
    "mean l0": "mean_l0",
    "forwards": "forwards",
    "backwards": "backwards",
    "seconds": "seconds_per_sample",
}


def read_print(text: str) -> Figures:
    """Read `print(result)`: a sentence, the headings and the figures of a table, and remarks."""
    first, headings, cells, *remarks = text.splitlines()
    sentence, _, weakest = first.removesuffix(".").partition("; weakest: ")
    matched = next((found for pattern in SENTENCES if (found := re.fullmatch(pattern, sentence))), None)
    if matched is None:
        raise Unread(f"no reader knows the sentence {first!r}")
    given = {name: "1" if words == "one" else words for name, words in matched.groupdict().items() if words is not None}
    unit = given.pop("unit", None)
    fooled, k = given.pop("fooled", None), given.pop("k", "inf")
    figures = _told(given, median_l0=1)
    if unit is not None:
        figures["in_pixels"] = Shown(float(unit == "pixel"))
    for words, cell in zip(re.split(r" {2,}", headings.strip()), cells.split(), strict=True):
        heading = words.removesuffix(" (pixels)")
        if heading == "median l0":
            figures["in_pixels"] = Shown(float(heading != words))
        rate = re.fullmatch(r"fooled(?: within (\d+))?", heading)
        if rate is None and heading not in COLUMNS:
            raise Unread(f"no reader knows the heading {heading!r}")
        name = COLUMNS[heading] if rate is None else f"asr@{rate[1] or 'inf'}"
        read = number(cell, 1 if name == "median_l0" else None)
        assert read is not None
        if name == "median_l0" and name in figures:
            assert read == figures[name]
        figures[name] = read
    if fooled is not None:
        assert figures[f"asr@{k}"].agrees(int(fooled) / figures["samples"])  # type: ignore[attr-defined]
    figures |= _weakest(weakest) | _remarks(remarks)
    return figures


def _weakest(text: str) -> Figures:
    if not text:
        return {}
    least = _match(r"row (?P<row>\d+), (?P<changes>one|\d+) (?:value|pixel)s?", text)
    return {"weakest_row": Shown(float(least["row"])), "weakest": Shown(float(least["changes"].replace("one", "1")))}


def _remarks(lines: Sequence[str]) -> Figures:
    figures: Figures = {}
    for line in lines:
        found = next((found for pattern in REMARKS if (found := re.fullmatch(pattern, line))), None)
        if found is None:
            raise Unread(f"no reader knows the line {line!r}")
        figures |= _told({name: words for name, words in found.groupdict().items() if words is not None})
    return figures


def read_notebook(html: str) -> tuple[Figures, list[Figures]]:
    """Read the HTML of a result: its figures, and those of the records shown of a table."""
    page = parse(html)
    (headline,), (table,) = page.texts["b"], page.tables
    figures = read_repr(f"<{headline}>") | _down([[name, text] for name, text in table.rows])
    shown = []
    for words in page.texts.get("li", ()):
        told = _match(r"row (?P<row>\d+), .* → .*, (?P<changes>\d+) changed(?P<beyond>, beyond the budget)?: .*", words)
        beyond = Shown(float(told.pop("beyond", "") != ""))
        shown.append(_told(told) | {"beyond_budget": beyond})
    return figures, shown


def read_frame(frame: Any) -> dict[str, list[Any]]:
    """Read the data frame of a result: a list for each column."""
    known = {
        *("success", "l0", "l0_pixel", "cost", "outcome", "step_found", "forwards", "backwards"),
        *("margin", "clean_prediction", "prediction", "given_up", "judged"),
    }
    if strange := set(frame.columns) - known:
        raise Unread(f"no reader knows the columns {sorted(strange)}")
    return {"id": frame.index.tolist(), **{name: frame[name].tolist() for name in frame.columns}}


def read_summary(summary: Mapping[str, float]) -> Figures:
    """Read `result.summary()`, or a record of an evaluation without its words."""
    found: Figures = {}
    for name, value in summary.items():
        found |= _named(name, value)
    return found


def read_record(record: Mapping[str, Any]) -> Figures:
    """Read a record of `Evaluation.records()`."""
    return read_summary({name: value for name, value in record.items() if name not in WORDS})


# Tables on a terminal, and as files ----------------------------------------------------------------------------------


def _boxed(text: str) -> list[list[list[str]]]:
    """Split the tables in a terminal's text into cells: columns lie apart by two spaces or more."""
    tables, lines = [], text.splitlines()
    for place, line in enumerate(lines):
        if re.fullmatch(r" ─+ ?", line):
            end = next(at for at in range(place, len(lines)) if not lines[at].strip())
            tables.append([_cut(each) for each in (lines[place - 1], *lines[place + 1 : end])])
    return tables


def _cut(line: str) -> list[str]:
    cells = re.split(r"\s{2,}", line.strip())
    return ["", *cells] if line.startswith("    ") else cells


def _down(rows: Sequence[Sequence[str]]) -> Figures:
    """Read a table of two columns: names and figures."""
    found: Figures = {}
    for name, text in rows:
        if name not in WORDS:
            found |= _cell(name, text)
    return found


def _captioned(text: str, rows: dict[str, Figures]) -> dict[str, Figures]:
    """Add what the caption of a table says of all its rows: the model in front of their names, and clean accuracy."""
    plain = text.replace("\\", "")
    model = re.search(r"attacks, model ([^,\n]+),", plain)
    clean = re.search(r"clean accuracy ([\d.]+ %)", plain)
    told = {} if clean is None else {"clean_accuracy": number(clean[1]) or Shown(0.0)}
    return {f"{model[1]} {label}" if model else label: {**told, **figures} for label, figures in rows.items()}


def read_table(text: str) -> dict[str, Figures]:
    """Read the table that a command prints: one row for each run, or one column for each where figures are many."""
    (table,) = _boxed(text)
    if set(table[0]) & WORDS >= {"attack"} and "samples" not in [row[0] for row in table]:
        return _captioned(text, _rows(table[0], table[1:], ("model", "attack", "budget", "member")))
    turned = [list(column) for column in zip(*table, strict=True)]  # names stand in the first column
    return _captioned(text, _rows(turned[0], turned[1:], ("model", "network", "attack", "budget", "member")))


def read_markdown(text: str) -> dict[str, Figures]:
    """Read the one Markdown table in a text."""
    lines = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in text.splitlines() if line.startswith("|")]
    head, rule, *rows = [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in line] for line in lines]
    assert set("".join(rule)) <= {"-"}
    return _captioned(text, _rows(head, rows, ("model", "attack", "budget", "member")))


def read_evaluation(text: str) -> tuple[list[tuple[str, Figures]], dict[str, dict[str, Figures]]]:
    """Read `print(evaluation)`: the best attack of each sentence with its figures, and the rows of each table."""
    samples, end = r"(?P<samples>\d+) (?:images|samples)", r" \((?P<attack>\S+)\)(?:; weakest: row \d+, .*)?\."
    patterns = (
        rf"(?:.*: )?Half of {samples} are fooled by changing (?P<median_l0>one|[\d.]+){ALL}{end}",
        rf"(?:.*: )?Changing at most (?P<k>one|\d+){ALL} fools (?P<rate>[\d.]+ %) of {samples}{end}",
        rf"(?:.*: )?Fewer than half of {samples} are fooled: (?P<rate>[\d.]+ %){end}",
    )
    said = []
    for line in text.partition("\n\n")[0].splitlines():
        found = next((m for each in patterns if (m := re.fullmatch(each, line))), None)
        if found is None:
            raise Unread(f"no reader knows {line!r}")
        given = {
            name: "1" if words == "one" else words for name, words in found.groupdict().items() if words is not None
        }
        in_pixels = {"in_pixels": Shown(1.0)} if given.pop("unit", "") == "pixel" else {}
        said.append((given.pop("attack"), _told(given, median_l0=1) | in_pixels))
    parts = re.split(r"(?=^(?:Minimum-\w+|Fixed-budget) attacks, )", text, flags=re.MULTILINE)[1:]
    return said, {part.partition(" ")[0].lower(): read_markdown(part) for part in parts}


def read_latex(text: str) -> dict[str, Figures]:
    """Read the one LaTeX table in a text."""
    plain = text
    for mark, sign in ((r"$\infty$", "∞"), ("$-$", "−"), (r"\%", "%"), (r"\_", "_"), ("--", "–")):
        plain = plain.replace(mark, sign)
    lines = [line.removesuffix(r"\\").strip() for line in plain.splitlines() if line.rstrip().endswith(r"\\")]
    head, *rows = [[cell.strip() for cell in line.split("&")] for line in lines]
    return _captioned(plain, _rows(head, rows, ("model", "attack", "budget")))


def read_comparison(text: str) -> dict[str, Any]:
    """Read what `report BEFORE AFTER` prints of one run: "figures" and "rows", each with before and after."""
    if "|" in text:
        lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    else:
        lines = [["", *row] if row[0] not in ("run", "row") else row for table in _boxed(text) for row in table]
        lines = [row[1:] if row[:2] == ["", ""] else row for row in lines]
    figures: dict[str, list[Any]] = {}
    rows: dict[int, tuple[float, float]] = {}
    for line in lines:
        *_, before, after, difference, ends = ["", "", *line]
        if matched := re.fullmatch(r"([−+\d.]+) to ([−+\d.]+)", ends):
            signed = [number(each.replace("+", "")) for each in (difference, *matched.groups())]
            figures[line[-5]] = [before, after, *signed]
        elif re.fullmatch(r"[−+][\d.∞]+", line[-1]):
            first, second = (number(each) for each in line[-3:-1])
            rows[int(line[-4])] = first or 0.0, second or 0.0
    return {"figures": figures, "rows": rows}


def read_csv(text: str) -> dict[str, Figures]:
    """Read the CSV file of a report: every digit is there."""
    found: dict[str, Figures] = {}
    for row in csv.DictReader(io.StringIO(text)):
        label = f"{row['model']} {row['attack']}"
        if label in found:
            raise Unread(f"two rows are called {label!r}")
        told = {name: text for name, text in row.items() if name not in WORDS}
        told["samples"] = told["samples"].partition(" of ")[0]
        found[label] = read_summary(told)
    return found


EXPORTED = {
    *("row", "label", "target", "clean_prediction", "prediction", "outcome", "l0", "l0_pixel", "step_found"),
    *("forwards", "backwards", "margin", "seconds", "given_up", "cost", "returned", "least", "index", "value"),
}


def read_export(text: str, to: str) -> dict[str, dict[str, list[Any]]]:
    """Read an export of a store (csv or jsonl): for each cell, by its key, a list for each column."""
    rows: list[dict[str, Any]] = (
        [*csv.DictReader(io.StringIO(text))] if to == "csv" else [json.loads(line) for line in text.splitlines()]
    )
    words = WORDS | {"parameters", "model_sha256", "data_hash"}
    found: dict[str, dict[str, list[Any]]] = {}
    for row in rows:
        if strange := set(row) - words - EXPORTED:
            raise Unread(f"no reader knows the columns {sorted(strange)}")
        columns = found.setdefault(row["cell"], {name: [] for name in row})
        for name, value in row.items():
            columns[name].append(value if name in words | {"outcome"} else _value(name, value))
    return found


def _value(name: str, value: Any) -> Any:
    if name in ("index", "value"):
        return [float(each) for each in (value.split() if isinstance(value, str) else value)]
    return None if value in ("", None) else float(value)


# Cascades and gates ---------------------------------------------------------------------------------------------------

WHOLE: Extra = {"queries per sample": ("queries", 0, 1.0)}  # cascades round them
HEADLINE = (
    r"\w+ \d+(?: \(without [^)]*\))?, (?P<samples>\d+) samples, (?:at most (?P<k>\d+)|as few) (?P<unit>features|pixels)"
    r"(?: as possible)?(?:, each at its cost)?: clean accuracy (?P<clean_accuracy>[\d.]+%)"
)


def read_cascade(text: str) -> dict[str, Figures]:
    """Read what a cascade prints: the headline under "", and a line for each member."""
    found: dict[str, Figures] = {}
    for line in text.splitlines():
        if words := re.fullmatch(
            r"\w+ \d+: (?P<samples>\d+) samples, at most (?P<most_queries>[\d,]+) queries for each", line
        ):
            found[""] = _told(words.groupdict())
        elif re.fullmatch(HEADLINE, line):
            found[""] |= _told(_match(HEADLINE, line))
        elif words := re.fullmatch(r"([\w-]+): (robust accuracy .*)", line):
            parts = [re.fullmatch(r"(.*?) ([\d.]+%?|\d+ of \d+)", part) for part in words[2].split(", ")]
            found[words[1]] = {name: v for part in parts if part for name, v in _cell(part[1], part[2], WHOLE).items()}
        elif not line.startswith(("exact at one ", "SZ", "  ")):
            raise Unread(f"no reader knows the line {line!r}")
    return found


def read_verdict(text: str) -> Figures:
    """Read the line that says what a gate comes to."""
    found = _match(
        r"(?:passed|failed|measured|inconclusive \(.*\)): "
        r"(?:median l0 (?P<median_l0>\S+) of (?P<samples>\d+) rows|"
        r"robust accuracy with at most (?P<k>\d+) changed (?P<unit>feature|pixel)s?: "
        r"(?:between (?P<at_least>[\d.]+ %) and )?"
        r"(?P<robust>[\d.]+ %) of (?P<rows>\d+) rows(?:; stopped early, when the verdict was certain)? "
        r"\(95 % interval (?P<low>[\d.]+ %) to (?P<high>[\d.]+ %)\)"
        r"(?:, (?:lower end of )?at least (?P<wanted>[\d.]+ %) wanted)?)",
        text,
    )
    k = found.pop("k", "")
    names = {"robust": f"robust@{k}", "low": f"robust@{k}.low", "high": f"robust@{k}.high", "rows": "samples"}
    return {names.get(name, name): value for name, value in _told(found, median_l0=1).items()}


def read_gate(document: Mapping[str, Any]) -> dict[str, Figures]:
    """Read the record of a gate: the evaluation under "", and each member."""
    known = {
        *("format", "version", "outcome", "exit_code", "complete", "question", "figure", "curve", "median_l0"),
        *("clean_accuracy", "cascade", "left_out", "members", "findings", "model", "data", "environment", "times"),
    }
    if strange := set(document) - known:
        raise Unread(f"no reader knows {sorted(strange)} in the record of a gate")
    robust = document["figure"]
    told: Figures = {"samples": Shown(document["data"]["rows"])}
    told |= {name: Shown(document[name]) for name in ("clean_accuracy", "median_l0") if document[name] is not None}
    for each in document["curve"] if robust is None else [robust]:
        assert each["of"] == document["data"]["rows"]
        assert each["count"] == round(each["value"] * each["of"])
        told[f"robust@{each['k']:g}"] = Shown(each["value"])
        told |= {f"robust@{each['k']:g}.{end}": Shown(each[end]) for end in ("low", "high")}
    if robust is not None:
        told["at_least"] = Shown(robust["tried"] / robust["of"])
    found = {"": told}
    for member in document["members"]:
        names = {"attacked": "attacked", "improved": "fooled", "queries": "queries_in_all"}
        found[member["name"]] = {names[name]: Shown(member[name]) for name in names}
        if member["robust_after"] is not None:
            found[member["name"]]["robust_after"] = Shown(member["robust_after"] / document["data"]["rows"])
    return found


# Pages ---------------------------------------------------------------------------------------------------------------


@dataclass
class HtmlTable:
    """A table of a page: the id of what it stands in, its headings (none of a table of two columns), its rows."""

    name: str
    headings: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


@dataclass
class Page:
    """What a page holds: tables, embedded data by name, texts by their tag, and captions of charts by name."""

    tables: list[HtmlTable] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)
    charts: dict[str, str] = field(default_factory=dict)


class _Parser(HTMLParser):
    VOID = ("meta", "link", "img", "br", "input", "hr")
    TOLD = ("b", "p", "li", "title", "figcaption", "text", "dt", "dd", "h1", "h2", "h3", "summary", "strong", "label")

    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.held: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in self.VOID:
            return
        self.open.append((tag, given))
        if tag == "table":
            around = [name for _, each in self.open if (name := each.get("id"))]
            self.page.tables.append(HtmlTable(around[-1] if around else ""))
        elif tag == "tr":
            self.page.tables[-1].rows.append([])
        elif tag == "small" and self.held:
            self.held[-1] += " "
        if tag in (*self.TOLD, "td", "th", "script"):
            self.held.append("")

    def handle_endtag(self, tag: str) -> None:
        while self.open:
            name, given = self.open.pop()
            if name == tag:
                break
        if tag in (*self.TOLD, "td", "th", "script"):
            text = self.held.pop()
            if self.held and tag not in ("title", "script"):
                self.held[-1] += text
            if tag == "script":
                if given.get("type") == "application/json":
                    self.page.data[(given["id"] or "").removeprefix("data-")] = json.loads(text)
            elif tag in ("td", "th"):
                table = self.page.tables[-1]
                text = " ".join(text.split())
                if tag == "th" and given.get("scope") == "col":
                    table.headings.append(text)
                else:
                    table.rows[-1].append(text)
            else:
                self._tell(tag, " ".join(text.split()))

    def _tell(self, tag: str, text: str) -> None:
        self.page.texts.setdefault(tag, []).append(text)
        if tag == "figcaption" and (
            name := next((held["data-chart"] for _, held in self.open[::-1] if "data-chart" in held), "")
        ):
            self.page.charts[name] = text

    def handle_data(self, data: str) -> None:
        if self.held:
            self.held[-1] += data


def parse(html: str) -> Page:
    """Take a page apart."""
    parser = _Parser()
    parser.feed(html)
    for table in parser.page.tables:
        table.rows = [row for row in table.rows if row]
    return parser.page


def read_page(html: str) -> dict[str, dict[str, Figures]]:
    """Read the page of a store: for each table and each chart, the figures of each row or curve.

    Charts are named by what they are about: "curve: MODEL on DATA" and "cost: …" as drawn, "… in numbers" the table.
    Tables of classes are "classes: MODEL on DATA: ATTACK", grids "confusion: …", "wins: …" with a figure per square.
    """
    page = parse(html)
    found: dict[str, dict[str, Figures]] = {}
    about = {name: text.partition(", n = ")[0] for name, text in page.charts.items()}
    for name, chart in page.data["charts"].items():
        found[f"{name.rpartition('-')[0]}: {about[name]}"] = _drawn(chart)
    captions = dict(re.findall(r'<figcaption id="([\w-]+)-caption">(.*?)\s*</figcaption>', html))
    for table in page.tables:
        kind, _, place = table.name.partition("-numbers")[0].rpartition("-")
        if table.name in ("minimum-norm", "fixed-budget", "by-cost"):
            found[table.name] = read_html_table(table, captions[table.name])
        elif table.name.endswith("-numbers"):
            found[f"{kind} in numbers: {about[f'{kind}-{place}']}"] = _curve_table(table, "asr")
        elif kind in ("classes", "confusion", "wins"):
            by = re.search(r"(?:under|by) (.*?)(?:,|;|$)", captions[table.name])
            where = f"{kind}: {about[f'curve-{place}']}" + (f": {by[1]}" if by and kind != "wins" else "")
            found[where] = _class_table(table) if kind == "classes" else _grid(table)
        elif kind == "transfer":
            found[f"transfer: {captions[table.name]}"] = _grid(table)
        elif table.name not in ("cells", "parameters") and kind != "features" and "fields" not in table.name:
            raise Unread(f"no reader knows the table {table.name!r}")
    for name, texts in page.data["copies"].items():
        for to, text in texts.items():
            found[f"{name} as {to}"] = {"LaTeX": read_latex, "CSV": read_csv, "Markdown": read_markdown}[to](text)
    return found


def read_html_table(table: HtmlTable, caption: str = "") -> dict[str, Figures]:
    """Read a table of a page with a line for each attack, below which its model stands where there are several."""
    turned = [[" ".join(row[0].split(" ", 1)[::-1]), *row[1:]] for row in table.rows]
    return _captioned(caption, _rows(table.headings, turned, ("attack",)))


def _drawn(chart: Mapping[str, Any]) -> dict[str, Figures]:
    """Read what is drawn: rates in percent with two decimals at each k."""
    ends = (("", "rate"), (".low", "low"), (".high", "high"))
    return {
        line["label"]: {
            f"asr@{k:g}{end}": Shown(value / 100, 0.5e-4)
            for end, key in ends
            for k, value in zip(chart["ks"], line.get(key, ()), strict=False)
        }
        for line in chart["series"]
    }


def _curve_table(table: HtmlTable, name: str) -> dict[str, Figures]:
    ks = {k: (f"{name}@{'inf' if k == '∞' else k}", 1, 0.01) for k in table.headings[1:]}
    rows = [(row[0], list(zip(table.headings[1:], row[1:], strict=True))) for row in table.rows]
    return {label: {n: v for k, text in cells for n, v in _cell(k, text, ks).items()} for label, cells in rows}


def _class_table(table: HtmlTable) -> dict[str, Figures]:
    assert table.headings == ["class", "samples", "clean accuracy", "median changes", "fooled", "mostly taken for"]
    made = {}
    for label, n, clean, median, fooled, mostly in table.rows:
        given = {"samples": n, "clean accuracy": clean, "median l0": median, "ASR ∞": fooled}
        made[label] = {name: v for head, text in given.items() for name, v in _cell(head, text).items()}
        if mostly != DASH:
            made[label] |= _told(_match(r"(?P<taken_for>\S+) \((?P<taken_share>[\d.]+ %)\)", mostly))
    return made


def _grid(table: HtmlTable) -> dict[str, Figures]:
    """Read a grid of whole percentages: by its rows, by the headings of its columns; a dash is not known."""
    return {
        row[0]: {
            head: read
            for head, text in zip(table.headings[1:], row[1:], strict=True)
            if (read := number(text, 0, 0.01)) is not None
        }
        for row in table.rows
    }


def read_answers(html: str) -> dict[str, Figures]:
    """Read the sentence about each model at the top of a page."""
    lead = (
        r"(?P<median_l0>[\d.]+) (?:of (?P<sites>\d+) )?(?P<unit>features|pixels) changed (?:is|are) enough to fool "
        r"half of the (?P<samples>\d+) samples\."
        r"|(?P<rate>[\d.]+ %) of the (?P<samples_>\d+) samples are fooled by changing at most (?P<k>\d+) "
        r"(?:of (?P<sites_>\d+) )?(?P<unit_>features|pixels)\."
        r"|No attack fools half of the (?P<n>\d+) samples: (?P<rate_>[\d.]+ %) are fooled\."
    )
    note = (
        r"95 % interval .*; (?:by (?P<by>\S+)|the best of (?P<runs>\d+) attacks on each sample)\. .*"
        r"change (?P<clean_accuracy>[\d.]+ %) are .*"
    )
    names = {"samples_": "samples", "n": "samples", "sites_": "sites", "unit_": "unit", "rate_": "rate"}
    found = {}
    for title, first, second in re.findall(
        r'<section class="answer" aria-label="([^"]*)">.*?<p class="lead">(.*?)</p>\s*<p class="note">(.*?)</p>',
        html,
        re.DOTALL,
    ):
        texts = [" ".join(re.sub("<[^>]+>", "", text).split()) for text in (first, second)]
        given = _match(lead, texts[0]) | _match(note, texts[1])
        given.pop("by", None)
        found[title] = _told({names.get(name, name): text for name, text in given.items()}, median_l0=1)
    return found


def read_doctor(html: str) -> list[str]:
    """Read the findings on a page, a line for each; errors stand at its top, too."""
    texts = parse(html).texts["p"]
    return list(dict.fromkeys(text for text in texts if re.match(r"SZ\d+ (error|warning), ", text)))


def read_strip(html: str) -> list[dict[str, Any]]:
    """Read the pictures at the top of a page: the row, what it is and becomes, and how many changes that takes."""
    pattern = r'<a href="#sample-(\d+)-(\d+)"><figure><canvas .*?<figcaption>(\S+) → (\S+)<small>([\d.]+) changed'
    names = ("group", "row", "before", "after", "changes")
    return [dict(zip(names, each, strict=True)) for each in re.findall(pattern, html)]


def read_samples(html: str) -> list[dict[str, Any]]:
    """Read the samples that a page shows one by one: for each run a list for each column."""
    keep = ("name", "rows", "before", "after", "outcome", "changes", "queries", "step", "counts")
    return [
        {"group": group["title"], "unit": group["unit"], **{name: run.get(name) for name in keep}}
        for group in parse(html).data["samples"]["groups"]
        for run in group["runs"]
    ]


def read_leaderboard(html: str) -> list[dict[str, Figures]]:
    """Read the first page of a leaderboard: for each board the figures of each model, and what its chart reads out."""
    page = parse(html)
    boards = []
    for table in page.tables:
        found: dict[str, Figures] = {}
        boards.append(found)
        for first, *cells in table.rows:
            given = _match(r"(?P<model>.*?) rank (?P<rank>\d+)(?:, .*)?", first)
            figures = found.setdefault(given["model"], {"rank": Shown(float(given["rank"]))})
            for heading, text in zip(table.headings[1:], cells, strict=True):
                figures |= _standing(heading, text)
        for label, figures in _robust(page.data["charts"][table.name.removesuffix("-table")]).items():
            found[label] |= {f"drawn {name}": value for name, value in figures.items()}
    return boards


def read_standings(html: str) -> list[dict[str, dict[str, Figures]]]:
    """Read the page of a model on a leaderboard: for each board "figures", "drawn", "samples" by row and "finders"."""
    page = parse(html)
    kinds = {table.name: table for table in page.tables}
    found: list[dict[str, dict[str, Figures]]] = []
    for name, title in re.findall(r'<section id="([\w-]+)" class="answer">\s*<h2>(.*?)</h2>', html):
        given = _match(r".*?, rank (?P<rank>\d+) of (?P<models>\d+)", title)
        finders, samples = (kinds[f"{name}-{kind}"] for kind in ("finders", "samples"))
        assert samples.headings == ["row", "class", "at least", "found", "found by", "on"]
        rows: dict[str, Figures] = {
            row: {
                key: value
                for key, text in zip(("label", "least", "changes"), rest, strict=False)
                if (value := number(text)) is not None
            }
            for row, *rest in samples.rows
        }
        found.append(
            {
                "figures": {"": {key: Shown(float(text)) for key, text in given.items()}},
                "drawn": _robust(page.data["charts"][f"{name}-own"]),
                "samples": rows,
                "finders": {who: {"samples": Shown(float(n))} for who, n in finders.rows},
            }
        )
    for at, figures in enumerate(_shares(page)):
        found[at]["figures"][""] |= figures
    return found


def _shares(page: Page) -> list[Figures]:
    """Read robust accuracy at each k, a board after the other."""
    found: list[Figures] = []
    for name, text in zip(page.texts["dt"], page.texts["dd"], strict=True):
        if k := re.fullmatch(r"robust accuracy at k = ([\d.]+)", name):
            if not found or f"robust@{k[1]}" in found[-1]:
                found.append({})
            share = _match(r"(?P<share>[\d.]+) % .*", text)["share"]
            found[-1][f"robust@{k[1]}"] = _shown(share, 0.01)
    return found


def _standing(heading: str, text: str) -> Figures:
    """Read a cell of the table of a board: a share, its interval and what is proved."""
    names = {"median": "median_l0", "clean": "clean_accuracy"}
    name = names.get(heading, heading.replace("k = ", "robust@"))
    if heading == "mostly found by":
        return {}
    value = re.match(r"[\d.∞]+", text)
    assert value is not None
    share = None if name == "median_l0" else 0.01
    read: Figures = {name: _shown(value[0], share or 1)}
    if ends := re.search(r"\(([\d.]+)–([\d.]+)\)", text):
        for end, shown in zip(("low", "high"), ends.groups(), strict=True):
            read[f"{name}.{end}"] = _shown(shown, 0.01)
    return read


def _shown(text: str, scale: float) -> Shown:
    value = number(text, 1, scale)
    assert value is not None, text
    return value


def _robust(chart: Mapping[str, Any]) -> dict[str, Figures]:
    """Read a falling chart: robust accuracy in percent at each k, with its interval."""
    return {
        label: {name.replace("asr@", "robust@"): value for name, value in figures.items()}
        for label, figures in _drawn(chart).items()
    }
