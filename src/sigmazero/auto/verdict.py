"""What a gate says: the record, and texts made of it for machines (JSON, JUnit) and for people (a line, Markdown)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from sigmazero.auto.report import CascadeReport
from sigmazero.core.messages import visible
from sigmazero.report.tables.text import markdown, number, percent


@dataclass(frozen=True)
class GateVerdict:
    """The end of a gate; `document` is its record as the JSON has it, `report` the cascade's with every point found."""

    document: dict[str, Any]
    report: CascadeReport

    @property
    def exit_code(self) -> int:
        """0 where all is well, 1 below what was asked for, 3 where findings forbid to believe the figure."""
        return int(self.document["exit_code"])

    @property
    def passed(self) -> bool:
        """Whether nothing stands in the way."""
        return self.exit_code == 0

    @property
    def robust_accuracy(self) -> float | None:
        """Share of the rows that stay right under eps changes, as far as the cascade ran; None without an eps."""
        found = self.document["robust_accuracy"]
        return None if found is None else float(found["value"])

    def json(self) -> str:
        """The record as text."""
        return json.dumps(self.document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def __str__(self) -> str:
        """One line: what it comes to, and by which figures."""
        found, asked = self.document, self.document["question"]
        codes = ", ".join(sorted({each["code"] for each in _blocking(found)}))
        words = {"below": "failed", "findings": f"not to be believed ({codes})"}
        wanted = "" if asked["at_least"] is None else f", at least {percent(asked['at_least'])} wanted"
        return f"{words.get(found['outcome'], found['outcome'])}: {figure(found)}{wanted}"

    def markdown(self) -> str:
        """A summary for a pull request."""
        found, model = self.document, self.document["model"]
        mark = "✅" if self.passed else "❌"
        lines = [f"## {mark} {_plain(model['name'])} on {_plain(found['data']['name'])}", "", _plain(str(self)), ""]
        lines += [markdown(_rows(found)), ""]
        for each in found["findings"]:
            accepted = ", accepted" if each["allowed"] else ""
            lines += [f"- **{each['code']}** ({each['severity']}{accepted}): {_plain(each['detail'])}"]
        lines += [""] if found["findings"] else []
        hashes = {"weights": model["weights"], "model code": model["code"], "data": found["data"]["content"]}
        known = ", ".join(f"{name} `{value[:12]}`" for name, value in hashes.items() if value)
        made = f"{found['cascade']['version']}, seed {found['question']['seed']}"
        return "\n".join([*lines, f"{made}, sigmazero {found['environment']['sigmazero']}; {known}", ""])

    def junit(self) -> str:
        """The same for whatever reads JUnit's XML: a test case for the figure, and one for the findings."""
        found, blocking = self.document, _blocking(self.document)
        seconds = f"{sum(found['times']['seconds'].values()):.3f}"
        failed = found["outcome"] == "below"
        counts = {"tests": "2", "failures": str(int(failed)), "errors": str(int(bool(blocking))), "skipped": "0"}
        top = Element("testsuites", counts)
        stamp = found["times"]["began"][:19]
        suite = SubElement(top, "testsuite", {"name": "sigmazero", **counts, "time": seconds, "timestamp": stamp})
        name = visible(f"{found['model']['name']} on {found['data']['name']}")
        case = SubElement(suite, "testcase", {"classname": name, "name": "robust accuracy", "time": seconds})
        if failed:
            SubElement(case, "failure", {"type": "below", "message": visible(str(self))})
        SubElement(case, "system-out").text = visible(str(self))
        case = SubElement(suite, "testcase", {"classname": name, "name": "findings", "time": "0"})
        if blocking:
            said = "; ".join(f"{each['code']} {each['title']}" for each in blocking)
            text = "\n".join(f"{each['code']}: {each['detail']} Fix: {each['fix']}" for each in blocking)
            SubElement(case, "error", {"type": "findings", "message": visible(said)}).text = visible(text)
        indent(top)
        return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(top, encoding="unicode") + "\n"


def figure(found: dict[str, Any]) -> str:
    """The figure of a record in words, with its interval."""
    robust, asked = found["robust_accuracy"], found["question"]
    if robust is None:
        return f"median l0 {number(found['median_l0'], 1)} of {found['data']['rows']} rows"
    unit = "pixels" if asked["unit"] == "pixel" else "features"
    ends = f"95 % interval {percent(robust['interval']['low'])} to {percent(robust['interval']['high'])}"
    known = f"{percent(robust['value'])} of {robust['of']} rows"
    if found["complete"] and robust["proved"] is not None:
        least = percent(robust["proved"] / robust["of"])
        exact = robust["proved"] == robust["count"]
        known = f"exactly {known}, which is proved" if exact else f"between {least} (proved) and {known}"
    if not found["complete"]:
        known = f"between {percent(robust['at_least'] / robust['of'])} and {known}, ended when that was certain"
    return f"robust accuracy under {asked['eps']} {unit} {known} ({ends})"


def _blocking(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in found["findings"] if each["severity"] == "error" and not each["allowed"]]


def _rows(found: dict[str, Any]) -> list[dict[str, str]]:
    rows = found["data"]["rows"]
    return [
        {
            "member": each["name"],
            "attacked": f"{each['attacked']}",
            "fooled" if found["question"]["eps"] is not None else "improved": f"{each['improved']}",
            **({} if each["robust_after"] is None else {"right after it": percent(each["robust_after"] / rows)}),
            "queries": f"{each['queries']:,}",
        }
        for each in found["members"]
    ]


def _plain(text: str) -> str:
    """A text that others chose, as one line without markup of its own."""
    return " ".join(visible(text).replace("<", "&lt;").replace("|", "\\|").replace("`", "'").split())
