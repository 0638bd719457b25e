"""Pages and listings made from the code, so that they cannot disagree with it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from sigmazero import models
from sigmazero.attacks import ATTACKS
from sigmazero.core.attack import Attack
from sigmazero.data import DATASETS
from sigmazero.models.doctor import CODES
from sigmazero.report.tables.text import markdown

WORDS = (
    *("name", "kind", "goals", "gradients", "defaults", "paper", "code", "model", "data set", "trained against"),
    *("RobustBench name", "weights", "what it is", "shape", "needs", "from", "files"),
)
MADE = "<!-- Made by `make docs`. Change the code, not this page. -->"


def attack_rows() -> list[dict[str, str]]:
    """One row per attack of the registry."""
    return [
        {
            "name": attack.name,
            "kind": attack.kind,
            "goals": ", ".join(attack.goals),
            "gradients": "yes" if attack.gradients else "no",
            "defaults": ", ".join(f"{key}={value}" for key, value in attack.parameters().items()),
            "paper": attack.paper,
        }
        for attack in ATTACKS.values()
    ]


def model_rows() -> list[dict[str, str]]:
    """One row per model of the zoo."""
    return [
        {
            "code": entry.code,
            "model": entry.title,
            "data set": entry.dataset,
            "trained against": entry.threat_model,
            "clean %": _optional(entry.clean_accuracy or entry.implied_accuracy),
            "parameters": f"{entry.parameters:,}" if entry.parameters else "–",
            "RobustBench name": entry.robustbench or "–",
            "weights": _weights(entry),
        }
        for entry in models.entries().values()
    ]


def dataset_rows() -> list[dict[str, str]]:
    """One row per data set known by name."""
    return [
        {
            "name": known.name,
            "what it is": known.description,
            "rows": f"{known.size:,}",
            "shape": "×".join(map(str, known.shape)),
            "classes": str(known.classes),
            "needs": "files" if known.needs else "extra data",
            "files": known.needs or "none",
            "from": known.published,
        }
        for known in DATASETS.values()
    ]


def without(rows: list[dict[str, str]], *names: str) -> list[dict[str, str]]:
    """The rows with fewer columns."""
    return [{name: text for name, text in row.items() if name not in names} for row in rows]


def pages(command: Any) -> dict[str, str]:
    """Every generated page by file name; `command` is the top of the command line."""
    return {
        "cli.md": _page("Commands", *_command_sections(command, "sigmazero")),
        "attacks.md": _page("Attacks", *_attack_sections()),
        "models.md": _page(
            "Models and data sets",
            "Name a model with `--model CODE`, its RobustBench name, or see [cli.md](cli.md) for models of your own.",
            markdown(model_rows()),
            "## Data sets",
            "Name a data set with `--data NAME`, or give an `.npz` file with the arrays `images` and `labels`.",
            markdown(without(dataset_rows(), "needs")),
        ),
        "doctor.md": _page(
            "The doctor",
            "Before an attack the model is examined on a few rows (`sigmazero doctor MODEL DATA` does only that). Each "
            "finding has a code:",
            markdown([{"code": code, "what it means": text} for code, text in CODES.items()]),
        ),
    }


def read(path: Path) -> str | None:
    """The text of a page, None where there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _page(title: str, *sections: str) -> str:
    return "\n\n".join((f"# {title}", MADE, *sections)) + "\n"


def _optional(figure: float | None) -> str:
    return "–" if figure is None else f"{figure:.2f}"


def _weights(entry: models.Entry) -> str:
    if entry.bundled:
        return "included"
    return "fetch" if all(weight.url for weight in entry.weights) else "by hand"


def _attack_sections() -> Iterator[str]:
    # A method of our own has a page beside this one instead of a paper.
    rows = [row | {"paper": row["paper"].removeprefix("docs/")} for row in attack_rows()]
    yield markdown(without(rows, "defaults"))
    for attack in ATTACKS.values():
        yield f"## {attack.name}"
        yield _describe(attack)
        yield markdown(
            [{"parameter": f"`{key}`", "default": f"`{value!r}`"} for key, value in attack.parameters().items()]
        )


def _describe(attack: Attack) -> str:
    """The docstring of an attack; for a preset, the attack it is a preset of."""
    base = next(field.default for field in fields(attack) if field.name == "name")
    if base in ATTACKS and base != attack.name:
        return f"[{base}](#{base}) with other parameters."
    return inspect.cleandoc(type(attack).__doc__ or "")


def _command_sections(command: Any, path: str) -> Iterator[str]:
    """Help, arguments and options of a command, then those of its sub-commands."""
    shown = [p for p in command.params if not p.hidden and "--help" not in p.opts] if command.params else []
    arguments = " ".join(p.metavar for p in shown if p.param_type_name == "argument")
    sub = getattr(command, "commands", {})
    yield f"{'##' if sub or path.count(' ') < 2 else '###'} {path}"
    yield f"```\n{path} [OPTIONS] {'COMMAND ...' if sub else arguments}".rstrip() + "\n```"
    yield _help(command.help or "")
    if shown:
        yield markdown([_parameter(p) for p in shown])
    for name in command.list_commands(None) if sub else ():
        yield from _command_sections(sub[name], f"{path} {name}")


def _help(text: str) -> str:
    """The help of a command, its examples as code."""
    words, _, examples = inspect.cleandoc(text.replace("\b", "")).partition("Example:")
    lines = "\n".join(line.strip() for line in examples.strip().splitlines())
    return f"{words.strip()}\n\n```sh\n{lines}\n```" if lines else words.strip()


def _parameter(parameter: Any) -> dict[str, str]:
    names = ", ".join(f"`{name}`" for name in parameter.opts)
    flag = getattr(parameter, "is_flag", False) or parameter.param_type_name == "argument"
    default = "" if parameter.default is None or parameter.default is False else f"`{parameter.default}`"
    return {
        "option": f"`{parameter.metavar}`" if parameter.param_type_name == "argument" else names,
        "value": "" if flag else (parameter.metavar or ""),
        "default": "required" if parameter.required else default,
        "meaning": parameter.help or "",
    }
