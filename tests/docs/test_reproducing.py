"""docs/reproducing.md names every plan, its commands are ones that exist, and the plans ask what the paper printed."""

import csv
import re
import shlex
from importlib import resources
from pathlib import Path

import pytest

from sigmazero.bench.plan import Question
from sigmazero.bench.plan_file import read_plan
from sigmazero.report import published

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reproducing.md").read_text(encoding="utf-8")
PLANS = sorted((ROOT / "experiments").glob("*.toml"))
# Plans that are for no table of the paper.
OTHERS = {"small.toml", "networks.toml", "stronger.toml", "photos.toml", "which-attack.toml", "blackbox.toml"}
COMMANDS = [
    shlex.split(text, comments=True)
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for text in block.splitlines()
]


def test_every_plan_is_named_and_every_named_plan_exists():
    assert len(PLANS) > 10
    linked = set(re.findall(r"\]\(\.\./experiments/([\w-]+\.toml)\)", PAGE))
    assert linked == {plan.name for plan in PLANS}
    run = {words[2].removeprefix("experiments/") for words in COMMANDS if words[1] == "run"}
    assert run == linked - OTHERS


def test_every_table_and_figure_has_a_line():
    for kind, count in (("Table", 15), ("Figure", 10)):
        told = [n for text in re.findall(rf"^\| {kind}s? ([\d, ]+)\|", PAGE, re.MULTILINE) for n in text.split(",")]
        assert {int(n) for n in told} >= set(range(1, count + 1))


def test_every_figure_has_its_script():
    for words in COMMANDS:
        assert words[:2] != ["python", "-m"] or (ROOT / f"{words[2].replace('.', '/')}.py").is_file(), words


def test_stores_are_those_of_plans_that_were_run():
    made: set[str] = set()
    for words in COMMANDS:
        if words[1] == "run":
            given = words[words.index("--store") + 1] if "--store" in words else f"runs/{Path(words[2]).stem}.db"
            made.add(given)
        used = {word for word in words if word.endswith(".db")}
        assert used <= made, used - made


def asked() -> dict[tuple[str, str, int, int | None], list[Question]]:
    """Every question of the plans for tables, by model, attack, the table's steps and the budget."""
    found: dict[tuple[str, str, int, int | None], list[Question]] = {}
    for plan in PLANS:
        if not plan.stem.startswith(("minimum-norm", "fixed-budget")):
            continue
        table_steps = int(plan.stem.rpartition("-")[2])
        for q in read_plan(plan).questions:
            found.setdefault((q.model.name, q.label.removesuffix("-paper"), table_steps, q.budget), []).append(q)
    return found


def printed(name: str) -> list[dict[str, str]]:
    text = resources.files("sigmazero.report").joinpath("paper", f"{name}.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize("table", ["minimum_norm", "fixed_budget"])
def test_the_plans_ask_for_every_printed_row(table):
    questions = asked()
    rows = printed(table)
    assert len(rows) > 200
    for row in rows:
        budget = int(row["budget"]) if "budget" in row else None
        (question,) = questions[row["model"], row["attack"], int(row["steps"]), budget]
        wanted = {"sparse-rs": 2 * int(row["steps"]), "sparsefool": 20}.get(row["attack"], int(row["steps"]))
        assert question.attack.steps == wanted
        assert (
            question.data.source
            == {"MNIST": "mnist", "CIFAR-10": "cifar10", "ImageNet": "imagenet-resized"}[row["dataset"]]
        )
        assert question.data.limit == (1000 if row["dataset"] == "ImageNet" else None)


def test_the_plan_of_components_asks_for_every_printed_row():
    questions = read_plan(ROOT / "experiments" / "ablation-components.toml").questions
    names = published.COMPONENTS
    held = {(q.model.name, *(str(q.attack.parameters()[name]).lower() for name in names)) for q in questions}
    for row in printed("ablation_components"):
        meant = re.search(r"those of (\w+)", row["note"])
        assert meant is not None
        assert (meant.group(1), *(row[column] for column in names.values())) in held
