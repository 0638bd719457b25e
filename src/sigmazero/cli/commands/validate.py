"""`sigmazero validate`: is a plan what it should be?"""

from sigmazero.bench.plan import read_plan
from sigmazero.cli.commands.run import PlanFile
from sigmazero.cli.console import out


def validate(plan: PlanFile) -> None:
    """Check a plan without loading anything; an error names the line and what is allowed there.

    \b
    Example:
      sigmazero validate experiments/small.toml
    """
    asked = read_plan(plan)
    models = {question.model.name for question in asked.questions}
    attacks = {question.label for question in asked.questions}
    text = f"{plan} is a plan of {len(asked.questions)} cells: {len(models)} models, {len(attacks)} attacks"
    out().print(text, markup=False, highlight=False, soft_wrap=True)
