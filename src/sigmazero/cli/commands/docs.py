"""`sigmazero docs`: the pages that are made from the code, so that they cannot disagree with it."""

import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from sigmazero.attacks import ATTACKS
from sigmazero.attacks.registry import idea, parameter_rows
from sigmazero.bench import plan_file
from sigmazero.cli.catalogue import attack_rows, counts_pixels, dataset_rows, model_rows, without
from sigmazero.cli.console import show_path, tell
from sigmazero.core.attack import Attack
from sigmazero.core.files import replacing
from sigmazero.core.findings import CODES
from sigmazero.report.formats import markdown

MADE = "<!-- Made by `make docs`. Change the code, not this page. -->"


def docs(
    ctx: typer.Context,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit code 1 if a page is stale.")] = False,
    folder: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where the pages are.")] = Path("docs"),
) -> None:
    """Write the pages on commands, attacks, models, plans and the doctor, for people who change sigmazero.

    \b
    Example:
      sigmazero docs --check
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} here; run this in the repository, or name it with --dir")
    made = pages(ctx.find_root().command)
    stale = [name for name, text in made.items() if _read(folder / name) != text]
    if check and stale:
        tell(f"stale: {', '.join(stale)}; run: make docs", style="red")
        raise typer.Exit(1)
    for name in stale:
        with replacing(folder / name) as part:
            part.write_text(made[name], encoding="utf-8")
        show_path(folder / name)


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
            "Name a data set with `--data NAME`, or give an `.npz` file with the arrays `images` and `labels`, or "
            "[a table](tables.md).",
            markdown(without(dataset_rows(), "needs")),
        ),
        "plans.md": _page("Plans", *_plan_sections()),
        "doctor.md": _page(
            "The doctor",
            "Before an attack the model is examined on a few rows (`sigmazero doctor MODEL DATA` does only that). Each "
            "finding has a code:",
            markdown([{"code": code, "what it means": text} for code, text in CODES.items()]),
        ),
    }


def _plan_sections() -> Iterator[str]:
    """The words of plans, table by table, under what the module that reads them says."""
    yield (
        "A plan is a TOML file that says which attacks meet which models on which rows. `sigmazero validate PLAN` "
        "checks one and runs nothing, `sigmazero run PLAN --dry-run` lists its cells with the estimated time, and "
        "`sigmazero run PLAN` does what the store lacks. [Reproducing the paper](reproducing.md) lists those "
        "of the paper; [the quickstart](quickstart.md) has one for a network of your own."
    )
    yield f"```toml{plan_file.EXAMPLE}```"
    yield plan_file.RULES.strip()
    for title, table in plan_file.TABLES.items():
        yield f"## `{title}`" if "[" in title else f"## {title}"
        fields = {name: field.description for name, field in table.model_fields.items() if field.description}
        yield markdown([{"word": f"`{name}`", "meaning": meaning} for name, meaning in fields.items()])


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _page(title: str, *sections: str) -> str:
    return "\n\n".join((f"# {title}", MADE, *sections)) + "\n"


def _attack_sections() -> Iterator[str]:
    yield (
        "Which one to use: [which attack should I use?](which-attack.md). Every one is run in the same way, "
        '`sz.get("NAME", steps=...).run(model, x, y)` or `sigmazero attack --attack NAME`. `sigmazero list attacks '
        "NAME` shows what is on this page. A query is a row that goes through the model, forwards or backwards."
    )
    yield markdown(
        [row | {"name": f"[{row['name']}](#{row['name']})", "paper": _paper(row["paper"])} for row in attack_rows()]
    )
    for attack in ATTACKS.values():
        yield f"## {attack.name}"
        yield f"{idea(attack)} {_paper(attack.paper, 'Paper', 'More')}."
        yield from _describe(attack)
        yield markdown([row | _as_code(row) for row in parameter_rows(attack)])


def _as_code(row: dict[str, str]) -> dict[str, str]:
    return {name: f"`{row[name]}`" for name in ("parameter", "default")}


def _paper(place: str, paper: str = "", page: str = "") -> str:
    """A link to the paper; a method of our own has a page beside this one instead."""
    own = place.removeprefix("docs/")
    shown = place.removeprefix("https://").removeprefix("arxiv.org/abs/").removeprefix("github.com/")
    words = ("arXiv " if "arxiv" in place else "") + shown
    return f"[{page or 'our own'}]({own})" if own != place else f"[{f'{paper}: {words}' if paper else words}]({place})"


def _describe(attack: Attack) -> Iterator[str]:
    """Yield what follows in the docstring of an attack; for a preset, the attack it is a preset of."""
    base = next(field.default for field in fields(attack) if field.name == "name")
    if base in ATTACKS and base != attack.name:
        pixels = " Its budget counts pixels, each with all its channels, also where a run counts features."
        yield f"[{base}](#{base}) with other parameters." + (pixels if counts_pixels(attack) else "")
    elif more := inspect.cleandoc(type(attack).__doc__ or "").partition("\n\n")[2]:
        yield more


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
