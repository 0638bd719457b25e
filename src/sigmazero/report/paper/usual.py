"""Whether a cell is of the model and the attack it is called by: a plan may give any name to anything."""

from sigmazero import attacks
from sigmazero.bench.identity import plain_parameters
from sigmazero.models import zoo
from sigmazero.store.facts import CellInfo


def usual_inputs(info: CellInfo, model: str) -> bool:
    """Whether a known model has its published weights and is asked about its own data set, or some rows of it."""
    entry = zoo.find(model)
    source = info.origin.get("data", {}).get("source")
    own = info.origin.get("model", {}).get("weights") is not None
    return not own and (entry is None or source is None or source == entry.dataset)


def usual_attack(info: CellInfo) -> bool:
    """Whether it is the registered attack of that name with its usual parameters, whatever the number of steps."""
    if info.attack not in attacks.ATTACKS:
        return False
    usual = plain_parameters(attacks.get(info.attack))
    return all(info.parameters.get(name, value) == value for name, value in usual.items() if name != "steps")
