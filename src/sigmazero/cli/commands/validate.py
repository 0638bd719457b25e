"""`sigmazero validate`: is a plan what it should be?"""

from sigmazero.bench.plan import read_plan
from sigmazero.cli.console import say
from sigmazero.cli.plans import PlanFile


def validate(plan: PlanFile) -> None:
    """Check a plan without loading anything; an error names the line and what is allowed there.

    \b
    Example:
      sigmazero validate experiments/small.toml
    """
    asked = read_plan(plan)
    models = {question.model.name for question in asked.questions}
    attacks = {question.label for question in asked.questions}
    say(f"{plan} is a plan of {len(asked.questions)} cells: {len(models)} models, {len(attacks)} attacks")
