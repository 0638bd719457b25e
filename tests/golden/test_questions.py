"""The questions that every file of experiments/ expands to, as `questions.json` lists them.

A changed parameter of an attack, a model or row that comes or goes, another budget or seed: each shows there. If a
change is meant, put what the failing test prints into the file.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from sigmazero.bench import read_plan

FILE = Path(__file__).parent / "questions.json"
PLANS = {path.stem: path for path in sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))}


def words(**values: Any) -> str:
    """Return what is given, without what is not."""
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def expanded(plan: Any) -> dict[str, Any]:
    """Return a plan's questions: models, data and attacks by name, then who asks what of whom at which budgets."""
    asked: dict[tuple[str, ...], dict[str, list[Any]]] = {}
    known: dict[str, dict[str, Any]] = {"models": {}, "data": {}, "attacks": {}}
    for each in plan.questions:
        model, data, attack = each.model, each.data, each.attack
        label = each.label if each.label == attack.name else f"{each.label} ({attack.name})"
        label = f"{label}, {attack.steps} steps"
        told = [
            ("models", model.name, words(spec=model.spec, weights=model.weights, normalize=model.normalize)),
            ("data", data.name, words(source=data.source, rows=data.rows, limit=data.limit, seed=data.seed)),
            ("attacks", label, words(**attack.parameters())),
        ]
        for kind, name, text in told:
            assert known[kind].setdefault(name, text) == text, f"two {kind} are called {name}"
        how = words(goal=each.goal, target=each.target, unit=each.unit, seed=each.seed, precision=each.precision)
        how += words(**{", margin": each.margin or None, ", trace": each.trace or None})
        budgets = asked.setdefault((data.name, label, how), {})
        budgets.setdefault(model.name, []).append(each.budget)
    lines = []
    for key, models in sorted(asked.items()):
        groups: dict[str, list[str]] = {}
        for name, ks in models.items():
            groups.setdefault("" if ks == [None] else f" within {ks}", []).append(name)
        lines += [f"{' | '.join(key)} | {', '.join(sorted(names))}{text}" for text, names in sorted(groups.items())]
    return {"questions": len(plan.questions), **{k: dict(sorted(v.items())) for k, v in known.items()}, "asked": lines}


@pytest.mark.parametrize("name", PLANS)
def test_experiments_ask_the_same_questions(name):
    held = json.loads(FILE.read_text(encoding="utf-8")).get(name)
    found = expanded(read_plan(PLANS[name]))
    assert found == held, f'"{name}": {json.dumps(found, indent=1, ensure_ascii=False)}'


def test_every_experiment_is_listed():
    assert sorted(json.loads(FILE.read_text(encoding="utf-8"))) == sorted(PLANS)
