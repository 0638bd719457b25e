"""Pages of the documentation that are made from the code when it is built: commands, attacks, models, plans, doctor.

`docs/conf.py` writes them beside the other pages; they are not in git.
"""

import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from typer.main import get_command

from sigmazero import models
from sigmazero.attacks import ATTACKS
from sigmazero.attacks.registry import idea, parameter_rows
from sigmazero.bench import plan_file
from sigmazero.cli import app
from sigmazero.cli.app import PANELS
from sigmazero.cli.commands.list import attack_rows, counts_pixels, dataset_rows, model_rows, short
from sigmazero.core.attack import Attack
from sigmazero.core.findings import CODES
from sigmazero.core.toml import Table
from sigmazero.report.formats import markdown

DOCS = Path(__file__).parents[1] / "docs"
NAMES = ("cli.md", "attacks.md", "models.md", "plans.md", "doctor.md")
PLAN = """
steps = 1000                          # settings at the top hold for the whole plan
batch_size = 32

[data.mnist]                          # rows of a data set; a name alone needs no table
limit = 500
seed = 0

[attacks.no-projection]               # an attack with other parameters; a registered name needs no table
attack = "sigma-zero"
parameters = { projection = false }

[[grid]]                              # every model × data × attack × budget of a grid is one cell
models = ["M1", "M2"]
data = ["mnist"]
attacks = ["sigma-zero", "no-projection"]
"""
PLAN_RULES = """
An attack's settings win over those of the grid, and those over the ones at the top. `attack = "foolbox:L0FMNAttack"`
names an attack of another library ([bridges](bridges.md)) and takes `parameters` as its options. `sweep = { threshold =
[0.1, 0.3] }` in an attack's table makes one attack of each combination. `trace = true` there keeps every query of the
attack; its rows then run one at a time, so its seconds are no measure. `[space]` says what may change
([spaces](spaces.md)), for the whole plan, for `[data.NAME.space]` or for one `[grid.space]`; the nearest wins, and
without any the space of the data holds. Paths are relative to the current folder.
"""
PLAN_TABLES: dict[str, type[Table]] = {
    "At the top": plan_file.PlanFile,
    "[[grid]]": plan_file.Grid,
    "[models.NAME]": plan_file.ModelTable,
    "[data.NAME]": plan_file.DataTable,
    "[attacks.NAME]": plan_file.AttackTable,
    "[space]": plan_file.SpaceTable,
}


def write(folder: Path = DOCS) -> None:
    """Write every page that is not there, or is old."""
    for name, text in pages().items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return every page by file name."""
    made = (commands(), attacks(), zoo(), plans(), doctor())
    return {name: "\n\n".join(parts) + "\n" for name, parts in zip(NAMES, made, strict=True)}


def commands() -> Iterator[str]:
    """Help, arguments and options of every command."""
    top: Any = get_command(app)
    yield "# Commands"
    yield (
        "Results go to stdout, everything else to stderr. Exit codes are the same everywhere: 0 all is well, 1 a check "
        "failed or work is left, 2 wrong input or an error, 3 findings make the numbers unreliable, 130 Ctrl-C. Naming "
        "code on the command line is consent to run it; code that a plan, a store, a card or a pickle names needs "
        "`--trust-code`. Weights and data are looked for in the folder that `SIGMAZERO_HOME` names, then in the cache "
        "of your system. `sigmazero --install-completion` completes commands in your shell."
    )
    for panel, names in PANELS.items():
        yield f"## {panel}"
        for name in names:
            yield from command(top.commands[name], f"sigmazero {name}")


def command(one: Any, path: str) -> Iterator[str]:
    """Help, arguments and options of a command, then those of its own commands."""
    inner = getattr(one, "commands", {})
    shown = [each for each in one.params if not each.hidden and "--help" not in each.opts]
    arguments = " ".join(each.metavar for each in shown if each.param_type_name == "argument")
    words, _, examples = inspect.cleandoc((one.help or "").replace("\b", "")).partition("Example:")
    yield f"{'###' if path.count(' ') < 2 else '####'} {path}"
    yield f"```\n{path} [OPTIONS] {'COMMAND ...' if inner else arguments}".rstrip() + "\n```"
    yield words.strip()
    yield "```sh\n" + "\n".join(line.strip() for line in examples.strip().splitlines()) + "\n```"
    if shown:
        yield markdown([option(each) for each in shown])
    for name in inner:
        yield from command(inner[name], f"{path} {name}")


def option(one: Any) -> dict[str, str]:
    """Return an argument or option as a row of a table."""
    argument = one.param_type_name == "argument"
    flag = argument or getattr(one, "is_flag", False)
    default = "" if one.default is None or one.default is False else f"`{one.default}`"
    choices = ", ".join(f"`{each}`" for each in get_args(one.type_descriptor.annotation))
    return {
        "option": f"`{one.metavar}`" if argument else ", ".join(f"`{name}`" for name in one.opts),
        "value": "" if flag else (one.metavar or choices),
        "default": "required" if one.required else default,
        "meaning": one.help or "",
    }


def attacks() -> Iterator[str]:
    """Every attack with its parameters; a preset in one line."""
    yield "# Attacks"
    yield (
        "Which one to use: [which attack should I use?](which-attack.md). Every one is run in the same way, "
        '`sz.get("NAME", steps=...).run(model, x, y)` or `sigmazero attack MODEL DATA --attack NAME`. A query is a row '
        "that goes through the model, forwards or backwards."
    )
    yield markdown(
        [
            row | {"name": f"[{row['name']}](#{row['name']})", "paper": paper(ATTACKS[row["name"]].paper)}
            for row in attack_rows()
        ]
    )
    for attack in ATTACKS.values():
        yield f"## {attack.name}"
        base = next(field.default for field in fields(attack) if field.name == "name")
        if base in ATTACKS and base != attack.name:
            yield preset(attack, ATTACKS[base])
            continue
        yield f"{idea(attack)} {paper(attack.paper)}."
        if more := inspect.cleandoc(type(attack).__doc__ or "").partition("\n\n")[2]:
            yield more
        yield markdown(
            [row | {key: f"`{row[key]}`" for key in ("parameter", "default")} for row in parameter_rows(attack)]
        )


def preset(attack: Attack, base: Attack) -> str:
    """Return a preset in one line: the attack it is made of, and what differs."""
    usual = {row["parameter"]: row["default"] for row in parameter_rows(base)}
    changed = [row for row in parameter_rows(attack) if usual.get(row["parameter"]) != row["default"]]
    differ = ", ".join(f"`{row['parameter']}={row['default']}`" for row in changed)
    pixels = " Its budget counts pixels, each with all its channels." if counts_pixels(attack) else ""
    return f"[{base.name}](#{base.name}) with {differ or 'the same parameters'}.{pixels}"


def paper(place: str) -> str:
    """Return a link to a paper, or to the page of a method of our own."""
    if place.startswith("docs/"):
        return f"[our own]({place.removeprefix('docs/')})"
    shown = place.removeprefix("https://").removeprefix("arxiv.org/abs/").removeprefix("github.com/")
    return f"[{'arXiv ' if 'arxiv' in place else ''}{shown}]({place})"


def zoo() -> Iterator[str]:
    """Models and data sets."""
    names = {entry.code: entry.robustbench or "–" for entry in models.entries().values()}
    yield "# Models and data sets"
    yield "Name a model by its code or its RobustBench name. `sigmazero fetch CODE` downloads its weights."
    yield markdown([short(row) | {"RobustBench name": names[row["code"]]} for row in model_rows()])
    yield "## Data sets"
    yield (
        "Name a data set, or give an `.npz` file with the arrays `images` and `labels`, a [table](tables.md), or a "
        "folder with a sub-folder of pictures for each class."
    )
    yield markdown([{name: text for name, text in row.items() if name != "needs"} for row in dataset_rows()])


def plans() -> Iterator[str]:
    """Every key of a plan."""
    yield "# Plans"
    yield (
        "A plan is a TOML file that lists models, data and attacks. `sigmazero run PLAN` executes it and stores one "
        "record per sample; `--dry-run` lists its cells with the estimated time. [Reproducing the paper]"
        "(reproducing.md) lists those of the paper; [the quickstart](quickstart.md) has one for a network of your own."
    )
    yield f"```toml{PLAN}```"
    yield PLAN_RULES.strip()
    for title, table in PLAN_TABLES.items():
        yield f"## `{title}`" if "[" in title else f"## {title}"
        told = {name: field.description for name, field in table.model_fields.items() if field.description}
        yield markdown([{"word": f"`{name}`", "meaning": meaning} for name, meaning in told.items()])


def doctor() -> Iterator[str]:
    """The codes of findings."""
    yield "# The doctor"
    yield (
        "Before an attack the model is examined on a few rows (`sigmazero doctor MODEL DATA` does only that). Each "
        "finding has a code:"
    )
    yield markdown([{"code": code, "what it means": text} for code, text in CODES.items()])


if __name__ == "__main__":
    write()
